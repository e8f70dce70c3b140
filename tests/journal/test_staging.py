"""Values that are written to the blob file before their record."""

from __future__ import annotations

import errno

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from tests.journal.machine import FOLDER, TABLE, Machine
from tidelog import limits
from tidelog.errors import JournalFailed
from tidelog.ids import ShardId, Ts
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.merge import JournalTransaction
from tidelog.journal.new_record import NewRecord
from tidelog.journal.operation import VAL, encode_pairs
from tidelog.journal.reader import Part, Record
from tidelog.journal.record import FINISH, TS
from tidelog.journal.segment import blob_name
from tidelog.journal.staging import StagedBlob, StageJob, joined_crc
from tidelog.journal.verify import verify
from tidelog.testing.disk import SimulatedCrash

VALUE = bytes(range(256)) * 40


def stage(machine: Machine, value: bytes = VALUE, shard: int = 0) -> StageJob:
    job = machine.journal.writer.begin_stage(ShardId(shard), len(value), lambda: value)
    job.run()
    return job


def append(machine: Machine, key: bytes, staged: StagedBlob) -> Ts:
    """A transaction of one record that refers to the value."""
    machine.clock.advance(1000)
    ts = machine.journal.hlc.next()
    payload = encode_pairs([(key, staged.value)])
    head = payload[: len(payload) - len(staged.value)]
    machine.journal.writer.append(ts, [NewRecord(staged.shard, VAL, head, None, 0, staged)])
    return ts


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_the_checksum_of_two_pieces_is_that_of_their_whole(first: bytes, second: bytes) -> None:
    assert joined_crc(crc32c(first), crc32c(second), len(second)) == crc32c(first + second)


@pytest.mark.parametrize("policy", FsyncPolicy)
def test_a_staged_value_is_read_and_recovered_like_any_other(policy: FsyncPolicy) -> None:
    machine = Machine(policy=policy)
    job = stage(machine)
    machine.commit((0, b"in between", b"small"))
    machine.commit((0, b"another whale", bytes(5000)))
    machine.journal.writer.finish_stage(job)
    assert machine.journal.writer.can_refer_to(job.blob)
    ts = append(machine, b"k", job.blob)
    machine.journal.writer.write()
    machine.journal.writer.sync()
    assert machine.read()[-1] == (ts, ((0, b"k", VALUE, 0),))
    machine.disk.crash("lose_all")
    machine.open()
    assert machine.state[0, 0, b"k"] == VALUE
    assert machine.state[0, 0, b"another whale"] == bytes(5000)
    machine.journal.close()
    assert verify(machine.disk, FOLDER, TABLE).is_sound


def test_only_the_head_is_left_to_be_written_with_the_record() -> None:
    machine = Machine(policy=FsyncPolicy.EVERYSEC)
    job = stage(machine)
    before, unsynced = machine.journal.writer.bytes_written, machine.journal.writer.unsynced_bytes
    append(machine, b"k", job.blob)
    machine.journal.writer.write()
    assert machine.journal.writer.bytes_written - before > len(VALUE), "the journal grew by all of it"
    assert machine.journal.writer.unsynced_bytes - unsynced < 300, "the thread has fsynced the value already"


def test_a_value_is_written_again_for_a_record_of_a_later_segment() -> None:
    machine = Machine()
    job = stage(machine)
    machine.fill(40)
    assert len(machine.segments()) > 1
    assert not machine.journal.writer.can_refer_to(job.blob)
    ts = append(machine, b"k", job.blob)
    machine.journal.writer.write()
    machine.journal.writer.sync()
    machine.disk.remove(f"{FOLDER}/shard-0/{blob_name(job.blob.position.segment)}")  # as if its segment were erased
    assert machine.read(ts - 1) == [(ts, ((0, b"k", VALUE, 0),))]


def test_a_value_whose_segment_was_erased_before_it_was_written_is_no_error() -> None:
    machine = Machine()
    job = machine.journal.writer.begin_stage(ShardId(0), len(VALUE), lambda: VALUE)
    machine.fill(40)
    machine.disk.remove(f"{FOLDER}/shard-0/{blob_name(job.blob.position.segment)}")
    job.run()
    machine.journal.writer.finish_stage(job)
    assert job.error is None
    assert not machine.journal.writer.can_refer_to(job.blob)


def test_a_value_that_nobody_refers_to_is_no_damage() -> None:
    machine = Machine()
    machine.commit((0, b"a", b"1"))
    stage(machine)
    machine.commit((0, b"b", bytes(5000)))
    machine.disk.crash("keep_all")
    machine.open()
    assert machine.state == {(0, 0, b"a"): b"1", (0, 0, b"b"): bytes(5000)}


def test_without_space_nothing_happens_and_the_journal_goes_on() -> None:
    machine = Machine()
    machine.commit((0, b"a", b"1"))
    machine.disk.capacity_bytes = machine.disk.used_bytes + limits.STAGED_HEAD_BYTES_MAX + 2000
    job = stage(machine)
    assert job.error is not None
    assert job.error.errno == errno.ENOSPC
    machine.journal.writer.finish_stage(job)
    machine.disk.capacity_bytes = None
    machine.commit((0, b"b", b"2"))
    machine.disk.crash("lose_all")
    machine.open()
    assert machine.state == {(0, 0, b"a"): b"1", (0, 0, b"b"): b"2"}


def test_after_a_failed_fsync_the_journal_takes_no_more() -> None:
    machine = Machine()
    machine.disk.fail("sync", errno.EIO, path_contains="blob-")
    job = stage(machine)
    with pytest.raises(JournalFailed):
        machine.journal.writer.finish_stage(job)
    assert machine.journal.writer.has_failed


def test_a_cycle_is_not_durable_by_an_fsync_after_one_that_failed() -> None:
    machine = Machine()
    machine.write((0, b"whale", bytes(5000)))
    machine.disk.fail("sync", errno.EIO, path_contains="blob-")
    stage(machine)  # its fsync lost the other value too
    with pytest.raises(JournalFailed):
        machine.journal.writer.sync()


def test_with_never_the_thread_does_not_fsync() -> None:
    machine = Machine(policy=FsyncPolicy.NEVER)
    machine.disk.fail("sync", errno.EIO, path_contains="blob-", times=None)
    assert stage(machine).sync_error is None


def test_a_job_that_nobody_wants_ends_early() -> None:
    machine = Machine()
    job = machine.journal.writer.begin_stage(ShardId(0), len(VALUE), lambda: VALUE)
    job.is_given_up = True
    before = machine.disk.operations
    job.run()
    assert machine.disk.operations == before


def test_a_crash_at_any_write_leaves_what_was_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STAGED_PIECE_BYTES", 3000)
    monkeypatch.setattr(limits, "STAGED_SYNC_BYTES", 6000)

    def live(machine: Machine) -> None:
        job = stage(machine)
        append(machine, b"k", job.blob)
        machine.journal.writer.write()
        machine.journal.writer.sync()

    whole = Machine()
    whole.commit((0, b"a", b"1"))
    before = whole.disk.operations
    live(whole)
    for number in range(1, whole.disk.operations - before + 1):
        machine = Machine(seed=number)
        machine.commit((0, b"a", b"1"))
        machine.disk.crash_after(number)
        with pytest.raises(SimulatedCrash):
            live(machine)
        machine.disk.crash()
        machine.open()
        assert machine.state in ({(0, 0, b"a"): b"1"}, {(0, 0, b"a"): b"1", (0, 0, b"k"): VALUE})


# --- payloads that were received --------------------------------------------------------------------------------


def received(machine: Machine, payload: bytes, cut_at: int) -> StageJob:
    """A payload in two pieces, as it is written."""
    job = machine.journal.writer.begin_stage_received(ShardId(0), [payload[:cut_at], payload[cut_at:]])
    job.run()
    return job


def error_of(job: StageJob) -> OSError | None:
    return job.error


def append_received(machine: Machine, payload: bytes, job: StageJob) -> Ts:
    machine.clock.advance(1000)
    writer, ts = machine.journal.writer, machine.journal.hlc.next()
    record = Record(writer.next_lsns[0], ts, VAL, TS | FINISH, 0, -1, b"")
    part = Part(ts, ShardId(0), [record], True)
    writer.append_received(JournalTransaction(ts, [part]), {(0, record.lsn): job.blob})
    writer.write()
    writer.sync()
    return ts


def test_a_received_payload_is_read_and_recovered_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STAGED_PIECE_BYTES", 3000)
    payload = encode_pairs([(b"k", VALUE)])
    for cut_at in (1, 10, 2990, 3000, 7000, len(payload)):
        machine = Machine()
        machine.commit((0, b"another whale", bytes(5000)))
        job = received(machine, payload, cut_at)
        machine.journal.writer.finish_stage(job)
        ts = append_received(machine, payload, job)
        assert machine.read()[-1] == (ts, ((0, b"k", VALUE, 0),))
        machine.disk.crash("lose_all")
        machine.open()
        assert machine.state[0, 0, b"k"] == VALUE
        machine.journal.close()
        assert verify(machine.disk, FOLDER, TABLE).is_sound


def test_a_received_payload_is_written_again_for_a_record_of_a_later_segment() -> None:
    machine = Machine()
    payload = encode_pairs([(b"k", VALUE)])
    job = received(machine, payload, 5)
    machine.fill(40)
    assert not machine.journal.writer.can_refer_to(job.blob)
    ts = append_received(machine, payload, job)
    assert machine.read(ts - 1) == [(ts, ((0, b"k", VALUE, 0),))]


def test_a_job_that_runs_again_writes_in_the_same_place() -> None:
    machine = Machine()
    payload = encode_pairs([(b"k", VALUE)])
    machine.commit((0, b"a", b"1"))
    machine.disk.capacity_bytes = machine.disk.used_bytes + 2000
    job = received(machine, payload, 5)
    used = machine.disk.used_bytes
    assert error_of(job) is not None
    job.run()
    assert error_of(job) is not None
    assert machine.disk.used_bytes == used
    machine.disk.capacity_bytes = None
    job.run()
    assert error_of(job) is None
    machine.journal.writer.finish_stage(job)
    assert not machine.journal.writer.is_staging
    ts = append_received(machine, payload, job)
    assert machine.read()[-1] == (ts, ((0, b"k", VALUE, 0),))
