"""Where an lsn or a ts is, beside what the reader's tests show: cutting a history in parts."""

from __future__ import annotations

import errno
from random import Random

import pytest

from tests.journal.machine import FOLDER, Machine
from tidelog import limits
from tidelog.ids import Lsn, ShardId, Ts
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.places import Places
from tidelog.journal.retention import RetentionLimits
from tidelog.journal.source import ShardSource


@pytest.fixture(scope="module")
def long_journal() -> tuple[Machine, list[Ts]]:
    """300 transactions, four to a frame, and their ts."""
    machine = Machine(shards=1, ring_bytes_max=0)
    return machine, machine.fill(300)


@pytest.mark.parametrize("records", [1, 10, 97, 299])
def test_a_history_is_cut_after_about_so_many_records(
    long_journal: tuple[Machine, list[Ts]], records: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FEED_PLACE_RECORD_BYTES", limits.MIB)
    machine, all_ts = long_journal
    counts, rest = cut(machine, all_ts, records)
    assert sum(counts) + rest == 300
    assert all(records - 4 <= count <= records + 4 for count in counts)
    assert rest <= records + 4
    assert machine.journal.ts_after(Ts(0), 1000) == all_ts[-1]


def cut(machine: Machine, all_ts: list[Ts], records: int) -> tuple[list[int], int]:
    """How many records each part has, and how many are left after the last."""
    places = Places(machine.source(), lambda: machine.journal.writer.visible.ends[0])
    counts: list[int] = []
    since = Ts(0)
    while (until := places.ts_after(since, records)) is not None:
        counts.append(sum(since < ts <= until for ts in all_ts))
        since = until
    return counts, sum(ts > since for ts in all_ts)


def test_of_large_records_there_are_fewer(long_journal: tuple[Machine, list[Ts]]) -> None:
    machine, all_ts = long_journal
    frames = limits.FEED_PLACE_FRAMES_MIN
    counts, rest = cut(machine, all_ts, 40)
    assert sum(counts) + rest == 300
    assert all(4 * (frames - 1) <= count <= 4 * (frames + 1) for count in counts)


def test_a_history_without_records_is_not_cut() -> None:
    assert Machine(shards=1).journal.ts_after(Ts(0), 1) == 0


def test_records_after_a_ts_are_counted(long_journal: tuple[Machine, list[Ts]]) -> None:
    machine, all_ts = long_journal
    for ts in [Ts(0), *(Ts(ts + delta) for ts in all_ts for delta in (-1, 0, 1))]:
        assert machine.journal.records_after(ts) == [sum(each > ts for each in all_ts)]


def test_records_of_long_transactions_whales_and_several_shards_are_counted() -> None:
    machine = Machine(shards=2)
    lsns_before: dict[int, tuple[int, ...]] = {0: (0, 0)}
    for number in range(40):
        puts = [(number % 2, b"a%d" % number, bytes(700)), (0, b"b%d" % number, bytes(10))]
        ts = machine.commit(*puts, (1, b"whale", bytes(5000)) if number % 7 == 0 else (number % 2, b"c", b"c"))
        lsns_before[ts] = machine.journal.writer.visible.lsns
    end = machine.journal.writer.visible.lsns
    for since, lsns in lsns_before.items():
        assert machine.journal.records_after(Ts(since)) == [last - lsn for last, lsn in zip(end, lsns, strict=True)]


@pytest.mark.parametrize("seed", range(4))
def test_bursts_and_rests_do_not_matter(seed: int) -> None:
    """Thousands of records in a frame, which came in a moment, and some long before and after them."""
    rng = Random(seed)
    frame_bytes, shards = rng.choice(((4096, 1), (2 * limits.MIB, 1), (2 * limits.MIB, 2)))
    machine = Machine(frame_bytes=frame_bytes, shards=shards, policy=FsyncPolicy.EVERYSEC, ring_bytes_max=0)
    lsns_before: dict[int, tuple[int, ...]] = {0: (0,) * shards}
    for count in (20, 5000, 20, rng.choice((3, 30, 1500))):
        for _ in range(count):
            puts = [
                (rng.randrange(shards), b"k%d" % rng.randrange(99), bytes(rng.choice((0, 1, 300))))
                for _ in range(rng.choice((1, 1, 1, 4)))
            ]
            ts = machine.write(*puts)
            lsns_before[ts] = machine.journal.writer.visible.lsns
        machine.clock.advance(rng.choice((10_000_000, 1_000_000_000)))
    end = machine.journal.writer.visible.lsns
    for since in [0, *rng.sample(list(lsns_before), 60), max(lsns_before)]:
        found = machine.journal.records_after(Ts(since))
        assert found == [last - lsn for last, lsn in zip(end, lsns_before[since], strict=True)]
        if since:
            assert machine.journal.records_after(Ts(since - 1))[0] >= found[0]


def test_counting_reads_heads_and_one_frame(long_journal: tuple[Machine, list[Ts]]) -> None:
    """However far behind: 300 records in 75 frames of 19 segments."""
    machine, all_ts = long_journal
    read: list[int] = []
    source = ShardSource(machine.disk, f"{FOLDER}/shard-0", machine.settings.geometry, ShardId(0), on_read=read.append)
    visible = machine.journal.writer.visible
    assert Places(source, lambda: visible.ends[0]).lsn_after(all_ts[10], visible.lsns[0], visible.ts) == 11
    assert sum(read) < 2 * machine.settings.geometry.frame_bytes
    assert len(read) < 20


def test_what_is_not_visible_is_not_counted() -> None:
    machine = Machine(shards=1)
    [first] = machine.fill(1)
    machine.write((0, b"not", b"durable"))
    assert machine.journal.records_after(Ts(0)) == [1]
    assert machine.journal.records_after(first) == [0]
    assert Machine(shards=3).journal.records_after(Ts(7)) == [0, 0, 0]


def test_what_was_erased_is_not_counted() -> None:
    machine = Machine(shards=1, retention=RetentionLimits(snapshots_kept=1, bytes_max=1))
    machine.fill(300)
    machine.snapshot({})
    assert machine.journal.erase()
    first = machine.segments()[0]
    assert 0 < first < 300
    assert machine.journal.records_after(Ts(0)) == [300 - first]


def test_where_a_history_begins(long_journal: tuple[Machine, list[Ts]]) -> None:
    machine, all_ts = long_journal
    assert all_ts[0] - 2000 < machine.journal.begin_of(Ts(0)) < all_ts[0]
    assert machine.journal.begin_of(all_ts[5]) == all_ts[5]
    assert Machine(shards=2).journal.begin_of(Ts(all_ts[-1] * 2)) == all_ts[-1] * 2


@pytest.mark.parametrize("seed", range(4))
def test_the_ts_of_every_record_is_found(seed: int) -> None:
    """Also of records that do not carry it themselves, are split over two frames, or lie in a blob file."""
    rng = Random(seed)
    machine = Machine(shards=2, ring_bytes_max=0)
    times: tuple[list[Ts], list[Ts]] = [], []
    for number in range(60):
        puts = [(rng.randrange(2), b"k%d" % number, bytes(rng.choice([1, 200, 250, 700]))) for _ in range(3)]
        before = machine.journal.writer.visible.lsns
        ts = machine.commit(*puts)
        for shard, lsn in enumerate(machine.journal.writer.visible.lsns):
            times[shard].extend([ts] * (lsn - before[shard]))
    for shard in range(2):
        places = Places(machine.source(shard), lambda shard=shard: machine.journal.writer.visible.ends[shard])  # type: ignore[misc]
        assert [places.ts_of(Lsn(lsn)) for lsn in range(len(times[shard]))] == times[shard]
        assert places.ts_of(Lsn(len(times[shard]))) is None


def test_the_ts_of_a_record_that_was_erased_is_not_known() -> None:
    machine = Machine(
        shards=1, frames_per_segment=2, ring_bytes_max=0, retention=RetentionLimits(bytes_max=0, snapshots_kept=1)
    )
    places = Places(machine.source(), lambda: machine.journal.writer.visible.ends[0])
    assert places.ts_of(Lsn(0)) is None, "there are no records"
    times = machine.fill(40)
    machine.snapshot({})
    machine.fill(1)
    assert machine.journal.erase()
    first = machine.segments()[0]
    assert 0 < first < 40
    assert [places.ts_of(Lsn(lsn)) for lsn in range(40)] == [None] * first + times[first:]


def test_files_are_closed_when_a_shard_has_answered_or_cannot_be_read() -> None:
    machine = Machine(shards=3, ring_bytes_max=0)
    machine.fill(50)
    journal, before = machine.journal, machine.disk.open_paths
    opened: list[int] = []

    def ask(places: Places) -> Ts | None:
        found = places.first_ts()
        opened.append(len(machine.disk.open_paths))
        return found

    for shard in range(3):
        journal.ask_places(journal.writer.visible, shard, ask)
    assert opened == [len(before) + 1] * 3
    assert machine.disk.open_paths == before
    machine.disk.fail("read", errno.EIO, after=1, path_contains="/shard-1")
    with pytest.raises(OSError, match="at position"):
        journal.records_after(Ts(0))
    assert machine.disk.open_paths == before
