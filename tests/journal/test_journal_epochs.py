"""Epochs: who begins them, and when; followers never do."""

from __future__ import annotations

import errno

import pytest

from tests.journal.machine import FOLDER, Machine
from tidelog.errors import ClockAhead, InternalError, JournalFull
from tidelog.hlc import read_stored_ts
from tidelog.ids import U64_MAX, Lsn, ShardId, Ts
from tidelog.journal.control import Epoch
from tidelog.journal.layout import CLOCK
from tidelog.journal.merge import JournalTransaction
from tidelog.journal.operation import VAL, encode_pairs
from tidelog.journal.reader import Part, Record
from tidelog.journal.record import FINISH, TS
from tidelog.testing.disk import SimulatedCrash

SHARDS = pytest.mark.parametrize("shards", [1, 3])


def ids(machine: Machine) -> list[int]:
    return [epoch.id for epoch in machine.journal.epochs]


def follower(shards: int = 2) -> Machine:
    """One whose directory was made by nobody else."""
    return Machine(shards=shards, leads=False)


# --- opening without leading ------------------------------------------------------------------------------------


def test_a_follower_makes_no_ts_and_begins_no_epoch() -> None:
    machine = follower()
    journal = machine.journal
    assert (journal.epochs, journal.epoch_id, journal.needs_epoch, journal.leads) == ([], 0, True, False)
    assert (journal.hlc.last, journal.writer.last_ts, journal.writer.next_lsns) == (0, 0, (0, 0))
    assert read_stored_ts(machine.disk, FOLDER, CLOCK) is None
    assert machine.segments() == []


def test_a_follower_forgets_that_the_last_stop_was_clean() -> None:
    machine = Machine()
    ts = machine.commit((0, b"a", b"1"))
    machine.journal.close()
    journal = machine.open(leads=False)
    assert not journal.needs_epoch
    assert ids(machine) == [1]
    assert journal.hlc.last == ts
    stored = read_stored_ts(machine.disk, FOLDER, CLOCK)
    assert stored is not None
    assert (stored.ts, stored.clean) == (ts, False)
    machine.disk.crash()
    assert machine.open(leads=False).needs_epoch
    assert ids(machine) == [1]
    machine.disk.kill()
    assert machine.open().leads
    assert ids(machine) == [1, 2]


def test_the_stop_of_a_follower_is_never_a_clean_one() -> None:
    """Whoever it follows goes on in the same epoch: a leader here must not."""
    machine = Machine()
    machine.journal.close()
    machine.open(leads=False)
    machine.journal.close()
    assert machine.open(leads=False).needs_epoch
    machine.journal.close()
    machine.open()
    assert ids(machine) == [1, 2]
    machine.journal.leads = False
    machine.journal.close()
    machine.open()
    assert ids(machine) == [1, 2, 3]
    machine.journal.close()
    assert not machine.open().needs_epoch


def test_a_returning_leader_may_go_on_in_its_epoch_after_a_clean_stop() -> None:
    machine = Machine()
    before = machine.commit((0, b"a", b"1"))
    machine.journal.close()
    journal = machine.open(leads=False)
    journal.leads = True
    assert machine.commit((0, b"b", b"2")) > before
    journal.close()
    assert not machine.open().needs_epoch
    assert ids(machine) == [1]


# --- beginning one ----------------------------------------------------------------------------------------------


@SHARDS
def test_an_epoch_is_durable_when_it_has_begun_and_stands_behind_what_was_gathered(shards: int) -> None:
    machine = Machine(shards=shards)
    first = machine.commit((0, b"a", b"1"))
    gathered = machine.append((shards - 1, b"b", b"2"))
    assert machine.journal.writer.written_ts == first
    epoch = machine.journal.begin_epoch(7)
    assert (epoch.id, epoch.last_ts) == (7, gathered)
    assert epoch.lsns == machine.journal.writer.visible.lsns
    assert sum(epoch.lsns) == 2
    assert machine.journal.epochs[-1] is epoch
    assert machine.journal.epoch_id == 7
    assert machine.journal.writer.durable_ts == gathered
    machine.disk.crash()
    machine.open()
    assert machine.journal.epochs[1] == epoch
    assert ids(machine) == [1, 7, 2]
    assert machine.replayed == [first, gathered]
    assert machine.commit((0, b"c", b"3")) > epoch.first_ts


@pytest.mark.parametrize("ahead_us", [-10_000_000, 0, 10_000_000, 86_400_000_000])
def test_the_clock_begins_above_what_it_is_told(ahead_us: int) -> None:
    machine = follower()
    above = Ts(machine.clock.wall_us() + ahead_us)
    epoch = machine.journal.begin_epoch(7, above)
    assert above < epoch.first_ts
    assert machine.clock.wall_us() <= epoch.first_ts
    assert machine.journal.hlc.bound >= epoch.first_ts
    assert machine.commit((0, b"a", b"1")) > epoch.first_ts
    assert machine.journal.leads
    assert not machine.journal.needs_epoch
    machine.journal.close()
    machine.open()
    assert machine.journal.epochs == [epoch]


def test_a_ts_that_leaves_no_room_begins_nothing() -> None:
    machine = follower()
    with pytest.raises(ClockAhead):
        machine.journal.begin_epoch(7, Ts(U64_MAX))
    assert not machine.journal.leads
    assert machine.segments() == []
    machine.journal.begin_epoch(8)


def test_it_is_not_begun_while_an_fsync_is_under_way() -> None:
    machine = Machine()
    machine.write((0, b"a", b"1"))
    job = machine.journal.writer.begin_sync()
    assert job is not None
    with pytest.raises(InternalError, match="an fsync is under way"):
        machine.journal.begin_epoch(7)
    job.run()
    machine.journal.writer.finish_sync(job)
    assert machine.journal.begin_epoch(7).lsns == (1, 0)


def test_without_space_it_has_not_begun_and_may_be_tried_again() -> None:
    machine = follower(1)
    machine.disk.capacity_bytes = machine.disk.used_bytes + 20
    with pytest.raises(JournalFull) as full:
        machine.journal.begin_epoch(7)
    assert full.value.errno == errno.ENOSPC
    assert ([epoch.id for epoch in machine.journal.epochs], machine.journal.leads) == ([7], False)
    machine.disk.capacity_bytes = None
    epoch = machine.journal.begin_epoch(7)
    machine.commit((0, b"a", b"1"))
    machine.journal.close()
    machine.open()
    assert machine.journal.epochs == [epoch]


@SHARDS
def test_a_crash_at_any_moment_leaves_the_epoch_or_none(shards: int) -> None:
    crash_after, outcomes = 1, set()
    while True:
        machine = Machine(shards=shards, seed=crash_after)
        ts = machine.commit((0, b"a", b"1"))
        machine.journal.close()
        machine.open(leads=False)
        before = machine.journal.hlc.last
        machine.disk.crash_after(crash_after)
        try:
            begun = machine.journal.begin_epoch(7, Ts(ts + 50))
        except SimulatedCrash:
            begun = None
        machine.disk.crash()
        machine.disk.clear_faults()
        machine.open()
        outcomes.add(tuple(ids(machine)))
        assert machine.replayed == [ts]
        assert machine.journal.hlc.last > before
        if begun is not None:
            assert machine.journal.epochs[1] == begun
            assert machine.journal.hlc.last > begun.first_ts
            break
        crash_after += 1
    assert outcomes == {(1, 2), (1, 7, 2)}


# --- receiving one ----------------------------------------------------------------------------------------------


@SHARDS
def test_a_received_epoch_is_appended_where_it_begins(shards: int) -> None:
    machine = follower(shards)
    nothing = (Lsn(0),) * shards
    first, second = Epoch(5, nothing, Ts(0), Ts(100)), Epoch(6, nothing, Ts(0))
    for epoch in (first, first, second, first):
        machine.journal.append_received_epoch(epoch)
    assert machine.journal.epochs == [first, second]
    assert not machine.journal.leads
    machine.journal.writer.write()
    machine.journal.writer.sync()
    machine.disk.crash()
    machine.open(leads=False)
    assert machine.journal.epochs == [first, second]
    assert all(machine.segments(shard) == [0] for shard in range(shards)), "each shard has it"


@pytest.mark.parametrize("is_restarted", [False, True])
def test_who_leads_after_a_received_epoch_begins_above_its_first_ts(is_restarted: bool) -> None:
    """Also if nothing happened in that: clients whose checkpoints lie below it have gone on."""
    machine = follower()
    first_ts = Ts(machine.clock.wall_us() + 60_000_000)
    received = Epoch(5, (Lsn(0), Lsn(0)), Ts(0), first_ts)
    machine.journal.append_received_epoch(received)
    machine.journal.writer.write()
    if is_restarted:
        machine.disk.kill()
        machine.open(leads=False)
    assert machine.journal.epochs == [received]
    assert machine.journal.begin_epoch(6).first_ts > first_ts


def test_an_epoch_that_is_refused_leaves_the_clock_alone() -> None:
    machine = follower()
    with pytest.raises(InternalError, match="does not begin at lsns"):
        machine.journal.append_received_epoch(Epoch(5, (Lsn(1), Lsn(0)), Ts(0), Ts(100)))
    assert machine.journal.hlc.last == 0


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_received_epoch_that_one_shard_has_lost_takes_back_what_came_after_it(lost: int) -> None:
    """It has no lsn: by its lsns, that shard has everything."""
    machine = follower(3)
    first = Epoch(5, (Lsn(0),) * 3, Ts(0), Ts(100))
    machine.journal.append_received_epoch(first)
    receive(machine, shard=lost, ts=Ts(200))
    machine.journal.writer.sync()
    synced = machine.disk.read_file(machine.path(lost))
    second = Epoch(6, tuple(machine.journal.writer.next_lsns), Ts(200), Ts(300))
    machine.journal.append_received_epoch(second)
    machine.journal.writer.write()
    receive(machine, shard=(lost + 1) % 3, ts=Ts(400))
    machine.disk.kill()
    machine.disk.write_file(machine.path(lost), synced)  # a power cut has taken what was not synced of one file
    machine.open(leads=False)
    assert (machine.journal.epochs, machine.replayed) == ([first], [200])
    machine.journal.append_received_epoch(second)
    receive(machine, shard=(lost + 1) % 3, ts=Ts(400))
    machine.disk.kill()
    machine.open(leads=False)
    assert (machine.journal.epochs, machine.replayed) == ([first, second], [200, 400])


def receive(machine: Machine, shard: int, ts: Ts) -> None:
    """A transaction of a leader, with one record."""
    writer = machine.journal.writer
    record = Record(writer.next_lsns[shard], ts, VAL, TS | FINISH, 0, -1, encode_pairs([(b"k", b"%d" % ts)]))
    writer.append_received(JournalTransaction(ts, [Part(ts, ShardId(shard), [record], True)]))
    writer.write()


@pytest.mark.parametrize(
    "wrong", [Epoch(5, (Lsn(0), Lsn(0)), Ts(0)), Epoch(5, (Lsn(1), Lsn(1)), Ts(0)), Epoch(5, (Lsn(1),), Ts(0))]
)
def test_an_epoch_of_another_place_is_refused(wrong: Epoch) -> None:
    machine = Machine()
    ts = machine.append((0, b"a", b"1"))
    with pytest.raises(InternalError, match="does not begin at lsns"):
        machine.journal.append_received_epoch(wrong._replace(last_ts=ts))
    with pytest.raises(InternalError, match="does not begin at lsns"):
        machine.journal.append_received_epoch(Epoch(5, (Lsn(1), Lsn(0)), Ts(ts - 1)))
    assert ids(machine) == [1]
    machine.journal.append_received_epoch(Epoch(5, (Lsn(1), Lsn(0)), ts))
    assert ids(machine) == [1, 5]
