"""Leaders and followers on simulated machines."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pytest

from tests.replication.simulated_server import SMALL_FRAME, Machine, Refused
from tidelog import limits
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.journal import Settings
from tidelog.journal.retention import RetentionLimits
from tidelog.ports import NetworkLink
from tidelog.replication.message import LinkRole
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.loop import SimulatedLoop
from tidelog.testing.network import Route, SimulatedNetwork


class World:
    """Some machines on one network."""

    def __init__(self, shards: int = 1, policy: FsyncPolicy = FsyncPolicy.EVERYSEC) -> None:
        self.loop = SimulatedLoop(SimulatedClock())
        self.network = SimulatedNetwork(self.loop, seed=7)
        self.settings = Settings(SMALL_FRAME, shards, policy)
        self.a, self.b, self.c = (Machine(self.network, name, seed, self.settings) for seed, name in enumerate("abc"))

    def pair(self) -> None:
        self.a.start()
        self.b.start(self.a.address)
        self.until(lambda: is_stable(self.b))

    def until(self, reached: Callable[[], bool], seconds: float = 60) -> None:
        assert self.loop.run_until(reached, seconds)


class ListedSends:
    """A link that lists what is sent."""

    def __init__(self, link: object, sent: list[bytes]) -> None:
        self._link: Any = link
        self._sent = sent

    def send(self, data: bytes) -> None:
        self._sent.append(data)
        self._link.send(data)

    def __getattr__(self, name: str) -> object:
        return getattr(self._link, name)


def is_stable(machine: Machine) -> bool:
    return machine.server is not None and machine.live.replication.facts().link_state == "connected"


def value(machine: Machine, key: str) -> object:
    return machine.live.run("GET", key)


def release_follower(leader: Machine, name: str) -> None:
    """Hold nothing any more for a follower."""
    holders = leader.live.store.journal.holders
    (held,) = [each.name for each in holders.all() if each.name.startswith(f"follower {name}:")]
    holders.release(held)


def level(world: World, *machines: Machine) -> None:
    """Wait until all have what the first has."""
    world.until(lambda: all(is_stable(each) and each.live.last_ts == machines[0].live.last_ts for each in machines[1:]))


@pytest.mark.parametrize("shards", [1, 3])
def test_a_follower_gets_everything_and_serves_it(shards: int) -> None:
    world = World(shards)
    world.a.start()
    for number in range(100):
        world.a.live.run("SET", f"key{number}", f"value{number}")
    world.b.start(world.a.address)
    level(world, world.a, world.b)
    assert value(world.b, "key42") == b"value42"
    world.a.live.run("MSET", "x", "1", "y", "2", "z", "3")
    world.a.live.run("TWRITE", "stream", "tag", "an entry")
    level(world, world.a, world.b)
    assert [value(world.b, key) for key in "xyz"] == [b"1", b"2", b"3"]
    assert world.b.live.store.journal.epochs == world.a.live.store.journal.epochs
    assert world.b.live.store.journal.meta.database_id == world.a.live.store.journal.meta.database_id
    with pytest.raises(Refused, match="READONLY"):
        world.b.live.run("SET", "x", "other")


def test_a_follower_that_comes_back_gets_only_what_it_lacks() -> None:
    world = World()
    world.pair()
    world.a.live.run("SET", "x", "1")
    level(world, world.a, world.b)
    world.b.kill()
    world.a.live.run("SET", "x", "2")
    world.b.start()
    level(world, world.a, world.b)
    assert value(world.b, "x") == b"2"
    assert world.b.live.replication.facts().own_full_syncs == 0


def test_a_promoted_follower_begins_an_epoch_and_the_old_leader_follows_it() -> None:
    world = World()
    world.pair()
    world.a.live.run("SET", "x", "1")
    level(world, world.a, world.b)
    world.a.kill()
    world.b.live.replication.lead()
    assert world.b.live.replication.role is LinkRole.LEADER
    world.b.live.run("SET", "x", "2")
    world.a.start()
    world.a.live.replication.follow(world.b.address)
    level(world, world.b, world.a)
    assert value(world.a, "x") == b"2"
    assert world.a.live.store.journal.epochs == world.b.live.store.journal.epochs


def test_what_a_former_leader_had_alone_is_set_aside() -> None:
    world = World()
    world.pair()
    world.a.live.run("SET", "x", "1")
    level(world, world.a, world.b)
    world.network.partition([world.a.host], [world.b.host])
    for number in range(5):
        world.a.live.run("SET", f"lost{number}", "here")
    world.b.live.replication.lead()
    world.b.live.run("SET", "x", "2")
    world.network.heal()
    world.a.live.replication.follow(world.b.address)
    level(world, world.b, world.a)
    assert value(world.a, "x") == b"2"
    assert value(world.a, "lost0") is None
    facts = world.a.live.replication.facts()
    assert facts.set_aside_records == 5
    assert facts.set_aside_paths[0].startswith("data/diverged-")


def test_a_former_leader_that_has_only_an_epoch_to_forget_sets_nothing_aside() -> None:
    world = World()
    world.pair()
    world.a.live.run("SET", "x", "1")
    level(world, world.a, world.b)
    world.a.kill()
    world.b.live.replication.lead()
    world.a.start()
    world.a.live.replication.lead()
    assert world.a.live.store.journal.epochs != world.b.live.store.journal.epochs
    world.a.live.replication.follow(world.b.address)
    level(world, world.b, world.a)
    assert world.a.live.store.journal.epochs == world.b.live.store.journal.epochs
    assert world.a.live.replication.facts().set_aside_paths == []


def test_a_leader_that_lost_its_tail_takes_it_back_from_its_follower() -> None:
    world = World(policy=FsyncPolicy.NEVER)
    world.pair()
    world.a.live.store.journal.writer.sync()
    for number in range(5):
        world.a.live.run("SET", f"key{number}", "kept")
    level(world, world.a, world.b)
    world.a.crash("lose_all")
    world.a.start()
    assert value(world.a, "key4") is None, "the crash was to take it"
    with pytest.raises(Refused, match="READONLY"):
        world.a.live.run("SET", "key4", "other")
    world.until(lambda: world.a.live.replication.write_refusal is None)
    assert value(world.a, "key4") == b"kept"
    world.a.live.run("SET", "key5", "new")
    level(world, world.a, world.b)
    assert value(world.b, "key5") == b"new"


def test_a_chain_passes_everything_on() -> None:
    world = World()
    world.pair()
    world.c.start(world.b.address)
    world.until(lambda: is_stable(world.c))
    world.a.live.run("SET", "x", "1")
    world.a.live.replication.publish(b"news", b"hello")
    level(world, world.a, world.b, world.c)
    assert value(world.c, "x") == b"1"
    world.until(lambda: bool(world.c.live.delivered))
    assert world.c.live.delivered[0].payload == b"hello"


def test_confirmations_are_counted() -> None:
    world = World()
    world.pair()
    world.a.live.run("SET", "x", "1")
    ts, done = world.a.live.last_ts, []
    world.a.live.replication.wait(ts, 1, is_durable=False, done=lambda: done.append("written"))
    world.a.live.replication.wait(ts, 1, is_durable=True, done=lambda: done.append("durable"))
    world.until(lambda: len(done) == 2)
    assert done == ["written", "durable"]
    assert world.a.live.replication.confirmed_count(ts, is_durable=True) == 1


def test_a_handover_loses_nothing() -> None:
    world = World()
    world.pair()
    world.a.live.run("SET", "x", "1")
    world.a.live.replication.fail_over(None, 0, is_forced=False)
    world.until(lambda: world.b.live.replication.role is LinkRole.LEADER)
    level(world, world.b, world.a)
    world.b.live.run("SET", "x", "2")
    level(world, world.b, world.a)
    assert value(world.a, "x") == b"2"
    assert world.a.live.replication.facts().set_aside_records == 0


def test_a_full_sync_goes_on_where_the_link_was_lost() -> None:
    world = World()
    world.network.route = Route(delay_us=1000, bytes_per_s=1_000_000)
    world.a.start()
    for number in range(1000):
        world.a.live.run("SET", f"key{number}", "x" * 3000)
    world.b.start(world.a.address)
    left = sync_bytes_left(world.b)
    world.until(lambda: left() > 2_000_000)
    world.until(lambda: left() < 2_000_000)
    for link in world.network.links_of(world.b.host):
        link.fail("Connection reset by peer")
    world.until(lambda: left() == 0)
    world.until(lambda: left() > 0)
    assert left() < 2_200_000, "what had come was not sent again, but for what the thread had not written"
    world.a.live.run("SET", "key7", "changed meanwhile")
    level(world, world.a, world.b)
    assert value(world.b, "key7") == b"changed meanwhile"
    assert value(world.b, "key99") == b"x" * 3000


def sync_bytes_left(machine: Machine) -> Callable[[], int]:
    return lambda: machine.live.replication.facts().sync_bytes_left


def test_a_slow_follower_is_read_for_from_disk_and_catches_up() -> None:
    world = World()
    world.pair()
    world.b.host.reads_bytes_per_s = 20_000
    links = world.a.live.replication.followers.links
    most = 0
    for number in range(3000):
        world.a.live.run("SET", f"key{number % 50}", "x" * 1000)
        most = max(most, links[0].unsent_bytes)
        world.loop.run(0.002)
    assert most < 2 * limits.LINK_UNSENT_BYTES_MAX
    assert world.a.live.replication.followers.links == links, "the link has lasted"
    assert links[0].records_behind > 1000
    world.b.host.reads_bytes_per_s = None
    level(world, world.a, world.b)
    assert world.a.live.replication.facts().full_syncs == 1


def test_a_follower_that_the_journal_has_moved_past_gets_all_again() -> None:
    world = World()
    world.pair()
    world.b.kill()
    for number in range(100):
        world.a.live.run("SET", f"key{number}", "x" * 1000)
    release_follower(world.a, "b")
    world.a.live.store.journal.retention = RetentionLimits(bytes_max=0, snapshots_kept=1)
    world.a.live.store.save()
    assert world.a.live.store.journal.erase()
    world.b.start()
    level(world, world.a, world.b)
    assert value(world.b, "key99") == b"x" * 1000
    assert world.b.live.replication.facts().own_full_syncs == 1
    assert not [name for name in world.b.disk.list("data") if name.startswith(("set-aside", "diverged", "sync"))]


def test_a_promoted_clock_begins_above_the_bound_that_was_announced() -> None:
    world = World()
    world.pair()
    world.a.live.run("SET", "x", "1")
    level(world, world.a, world.b)
    world.loop.run(1)
    bound = world.a.live.store.journal.hlc.bound
    world.b.clock.ahead_us = -3600 * 1_000_000
    world.a.kill()
    world.b.kill()
    world.b.start()
    world.b.live.replication.lead()
    world.b.live.run("SET", "x", "2")
    assert world.b.live.store.journal.epochs[-1].first_ts > bound
    assert world.b.live.last_ts > bound


def test_a_leader_that_comes_back_alone_waits_and_then_leads() -> None:
    world = World()
    world.pair()
    world.a.live.run("SET", "x", "1")
    level(world, world.a, world.b)
    world.b.kill()
    world.a.crash("keep_all")
    world.a.start()
    assert world.a.live.replication.write_refusal is not None
    world.loop.run(limits.REPLICATION_RETURN_S + 0.1)
    world.a.live.run("SET", "x", "2")
    world.b.start()
    level(world, world.a, world.b)
    assert value(world.b, "x") == b"2"


def test_a_leader_that_comes_back_gets_its_tail_from_a_follower_whose_hello_it_never_answered() -> None:
    world = World()
    world.pair()
    level(world, world.a, world.b)
    world.a.live.sync()
    world.a.live.run("SET", "x", "1")
    level(world, world.a, world.b)
    world.b.kill()
    world.a.host.stop()  # its kernel still takes what is sent to it
    world.b.start()
    world.until(lambda: world.b.live.replication.facts().link_state == "handshake")
    world.loop.run(0.2)
    world.a.crash("lose_all")
    world.loop.run(1)
    world.a.start()
    world.until(lambda: world.a.live.replication.write_refusal is None, limits.REPLICATION_RETURN_S + 1)
    assert value(world.a, "x") == b"1"


def test_a_leader_that_comes_back_and_hears_of_a_newer_one_takes_no_writes() -> None:
    world = World()
    world.pair()
    world.a.live.run("SET", "x", "1")
    level(world, world.a, world.b)
    world.a.crash("keep_all")
    world.b.live.replication.lead()
    world.b.live.run("SET", "x", "2")
    world.b.live.replication.follow(world.a.address)
    world.a.start()
    world.until(lambda: world.a.live.replication.facts().is_deposed)
    world.loop.run(2 * limits.REPLICATION_RETURN_S)
    with pytest.raises(Refused, match="REPLICAOF says"):
        world.a.live.run("SET", "x", "3")
    world.a.kill()
    world.a.start()
    with pytest.raises(Refused, match="REPLICAOF says"):
        world.a.live.run("SET", "x", "3")
    world.a.live.replication.lead()
    world.a.live.run("SET", "x", "3")
    level(world, world.a, world.b)
    assert value(world.b, "x") == b"3"


def test_writes_are_refused_without_enough_followers() -> None:
    world = World()
    world.pair()
    world.a.live.options.followers_min = 1
    world.loop.run(0.2)
    world.a.live.run("SET", "x", "1")
    world.b.kill()
    world.loop.run(1)
    with pytest.raises(Refused, match="NOREPLICAS"):
        world.a.live.run("SET", "x", "2")


def test_writes_are_not_refused_for_lag_without_a_limit_of_it() -> None:
    world = World()
    world.a.start()
    world.a.live.options.followers_min, world.a.live.options.follower_lag_max_s = 1, 0
    world.loop.run(0.2)
    world.a.live.run("SET", "x", "1")


def test_a_pair_that_is_idle_is_good_within_a_second() -> None:
    world = World()
    world.pair()
    world.a.live.options.followers_min, world.a.live.options.follower_lag_max_s = 1, 1
    world.loop.run(0.2)
    world.a.live.roles.clear()
    world.loop.run(30)
    assert world.a.live.roles == []


def test_the_lag_of_a_follower_is_the_age_of_what_it_lacks() -> None:
    world = World()
    world.pair()
    world.a.live.run("SET", "x", "1")
    level(world, world.a, world.b)
    world.loop.run(200)
    world.b.host.stop()
    world.a.live.run("SET", "x", "2")
    followers = world.a.live.replication.facts
    assert followers().followers[0].lag_records > 0
    assert followers().followers[0].lag_ms <= 100
    world.loop.run(3)
    assert 2800 <= followers().followers[0].lag_ms <= 3000
    world.b.host.go_on()
    level(world, world.a, world.b)
    world.loop.run(1)
    assert followers().followers[0].lag_ms == 0


def test_a_server_that_is_silent_is_taken_for_gone() -> None:
    world = World()
    world.pair()
    world.a.host.stop()
    world.until(lambda: not world.b.live.replication.facts().is_link_up, 2 * limits.REPLICATION_SILENCE_S)
    world.a.host.go_on()
    world.a.live.run("SET", "x", "1")
    level(world, world.a, world.b)


def test_a_follower_is_sent_what_came_within_a_millisecond_at_once() -> None:
    world = World()
    world.pair()
    world.a.live.run("SET", "x", "0")
    level(world, world.a, world.b)
    world.loop.run(1)
    sent: list[bytes] = []
    (link,) = world.a.live.replication.followers.links
    link._link = cast("NetworkLink", ListedSends(link._link, sent))
    for number in range(10):
        world.a.live.run("SET", "x", str(number))
        world.loop.run(0.000_05)
    assert len(sent) == 1, "the first write after a pause is sent at once"
    world.loop.run(0.001)
    assert len(sent) == 2
    level(world, world.a, world.b)
    assert value(world.b, "x") == b"9"


def test_a_write_that_somebody_waits_for_is_sent_at_once() -> None:
    world = World()
    world.network.route = Route(10)
    world.pair()
    for number in range(20):
        world.a.live.run("SET", "x", str(number))
        done: list[int] = []
        began_us = world.a.clock.monotonic_us()
        world.a.live.replication.wait(world.a.live.last_ts, 1, is_durable=False, done=partial(done.append, number))
        world.until(lambda done=done: bool(done))  # type: ignore[misc]
        assert world.a.clock.monotonic_us() - began_us < limits.REPLICATION_PACE_US / 2


def test_servers_that_follow_each_other_know_that_nobody_leads() -> None:
    world = World()
    world.pair()
    world.c.start(world.b.address)
    world.until(lambda: is_stable(world.c))
    world.a.live.replication.follow(world.c.address)
    machines = (world.a, world.b, world.c)
    world.until(lambda: not any(each.live.replication.facts().is_link_up for each in machines))
    world.loop.run(5)
    assert not any(is_stable(each) for each in machines)
    assert "no link to a server that does" in world.b.live.replication.facts().link_error
    world.b.live.replication.lead()
    world.b.live.run("SET", "x", "1")
    level(world, world.b, world.c, world.a)
    assert value(world.a, "x") == b"1"


def test_a_server_that_follows_itself_is_not_connected() -> None:
    world = World()
    world.a.start()
    world.a.live.replication.follow(world.a.address)
    world.loop.run(5)
    assert not world.a.live.replication.facts().is_link_up


def test_the_end_of_a_chain_knows_that_its_beginning_is_gone() -> None:
    world = World()
    world.pair()
    world.c.start(world.b.address)
    world.until(lambda: is_stable(world.c))
    world.a.kill()
    world.until(lambda: not world.c.live.replication.facts().is_link_up)
    world.loop.run(3)
    assert world.c.live.replication.facts().lag_ms > 2000
    world.a.start()
    world.until(lambda: is_stable(world.c))


def test_a_server_that_was_never_written_to_has_nothing_to_set_aside() -> None:
    world = World()
    world.a.start()
    world.a.live.run("SET", "x", "1")
    world.b.start()
    world.loop.run(1)
    world.b.live.replication.follow(world.a.address)
    level(world, world.a, world.b)
    assert world.b.live.replication.facts().set_aside_paths == []
    assert not [name for name in world.b.disk.list("data") if name.startswith("set-aside")]


def test_a_follower_that_never_comes_again_is_forgotten_also_after_a_restart() -> None:
    world = World()
    world.pair()
    world.b.kill()
    world.a.stop()
    world.a.start()
    world.loop.run(2 * limits.FOLLOWER_FORGOTTEN_US / 1e6)
    world.a.kill()
    world.a.start()
    assert world.a.live.replication.write_refusal is None, "it waits for nobody"


@pytest.mark.parametrize("fate", ["kill", "crash"])
def test_a_server_that_dies_when_it_is_handed_over_to_leads_when_it_is_back(fate: str) -> None:
    world = World(policy=FsyncPolicy.NEVER)
    world.pair()
    world.a.live.run("SET", "x", "1")
    level(world, world.a, world.b)
    world.a.live.replication.fail_over(None, 0, is_forced=False)
    world.until(lambda: world.a.live.replication.role is LinkRole.FOLLOWER)
    if fate == "kill":
        world.b.kill()
    else:
        world.b.crash("lose_all")
    world.b.start()
    world.until(lambda: world.b.live.replication.role is LinkRole.LEADER)
    assert value(world.b, "x") == b"1"
    level(world, world.b, world.a)
    world.b.live.run("SET", "x", "2")
    level(world, world.b, world.a)
