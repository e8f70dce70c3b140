"""FAILOVER: whoever dies, and when, one server leads in the end, at most one at any time, and nothing is lost."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from tests.replication.simulated_server import FOLDER, Machine, Refused
from tests.replication.test_replication import World, is_stable, level, value
from tidelog.ids import Lsn, Ts
from tidelog.journal.control import Epoch
from tidelog.journal.durability import FsyncPolicy
from tidelog.ports import NetworkAddress
from tidelog.replication.meeting import RefusedAnswer, answer
from tidelog.replication.message import FollowerHello, HistoryPosition, LinkRole, RefusalReason, ShardEnd
from tidelog.replication.role_file import FollowerName, Handover, RoleFile, StoredRole, read_role
from tidelog.testing.disk import SimulatedCrash


def in_sync(policy: FsyncPolicy = FsyncPolicy.NEVER) -> World:
    """A leader and its follower, which have one write that is durable nowhere."""
    world = World(policy=policy)
    world.pair()
    for machine in (world.a, world.b):
        machine.live.store.journal.writer.sync()
    world.a.live.run("SET", "x", "1")
    level(world, world.a, world.b)
    world.loop.run(0.2)
    return world


def leads(machine: Machine) -> bool:
    return machine.server is not None and machine.live.replication.write_refusal is None


def hand_over_unheard(world: World) -> None:
    """The leader hands over, and what it says about it is lost."""
    world.network.cut([world.a.host], [world.b.host])
    world.a.live.replication.fail_over(None, 0, is_forced=False)
    world.until(lambda: world.a.live.replication.role is LinkRole.FOLLOWER)
    assert world.b.live.replication.role is LinkRole.FOLLOWER


def expect_handed_over(world: World) -> None:
    """The follower leads, has everything, and the old leader follows it."""
    while not leads(world.b):
        assert not leads(world.a)
        world.loop.run(0.05)
        assert world.loop.clock.monotonic_us() < 120e6
    assert value(world.b, "x") == b"1"
    level(world, world.b, world.a)
    world.b.live.run("SET", "x", "2")
    level(world, world.b, world.a)
    assert value(world.a, "x") == b"2"
    for machine in (world.a, world.b):
        assert machine.live.replication.facts().set_aside_records == 0


def kill(machine: Machine) -> None:
    machine.kill()


def cut_power(machine: Machine) -> None:
    machine.crash("lose_all")


Fate = Callable[[Machine], None]
FATES = pytest.mark.parametrize("fate", [kill, cut_power])


@FATES
def test_a_leader_that_dies_before_its_heir_has_heard_tells_it_when_it_is_back(fate: Fate) -> None:
    world = in_sync()
    hand_over_unheard(world)
    fate(world.a)
    world.network.heal()
    world.a.start()
    with pytest.raises(Refused, match="READONLY"):
        world.a.live.run("SET", "x", "other")
    expect_handed_over(world)


@FATES
def test_both_die_before_the_heir_has_heard(fate: Fate) -> None:
    world = in_sync(FsyncPolicy.ALWAYS)
    hand_over_unheard(world)
    fate(world.a)
    fate(world.b)
    world.network.heal()
    world.b.start()
    world.loop.run(3)
    assert not leads(world.b)
    world.a.start()
    expect_handed_over(world)


def test_an_heir_that_lost_its_tail_gets_it_from_the_former_leader_first() -> None:
    world = in_sync()
    hand_over_unheard(world)
    cut_power(world.b)
    kill(world.a)
    world.network.heal()
    world.a.start()
    world.b.start()
    assert value(world.b, "x") is None
    expect_handed_over(world)


def test_an_heir_that_lost_what_nobody_has_any_more_does_not_lead_without_it() -> None:
    world = in_sync()
    hand_over_unheard(world)
    cut_power(world.a)
    cut_power(world.b)
    world.network.heal()
    world.a.start()
    world.b.start()
    world.loop.run(20)
    assert not leads(world.a)
    assert not leads(world.b)
    world.b.live.replication.lead()  # an operator decides
    level(world, world.b, world.a)
    assert value(world.b, "x") is None


def test_a_leader_that_dies_inside_of_the_handover_leads_or_has_handed_over() -> None:
    ends: set[LinkRole] = set()
    for step in range(1, 8):
        world = in_sync(FsyncPolicy.ALWAYS)
        world.loop.run(1)
        world.a.disk.crash_after(step)
        world.a.live.replication.fail_over(None, 0, is_forced=False)
        try:
            world.loop.run(0.5)
        except SimulatedCrash:
            world.a.crash("lose_all")
            world.a.start()
        world.a.disk.crash_after(10**9)
        stored = read_role(world.a.disk, FOLDER)
        assert stored is not None
        ends.add(stored.role)
        if stored.role is LinkRole.FOLLOWER:
            expect_handed_over(world)
        else:
            world.until(lambda world=world: leads(world.a))  # type: ignore[misc]
            level(world, world.a, world.b)
            assert value(world.a, "x") == b"1"
    assert ends == {LinkRole.LEADER, LinkRole.FOLLOWER}


def test_an_heir_without_space_for_its_role_is_told_again() -> None:
    world = in_sync()
    world.b.disk.fail("create", errno.ENOSPC, path_contains="role.json", times=4)
    world.a.live.replication.fail_over(None, 0, is_forced=False)
    world.loop.run(0.5)
    assert not leads(world.a)
    assert not leads(world.b)
    expect_handed_over(world)


def test_who_has_led_once_is_not_told_again() -> None:
    world = in_sync()
    world.a.live.replication.fail_over(None, 0, is_forced=False)
    world.until(lambda: not leads(world.a))
    expect_handed_over(world)
    assert world.a.live.replication.handed_over is None
    world.c.start(world.b.address)
    level(world, world.b, world.a, world.c)
    world.b.live.replication.fail_over(world.c.address, 0, is_forced=False)
    world.until(lambda: leads(world.c))
    world.b.live.replication.follow(world.a.address)  # a circle: what each has handed over is of the past
    world.loop.run(10)
    assert leads(world.c)
    assert not leads(world.a)
    assert not leads(world.b)


@pytest.mark.parametrize("address", [None, ("c", 6390)])
def test_a_new_role_ends_a_handover(address: NetworkAddress | None) -> None:
    world = in_sync()
    hand_over_unheard(world)
    if address is None:
        world.a.live.replication.lead()
    else:
        world.a.live.replication.follow(address)
    world.a.kill()
    world.network.heal()
    world.a.start()
    assert world.a.live.replication.handed_over is None
    world.loop.run(10)
    assert not leads(world.b)


def test_a_forced_handover_asks_for_no_more_than_the_heir_had() -> None:
    world = in_sync()
    world.network.partition([world.a.host], [world.b.host])
    world.a.live.run("SET", "x", "2")
    before_ts = world.b.live.last_ts
    world.a.live.replication.fail_over(world.b.address, 500, is_forced=True)
    world.loop.run(1)
    stored = read_role(world.a.disk, FOLDER)
    assert stored is not None
    assert stored.handed_over == Handover(before_ts, world.a.live.store.journal.epoch_id)
    world.network.heal()
    world.until(lambda: leads(world.b))
    level(world, world.b, world.a)
    assert world.a.live.replication.facts().set_aside_records == (0 if value(world.b, "x") == b"2" else 1)


def test_a_handover_that_takes_too_long_changes_nothing() -> None:
    world = in_sync()
    world.network.partition([world.a.host], [world.b.host])
    world.a.live.run("SET", "x", "2")
    world.a.live.replication.fail_over(world.b.address, 500, is_forced=False)
    held = [world.a.live.holds_writes]
    world.loop.run(1)
    held.append(world.a.live.holds_writes)
    assert held == [True, False]
    assert leads(world.a)
    stored = read_role(world.a.disk, FOLDER)
    assert stored is not None
    assert (stored.role, stored.handed_over) == (LinkRole.LEADER, None)


def test_a_handover_that_may_not_be_durable_does_not_come_true_later() -> None:
    """The new role is in place when an fsync fails. The leader goes on, so it must still lead after a crash."""
    world = in_sync()
    world.a.disk.fail("sync_folder", errno.EIO)
    world.a.live.replication.fail_over(None, 0, is_forced=False)
    world.loop.run(0.5)
    assert leads(world.a)
    world.a.live.run("SET", "x", "2")
    level(world, world.a, world.b)
    world.a.kill()
    world.a.start()
    world.until(lambda: leads(world.a))
    level(world, world.a, world.b)
    assert value(world.b, "x") == b"2"


def test_an_heir_is_told_when_it_has_all_that_the_former_leader_has() -> None:
    """As if that had gone on after a handover of which it did not know whether it was durable."""
    world = in_sync(FsyncPolicy.ALWAYS)
    handed_over = Handover(world.a.live.last_ts, world.a.live.store.journal.epoch_id)
    world.network.partition([world.a.host], [world.b.host])
    world.a.live.run("SET", "x", "2")
    world.loop.run(0.5)
    world.a.kill()
    RoleFile(world.a.disk, FOLDER).store(StoredRole(LinkRole.FOLLOWER, world.b.address, handed_over=handed_over))
    world.network.heal()
    world.a.start()
    world.until(lambda: leads(world.b))
    assert value(world.b, "x") == b"2"


def test_a_server_that_has_less_than_was_handed_over_does_not_take_over() -> None:
    world = in_sync()
    world.b.live.replication.take_over(world.b.live.last_ts + 1)  # type: ignore[arg-type]
    world.loop.run(1)
    assert not leads(world.b)
    assert is_stable(world.b)


def test_a_follower_never_sends_its_own_leader_back() -> None:
    """What the leader has more is on its way, also if that has just handed over and asks to follow."""
    world = in_sync()
    followers, leader = world.b.live.replication.followers, world.a.live.replication
    assert followers.is_our_leader(FollowerName("its-other-name", 1, leader.server_id))
    assert not followers.is_our_leader(FollowerName(*world.a.address, "another behind its address"))
    journal, ts = world.b.live.store.journal, Ts(world.a.live.last_ts + 1)
    epochs = (*journal.epochs, Epoch(77, journal.writer.visible.lsns, world.a.live.last_ts, ts))
    position = HistoryPosition(ts, tuple(ShardEnd(Lsn(lsn + 1), ts) for lsn in journal.writer.visible.lsns))
    hello = FollowerHello(journal.meta.database_id, LinkRole.FOLLOWER, position, epochs)
    for is_our_leader, reason in ((True, RefusalReason.BEHIND), (False, RefusalReason.DIVERGED)):
        found = answer(journal, hello, is_settled=True, is_returning=False, is_our_leader=is_our_leader)
        assert isinstance(found, RefusedAnswer)
        assert found.refusal.reason is reason
    world.b.live.replication.lead()
    assert not followers.is_our_leader(FollowerName(*world.a.address, leader.server_id))


def test_a_leader_that_hands_over_keeps_the_id_that_it_has_told() -> None:
    world = in_sync()
    told = world.b.live.replication.leader_id
    hand_over_unheard(world)
    assert world.a.live.replication.server_id == told != ""
    world.a.kill()
    world.network.heal()
    world.a.start()
    assert world.a.live.replication.server_id == told
    expect_handed_over(world)
