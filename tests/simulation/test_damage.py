"""Damage: every bit of a small journal flipped, one at a time; files cut, zeroed, swapped, missing.

What is vouched for by a later mark (`specimen`) is found to be damaged, with file, frame and position. What is not may
be taken for a torn tail: then a prefix comes back, with at least everything that is vouched for. There is no third
outcome, and a reader hands out nothing of a frame that is damaged.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

import pytest

from tests.simulation.ledger import VAL, Ledger, PlainTransaction, plain
from tests.simulation.specimen import (
    FOLDER,
    TINY,
    Outcome,
    Specimen,
    check_as_cut,
    closed,
    every_bit,
    flip_each,
    flipped,
    judge,
    larger,
    open_disk,
    shards,
    torn,
    with_snapshot,
)
from tidelog.errors import Corruption, DataDirectoryError, TooOld
from tidelog.ids import Lsn, ShardId, Ts
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.journal import Settings
from tidelog.journal.operation import core_table, encode_pairs
from tidelog.journal.verify import verify
from tidelog.testing.disk import SimulatedDisk

CLOSED_PARTS: Final = 23
TAIL_PARTS: Final = 11
"""Odd numbers, so that each part has bits of every place in a byte."""
SECTOR_BYTES: Final = 512


# --- bits -------------------------------------------------------------------------------------------------------------


def test_the_specimens_have_what_is_to_be_damaged() -> None:
    names = [path.rpartition("/")[2] for path in closed().paths()]
    assert sum(name.startswith("journal-") for name in names) >= 2
    assert any(name.startswith("blob-") for name in names)
    heads = [closed().disk.read_file(path) for path in closed().paths() if "journal-" in path]
    assert any(data[at + 3] & 1 for data in heads for at in range(0, len(data), TINY.frame_bytes)), "no split record"
    assert torn().vouched_count < len(torn().ledger)
    assert with_snapshot().paths(part="/snapshots/")


def parts_of(count: int) -> list[Any]:
    """One part always, all of them with `--long`."""
    return [pytest.param(part, marks=() if part == 0 else pytest.mark.long) for part in range(count)]


@pytest.mark.parametrize("part", parts_of(CLOSED_PARTS))
def test_every_bit_of_a_closed_journal(part: int) -> None:
    outcomes = flip_each(closed(), every_bit(closed())[part::CLOSED_PARTS])
    assert outcomes["found"] > 20 * outcomes["recovered"], "only the closing mark is not vouched for"


@pytest.mark.parametrize("part", parts_of(TAIL_PARTS))
def test_every_bit_of_a_journal_with_a_tail(part: int) -> None:
    outcomes = flip_each(torn(), every_bit(torn())[part::TAIL_PARTS])
    assert outcomes["found"]
    assert outcomes["recovered"]


@pytest.mark.parametrize(
    ("make", "count"), [(shards, 400), (larger, 200), pytest.param(shards, 3000, marks=pytest.mark.long)]
)
def test_bits_of_several_shards(make: Callable[[], Specimen], count: int) -> None:
    specimen = make()
    outcomes = flip_each(specimen, Random(1).sample(every_bit(specimen), count))
    assert outcomes["found"]
    assert outcomes["recovered"]


@pytest.mark.parametrize("part", range(2))
def test_a_reader_hands_out_nothing_of_a_damaged_frame(part: int) -> None:
    """The journal is open and sound; then a bit of a sealed frame rots under it."""
    specimen = closed()
    disk = specimen.disk.clone(0)
    journal, _ = open_disk(specimen, disk)
    rng = Random(part)
    last = max(path for path in specimen.paths() if "journal-" in path)
    for path, bit in every_bit(specimen)[part::8]:
        if path == last or "journal-" not in path:
            continue
        frame = bit // 8 // TINY.frame_bytes
        frame_lsn = int.from_bytes(disk.read_file(path)[frame * TINY.frame_bytes + 4 :][:8], "little")
        disk.flip_bit(path, bit)
        start = 0 if rng.random() < 0.7 else rng.randrange(len(specimen.ledger))
        shown: list[PlainTransaction] = []
        fault = None
        try:
            if rng.random() < 0.5:
                reader = journal.reader_since(Ts(specimen.ledger.ts[start - 1] if start else 0))
            else:
                reader = journal.reader_from([Lsn(lsn) for lsn in specimen.ledger.vectors[start]])
            shown.extend(plain(transaction, reader.payload_of) for transaction in reader.read())
            reader.close()
        except Corruption as corruption:
            fault = corruption
        disk.flip_bit(path, bit)
        assert shown == specimen.ledger.transactions[start : start + len(shown)], (path, bit)
        if fault is None:
            assert start + len(shown) == len(specimen.ledger), (path, bit)
            assert specimen.ledger.vectors[start][0] >= frame_lsn, "the damaged frame was read and not found"
        else:
            assert (fault.path, fault.frame) == (path, frame)
            assert all(records[-1][0] < frame_lsn for _, parts in shown for _, records in parts)


@pytest.mark.parametrize("make", [closed, shards, with_snapshot])
def test_the_audit_finds_what_is_vouched_for(make: Callable[[], Specimen]) -> None:
    specimen = make()
    table = core_table()
    assert verify(specimen.disk, FOLDER, table).is_sound
    bits = [(path, bit) for path, bit in every_bit(specimen) if bit // 8 < specimen.vouched_sizes.get(path, 0)]
    if make is with_snapshot:
        paths = [path for path in specimen.paths(part="/snapshots/") if not path.endswith(".json")]
        bits += [(path, bit) for path in paths for bit in range(8 * len(specimen.disk.read_file(path)))]
    for path, bit in Random(2).sample(bits, 250):
        assert not verify(flipped(specimen, path, bit), FOLDER, table).is_sound, (path, bit)


# --- snapshots and small files ----------------------------------------------------------------------------------------


def test_bits_of_a_snapshot() -> None:
    """It has no tail: every bit is vouched for, by its marks or by its meta.json."""
    specimen = with_snapshot()
    paths = specimen.paths(part="/snapshots/")
    bits = [(path, bit) for path in paths for bit in range(8 * len(specimen.disk.read_file(path)))]
    for path, bit in Random(3).sample(bits, 1200):
        outcome = judge(specimen, flipped(specimen, path, bit))
        if path.endswith("meta.json"):
            _check_small_file(specimen, outcome, path, bit)
        else:
            assert isinstance(outcome.fault, Corruption), f"bit {bit} of {path} was not found"
            assert outcome.fault.path.startswith(path.rpartition("/shard-")[0])


@pytest.mark.parametrize("name", ["meta.json", "clock", "erased", "holders.json", "shard-1/shard.json"])
def test_every_bit_of_the_small_files(name: str) -> None:
    specimen = with_snapshot()
    path = f"{FOLDER}/{name}"
    size = len(specimen.disk.read_file(path))
    bits = [bit for bit in range(8 * size) if name.endswith(".json") or bit // 8 % SECTOR_BYTES < 32]
    for bit in bits:
        _check_small_file(specimen, judge(specimen, flipped(specimen, path, bit)), path, bit)


def _check_small_file(specimen: Specimen, outcome: Outcome, path: str, bit: int) -> None:
    """A clear error, or everything is there and nothing that is gone is promised."""
    if outcome.fault is not None:
        assert isinstance(outcome.fault, Corruption | DataDirectoryError)
        assert path in str(outcome.fault), f"bit {bit}: {outcome.fault}"
        return
    assert outcome.journal is not None
    assert outcome.count == len(specimen.ledger), f"bit {bit} of {path} lost transactions"
    reader = outcome.journal.reader_since(outcome.journal.erased_ts)
    first = specimen.ledger.count_up_to(outcome.journal.erased_ts)
    shown = [plain(transaction, reader.payload_of) for transaction in reader.read()]
    assert shown == specimen.ledger.transactions[first:], f"bit {bit} of {path}: a reader is given a hole"


# --- files ------------------------------------------------------------------------------------------------------------


def truncated(specimen: Specimen, path: str, size: int) -> SimulatedDisk:
    disk = specimen.disk.clone(0)
    disk.write_file(path, specimen.disk.read_file(path)[:size])
    return disk


@pytest.mark.parametrize("make", [closed, torn])
def test_the_last_segment_cut_at_every_byte(make: Callable[[], Specimen]) -> None:
    """With one shard nothing outside it vouches for it: what ends with the last whole batch comes back, all of it."""
    specimen = make()
    path = max(path for path in specimen.paths() if "journal-" in path)
    for size in range(len(specimen.disk.read_file(path))):
        outcome = judge(specimen, truncated(specimen, path, size))
        check_as_cut(specimen, outcome, path, size)


@pytest.mark.parametrize("shard", range(3))
def test_the_last_segment_of_a_shard_cut_at_every_byte(shard: int) -> None:
    """The other shards' marks vouch for it: below what was fsynced it is refused."""
    specimen = shards()
    path = max(path for path in specimen.paths(part=f"/shard-{shard}/") if "journal-" in path)
    for size in range(0, len(specimen.disk.read_file(path)), 3):
        outcome = judge(specimen, truncated(specimen, path, size))
        if outcome.fault is None:
            assert outcome.count >= specimen.vouched_count, f"cut at {size}"
            assert size >= specimen.vouched_sizes.get(path, 0), f"cut at {size}"
        else:
            assert isinstance(outcome.fault, Corruption)


def test_zeroed_sectors() -> None:
    for specimen in (closed(), torn(), shards()):
        for path in specimen.paths():
            data = specimen.disk.read_file(path)
            for at in range(0, len(data), SECTOR_BYTES):
                end = min(at + SECTOR_BYTES, len(data))
                if not data[at:end].strip(b"\0"):
                    continue
                disk = specimen.disk.clone(0)
                disk.write_file(path, data[:at] + bytes(end - at) + data[end:])
                check_as_cut(specimen, judge(specimen, disk), path, at)


def test_a_missing_file() -> None:
    for specimen in (closed(), torn(), shards()):
        for path in specimen.paths():
            disk = specimen.disk.clone(0)
            disk.kill()
            disk.remove(path)
            outcome = judge(specimen, disk)
            if outcome.fault is not None:
                assert isinstance(outcome.fault, Corruption)
                continue
            # Only the end of the journal can be missing unseen, and only if no other shard vouches for it.
            assert path[-20:-4] == max(specimen.paths(part=path.rpartition("/")[0] + "/journal-"))[-20:-4]
            if specimen.settings.shard_count > 1:
                assert outcome.count >= specimen.vouched_count


@pytest.mark.parametrize("policy", list(FsyncPolicy))
def test_a_missing_or_shortened_segment_is_refused(policy: FsyncPolicy) -> None:
    """No crash takes away a segment and leaves a later one. One that is short is refused if its end was synced."""
    disk, settings = SimulatedDisk(3), Settings(TINY, 1, policy)
    specimen = Specimen(disk, settings, Ledger(1))
    journal, _ = open_disk(specimen, disk)
    for number in range(60):
        journal.writer.append_one(ShardId(0), journal.hlc.next(), VAL, encode_pairs([(b"k%d" % number, bytes(90))]))
        journal.writer.write()
        journal.writer.sync(everything=False)
    disk.kill()
    paths = specimen.paths(part="/journal-")
    assert len(paths) > 3
    for path in paths[:-1]:
        twin = disk.clone(0)
        twin.remove(path)
        refusal = _refusal(specimen, twin)
        assert "is missing" in refusal or "no snapshot reaches" in refusal, refusal
        for size in (0, 700, TINY.frame_bytes):
            twin = disk.clone(0)
            twin.write_file(path, disk.read_file(path)[:size])
            if policy is FsyncPolicy.NEVER and (
                size or path != paths[0]
            ):  # which has the epoch: that is always fsynced
                journal, _ = open_disk(specimen, twin)
                assert journal.cut_tail is not None, "it may be a torn tail, but it is told"
            else:
                assert _refusal(specimen, twin)


def _refusal(specimen: Specimen, disk: SimulatedDisk) -> str:
    try:
        open_disk(specimen, disk)
    except Corruption as error:
        return str(error)
    return ""


def test_swapped_files() -> None:
    for specimen in (closed(), shards(), larger()):
        journals = [path for path in specimen.paths() if "journal-" in path and specimen.vouched_sizes.get(path)]
        for one in journals:
            for other in journals:
                if one < other:
                    disk = specimen.disk.clone(0)
                    disk.write_file(one, specimen.disk.read_file(other))
                    disk.write_file(other, specimen.disk.read_file(one))
                    assert isinstance(judge(specimen, disk).fault, Corruption), (one, other)


def test_a_frame_in_the_place_of_another() -> None:
    for specimen in (closed(), shards()):
        frames = [
            (path, at)
            for path in specimen.paths()
            if "journal-" in path
            for at in range(0, specimen.vouched_sizes.get(path, 0), TINY.frame_bytes)
        ]
        for path, at in frames:
            for source, source_at in frames:
                new = specimen.disk.read_file(source)[source_at : source_at + TINY.frame_bytes]
                data = specimen.disk.read_file(path)
                if (path, at) == (source, source_at):
                    continue
                disk = specimen.disk.clone(0)
                disk.write_file(path, data[:at] + new + data[at + TINY.frame_bytes :])
                check_as_cut(specimen, judge(specimen, disk), path, at)


def test_what_was_erased_is_refused() -> None:
    specimen = with_snapshot()
    journal, _ = open_disk(specimen, specimen.disk.clone(0))
    with pytest.raises(TooOld):
        journal.reader_since(Ts(0))
