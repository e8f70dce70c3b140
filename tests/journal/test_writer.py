"""The writer: what it takes, what it refuses, and what readers may see when."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from tests.journal.machine import FOLDER, Machine, Put
from tidelog import limits
from tidelog.errors import InternalError, JournalFailed, JournalFull, LimitExceeded
from tidelog.ids import ShardId, Ts
from tidelog.journal import control, record
from tidelog.journal.control import Mark
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.frame import decode_header
from tidelog.journal.new_record import NewRecord
from tidelog.journal.operation import VAL, encode_pairs
from tidelog.journal.record import Header

A: Put = (0, b"a", b"1")
B: Put = (1, b"b", b"2")
POLICIES = list(FsyncPolicy)
DISK_FULL = [errno.ENOSPC, errno.EDQUOT]


def headers(machine: Machine, shard: int = 0, segment: int = 0) -> list[tuple[Header, bytes]]:
    """The records in the first frame of a shard."""
    data = machine.disk.read_file(machine.path(shard, segment))[: machine.settings.geometry.frame_bytes]
    end = min(len(data), machine.settings.geometry.frame_bytes - 4)
    walked = record.walk(data, decode_header(data).size, end)
    return [(each, data[each.payload : each.payload_end]) for each in walked]


def marks(machine: Machine, shard: int = 0) -> list[Mark]:
    return [control.decode_mark(payload) for each, payload in headers(machine, shard) if each.opcode == control.MARK]


# --- cycles -----------------------------------------------------------------------------------------------------


def test_nothing_is_on_disk_before_write_and_everything_after() -> None:
    machine = Machine(policy=FsyncPolicy.EVERYSEC)
    before = machine.disk.used_bytes
    machine.append(A)
    assert machine.disk.used_bytes == before
    machine.journal.writer.write()
    machine.disk.kill()
    machine.open()
    assert machine.state == {(0, 0, b"a"): b"1"}


def test_a_write_without_transactions_writes_nothing() -> None:
    machine = Machine()
    before = machine.disk.operations
    machine.journal.writer.write()
    assert machine.disk.operations == before


def test_a_cycle_writes_only_dirty_shards_and_its_mark_names_the_ends_of_all() -> None:
    machine = Machine(shards=3)
    machine.commit(A, A)
    ts = machine.commit(B)
    assert [mark.cycle for mark in marks(machine, 0)] == [1, 2]
    assert [mark.cycle for mark in marks(machine, 1)] == [1, 3]
    assert [mark.cycle for mark in marks(machine, 2)] == [1]
    newest = marks(machine, 1)[-1]
    assert (newest.ends, newest.last_ts, newest.synced_cycle) == ((2, 1, 0), ts, 2)


def test_a_mark_names_only_cycles_that_are_known_to_be_synced() -> None:
    machine = Machine(policy=FsyncPolicy.EVERYSEC)
    for _ in range(3):
        machine.write(A)
    machine.journal.writer.sync()
    machine.write(A)
    assert [(mark.cycle, mark.synced_cycle) for mark in marks(machine)] == [(1, 0), (2, 1), (3, 1), (4, 1), (5, 4)]


def test_a_transaction_over_several_shards_starts_in_the_first_and_finishes_in_each() -> None:
    machine = Machine(shards=3)
    ts = machine.commit((1, b"x", b"1"), (0, b"y", b"2"), (1, b"z", b"3"))
    first = [each for each, _ in headers(machine, 1) if each.opcode < record.CONTROL]
    second = [each for each, _ in headers(machine, 0) if each.opcode < record.CONTROL]
    assert [each.opcode for each in first] == [4, VAL, VAL]
    assert [each.flags & record.FINISH for each in first] == [0, 0, record.FINISH]
    assert [bool(each.flags & record.TS) for each in first] == [True, False, False]
    assert [(each.opcode, each.flags) for each in second] == [(VAL, record.TS | record.FINISH)]
    assert machine.journal.writer.written.lsns == (1, 3, 0)
    assert machine.journal.writer.written_ts == ts


def test_blobs_are_written_before_the_records_that_refer_to_them() -> None:
    machine = Machine(shards=1)
    machine.append((0, b"whale", bytes(5000)))
    machine.disk.fail("write", errno.EIO, path_contains="journal-")
    with pytest.raises(JournalFailed):
        machine.journal.writer.write()
    assert len(machine.disk.read_file(f"{FOLDER}/shard-0/blob-{0:016x}.bin")) > 5000


def test_append_one_is_a_transaction_like_any_other() -> None:
    machine = Machine()
    ts = machine.journal.hlc.next()
    machine.journal.writer.append_one(ShardId(1), ts, VAL, encode_pairs([(b"k", b"v")]), 4)
    machine.journal.writer.write()
    machine.journal.writer.sync()
    assert machine.read() == [(ts, ((1, b"k", b"v", 4),))]


def test_short_writes_are_continued() -> None:
    machine = Machine(seed=4)
    machine.disk.short_writes = 0.8
    written = [machine.commit((0, b"k%d" % number, bytes(300))) for number in range(30)]
    machine.disk.crash("lose_all")
    machine.open()
    assert machine.replayed == written


# --- what readers may see ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_visible_is_synced_with_always_and_written_otherwise(policy: FsyncPolicy) -> None:
    machine = Machine(policy=policy)
    writer = machine.journal.writer
    start = writer.visible
    ts = machine.append(A)
    assert writer.visible == start, "gathered is not visible"
    writer.write()
    assert writer.written_ts == ts
    assert (writer.visible.ts == ts) == (policy is not FsyncPolicy.ALWAYS)
    assert writer.durable_ts < ts
    job = writer.begin_sync()
    if policy is FsyncPolicy.NEVER:
        assert job is None
        return
    assert job is not None
    assert writer.begin_sync() is None, "one at a time"
    job.run()
    assert writer.durable_ts < ts
    writer.finish_sync(job)
    assert writer.durable_ts == writer.visible.ts == ts
    assert writer.synced_cycle == writer.visible.cycle


def test_group_commit_makes_durable_what_was_written_when_it_began() -> None:
    machine = Machine()
    writer = machine.journal.writer
    first, second = machine.write(A), machine.write(B)
    job = writer.begin_sync()
    assert job is not None
    third = machine.write(A)
    job.run()
    writer.finish_sync(job)
    assert first < writer.durable_ts == writer.visible.ts == second < third
    writer.sync()
    assert writer.durable_ts == third


def test_many_transactions_share_one_fsync_of_each_file() -> None:
    machine = Machine()
    for number in range(40):
        machine.append((number % 2, b"k", b"v"))
    machine.journal.writer.write()
    before = machine.disk.operations
    machine.journal.writer.sync()
    assert machine.disk.operations - before == 2


def test_segments_roll_while_an_fsync_is_in_flight() -> None:
    machine = Machine(shards=1, frames_per_segment=1)
    writer = machine.journal.writer
    machine.write(A)
    job = writer.begin_sync()
    assert job is not None
    for number in range(30):
        machine.write((0, b"k%d" % number, bytes(200)))
    assert len(machine.segments()) > 5
    job.run()
    writer.finish_sync(job)
    assert len([path for path in machine.disk.open_paths if "journal-" in path]) == 1
    writer.sync()
    machine.disk.crash("lose_all")
    machine.open()
    assert len(machine.state) == 31


def test_a_sync_is_not_begun_while_one_is_in_flight() -> None:
    machine = Machine()
    writer = machine.journal.writer
    machine.write(A)
    job = writer.begin_sync()
    assert job is not None
    machine.write(B)
    for attempt in (writer.sync, writer.close):
        with pytest.raises(InternalError, match="an fsync is under way: finish it"):
            attempt()
    job.run()
    writer.finish_sync(job)
    writer.close()


@pytest.mark.parametrize("policy", POLICIES)
def test_when_a_sync_is_due(policy: FsyncPolicy) -> None:
    machine = Machine(policy=policy)
    writer = machine.journal.writer
    now = 100 * limits.SECOND_US
    writer.begin_sync(now)
    assert not writer.sync_is_due(now)
    machine.write(A)
    assert writer.sync_is_due(now) == (policy is FsyncPolicy.ALWAYS)
    assert not writer.sync_is_due(now + limits.SYNC_EVERY_US - 1) or policy is FsyncPolicy.ALWAYS
    assert writer.sync_is_due(now + limits.SYNC_EVERY_US)
    job = writer.begin_sync(now + limits.SYNC_EVERY_US)
    assert (job is None) == (policy is FsyncPolicy.NEVER)
    if job is not None:
        assert not writer.sync_is_due(now + 10 * limits.SYNC_EVERY_US), "one is in flight"
        job.run()
        writer.finish_sync(job)
    assert not writer.sync_is_due(now + limits.SYNC_EVERY_US)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_sync_renews_the_bound_of_the_clock_under_every_policy(policy: FsyncPolicy) -> None:
    machine = Machine(policy=policy)
    machine.clock.advance(limits.CLOCK_BOUND_AHEAD_WALL_US)
    job = machine.journal.writer.begin_sync()
    assert job is not None
    assert job.renews_clock
    job.run()
    machine.journal.writer.finish_sync(job)
    before = machine.disk.operations
    machine.clock.advance(1)
    machine.journal.hlc.next()
    assert machine.disk.operations == before


def test_never_syncs_only_when_asked_for_everything() -> None:
    machine = Machine(policy=FsyncPolicy.NEVER)
    writer = machine.journal.writer
    ts = machine.write(A)
    writer.sync(everything=False)
    assert writer.durable_ts < ts
    writer.sync()
    assert writer.durable_ts == ts


# --- limits -----------------------------------------------------------------------------------------------------


def test_a_batch_says_how_much_it_has_and_refuses_past_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BATCH_BYTES_MAX", 2000)
    machine = Machine(shards=1)
    writer = machine.journal.writer
    gathered = []
    for size in (900, 100, 900):
        machine.append((0, b"k", bytes(size)))
        gathered.append(writer.batch_bytes)
    assert 900 < gathered[0] < 1000 < gathered[1] < gathered[2] < 2000
    for refused in (
        lambda: machine.append((0, b"k", bytes(200))),
        lambda: writer.append_one(ShardId(0), machine.journal.hlc.next(), VAL, bytes(200)),
    ):
        with pytest.raises(LimitExceeded, match="at most 2000, write it first"):
            refused()
    writer.write()
    assert writer.batch_bytes == 0
    writer.sync()
    assert len(machine.read()) == 3


def test_a_batch_that_is_not_full_takes_the_largest_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TRANSACTION_BYTES_MAX", 6000)
    monkeypatch.setattr(limits, "BATCH_BYTES_FULL", 1000)
    monkeypatch.setattr(limits, "BATCH_BYTES_MAX", 7500)
    machine = Machine(shards=1)
    machine.append((0, b"k", bytes(900)))
    assert machine.journal.writer.batch_bytes < limits.BATCH_BYTES_FULL
    machine.commit((0, b"large", bytes(5900)))
    assert [len(seen.puts[0][2]) for seen in machine.read()] == [900, 5900]


@pytest.mark.parametrize(
    ("limit", "says"), [("TRANSACTION_BYTES_MAX", "a transaction of"), ("PAYLOAD_BYTES_MAX", "a payload of")]
)
def test_a_transaction_over_a_limit_is_refused_whole(limit: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine()
    monkeypatch.setattr(limits, limit, 1000)
    with pytest.raises(LimitExceeded, match=says):
        machine.append(A, B, (1, b"large", bytes(1000)))
    machine.journal.writer.write()
    ts = machine.commit(B)
    assert [seen.ts for seen in machine.read()] == [ts]
    assert machine.journal.writer.written.lsns == (0, 1)


def test_a_ts_that_is_not_above_the_last_is_refused_whole() -> None:
    machine = Machine()
    ts = machine.append(A)
    for late in (ts, Ts(ts - 1)):
        with pytest.raises(InternalError, match=f"ts {late} is not above the last one, {ts}"):
            machine.journal.writer.append(late, [NewRecord(ShardId(0), VAL, b"")])
        with pytest.raises(InternalError, match="is not above"):
            machine.journal.writer.append_one(ShardId(0), late, VAL, b"")
    machine.journal.writer.write()
    machine.journal.writer.sync()
    assert [seen.ts for seen in machine.read()] == [ts]


def test_a_transaction_without_a_record_is_refused() -> None:
    machine = Machine()
    with pytest.raises(InternalError, match="without a record"):
        machine.journal.writer.append(machine.journal.hlc.next(), [])


@pytest.mark.parametrize("policy", POLICIES)
def test_a_disk_that_does_not_keep_up_shows_as_a_backlog(policy: FsyncPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(policy=policy, shards=1)
    writer = machine.journal.writer
    monkeypatch.setattr(limits, "UNSYNCED_BYTES_MAX", 3000)
    machine.write((0, b"k", bytes(2000)))
    assert not writer.has_backlog
    machine.write((0, b"k", bytes(2000)))
    assert writer.has_backlog == (policy is not FsyncPolicy.NEVER)
    writer.sync()
    assert not writer.has_backlog


def test_what_is_written_during_a_sync_still_counts_as_backlog(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(shards=1)
    writer = machine.journal.writer
    monkeypatch.setattr(limits, "UNSYNCED_BYTES_MAX", 3000)
    machine.write((0, b"k", bytes(2900)))
    job = writer.begin_sync()
    assert job is not None
    machine.write((0, b"k", bytes(2900)))
    had_backlog = [writer.has_backlog]
    job.run()
    writer.finish_sync(job)
    had_backlog.append(writer.has_backlog)
    machine.write((0, b"k", bytes(2900)))
    had_backlog.append(writer.has_backlog)
    assert had_backlog == [True, False, True]


# --- no space ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", DISK_FULL)
def test_without_space_the_batch_is_kept_new_ones_are_refused_and_it_resumes(number: int) -> None:
    machine = Machine()
    machine.commit(A)
    kept = machine.append((0, b"kept", b"x"), (1, b"kept", b"y"))
    machine.disk.fail("write", number, path_contains="shard-1", times=2)
    writer = machine.journal.writer
    for _ in range(2):
        with pytest.raises(JournalFull, match=r"no space is left for .*shard-1/journal-.*nothing that was accepted"):
            writer.write()
        assert writer.is_full
        assert not writer.has_failed
        with pytest.raises(JournalFull):
            machine.append(A)
        with pytest.raises(JournalFull):
            writer.append_one(ShardId(0), machine.journal.hlc.next(), VAL, b"")
    assert writer.visible.ts < kept
    writer.write()
    assert not writer.is_full
    after = machine.append(B)
    writer.write()
    writer.sync()
    assert [seen.ts for seen in machine.read()][1:] == [kept, after]
    machine.disk.crash("lose_all")
    machine.open()
    assert machine.replayed[1:] == [kept, after]


def test_a_write_that_fits_only_in_part_is_written_again_from_its_first_byte() -> None:
    machine = Machine(shards=1)
    machine.commit(A)
    machine.append((0, b"whale", bytes(2000)), (0, b"k", bytes(200)))
    machine.disk.capacity_bytes = machine.disk.used_bytes + 100
    with pytest.raises(JournalFull):
        machine.journal.writer.write()
    machine.disk.capacity_bytes = None
    machine.journal.writer.write()
    machine.journal.writer.sync()
    machine.disk.crash("lose_all")
    machine.open()
    assert machine.state == {(0, 0, b"a"): b"1", (0, 0, b"whale"): bytes(2000), (0, 0, b"k"): bytes(200)}


def test_a_sync_while_there_is_no_space_claims_only_what_was_written() -> None:
    machine = Machine()
    first = machine.write(A)
    machine.append(A, B)
    machine.disk.fail("write", errno.ENOSPC, path_contains="shard-1")
    with pytest.raises(JournalFull):
        machine.journal.writer.write()
    machine.journal.writer.sync()
    assert machine.journal.writer.durable_ts == machine.journal.writer.visible.ts == first
    machine.disk.crash("keep_all")
    machine.open()
    assert machine.replayed == [first]


@pytest.mark.parametrize("what", ["journal-", "blob-"])
def test_no_space_for_a_new_file_is_no_failure_and_a_sync_meanwhile_is_none_either(what: str) -> None:
    machine = Machine(shards=1, frames_per_segment=1)
    machine.commit(A)
    machine.append(*[(0, b"k%d" % number, bytes(200)) for number in range(12)], (0, b"whale", bytes(3000)))
    machine.disk.fail("create", errno.ENOSPC, path_contains=what)
    writer = machine.journal.writer
    with pytest.raises(JournalFull):
        writer.write()
    writer.sync()
    assert not writer.has_failed
    writer.write()
    writer.sync()
    machine.disk.crash("lose_all")
    machine.open()
    assert len(machine.state) == 14


def test_closing_without_space_is_no_clean_stop_and_what_was_durable_stays() -> None:
    machine = Machine()
    durable = machine.commit(A)
    machine.append(B)
    machine.disk.fail("write", errno.ENOSPC, times=None, path_contains="shard")
    with pytest.raises(JournalFull):
        machine.journal.close()
    assert machine.disk.open_paths == []
    machine.disk.clear_faults()
    machine.open()
    assert not machine.journal.hlc.was_clean
    assert machine.replayed == [durable]


# --- failures ---------------------------------------------------------------------------------------------------


def refusals(machine: Machine) -> list[Callable[[], object]]:
    writer = machine.journal.writer
    return [lambda: machine.append(A), writer.write, writer.sync, machine.journal.close]


def test_a_failed_write_ends_writes_until_a_restart_and_says_so() -> None:
    machine = Machine()
    durable = machine.commit(A)
    machine.append(B)
    machine.disk.fail("write", errno.EIO, path_contains="shard-1")
    with pytest.raises(JournalFailed, match=r"writing .*shard-1/journal-.* failed .*EIO.* until a restart, which rec"):
        machine.journal.writer.write()
    assert machine.journal.writer.has_failed
    assert not machine.journal.writer.is_full
    assert not machine.journal.writer.sync_is_due(10**12)
    for refused in refusals(machine):
        with pytest.raises(JournalFailed, match="until a restart"):
            refused()
    machine.disk.kill()
    machine.open()
    assert machine.replayed == [durable]


@pytest.mark.parametrize("operation", ["sync", "sync_folder"])
def test_a_failed_fsync_ends_writes_and_is_never_tried_again(operation: str) -> None:
    machine = Machine(frames_per_segment=1)
    durable = machine.commit(A)
    writer = machine.journal.writer
    for number in range(8):
        machine.write((0, b"k%d" % number, bytes(200)))
    machine.disk.fail("sync" if operation == "sync" else "sync_folder", errno.EIO, path_contains="shard-0")
    with pytest.raises(JournalFailed, match=r"an fsync failed .*EIO.* until a restart"):
        writer.sync()
    assert writer.durable_ts == writer.visible.ts == durable
    for refused in refusals(machine):
        with pytest.raises(JournalFailed, match="until a restart"):
            refused()
    assert writer.durable_ts == durable
    assert machine.disk.open_paths == []


def test_a_failed_fsync_in_a_thread_is_told_by_finish_sync() -> None:
    machine = Machine()
    machine.write(A)
    job = machine.journal.writer.begin_sync()
    assert job is not None
    machine.disk.fail("sync", errno.EIO)
    with pytest.raises(OSError, match="EIO") as caught:
        job.run()
    with pytest.raises(JournalFailed, match="an fsync failed"):
        machine.journal.writer.finish_sync(job, caught.value)
    assert machine.journal.writer.begin_sync() is None


def test_a_snapshot_is_not_finished_when_the_journal_cannot_be_made_durable() -> None:
    machine = Machine(policy=FsyncPolicy.EVERYSEC)
    machine.write(A)
    snapshot = machine.journal.begin_snapshot()
    assert snapshot is not None
    machine.disk.fail("sync", errno.EIO, path_contains="journal-")
    with pytest.raises(JournalFailed):
        machine.journal.finish_snapshot(snapshot)
    with pytest.raises(JournalFailed):
        machine.journal.finish_snapshot(snapshot)
    machine.disk.crash("lose_all")
    machine.open()
    assert machine.journal.recovered.snapshot is None


# --- stopping ---------------------------------------------------------------------------------------------------


def test_close_writes_what_has_gathered_and_closing_marks_that_say_it_is_synced() -> None:
    machine = Machine()
    machine.append(A, B)
    machine.journal.close()
    newest = [marks(machine, shard)[-1] for shard in (0, 1)]
    assert {(mark.cycle, mark.synced_cycle, mark.ends) for mark in newest} == {(3, 2, (2, 1))}
    machine.disk.crash("lose_all")
    machine.open()
    assert machine.journal.hlc.was_clean
    assert machine.state == {(0, 0, b"a"): b"1", (1, 0, b"b"): b"2"}


def test_a_closed_journal_takes_nothing() -> None:
    machine = Machine()
    machine.journal.close()
    for refused in (lambda: machine.append(A), machine.journal.writer.write, machine.journal.writer.sync):
        with pytest.raises(JournalFailed, match="the journal is closed"):
            refused()
    assert machine.disk.open_paths == []


def test_a_closed_journal_that_is_opened_again_goes_on_in_the_same_frame() -> None:
    machine = Machine(shards=1, frames_per_segment=64, frame_bytes=4096)
    written = []
    for _ in range(5):
        written.append(machine.commit(A))
        machine.journal.close()
        machine.open()
    assert machine.segments() == [0]
    assert len(machine.disk.read_file(machine.path())) < 4096
    assert machine.replayed == [seen.ts for seen in machine.read()] == written
