"""How far a follower is behind, as it knows it itself."""

from __future__ import annotations

import pytest

from tests.replication.simulated_server import Machine
from tests.replication.test_replication import World, is_stable, level
from tidelog import limits


@pytest.fixture(autouse=True)
def _little_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a follower is sent waits in its leader's journal, not in sockets, where an announcement waits behind it."""
    small = {
        "REPLICATION_PARTS_BYTES": 300,
        "REPLICATION_READ_BYTES": 1000,
        "REPLICATION_PUMP_BYTES": 3000,
        "LINK_UNSENT_BYTES_MAX": 4000,
        "LINK_ROOM_BYTES": 1000,
    }
    for name, value in small.items():
        monkeypatch.setattr(limits, name, value)


def narrow_world(shards: int = 1) -> World:
    world = World(shards)
    world.network.buffer_bytes = 1000
    return world


def test_a_follower_knows_how_far_it_is_behind() -> None:
    world = narrow_world(3)
    world.a.start()
    world.b.start(world.a.address)
    assert lag(world.b) == (-1, -1), "nobody has told it"
    level(world, world.a, world.b)
    world.b.host.reads_bytes_per_s = 2000.0
    for number in range(200):
        world.a.live.run("SET", f"key{number}", "x" * 200)
    world.until(lambda: lag(world.b)[0] > 50)
    records, size_bytes = lag(world.b)
    assert records <= missing(world.a, world.b), "it was that many when it was said, and some have come"
    assert 200 * records / 2 < size_bytes < 200 * 300
    world.network.partition([world.a.host], [world.b.host])
    world.loop.run(20)
    assert not is_stable(world.b)
    assert 0 < lag(world.b)[0] <= missing(world.a, world.b), "as it last was"
    world.network.heal()
    world.b.host.reads_bytes_per_s = None
    level(world, world.a, world.b)
    assert lag(world.b) == lag(world.a) == (0, 0)


def test_the_end_of_a_chain_knows_how_far_it_is_behind_the_leader() -> None:
    world = narrow_world()
    world.pair()
    world.c.start(world.b.address)
    level(world, world.a, world.b, world.c)
    world.b.host.reads_bytes_per_s = 2000.0
    for number in range(200):
        world.a.live.run("SET", f"key{number}", "x" * 200)
    world.until(lambda: lag(world.b)[0] > 50 and lag(world.c)[0] > 50)
    assert missing(world.b, world.c) < 20, "it has nearly all that it could have"
    assert lag(world.c)[0] <= missing(world.a, world.c)
    assert lag(world.c)[1] > 200 * 25
    world.b.host.reads_bytes_per_s = None
    level(world, world.a, world.b, world.c)
    assert lag(world.c) == (0, 0)


def test_a_follower_knows_how_much_of_a_full_sync_it_lacks() -> None:
    world = narrow_world()
    world.a.start()
    for number in range(100):
        world.a.live.run("SET", f"key{number}", "x" * 200)
    world.a.live.store.save()
    world.b.host.reads_bytes_per_s = 5000.0
    world.b.start(world.a.address)
    world.until(lambda: lag(world.b)[1] > 0)
    assert lag(world.b) == (-1, world.b.live.replication.facts().sync_bytes_left)
    world.b.host.reads_bytes_per_s = None
    level(world, world.a, world.b)
    assert lag(world.b) == (0, 0)


def lag(machine: Machine) -> tuple[int, int]:
    facts = machine.live.replication.facts()
    return facts.lag_records, facts.lag_bytes


def missing(leader: Machine, follower: Machine) -> int:
    """How many records the follower lacks."""
    has, had = (sum(each.live.store.journal.writer.written.lsns) for each in (leader, follower))
    return has - had
