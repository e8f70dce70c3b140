"""Records as `record_inspection` selects them, against the list of what was written."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.cli.directories import (
    BINARY_KEY,
    GEOMETRY,
    SHARDS,
    UNKNOWN,
    Written,
    fill,
    first_segment,
    flip_bit,
    keys_of,
    open_journal,
)
from tidelog.ids import ShardId
from tidelog.journal import control
from tidelog.journal.frame import HEADER_BYTES_MAX
from tidelog.journal.inspection import ShardInspection, locate
from tidelog.journal.operation import DEL, VAL, core_table, encode_pairs
from tidelog.journal.record import BLOB, FINISH, NEXT_CONT, TS
from tidelog.journal.record_inspection import RecordInfo, Selection, select_records
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk

FOLDER = "/data"
EVERYTHING = Selection()
FRAME = GEOMETRY.frame_bytes


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(1)


@pytest.fixture
def written(disk: SimulatedDisk) -> list[Written]:
    return fill(disk, FOLDER)


def select(disk: SimulatedDisk, selection: Selection, shard: int | None = None) -> list[RecordInfo]:
    """The records of all shards, or of one; there must be no damage."""
    found: list[RecordInfo] = []
    place = locate(disk, FOLDER)
    for each in place.shards:
        if shard in (None, each):
            inspection = ShardInspection(disk, place, each)
            found += select_records(inspection, core_table(), selection)
            assert not inspection.damage
            inspection.close()
    return found


def with_lsns(records: list[RecordInfo]) -> list[tuple[int, int | None]]:
    return [(record.shard, record.lsn) for record in records if record.lsn is not None]


def places(records: list[Written]) -> list[tuple[int, int]]:
    return [(record.shard, record.lsn) for record in records]


def test_every_record_is_there_as_it_was_written(disk: SimulatedDisk, written: list[Written]) -> None:
    found = [record for record in select(disk, Selection(payloads=True)) if record.lsn is not None]
    assert [
        (r.shard, r.lsn, r.ts, r.opcode, r.database, r.expire_ms, r.payload) for r in found
    ] == written  # `Written` is a tuple
    assert all(record.is_proved and record.problem is None for record in found)
    for record, original in zip(found, written, strict=True):
        assert bool(record.flags & BLOB) == (len(original.payload) > GEOMETRY.payload_bytes_max)
        if not record.flags & NEXT_CONT:
            assert record.payload_bytes == len(original.payload)


def test_records_lie_where_they_say(disk: SimulatedDisk, written: list[Written]) -> None:
    for record in select(disk, Selection()):
        file = disk.open(f"{FOLDER}/shard-{record.shard}/journal-{record.segment:016x}.dj0", "read")
        assert file.read(record.position, 2) == bytes([record.opcode, record.flags])
        assert record.position // FRAME == record.frame
        assert record.payload is None
        file.close()


def test_a_split_record_has_two_rows_and_its_payload_on_the_first(disk: SimulatedDisk, written: list[Written]) -> None:
    found = select(disk, Selection(payloads=True, control=False))
    heads = [index for index, record in enumerate(found) if record.flags & NEXT_CONT]
    assert len(heads) > 3
    for index in heads:
        head, rest = found[index : index + 2]
        assert (rest.continues, rest.lsn, rest.payload, rest.opcode) == (True, None, None, head.opcode)
        assert head.payload is not None
        assert head.payload_bytes + rest.payload_bytes == len(head.payload)
        assert rest.position % FRAME == HEADER_BYTES_MAX
        assert not head.flags & FINISH
    assert sum(record.continues for record in found) == len(heads)


def test_control_records_are_there_unless_unwanted(disk: SimulatedDisk, written: list[Written]) -> None:
    everything = select(disk, Selection())
    about_the_journal = [record for record in everything if record.opcode >= 0xF0]
    assert {record.opcode for record in about_the_journal} == {control.MARK, control.SELECT, control.EPOCH}
    assert all(record.lsn is None for record in about_the_journal)
    assert everything[0].opcode == control.EPOCH
    without = select(disk, Selection(control=False))
    assert without == [record for record in everything if record.opcode < 0xF0]
    marks = select(disk, Selection(opcodes=frozenset({control.MARK}), payloads=True))
    cycles = [control.decode_mark(mark.payload or b"").cycle for mark in marks if mark.shard == 0]
    assert cycles == sorted(set(cycles))


@pytest.mark.parametrize("seed", range(20))
def test_a_range_of_lsns_is_exactly_that(disk: SimulatedDisk, written: list[Written], seed: int) -> None:
    rng = random.Random(seed)
    first, last = sorted(rng.choices(range(150), k=2))
    found = select(disk, Selection(lsn_first=first, lsn_last=last))
    assert with_lsns(found) == places([record for record in written if first <= record.lsn <= last])


@pytest.mark.parametrize("seed", range(20))
def test_a_range_of_ts_is_exactly_that(disk: SimulatedDisk, written: list[Written], seed: int) -> None:
    rng = random.Random(seed)
    first, last = sorted(record.ts + rng.choice([-1, 0, 0, 1]) for record in rng.choices(written, k=2))
    found = select(disk, Selection(ts_first=first, ts_last=last))
    assert with_lsns(found) == places([record for record in written if first <= record.ts <= last])
    assert all(first <= record.ts <= last for record in found)


def test_both_ranges_together(disk: SimulatedDisk, written: list[Written]) -> None:
    middle = written[len(written) // 2].ts
    found = select(disk, Selection(lsn_first=20, lsn_last=60, ts_first=middle))
    assert with_lsns(found) == places([r for r in written if 20 <= r.lsn <= 60 and r.ts >= middle])


def test_it_seeks_instead_of_reading_from_the_start(disk: SimulatedDisk, written: list[Written]) -> None:
    newest = max(record.lsn for record in written if record.shard == 0)
    middle = max(record.ts for record in written) // 2 + min(record.ts for record in written) // 2
    for selection in (
        Selection(lsn_first=newest),
        Selection(lsn_first=newest // 2, lsn_last=newest // 2),
        Selection(ts_first=middle, ts_last=middle + 1000),
    ):
        before = disk.bytes_read
        assert select(disk, selection, 0)
        assert disk.bytes_read - before <= 5 * FRAME


def test_opcodes_are_selected(disk: SimulatedDisk, written: list[Written]) -> None:
    for wanted in ({VAL}, {DEL, UNKNOWN}, {0x6F}):
        found = select(disk, Selection(opcodes=frozenset(wanted)))
        assert with_lsns(found) == places([record for record in written if record.opcode in wanted])
        assert all(record.opcode in wanted for record in found)


@pytest.mark.parametrize("sidecars", [False, True])
@pytest.mark.parametrize("keys", [{b"key:3"}, {BINARY_KEY}, {b"other", b"key:1"}, {b"never written"}])
def test_keys_are_selected_with_and_without_sidecars(disk: SimulatedDisk, keys: set[bytes], sidecars: bool) -> None:
    written = fill(disk, FOLDER, sidecars=sidecars)
    found = select(disk, Selection(keys=frozenset(keys)))
    expected = [r for r in written if (named := keys_of(r)) is None or keys.intersection(named)]
    assert with_lsns(found) == places(expected)
    assert all(record.opcode < 0xF0 for record in found)
    heads = sum(bool(record.flags & NEXT_CONT) for record in found)
    assert sum(record.continues for record in found) == heads


def test_sidecars_save_reading(disk: SimulatedDisk) -> None:
    read = []
    for sidecars in (False, True):
        folder = f"/data-{sidecars}"
        # Without operations that name every key, so that there is something to skip.
        fill(disk, folder, transactions=0)
        _write_distinct_keys(disk, folder, sidecars=sidecars)
        before = disk.bytes_read
        place = locate(disk, folder)
        inspection = ShardInspection(disk, place, place.shards[0])
        assert len(list(select_records(inspection, core_table(), Selection(keys=frozenset({b"key-150"}))))) == 1
        read.append(disk.bytes_read - before)
    assert read[1] < read[0] // 3


def _write_distinct_keys(disk: SimulatedDisk, folder: str, *, sidecars: bool) -> None:
    journal = open_journal(disk, folder, SimulatedClock())
    for number in range(300):
        payload = encode_pairs([(b"key-%d" % number, b"v" * 500)])
        journal.writer.append_one(ShardId(0), journal.hlc.next(), VAL, payload)
    journal.writer.write()
    if sidecars:
        journal.make_sidecars(core_table(), 1000)
    journal.close()


def test_a_stale_sidecar_is_not_believed(disk: SimulatedDisk) -> None:
    fill(disk, FOLDER, transactions=0)
    _write_distinct_keys(disk, FOLDER, sidecars=True)
    names = [name for name in disk.list(f"{FOLDER}/shard-0") if name.startswith("sidecar-")]
    # The sidecar of another segment under this one's name: its summaries begin at other lsns.
    disk.rename(f"{FOLDER}/shard-0/{names[1]}", f"{FOLDER}/shard-0/{names[0]}")
    assert len(select(disk, Selection(keys=frozenset({b"key-3"})), 0)) == 1


# --- damage -----------------------------------------------------------------------------------------------------------


def damaged(
    disk: SimulatedDisk, shard: int, selection: Selection = EVERYTHING
) -> tuple[list[RecordInfo], ShardInspection]:
    place = locate(disk, FOLDER)
    inspection = ShardInspection(disk, place, place.shards[shard])
    return list(select_records(inspection, core_table(), selection)), inspection


def test_records_around_a_damaged_frame_are_shown(disk: SimulatedDisk, written: list[Written]) -> None:
    path = f"{FOLDER}/{first_segment(0)}"
    whole = select(disk, Selection(), 0)
    flip_bit(disk, path, FRAME)  # the head of frame 1
    found, inspection = damaged(disk, 0)
    assert found == [record for record in whole if (record.segment, record.frame) != (0, 1)]
    assert [(error.path, error.frame) for error in inspection.damage] == [(path, 1)]


@pytest.mark.parametrize("seed", range(30))
def test_a_flipped_bit_anywhere_is_damage_in_its_frame(disk: SimulatedDisk, written: list[Written], seed: int) -> None:
    whole = select(disk, Selection(), 1)
    position = random.Random(seed).randrange(4 * FRAME)
    flip_bit(disk, f"{FOLDER}/{first_segment(1)}", position)
    found, inspection = damaged(disk, 1)
    frame = position // FRAME
    assert inspection.damage
    assert {error.frame for error in inspection.damage} == {frame}
    elsewhere = [record for record in whole if (record.segment, record.frame) != (0, frame)]
    assert [record for record in found if (record.segment, record.frame) != (0, frame)] == elsewhere
    # What nothing vouches for any more says so; what still is vouched for is right.
    assert {record for record in found if record.is_proved} <= set(whole)


def test_every_selection_survives_damage(disk: SimulatedDisk, written: list[Written]) -> None:
    for frame in range(4):
        flip_bit(disk, f"{FOLDER}/{first_segment(2)}", frame * FRAME + 1)
    for selection in (
        Selection(lsn_first=10),
        Selection(ts_first=written[0].ts + 5000),
        Selection(keys=frozenset({b"key:1"})),
        Selection(payloads=True),
    ):
        found, inspection = damaged(disk, 2, selection)
        assert found
        assert inspection.damage


def test_a_missing_segment_is_seen_by_the_lsn_that_follows(disk: SimulatedDisk, written: list[Written]) -> None:
    names = [name for name in disk.list(f"{FOLDER}/shard-0") if name.startswith("journal-")]
    disk.remove(f"{FOLDER}/shard-0/{names[1]}")
    _, inspection = damaged(disk, 0)
    assert [error.path for error in inspection.damage] == [f"{FOLDER}/shard-0/{names[2]}"]
    assert "was expected" in str(inspection.damage[0])


@pytest.mark.parametrize(
    "harm",
    [
        lambda disk, path: flip_bit(disk, path, 10),
        lambda disk, path: disk.remove(path),
    ],
)
def test_a_damaged_whale_is_said_on_its_record(
    disk: SimulatedDisk, written: list[Written], harm: Callable[[SimulatedDisk, str], None]
) -> None:
    path = f"{FOLDER}/shard-0/blob-{0:016x}.bin"
    harm(disk, path)
    found, inspection = damaged(disk, 0)
    assert not inspection.damage  # headers do not need it
    found, inspection = damaged(disk, 0, Selection(payloads=True))
    assert [record.payload for record in found if record.problem] == [None] * len(inspection.damage)
    assert inspection.damage
    assert {error.path for error in inspection.damage} == {path}


def test_the_tail_is_shown_as_unproved(disk: SimulatedDisk) -> None:
    fill(disk, FOLDER, transactions=5, close=False)
    path = f"{FOLDER}/{first_segment(0)}"
    file = disk.open(path, "write")
    end = file.size()
    file.write(end, [bytes([VAL, TS | FINISH, 5 << 1 | 1]) + b"\x01\0\0\0" + b"\x03\x03\x03kv"])
    file.close()
    found, inspection = damaged(disk, 0, Selection(payloads=True))
    assert (found[-1].position, found[-1].is_proved, found[-1].payload) == (end, False, b"\x03\x03\x03kv")
    assert all(record.is_proved for record in found[:-1])
    assert inspection.tail == (path, end, 12)
    assert not inspection.damage


def test_a_snapshot_is_read_like_a_journal(disk: SimulatedDisk) -> None:
    fill(disk, FOLDER, snapshot=True)
    [name] = disk.list(f"{FOLDER}/snapshots")
    place = locate(disk, f"{FOLDER}/snapshots/{name}")
    for shard in place.shards:
        inspection = ShardInspection(disk, place, shard)
        [record] = select_records(inspection, core_table(), Selection(control=False, payloads=True))
        assert record.payload is not None
        assert b"whole:%d" % shard in record.payload
        assert place.meta.point is not None
        assert record.ts == place.meta.point.ts
    assert len(place.shards) == SHARDS
