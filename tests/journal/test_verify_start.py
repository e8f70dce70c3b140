"""The audit says what a start says: who is blamed, where, and how much could be counted."""

from __future__ import annotations

import pytest

from tests.journal.machine import FOLDER, FRAME_BYTES, TABLE, Machine
from tests.journal.test_verify import audit, cut, grown
from tidelog.errors import Corruption, NewerFormat
from tidelog.ids import Lsn, ShardId
from tidelog.journal.layout import RESTORING
from tidelog.journal.loader import plan_recovery
from tidelog.journal.operation import VAL
from tidelog.journal.record import TS
from tidelog.journal.repair import repair
from tidelog.journal.retention import RetentionLimits
from tidelog.journal.verify import verify


def refusal(machine: Machine) -> Corruption:
    """What both say; the same."""
    with pytest.raises(Corruption) as raised:
        plan_recovery(machine.disk, FOLDER, machine.journal.meta, TABLE.is_known)
    report = verify(machine.disk, FOLDER, TABLE)
    assert str(report.refusal) == str(raised.value)
    assert not report.is_sound
    return raised.value


def test_a_first_segment_that_no_snapshot_covers_is_missed() -> None:
    machine = grown()
    machine.journal.close()
    machine.disk.remove(machine.path(1, 0))
    error = refusal(machine)
    assert error.path == machine.path(1, machine.segments(1)[0])
    assert "no snapshot reaches further than 0" in error.problem


def test_a_transaction_without_an_end_is_refused_at_its_mark() -> None:
    machine = Machine(shards=1)
    end = machine.journal.writer.written.ends[0]
    assert end is not None
    ts = machine.journal.hlc.next()
    machine.journal.writer._shards[0].add(ts, VAL, TS, b"\3\3\3kv", None, 0)
    machine.journal.writer.write()
    machine.disk.kill()
    error = refusal(machine)
    assert "the transaction has no end" in error.problem
    assert (error.path, error.frame, error.position) == (machine.path(), 0, end.at + 12)
    report = repair(machine.disk, FOLDER)
    assert report.set_aside, "it can be cut all the same"
    machine.open()


@pytest.mark.parametrize("is_torn", [False, True])
def test_the_shard_that_is_damaged_is_blamed(is_torn: bool) -> None:
    machine = grown()
    machine.write((0, b"torn", bytes(150)))
    machine.disk.kill()
    if is_torn:
        cut(machine.disk, machine.path(0, machine.segments(0)[-1]), 10)
    path = machine.path(1, machine.segments(1)[-1])
    machine.disk.flip_bit(path, 8 * 300)
    error = refusal(machine)
    assert (error.path, error.frame) == (path, 0)
    assert [problem.path for problem in audit(machine).problems] == [path], "the tail of shard 0 is no problem"


def test_what_lies_before_the_damage_is_counted() -> None:
    machine = grown()
    machine.journal.close()
    machine.disk.flip_bit(machine.path(0, machine.segments(0)[-1]), 8 * 100)
    report = audit(machine)
    assert not report.is_sound
    assert all(figures.transactions > 20 and figures.records > 20 for figures in report.shards)
    assert report.shards[0].blobs > 3


def test_damage_that_a_start_does_not_need_is_a_problem_but_no_refusal() -> None:
    machine = grown(retention=RetentionLimits(snapshots_kept=2))
    machine.snapshot({})
    machine.commit((0, b"after", b"1"))
    machine.journal.close()
    machine.disk.flip_bit(machine.path(0, 0), 8 * 300)
    report = audit(machine)
    assert [problem.path for problem in report.problems] == [machine.path(0, 0)]
    assert report.refusal is None
    assert report.notes == ["a server starts all the same: only what its start does not need is damaged"]
    assert report.tail_bytes == 0
    machine.open()


def test_a_restore_that_did_not_finish_is_a_problem() -> None:
    machine = grown()
    machine.journal.close()
    machine.disk.write_file(f"{FOLDER}/{RESTORING}", b"")
    report = audit(machine)
    assert report.refusal is not None
    assert report.refusal.path == f"{FOLDER}/{RESTORING}"


# --- what a newer version wrote -------------------------------------------------------------------------------------


def test_an_unknown_opcode_is_refused_before_anything_is_changed() -> None:
    machine = Machine(shards=2)
    machine.fill(9, shard=1)
    end = machine.journal.writer.written.ends[1]
    assert end is not None
    machine.journal.writer.append_one(ShardId(1), machine.journal.hlc.next(), 0x3E, b"of a later version")
    machine.journal.writer.write()
    machine.disk.kill()
    error = refusal(machine)
    assert isinstance(error, NewerFormat)
    assert str(error) == (
        f"{machine.path(1)}, frame {end.at // FRAME_BYTES}, position {end.at}: opcode 0x3e is unknown: made by a newer "
        f"version?"
    )
    with pytest.raises(NewerFormat):
        repair(machine.disk, FOLDER, is_known=TABLE.is_known)
    machine.open()
    assert machine.journal.cut_tail is None, "a caller that knows all opcodes gets it"


def test_a_flag_that_is_reserved_is_refused_under_a_mark_and_torn_otherwise() -> None:
    for is_marked in (True, False):
        machine = Machine(shards=1)
        end = machine.journal.writer.written.ends[0]
        assert end is not None
        inner = machine.journal.writer._shards[0]
        inner._append(bytes((VAL, 0x40 | 0x11, 11, 0, 0, 0, 0)) + b"\3\3\3kv")
        inner.next_lsn = Lsn(inner.next_lsn + 1)
        machine.journal.writer.write()
        machine.disk.kill()
        if not is_marked:
            cut(machine.disk, machine.path(), 3)
            assert audit(machine).is_sound
            machine.open()
            assert machine.journal.cut_tail is not None
            continue
        error = refusal(machine)
        assert "reserved bits are set" in error.problem
        assert error.position == end.at
