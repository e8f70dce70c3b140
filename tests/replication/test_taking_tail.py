"""Large values in what a leader has lost and takes back: a thread writes and decodes them, and clients do not wait."""

from __future__ import annotations

import pytest

from tests.replication.simulated_server import Machine
from tests.replication.test_preparation import LARGE, blob_bytes, expect_sound
from tests.replication.test_replication import World, is_stable, level, value
from tidelog import limits
from tidelog.journal.durability import FsyncPolicy
from tidelog.testing.network import Route


@pytest.fixture(autouse=True)
def _small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REPLICATION_STAGED_BYTES_MIN", 3000)
    monkeypatch.setattr(limits, "REPLICATION_LONG_BYTES", 400)
    monkeypatch.setattr(limits, "REPLICATION_PAYLOAD_BYTES", 700)
    monkeypatch.setattr(limits, "STAGED_PIECE_BYTES", 1500)
    monkeypatch.setattr(limits, "STAGED_SYNC_BYTES", 3000)


def come_back(followers: int = 1, work_s: float = 0.001, shards: int = 1) -> World:
    """A leader that lost large values, and small ones around them, which its followers have. Its thread takes so long
    for each."""
    world = World(shards, FsyncPolicy.NEVER)
    world.pair()
    if followers > 1:
        world.c.start(world.a.address)
        world.until(lambda: is_stable(world.c))
    world.a.live.store.journal.writer.sync()
    world.a.live.run("SET", "before", "1")
    world.a.live.run("SET", "large", LARGE)
    world.a.live.run("MSET", "two", LARGE + b"2", "three", LARGE + b"3", "small", "1")
    world.a.live.run("SET", "after", "1")
    level(world, *[world.a, world.b, world.c][: 1 + followers])
    world.a.crash("lose_all")
    world.a.work_s = work_s
    world.a.start()
    return world


def expect_all(world: World, *machines: Machine) -> None:
    world.until(lambda: world.a.live.replication.write_refusal is None)
    for machine in machines:
        found = machine.live.run("MGET", "before", "large", "two", "three", "small", "after")
        assert found == [b"1", LARGE, LARGE + b"2", LARGE + b"3", b"1", b"1"]


@pytest.mark.parametrize("shards", [1, 3])
def test_a_tail_with_large_values_is_taken_back_and_recovered(shards: int) -> None:
    world = come_back(shards=shards)
    expect_all(world, world.a)
    level(world, world.a, world.b)
    expect_sound(world.a)
    world.a.kill()
    world.a.start()
    expect_all(world, world.a, world.b)
    assert world.b.live.replication.facts().set_aside_records == 0


def test_clients_of_a_returning_leader_do_not_wait_while_a_thread_works_and_it_does() -> None:
    world = come_back(work_s=8)
    world.loop.run(4)
    assert value(world.a, "before") == b"1"
    assert value(world.a, "large") is None, "the thread has it"
    assert value(world.a, "after") is None, "what comes later waits for it"
    world.loop.run(8)
    assert value(world.a, "large") == LARGE
    assert value(world.a, "two") is None
    assert world.a.live.replication.facts().waits_for_followers, "longer than for a follower that does not speak"
    expect_all(world, world.a)
    level(world, world.a, world.b)


def test_what_two_followers_send_at_the_same_time_is_taken_once() -> None:
    world = come_back(followers=2, work_s=1)
    expect_all(world, world.a)
    level(world, world.a, world.b, world.c)
    expect_sound(world.a)
    assert world.a.live.last_ts == world.b.live.last_ts == world.c.live.last_ts


def test_a_link_that_ends_while_the_thread_works_leaves_nothing_to_wait_for() -> None:
    world = come_back(work_s=3)
    world.loop.run(2)
    world.b.kill()
    world.loop.run(30)
    assert world.a.live.replication.write_refusal is None
    assert value(world.a, "before") == b"1"
    assert value(world.a, "after") is None
    world.a.live.run("SET", "x", "1")
    expect_sound(world.a)


def test_without_space_the_tail_comes_again() -> None:
    world = come_back(work_s=0.5)
    world.network.route = Route(100)
    world.loop.run(0.2)
    world.a.disk.capacity_bytes = world.a.disk.used_bytes
    world.loop.run(2)
    assert value(world.a, "large") is None
    world.a.disk.capacity_bytes = None
    level(world, world.a, world.b)
    expect_all(world, world.a)
    assert blob_bytes(world.a) >= 3 * len(LARGE)
