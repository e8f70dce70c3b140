"""Followers that a leader has to tell apart."""

from __future__ import annotations

import pytest

from tests.replication.simulated_server import FOLDER, PORT, Machine
from tests.replication.test_replication import World, is_stable, level, value
from tidelog.errors import ClientError
from tidelog.journal.durability import FsyncPolicy
from tidelog.replication.role_file import read_role

SHARED = ("gateway", PORT)


def start_behind_one_address(world: World, *machines: Machine) -> None:
    for machine in machines:
        machine.start(world.a.address).options.announce_host = SHARED[0]


def two_behind_one_address(policy: FsyncPolicy = FsyncPolicy.EVERYSEC) -> World:
    world = World(policy=policy)
    world.a.start()
    start_behind_one_address(world, world.b, world.c)
    world.until(lambda: is_stable(world.b) and is_stable(world.c))
    return world


def test_two_followers_that_announce_one_address_are_two() -> None:
    world = two_behind_one_address()
    world.a.live.run("SET", "x", "1")
    level(world, world.a, world.b, world.c)
    links = world.a.live.replication.followers.links
    world.loop.run(30)
    assert world.a.live.replication.followers.links == links, "neither takes the place of the other"
    shown = world.a.live.replication.facts().followers
    assert [(each.host, each.port) for each in shown] == [SHARED, SHARED]
    assert len({each.server_id for each in shown}) == 2
    assert world.a.live.replication.confirmed_count(world.a.live.last_ts, is_durable=False) == 2


def test_what_each_of_two_with_one_address_needs_is_held() -> None:
    world = two_behind_one_address()
    world.network.partition([world.a.host], [world.c.host])
    world.a.live.run("SET", "x", "1")
    world.until(lambda: world.b.live.last_ts == world.a.live.last_ts)
    world.loop.run(1)
    held = sorted(each.ts for each in world.a.live.store.journal.holders.holding())
    assert held == [world.c.live.last_ts, world.b.live.last_ts]


def test_a_leader_that_comes_back_waits_for_both_of_two_with_one_address() -> None:
    world = two_behind_one_address(FsyncPolicy.NEVER)
    world.network.partition([world.a.host], [world.b.host])
    world.a.live.run("SET", "x", "only c has it")
    world.until(lambda: world.c.live.last_ts == world.a.live.last_ts)
    world.a.crash("lose_all")
    world.network.heal()
    world.network.cut([world.a.host], [world.c.host])
    world.a.start()
    world.loop.run(2)
    assert world.a.live.replication.facts().waits_for_followers
    world.network.heal()
    level(world, world.a, world.b, world.c)
    assert value(world.a, "x") == b"only c has it"


def test_a_follower_that_comes_again_takes_the_place_of_its_earlier_link() -> None:
    world = two_behind_one_address()
    before = {link.name for link in world.a.live.replication.followers.links}
    world.b.crash()  # its link is half open
    start_behind_one_address(world, world.b)
    world.until(lambda: is_stable(world.b))
    assert len(world.a.live.replication.followers.links) == 2
    assert {link.name for link in world.a.live.replication.followers.links} == before


def test_a_server_that_took_the_place_of_another_is_not_counted_for_it() -> None:
    world = World()
    world.pair()
    world.a.live.run("SET", "x", "1")
    level(world, world.a, world.b)
    replication = world.a.live.replication
    world.b.crash()  # its link is half open
    world.b.disk.remove(f"{FOLDER}/role.json")
    world.b.start(world.a.address)
    world.until(lambda: is_stable(world.b))
    assert len(replication.followers.links) == 2
    assert replication.confirmed_count(world.a.live.last_ts, is_durable=False) == 1
    world.loop.run(15)
    assert len(replication.followers.links) == 1


def test_nobody_is_handed_over_to_who_is_not_alone_with_its_address() -> None:
    world = two_behind_one_address()
    for target in (None, SHARED):
        with pytest.raises(ClientError, match="the only one with its address"):
            world.a.live.replication.fail_over(target, 0, is_forced=False)
    world.c.stop()
    world.loop.run(1)
    world.a.live.replication.fail_over(SHARED, 0, is_forced=False)


def test_the_id_of_a_follower_is_that_of_its_directory() -> None:
    world = World()
    world.pair()
    stored = read_role(world.b.disk, FOLDER)
    assert stored is not None
    assert world.a.live.replication.facts().followers[0].server_id == stored.server_id != ""
    world.b.live.replication.lead()
    world.b.live.replication.follow(world.a.address)
    again = read_role(world.b.disk, FOLDER)
    assert again is not None
    assert again.server_id == stored.server_id


def test_a_follower_of_a_follower_may_announce_the_address_of_the_leader() -> None:
    """As behind NAT: it is sent everything, and told where it has diverged."""
    world = World()
    world.pair()
    world.a.live.run("SET", "x", "1")
    world.c.start(world.b.address).options.announce_host = world.a.host.name
    level(world, world.a, world.b, world.c)
    assert value(world.c, "x") == b"1"
    world.c.live.replication.lead()
    world.c.live.run("SET", "x", "of nobody else")
    world.c.live.replication.follow(world.b.address)
    level(world, world.a, world.b, world.c)
    assert value(world.c, "x") == b"1"
    assert world.c.live.replication.facts().set_aside_records == 1
