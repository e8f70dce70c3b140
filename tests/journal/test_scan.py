"""Recovery, first half: which marks are valid, which cycle is complete, and what lies beyond damage."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.journal.machine import FOLDER, FRAME_BYTES, Machine
from tidelog.errors import Corruption, FormatError
from tidelog.ids import Cycle, Lsn, ShardId, Ts
from tidelog.journal import control
from tidelog.journal.cycles import CompleteCycle, find_complete_cycle
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.frame import Geometry
from tidelog.journal.operation import VAL
from tidelog.journal.record import FINISH, TS
from tidelog.journal.scan import ShardScan, find_marks
from tidelog.journal.segment import FilePosition, journal_name
from tidelog.journal.shard_writer import ShardState, ShardWriter
from tidelog.journal.source import ShardSource
from tidelog.testing.disk import SimulatedDisk

START = FilePosition(Lsn(0), 0)


def scan_of(machine: Machine, shard: int = 0, start: FilePosition | None = START) -> ShardScan:
    return ShardScan(machine.source(shard), machine.settings.shard_count, start, Lsn(0))


def complete(machine: Machine) -> CompleteCycle:
    return find_complete_cycle([scan_of(machine, shard) for shard in range(machine.settings.shard_count)])


def cut(machine: Machine, shard: int, size: int, segment: int = 0) -> None:
    path = machine.path(shard, segment)
    machine.disk.write_file(path, machine.disk.read_file(path)[:size])


# --- one shard --------------------------------------------------------------------------------------------------


def test_every_mark_of_an_undamaged_journal_is_valid() -> None:
    machine = Machine(shards=1)
    machine.fill(50)
    scan = scan_of(machine)
    found = list(scan.marks())
    assert [each.mark.cycle for each in found] == list(range(1, 52))
    assert scan.damage is None
    assert found[-1].end == machine.journal.writer.visible.ends[0]
    assert found[-1].mark.ends == (50,)


def test_a_shard_without_files_has_no_marks() -> None:
    machine = Machine(shards=1)
    scan = scan_of(machine, start=None)
    assert list(scan.marks()) == []
    assert scan.damage is None
    assert scan.highest_synced_beyond() == 0


def test_a_walk_may_begin_at_any_frame() -> None:
    machine = Machine(shards=1)
    machine.fill(50)
    everything = [each.mark.cycle for each in scan_of(machine).marks()]
    segment = machine.segments()[2]
    for frame in range(4):
        scan = scan_of(machine, start=FilePosition(segment, frame * FRAME_BYTES))
        found = [each.mark.cycle for each in scan.marks()]
        assert found == everything[-len(found) :]
        assert scan.damage is None
        assert scan.start_lsn >= segment


@pytest.mark.parametrize("bit", range(0, 8 * 2 * FRAME_BYTES, 97))
def test_a_flipped_bit_ends_the_walk_at_or_before_it(bit: int) -> None:
    machine = Machine(shards=1)
    machine.fill(20)
    intact = list(scan_of(machine).marks())
    machine.disk.flip_bit(machine.path(), bit)
    scan = scan_of(machine)
    found = list(scan.marks())
    assert found == intact[: len(found)]
    frame_end = (bit // 8 // FRAME_BYTES + 1) * FRAME_BYTES
    assert all(each.end.segment == 0 and each.end.at <= frame_end for each in found)
    covered_by = next((each for each in intact if bit // 8 < each.end.at <= frame_end), None)
    assert covered_by is None or covered_by not in found, "a mark vouches for everything since the one before"
    damage = scan.damage
    assert damage is not None
    assert damage.path == machine.path()
    assert damage.frame == bit // 8 // FRAME_BYTES


def test_a_file_that_ends_inside_a_batch_has_a_tail() -> None:
    machine = Machine(shards=1, frame_bytes=8192)
    machine.fill(4)
    marks = list(scan_of(machine).marks())
    whole = machine.disk.read_file(machine.path())
    for size in range(marks[2].end.at, marks[3].end.at):
        machine.disk.write_file(machine.path(), whole[:size])
        scan = scan_of(machine)
        assert list(scan.marks()) == marks[:3]
        assert (scan.damage is None) == (size == marks[2].end.at)


def test_zeros_after_the_last_mark_are_no_damage() -> None:
    machine = Machine(shards=1, frame_bytes=8192)
    machine.fill(3)
    data = machine.disk.read_file(machine.path())
    machine.disk.write_file(machine.path(), data + bytes(500))
    scan = scan_of(machine)
    assert len(list(scan.marks())) == 4
    assert scan.damage is None


def test_a_missing_segment_ends_the_walk_and_what_follows_still_tells_what_was_synced() -> None:
    machine = Machine(shards=1)
    machine.fill(60)
    segments = machine.segments()
    machine.disk.remove(machine.path(0, segments[1]))
    scan = scan_of(machine)
    last = list(scan.marks())[-1]
    assert last.end.segment == 0
    damage = scan.damage
    assert damage is not None, "the end of the first segment can only be proved by the one that is not there"
    assert (damage.path, damage.frame) == (machine.path(), 3)
    assert scan.highest_synced_beyond() == 60


@pytest.mark.parametrize("how", ["flipped", "cut", "gone"])
def test_a_damaged_blob_makes_the_mark_of_its_batch_invalid(how: str) -> None:
    machine = Machine(shards=1)
    machine.fill(2)
    machine.commit((0, b"whale", bytes(3000)))
    machine.fill(2)
    path = f"{FOLDER}/shard-0/blob-{0:016x}.bin"
    if how == "flipped":
        machine.disk.flip_bit(path, 8 * 2999)
    elif how == "cut":
        machine.disk.write_file(path, bytes(100))
    else:
        machine.disk.remove(path)
    scan = scan_of(machine)
    assert [each.mark.ends[0] for each in scan.marks()] == [0, 1, 2]
    assert isinstance(scan.damage, FormatError)
    assert "the blob of a record is damaged" in scan.damage.problem
    assert path in scan.damage.problem


# --- all shards together ----------------------------------------------------------------------------------------


def test_the_newest_complete_cycle_of_an_undamaged_journal_is_the_last() -> None:
    machine = Machine(shards=3)
    for shard in (0, 1, 2, 1):
        machine.commit((shard, b"k", bytes(300)))
    found = complete(machine)
    assert found.cycle == machine.journal.writer.written.cycle
    assert found.ends == machine.journal.writer.written.lsns
    assert found.synced_cycle == found.cycle - 1


def test_a_cycle_that_misses_a_shard_is_not_complete_and_neither_is_any_after_it() -> None:
    machine = Machine(shards=3, policy=FsyncPolicy.NEVER)
    machine.write((0, b"a", b""), (1, b"a", b""))
    good = machine.journal.writer.written
    size = len(machine.disk.read_file(machine.path(1)))
    machine.write((0, b"b", b""), (1, b"b", b""))
    machine.write((0, b"c", b""))
    machine.write((2, b"c", b""))
    cut(machine, 1, size)
    found = complete(machine)
    assert (found.cycle, found.last_ts, found.ends) == (good.cycle, good.ts, good.lsns)
    assert [mark.mark.cycle for mark in found.marks if mark] == [good.cycle, good.cycle, 1]


def test_a_later_cycle_of_other_shards_alone_is_complete_without_a_mark_of_each() -> None:
    machine = Machine(shards=3, policy=FsyncPolicy.NEVER)
    machine.write((0, b"a", b""))
    machine.write((1, b"a", b""))
    found = complete(machine)
    assert found.cycle == 3
    assert [mark.mark.cycle for mark in found.marks if mark] == [2, 3, 1]


def test_a_synced_cycle_that_is_named_only_beyond_the_damage_is_found() -> None:
    machine = Machine(shards=1)
    machine.fill(40)
    machine.disk.flip_bit(machine.path(), 8 * 600)
    found = complete(machine)
    assert found.cycle < 5
    assert found.synced_cycle == 40
    scan = scan_of(machine)
    list(scan.marks())
    assert scan.highest_synced_beyond() == 40


def test_nothing_is_synced_beyond_when_nothing_was_synced() -> None:
    machine = Machine(shards=1, policy=FsyncPolicy.NEVER)
    for number in range(40):
        machine.write((0, b"k%d" % number, bytes(200)))
    machine.disk.flip_bit(machine.path(), 8 * 600)
    found = complete(machine)
    assert found.synced_cycle == 1, "the cycle of the epoch, which every start syncs"


# --- marks that contradict each other ---------------------------------------------------------------------------


def scans_of(*shards: list[tuple[int, list[int]]]) -> list[ShardScan]:
    """Shards written by hand: per batch one record and a mark of this cycle with these ends."""
    disk = SimulatedDisk()
    disk.make_folder(FOLDER)
    geometry = Geometry(1024, 4)
    found = []
    for shard, batches in enumerate(shards):
        folder = f"{FOLDER}/shard-{shard}"
        disk.make_folder(folder)
        writer = ShardWriter(geometry, len(shards), ShardState(None, Lsn(0), Ts(0), 0, 0, 0))
        data = b""
        for number, (cycle, ends) in enumerate(batches):
            writer.add(Ts(number + 1), VAL, TS | FINISH, b"payload", None, 0)
            batch = writer.end_batch(Cycle(cycle), Ts(number + 1), Cycle(0), [Lsn(end) for end in ends])
            data += b"".join(chunk for write in batch.writes for chunk in write.chunks)
        disk.write_file(f"{folder}/{journal_name(Lsn(0))}", data)
        source = ShardSource(disk, folder, geometry, ShardId(shard))
        found.append(ShardScan(source, len(shards), START, Lsn(0)))
    return found


@pytest.mark.parametrize(
    ("second", "is_valid"),
    [((2, [2]), True), ((1, [2]), False), ((0, [2]), False), ((2, [1]), False), ((2, [3]), False)],
)
def test_a_mark_must_be_of_a_later_cycle_and_name_the_end_where_it_stands(
    second: tuple[int, list[int]], is_valid: bool
) -> None:
    (scan,) = scans_of([(1, [1]), second])
    assert len(list(scan.marks())) == (2 if is_valid else 1)
    assert (scan.damage is None) == is_valid
    if scan.damage is not None:
        assert f"a mark of cycle {second[0]}" in scan.damage.problem


def test_the_first_incomplete_cycle_ends_the_search() -> None:
    scans = scans_of([(1, [1, 1]), (2, [2, 2]), (3, [3, 1])], [(1, [1, 1])])
    assert find_complete_cycle(scans).cycle == 1


# --- marks in a damaged frame -----------------------------------------------------------------------------------


def frame_of_marks(count: int) -> tuple[bytes, list[int]]:
    """Some bytes, and after each the end of a mark."""
    data, ends, base = bytearray(b"head of the frame"), [], 0
    for number in range(count):
        data += b"records of cycle %d" % number
        data += control.encode_mark_without_crc(Cycle(number + 2), Ts(9), Cycle(number + 1), [Lsn(1), Lsn(2)])
        data += crc32c(bytes(data[base:])).to_bytes(4, "little")
        base = len(data)
        ends.append(base)
    return bytes(data), ends


def test_all_marks_of_an_intact_frame_are_found() -> None:
    data, _ = frame_of_marks(30)
    assert [mark.cycle for mark in find_marks(data, 2)] == list(range(2, 32))


@given(st.integers(1, 30), st.data())
@settings(max_examples=60)
def test_marks_after_a_damaged_batch_are_found_again(count: int, data: st.DataObject) -> None:
    intact, ends = frame_of_marks(count)
    damaged = bytearray(intact)
    at = data.draw(st.integers(0, len(intact) - 1))
    damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    hit = next(index for index, end in enumerate(ends) if at < end)
    found = [mark.cycle - 2 for mark in find_marks(bytes(damaged), 2)]
    assert hit not in found
    # The batch that was hit hides its own mark; the one after it begins at that mark's end, if that still shows.
    assert set(range(count)) - set(found) <= {hit, hit + 1}
    assert [index for index in range(count) if index < hit] == [index for index in found if index < hit]


def test_bytes_that_only_look_like_a_mark_are_not_believed() -> None:
    fake = control.encode_mark_without_crc(Cycle(10**6), Ts(9), Cycle(10**6 - 1), [Lsn(1), Lsn(2)]) + bytes(4)
    data, _ = frame_of_marks(2)
    assert [mark.cycle for mark in find_marks(data + b"payload " + fake, 2)] == [2, 3]


def test_marks_of_another_number_of_shards_are_not_found() -> None:
    data, _ = frame_of_marks(3)
    assert list(find_marks(data, 3)) == []


def test_a_mark_that_claims_to_know_of_its_own_sync_is_not_believed() -> None:
    body = control.encode_mark_without_crc(Cycle(5), Ts(9), Cycle(5), [Lsn(1)])
    assert list(find_marks(body + crc32c(body).to_bytes(4, "little"), 1)) == []


def test_scans_raise_nothing_but_say_what_is_wrong() -> None:
    machine = Machine(shards=1)
    machine.disk.write_file(machine.path(), b"\xff" * 3000)
    scan = scan_of(machine)
    assert list(scan.marks()) == []
    assert isinstance(scan.damage, Corruption)
    assert (scan.damage.path, scan.damage.frame, scan.damage.position) == (machine.path(), 0, 0)


# --- values that look like marks --------------------------------------------------------------------------------


def crafted_marks(shards: int = 1, end: int = 1) -> bytes:
    """Two marks that prove each other and claim that a cycle far ahead was synced."""
    ends = [Lsn(end)] * shards
    first = control.encode_mark_without_crc(Cycle(1 << 40), Ts(1), Cycle(1 << 39), ends) + bytes(4)
    second = control.encode_mark_without_crc(Cycle((1 << 40) + 1), Ts(1), Cycle(1 << 39), ends)
    return first + second + crc32c(second).to_bytes(4, "little")


def journal_copy(shards: int = 1) -> bytes:
    """The file of another journal, with many synced cycles."""
    other = Machine(shards=shards, frame_bytes=1 << 20)
    for number in range(50):
        other.commit(*[(shard, b"a", b"%d" % number) for shard in range(shards)])
    return other.disk.read_file(other.path())


def with_value(value: bytes, shards: int) -> tuple[Machine, list[Ts]]:
    """A durable value in the frame that is open, and a few transactions around it."""
    machine = Machine(shards=shards, frame_bytes=1 << 20)
    return machine, [machine.commit((0, b"before", b"")), machine.commit((0, b"value", value))]


def tear(machine: Machine, count: int) -> None:
    machine.disk.crash("keep_all")
    cut(machine, 0, len(machine.disk.read_file(machine.path())) - count)


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("make", [crafted_marks, journal_copy])
@pytest.mark.parametrize("torn", [1, 100, 2000])
def test_a_synced_value_that_looks_like_marks_does_not_make_rot_of_a_torn_tail(
    make: Callable[[int], bytes], shards: int, torn: int
) -> None:
    machine, durable = with_value(make(shards), shards)
    machine.write((0, b"next", bytes(3000)))
    tear(machine, torn)
    assert complete(machine).synced_cycle <= complete(machine).cycle
    machine.open()
    assert machine.replayed == durable
    assert machine.journal.recovered.tail_bytes > 0


@pytest.mark.parametrize("make", [crafted_marks, journal_copy])
@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("torn", [1, 100, 2000])
def test_marks_of_a_shorter_journal_in_the_torn_tail_itself_do_not_make_rot_of_it(
    make: Callable[[int], bytes], shards: int, torn: int
) -> None:
    machine, durable = with_value(b"", shards)
    # Fewer cycles than the copy has, and more records.
    durable.append(machine.commit(*[(number % shards, b"%d" % number, b"") for number in range(400)]))
    machine.write((0, b"value", make(shards)), (0, b"next", bytes(3000)))
    tear(machine, torn)
    machine.open()
    assert machine.replayed == durable


@pytest.mark.xfail(reason="marks in the tail itself that lie ahead of ours in every number are believed", strict=True)
@pytest.mark.parametrize("value", [crafted_marks(end=10**6), journal_copy()], ids=["crafted", "copy"])
def test_marks_ahead_of_ours_in_the_torn_tail_itself_do_not_make_rot_of_it(value: bytes) -> None:
    machine, durable = with_value(b"", 1)
    machine.write((0, b"value", value), (0, b"next", bytes(3000)))
    tear(machine, 100)
    machine.open()
    assert machine.replayed == durable


@pytest.mark.parametrize("make", [crafted_marks, journal_copy])
def test_rot_is_found_before_and_after_values_that_look_like_marks(make: Callable[[], bytes]) -> None:
    machine, _ = with_value(make(), 1)
    for number in range(3):
        machine.commit((0, b"after", b"%d" % number))
    machine.disk.kill()
    data = machine.disk.read_file(machine.path())
    for byte in (30, data.index(b"value") + 1, data.index(b"value") + 40, data.index(b"after")):
        machine.disk.flip_bit(machine.path(), 8 * byte)
        with pytest.raises(Corruption, match="was fsynced"):
            machine.open()
        machine.disk.flip_bit(machine.path(), 8 * byte)
    machine.open()
    assert len(machine.replayed) == 5


@pytest.mark.parametrize("byte", [0, 3, 4, 12])
def test_rot_in_the_head_of_the_last_frame_is_told_by_the_marks_in_it(byte: int) -> None:
    """However much of the frame before it is proved."""
    machine = Machine(shards=1)
    while len(machine.disk.read_file(machine.path())) < FRAME_BYTES + 300:
        machine.commit((0, b"k", bytes(60)))
    machine.disk.kill()
    machine.disk.flip_bit(machine.path(), 8 * (FRAME_BYTES + byte))
    before = machine.disk.read_file(machine.path())
    with pytest.raises(Corruption, match="was fsynced"):
        machine.open()
    assert machine.disk.read_file(machine.path()) == before
