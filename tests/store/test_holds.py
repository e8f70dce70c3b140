"""Named holders as state: journaled, in snapshots, on followers, in what may be erased, and taken over from a file."""

from __future__ import annotations

import pytest

from tests.journal.earlier_holders import write_holders
from tests.store.made import Machine
from tidelog import limits
from tidelog.errors import CommandError
from tidelog.ids import Ts
from tidelog.journal.frame import Geometry
from tidelog.journal.operation import Val
from tidelog.journal.retention import Holder, RetentionLimits
from tidelog.journal.rewind import rewind
from tidelog.store.hold_changes import change_holds
from tidelog.store.store import Store
from tidelog.testing.disk import SimulatedCrash

SMALL = Geometry(1024, 2)
FILE = "/data/holders.json"


def holder(name: str, ts: int = 7, moved_us: int = 5) -> Holder:
    return Holder(name, Ts(ts), moved_us)


def put(store: Store, count: int = 1, size: int = 100) -> None:
    for _ in range(count):
        transaction = store.begin()
        transaction.run([Val([(b"k", bytes(size))])])
        store.commit(transaction)
        store.journal.writer.write()


def received(leader: Store, follower: Store) -> None:
    """Hand everything over that the follower has not got."""
    leader.journal.writer.write()
    reader = leader.journal.reader_since(follower.journal.writer.last_ts)
    try:
        for transaction in reader.read():
            follower.apply_received(transaction)
    finally:
        reader.close()
    follower.journal.writer.write()


# --- as state ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shard_count", [1, 3])
@pytest.mark.parametrize("is_saved", [False, True])
def test_they_are_there_after_a_restart(shard_count: int, is_saved: bool) -> None:
    machine = Machine(shard_count)
    change_holds(machine.store, [holder("one"), holder("two"), holder("three")])
    change_holds(machine.store, [holder("two", 9)], ["one"])
    if is_saved:
        machine.store.save()
    change_holds(machine.store, [holder("three", 11)._replace(lapsed="why", epoch=2, seen=Ts(3))])
    before = machine.store.holds.by_name
    machine.restart()
    assert machine.store.holds.by_name == before
    assert machine.store.journal.holders.all() == [holder("two", 9), before["three"]]


def test_a_snapshot_has_those_of_its_moment() -> None:
    machine = Machine()
    change_holds(machine.store, [holder("one"), holder("two")])
    put(machine.store)
    capture = machine.store.begin_capture()
    assert capture is not None
    change_holds(machine.store, [holder("one", 99)], ["two"])
    while not capture.is_done:
        capture.visit(10)
    machine.store.journal.finish_snapshot(capture.snapshot)
    machine.store.end_capture()
    other = Store(machine.clock, machine.store.random)
    other.slots = machine.store.slots
    snapshot = machine.store.journal.newest_snapshot
    assert snapshot is not None
    snapshot.read(machine.disk, other.replay, lambda _: None)
    assert other.holds.by_name == {"one": holder("one"), "two": holder("two")}


def test_a_flush_leaves_them() -> None:
    machine = Machine()
    change_holds(machine.store, [holder("one")])
    machine.store.database(0).clear()
    assert list(machine.store.holds.by_name) == ["one"]


def test_a_crash_keeps_what_was_durable_and_a_prefix_of_the_rest() -> None:
    """As with any other write: never a later change without an earlier one."""
    found = set()
    for seed in range(30):
        machine = Machine()
        machine.disk = type(machine.disk)(seed)
        machine.store = machine._open()
        change_holds(machine.store, [holder("n", 1)])
        machine.store.journal.writer.write()
        machine.store.journal.writer.sync()
        for ts in (2, 3, 4):
            change_holds(machine.store, [holder("n", ts)])
            put(machine.store)
        machine.disk.crash()
        machine.store = machine._open()
        ts = machine.store.holds.by_name["n"].ts
        found.add(int(ts))
        last_ts = machine.store.journal.epochs[-1].last_ts
        reader = machine.store.journal.reader_since(Ts(0))
        written = [each for each in reader.read() if each.ts <= last_ts]
        assert sum(each.parts[0].records[0].opcode == 0x80 for each in written) == ts
    assert {1, 4} <= found


# --- followers --------------------------------------------------------------------------------------------------------


def test_a_follower_has_them_and_changes_none() -> None:
    leader, follower = Machine(), Machine(leads=False)
    change_holds(leader.store, [holder("one"), holder("two")])
    put(leader.store)
    change_holds(leader.store, [holder("one", 9)], ["two"])
    received(leader.store, follower.store)
    assert follower.store.holds.by_name == leader.store.holds.by_name == {"one": holder("one", 9)}
    follower.restart()
    assert follower.store.holds.by_name == {"one": holder("one", 9)}
    with pytest.raises(CommandError, match="READONLY "):
        change_holds(follower.store, [holder("three")])
    assert list(follower.store.holds.by_name) == ["one"]


def test_a_promoted_follower_goes_on_with_them() -> None:
    leader, follower = Machine(), Machine(leads=False)
    put(leader.store)
    change_holds(leader.store, [holder("one")])
    received(leader.store, follower.store)
    follower.store.journal.begin_epoch(77)
    change_holds(follower.store, [holder("one", 8)])
    assert follower.store.holds.by_name == {"one": holder("one", 8)}


@pytest.mark.parametrize("is_leader", [False, True])
def test_what_they_hold_is_erased_nowhere(is_leader: bool) -> None:
    bounds = RetentionLimits(bytes_max=0, snapshots_kept=1)
    leader, follower = Machine(geometry=SMALL), Machine(geometry=SMALL, leads=False)
    put(leader.store, 30)
    held = leader.store.journal.writer.last_ts
    change_holds(leader.store, [holder("n", held, leader.clock.wall_us())])
    put(leader.store, 30)
    received(leader.store, follower.store)
    machine = leader if is_leader else follower
    journal = machine.store.journal
    journal.retention = bounds
    journal.writer.sync()
    machine.store.save()
    assert journal.erase()
    assert 0 < journal.erased_ts <= held
    journal.reader_since(held).close()
    change_holds(leader.store, [holder("n", leader.store.journal.writer.last_ts, leader.clock.wall_us())])
    received(leader.store, follower.store)
    assert not journal.erase(), "it is not durable that it has moved"
    journal.writer.sync()
    assert journal.erase()
    assert journal.erased_ts > held


def test_a_former_leader_that_goes_back_takes_them_back() -> None:
    machine = Machine()
    put(machine.store)
    change_holds(machine.store, [holder("moved", 1), holder("dropped", 1)])
    shared = machine.store.journal.writer.last_ts
    machine.store.journal.writer.write()
    machine.store.journal.writer.sync()
    change_holds(machine.store, [holder("moved", 2), holder("new", 2)], ["dropped"])
    machine.store.journal.writer.write()
    machine.store.journal.close()
    rewind(machine.disk, "/data", shared, 1)
    machine._leads = False
    machine.store = machine._open()
    assert machine.store.holds.by_name == {"moved": holder("moved", 1), "dropped": holder("dropped", 1)}


# --- letting go -------------------------------------------------------------------------------------------------------


def test_the_leader_lets_go_by_a_record_that_followers_get() -> None:
    leader, follower = Machine(geometry=SMALL), Machine(geometry=SMALL, leads=False)
    for machine in (leader, follower):
        machine.store.journal.retention = RetentionLimits(bytes_max=0, snapshots_kept=1)
    change_holds(leader.store, [holder("stalled", 0, leader.clock.wall_us())])
    put(leader.store, 30)
    received(leader.store, follower.store)
    leader.clock.advance(limits.HOLDER_LAPSE_US + 1)
    follower.clock.advance(limits.HOLDER_LAPSE_US + 1)
    put(leader.store, 30)
    received(leader.store, follower.store)
    for machine in (follower, leader):
        machine.store.journal.writer.sync()
        machine.store.save()
    assert not follower.store.journal.erase()
    assert follower.store.holds.by_name["stalled"].lapsed is None, "only a leader lets one go"
    assert not leader.store.journal.erase(), "what it held goes when it is durable that it was let go"
    assert leader.store.holds.by_name["stalled"].lapsed == "it did not move for 86400 s"
    received(leader.store, follower.store)
    assert follower.store.holds.by_name == leader.store.holds.by_name
    for machine in (follower, leader):
        machine.store.journal.writer.sync()
        assert machine.store.journal.erase()
        machine.restart()
        assert machine.store.holds.by_name["stalled"].lapsed == "it did not move for 86400 s"


def test_no_crash_leaves_a_hold_without_what_it_holds() -> None:
    """Whatever is taken back, a hold that is there has its journal."""
    outcomes = set()
    for seed in range(40):
        machine = Machine(geometry=SMALL)
        machine.disk = type(machine.disk)(seed)
        machine.store = machine._open()
        journal = machine.store.journal
        journal.retention = RetentionLimits(bytes_max=0, snapshots_kept=1)
        began = journal.hlc.last
        change_holds(machine.store, [holder("n", began, machine.clock.wall_us())])
        put(machine.store, 20)
        machine.store.save()
        journal.writer.sync()
        change_holds(machine.store, [holder("n", journal.writer.last_ts, machine.clock.wall_us())])
        if seed % 2:
            journal.writer.write()
        if seed % 4 > 1:
            journal.writer.sync()
        machine.disk.crash_after(1 + seed % 10)
        try:
            for _ in range(3):
                journal.erase()
        except SimulatedCrash:
            pass
        machine.disk.crash()
        machine.store = machine._open()
        [hold] = machine.store.holds.by_name.values()
        assert machine.store.journal.erased_ts <= hold.ts
        outcomes.add((machine.store.journal.erased_ts > began, hold.ts > began))
    assert outcomes == {(False, False), (False, True), (True, True)}


# --- the file of an earlier version -----------------------------------------------------------------------------------


def test_a_leader_takes_the_file_over_once() -> None:
    machine = Machine()
    change_holds(machine.store, [holder("both", 9)])
    machine.store.journal.writer.write()
    write_holders(machine.disk, "/data", holder("both", 3), holder("earlier", 4)._replace(lapsed="why"))
    machine.restart()
    expected = {"both": holder("both", 9), "earlier": holder("earlier", 4)._replace(lapsed="why")}
    assert machine.store.holds.by_name == expected
    assert not machine.disk.exists(FILE)
    last_ts = machine.store.journal.writer.last_ts
    machine.disk.crash("lose_all")
    machine.store = machine._open()
    assert machine.store.holds.by_name == expected
    assert machine.store.journal.writer.last_ts == last_ts


def test_a_follower_leaves_the_file_until_it_leads() -> None:
    leader, machine = Machine(), Machine(leads=False)
    put(leader.store)
    received(leader.store, machine.store)
    write_holders(machine.disk, "/data", holder("earlier", 4))
    machine.restart()
    assert machine.store.holds.by_name == {}
    assert machine.disk.exists(FILE)
    machine.store.journal.begin_epoch(77)
    assert machine.store.holds.by_name == {"earlier": holder("earlier", 4)}
    assert not machine.disk.exists(FILE)


def test_the_file_outlives_a_crash_until_its_holders_are_durable() -> None:
    for crash_at in range(1, 60):
        machine = Machine()
        put(machine.store)
        machine.store.journal.close()
        write_holders(machine.disk, "/data", holder("one", 4), holder("two", 5))
        machine.disk.crash_after(crash_at)
        try:
            machine.store = machine._open()
            break
        except SimulatedCrash:
            pass
        machine.disk.crash()
        machine.store = machine._open()
        assert machine.store.holds.by_name == {"one": holder("one", 4), "two": holder("two", 5)}
        assert not machine.disk.exists(FILE)
    assert 10 < crash_at < 59


def test_on_a_full_disk_the_file_stays() -> None:
    machine = Machine()
    put(machine.store)
    machine.store.journal.close()
    write_holders(machine.disk, "/data", holder("one", 4))
    machine.disk.capacity_bytes = 0
    machine.store = machine._open()
    assert machine.disk.exists(FILE)
    assert list(machine.store.holds.by_name) == ["one"]
