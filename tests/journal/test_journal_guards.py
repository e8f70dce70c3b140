"""A data directory that meets the unexpected: odd names, stops at a bad moment, disks that fail, damage that is old."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from tests.journal.machine import FOLDER, Machine
from tidelog import limits
from tidelog.errors import (
    ClientError,
    Corruption,
    DataDirectoryError,
    DirectoryInUse,
    InternalError,
    JournalFailed,
    JournalFull,
    SnapshotFailed,
)
from tidelog.ids import ShardId, Ts
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.frame import Geometry
from tidelog.journal.journal import Journal, Settings
from tidelog.journal.layout import CLOCK, ERASED, META, SNAPSHOTS
from tidelog.journal.operation import VAL, encode_pairs
from tidelog.journal.repair import repair
from tidelog.journal.retention import RetentionLimits
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk

KEEP_LITTLE = RetentionLimits(bytes_max=0, snapshots_kept=1)


def open_at(disk: SimulatedDisk, folder: str, seen: list[Ts]) -> Journal:
    return Journal.open(
        disk,
        folder,
        SimulatedClock(),
        Settings(Geometry(1024, 2), 2, FsyncPolicy.ALWAYS),
        apply=lambda transaction, _: seen.append(transaction.ts),
        new_epoch_id=lambda: 1,
    )


# --- names of the directory -------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["data", "data/", "./data", "above/data", "/above/data", "/above/data/"])
def test_a_durable_write_survives_a_power_cut_however_the_directory_is_named(folder: str) -> None:
    disk = SimulatedDisk()
    if "above" in folder:
        disk.make_folder("/above")
        disk.sync_folder("/")
    journal = open_at(disk, folder, [])
    ts = journal.hlc.next()
    journal.writer.append_one(ShardId(0), ts, VAL, encode_pairs([(b"k", b"v")]))
    journal.writer.write()
    journal.writer.sync()
    assert journal.writer.durable_ts == ts
    disk.crash("lose_all")
    seen: list[Ts] = []
    open_at(disk, folder, seen)
    assert seen == [ts]


def test_a_folder_that_cannot_be_made_is_said_with_its_name() -> None:
    disk = SimulatedDisk()
    with pytest.raises(DataDirectoryError, match="/not/there cannot be used as a data directory"):
        open_at(disk, "/not/there", [])


@pytest.mark.parametrize("lost", [[META], [META, CLOCK, ERASED]])
@pytest.mark.parametrize("shards", [1, 2])
def test_without_meta_a_journal_is_refused_and_nothing_is_removed(lost: list[str], shards: int) -> None:
    machine = Machine(shards=2)
    machine.fill(20)
    machine.fill(20, shard=1)
    machine.journal.close()
    meta = machine.disk.read_file(f"{FOLDER}/{META}")
    for name in lost:
        machine.disk.remove(f"{FOLDER}/{name}")
    before = [machine.disk.list(f"{FOLDER}/shard-{shard}") for shard in (0, 1)]
    machine.settings = Settings(machine.settings.geometry, shards)
    with pytest.raises(DataDirectoryError):
        machine.open()
    assert [machine.disk.list(f"{FOLDER}/shard-{shard}") for shard in (0, 1)] == before
    assert not machine.disk.exists(f"{FOLDER}/{META}")
    machine.disk.write_file(f"{FOLDER}/{META}", meta)
    machine.open()
    assert len(machine.replayed) == 40


# --- closing ----------------------------------------------------------------------------------------------------


def test_closing_during_an_fsync_is_refused_and_keeps_the_lock() -> None:
    machine = Machine()
    machine.write((0, b"a", b"1"))
    writer = machine.journal.writer
    job = writer.begin_sync()
    assert job is not None
    with pytest.raises(InternalError, match="an fsync is under way"):
        machine.journal.close()
    with pytest.raises(DirectoryInUse):
        open_at(machine.disk, FOLDER, [])
    machine.write((1, b"b", b"2"))
    job.run()
    writer.finish_sync(job)
    machine.journal.close()
    machine.open()
    assert machine.journal.hlc.was_clean
    assert machine.state == {(0, 0, b"a"): b"1", (1, 0, b"b"): b"2"}


def test_the_lock_is_given_back_although_the_last_ts_cannot_be_stored() -> None:
    machine = Machine()
    machine.commit((0, b"a", b"1"))
    machine.disk.fail("write", errno.EIO, path_contains=CLOCK)
    with pytest.raises(JournalFailed, match="the last ts could not be stored"):
        machine.journal.close()
    assert machine.disk.open_paths == []
    machine.open()
    assert len(machine.state) == 1


# --- refusals ---------------------------------------------------------------------------------------------------


def traceback_length(error: BaseException) -> int:
    length, traceback = 0, error.__traceback__
    while traceback is not None:
        length, traceback = length + 1, traceback.tb_next
    return length


def full(machine: Machine) -> type[Exception]:
    machine.disk.capacity_bytes = machine.disk.used_bytes
    return JournalFull


def failed(machine: Machine) -> type[Exception]:
    machine.disk.fail("write", errno.EIO, path_contains="shard-")
    return JournalFailed


@pytest.mark.parametrize(
    ("prepare", "call"),
    [(prepare, call) for prepare in (full, failed) for call in ("append_one", "append", "write", "append_epoch")]
    + [(failed, "sync")],
)
def test_a_refusal_that_is_raised_a_thousand_times_does_not_grow(
    prepare: Callable[[Machine], type[Exception]], call: str
) -> None:
    machine = Machine()
    machine.append((0, b"k", bytes(200)))
    kind = prepare(machine)
    writer = machine.journal.writer
    with pytest.raises(kind):
        writer.write()
    calls: dict[str, Callable[[], object]] = {
        "append_one": lambda: writer.append_one(ShardId(0), machine.journal.hlc.next(), VAL, b""),
        "append": lambda: machine.append((0, b"k", b"")),
        "write": writer.write,
        "sync": writer.sync,
        "append_epoch": lambda: writer.append_epoch(machine.journal.epochs[-1], Ts(1)),
    }
    lengths = []
    for _ in range(1000):
        with pytest.raises(kind) as caught:
            calls[call]()
        lengths.append(traceback_length(caught.value))
    assert max(lengths) < 10


# --- snapshots --------------------------------------------------------------------------------------------------


def partials(machine: Machine) -> list[str]:
    return [name for name in machine.disk.list(f"{FOLDER}/{SNAPSHOTS}") if name.endswith(".partial")]


def test_a_second_snapshot_is_refused_while_one_is_open() -> None:
    machine = Machine()
    machine.commit((0, b"a", b"1"))
    first = machine.journal.begin_snapshot()
    assert first is not None
    first.add(ShardId(0), VAL, encode_pairs([(b"a", b"1")]))
    machine.commit((0, b"b", b"2"))
    with pytest.raises(ClientError, match="a snapshot is under way already"):
        machine.journal.begin_snapshot()
    finished = machine.journal.finish_snapshot(first)
    assert finished.check(machine.disk)
    second = machine.journal.begin_snapshot()
    assert second is not None, "the first is finished"
    second.abandon()
    third = machine.journal.begin_snapshot()
    assert third is not None, "the second was abandoned"
    machine.journal.finish_snapshot(third)
    machine.disk.kill()
    machine.open()
    assert partials(machine) == []


@pytest.mark.parametrize("operation", ["make_folder", "create", "write", "sync", "rename"])
def test_after_one_that_failed_the_next_snapshot_works(operation: str) -> None:
    machine = Machine()
    machine.commit((0, b"a", b"1"))
    machine.disk.fail(operation, errno.ENOSPC, path_contains=".partial")  # type: ignore[arg-type]
    with pytest.raises(SnapshotFailed, match="ENOSPC"):
        machine.snapshot({(0, 0, b"a"): b"1"})
    assert partials(machine) == []
    assert machine.snapshot({(0, 0, b"a"): b"1"}).check(machine.disk)


def test_a_disk_that_fills_up_during_a_snapshot_gets_its_space_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SNAPSHOT_BATCH_BYTES", 1000)
    machine = Machine()
    machine.commit((0, b"a", b"1"))
    used = machine.disk.used_bytes
    machine.disk.capacity_bytes = used + 3000
    with pytest.raises(SnapshotFailed, match="ENOSPC"):
        machine.snapshot({(shard, 0, b"%d" % number): bytes(200) for number in range(50) for shard in (0, 1)})
    assert partials(machine) == []
    assert machine.disk.used_bytes == used
    machine.commit((0, b"a", b"2"))
    machine.disk.capacity_bytes = None
    machine.snapshot({})


# --- the clock --------------------------------------------------------------------------------------------------


def test_a_bound_that_cannot_be_renewed_ends_writes() -> None:
    machine = Machine()
    first = machine.commit((0, b"a", b"1"))
    writer = machine.journal.writer
    machine.clock.advance(limits.CLOCK_BOUND_AHEAD_WALL_US)
    machine.disk.fail("write", errno.ENOSPC, path_contains=CLOCK)
    with pytest.raises(JournalFailed, match="the bound of the clock could not be stored") as caught:
        writer.begin_sync()
    assert writer.has_failed
    assert writer.refusal is caught.value
    assert not writer.is_syncing
    with pytest.raises(JournalFailed):
        machine.append((0, b"a", b"2"))
    assert writer.begin_sync() is None
    machine.disk.kill()
    machine.open()
    assert machine.replayed == [first]


def test_a_bound_that_could_not_be_stored_is_not_tried_again_by_a_sync() -> None:
    machine = Machine()
    machine.commit((0, b"a", b"1"))
    machine.clock.advance(2 * limits.CLOCK_BOUND_AHEAD_WALL_US)
    machine.disk.fail("sync", errno.EIO, path_contains=CLOCK)
    with pytest.raises(JournalFailed):
        machine.journal.hlc.next()
    assert not machine.journal.writer.has_failed
    with pytest.raises(JournalFailed):
        machine.journal.writer.begin_sync()
    assert machine.journal.writer.has_failed


# --- descriptors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize("what", ["journal-", "blob-"])
def test_no_descriptor_for_a_new_segment_is_refused_and_tried_again(code: int, what: str) -> None:
    machine = Machine(shards=1, frames_per_segment=1)
    machine.commit((0, b"a", b"1"))
    accepted = machine.append(*[(0, b"k%d" % number, bytes(200)) for number in range(12)], (0, b"w", bytes(3000)))
    machine.disk.fail("create", code, path_contains=what, times=3)
    writer = machine.journal.writer
    for _ in range(3):
        with pytest.raises(JournalFull):
            writer.write()
        assert writer.is_full
        assert not writer.has_failed
        with pytest.raises(JournalFull):
            machine.append((0, b"refused", b""))
    writer.write()
    writer.sync()
    later = machine.commit((0, b"later", b""))
    machine.disk.crash("lose_all")
    machine.open()
    assert machine.replayed[1:] == [accepted, later]
    assert len(machine.state) == 15


# --- old history that is damaged --------------------------------------------------------------------------------


def covered(*, retention: RetentionLimits = KEEP_LITTLE) -> Machine:
    """One shard, many segments, all but the last covered by a snapshot; nothing is erased yet."""
    machine = Machine(shards=1, frames_per_segment=2, retention=retention)
    machine.fill(60, size=150)
    machine.snapshot({})
    machine.fill(4)
    return machine


def heads(machine: Machine) -> list[Ts]:
    return [machine.source().frame_header(segment, 0).ts for segment in machine.segments()]


@pytest.mark.parametrize("byte", [0, 2, 3, 4, 11, 12, 19, 25])
def test_a_damaged_head_of_covered_history_hinders_no_start_and_is_never_erased(byte: int) -> None:
    machine = covered()
    segments, times = machine.segments(), heads(machine)
    machine.journal.close()
    machine.disk.flip_bit(machine.path(0, segments[3]), 8 * byte)
    machine.open()
    assert [segment.first for segment in machine.journal.erase()] == segments[:2], "the end of the next is not proved"
    assert machine.segments() == segments[2:]
    assert machine.journal.erased_ts == times[2]
    assert machine.journal.erase() == []
    machine.commit((0, b"goes on", b""))
    machine.disk.kill()
    machine.open()
    assert (0, 0, b"goes on") in machine.state
    machine.disk.kill()
    report = repair(machine.disk, FOLDER)
    assert len(report.actions) == 2
    assert machine.segments() == segments[4:]
    machine.open()
    assert machine.journal.erased_ts == times[4]
    assert (0, 0, b"goes on") in machine.state


def test_a_start_works_although_the_oldest_segment_that_is_left_has_a_damaged_head() -> None:
    machine = covered(retention=RetentionLimits(bytes_max=4000, snapshots_kept=1))
    assert machine.journal.erase()
    erased_ts, segments = machine.journal.erased_ts, machine.segments()
    machine.journal.close()
    machine.disk.flip_bit(machine.path(0, segments[0]), 0)
    machine.open()
    assert machine.journal.erased_ts == erased_ts
    machine.journal.erase()
    machine.disk.kill()
    assert repair(machine.disk, FOLDER).was_needed
    machine.open()
    assert machine.segments() == segments[1:]


@pytest.mark.parametrize("bit", range(64))
def test_a_flipped_bit_in_the_ts_of_a_head_erases_nothing_that_is_needed(bit: int) -> None:
    machine = covered()
    segments, times = machine.segments(), heads(machine)
    everything = machine.read()
    machine.journal.close()
    machine.disk.flip_bit(machine.path(0, segments[3]), 8 * 12 + bit)
    machine.open()
    held = times[2]
    machine.journal.holders.hold("feed", held, machine.clock.wall_us())
    machine.journal.erase()
    assert machine.segments() == segments[2:], "a holder needs these"
    assert machine.journal.erased_ts == times[2]
    machine.journal.holders.release("feed")
    machine.journal.erase()
    assert machine.journal.erased_ts == times[2]
    newest = everything[-1].ts
    assert machine.read(newest) == []
    later = machine.commit((0, b"later", b""))
    assert [seen.ts for seen in machine.read(newest)] == [later]


@pytest.mark.parametrize("bit", range(0, 64, 3))
def test_a_flipped_bit_in_the_ts_of_the_oldest_head_does_not_move_the_beginning(bit: int) -> None:
    machine = covered(retention=RetentionLimits(bytes_max=4000, snapshots_kept=1))
    assert machine.journal.erase()
    erased_ts, newest = machine.journal.erased_ts, machine.read(machine.journal.erased_ts)[-1].ts
    machine.journal.close()
    machine.disk.flip_bit(machine.path(0, machine.segments()[0]), 8 * 12 + bit)
    machine.open()
    assert machine.journal.erased_ts == erased_ts
    assert machine.read(newest) == []


def test_a_damaged_oldest_snapshot_keeps_all_it_may_cover_and_new_ones_are_made() -> None:
    machine = Machine(shards=1, frames_per_segment=2, retention=RetentionLimits(bytes_max=0, snapshots_kept=2))
    machine.fill(40)
    oldest = machine.snapshot({})
    machine.fill(40)
    machine.snapshot({})
    machine.disk.flip_bit(f"{oldest.path}/{META}", 8 * 30)
    before = machine.segments()
    assert machine.journal.erase() == []
    assert machine.segments() == before
    machine.fill(1)
    machine.snapshot({})
    assert not machine.disk.exists(oldest.path), "it was one too many"
    assert machine.journal.erase()


# --- a disk that cannot read ------------------------------------------------------------------------------------


def journal_files(machine: Machine) -> dict[str, bytes]:
    folders = [f"{FOLDER}/shard-{shard}" for shard in (0, 1)]
    paths = [f"{folder}/{name}" for folder in folders for name in machine.disk.list(folder)]
    return {path: machine.disk.read_file(path) for path in paths}


@pytest.mark.parametrize("after", range(1, 12))
def test_a_start_on_an_unreadable_disk_raises_and_cuts_nothing(after: int) -> None:
    machine = Machine(frames_per_segment=2)
    written = machine.fill(20) + machine.fill(20, shard=1)
    machine.disk.kill()
    before = journal_files(machine)
    machine.disk.fail("read", errno.EIO, after=after, path_contains="journal-", times=None)
    with pytest.raises(OSError, match=r"EIO at position \d+.*/journal-") as caught:
        machine.open()
    assert not isinstance(caught.value, Corruption)
    machine.disk.clear_faults()
    assert journal_files(machine) == before
    machine.open()
    assert machine.replayed == sorted(written)
