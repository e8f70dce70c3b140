"""Full disks, followers that answer at the same time, and roles that change in between.

Each of these was found by the simulation (`tests/simulation/replication_world.py`).
"""

from __future__ import annotations

import errno

import pytest

from tests.feeds.rebuilt import Rebuilt
from tests.replication.simulated_server import Machine, Refused
from tests.replication.test_replication import World, is_stable, level, value
from tidelog import limits
from tidelog.errors import JournalFull
from tidelog.feeds.feed import ChangeFeedRequest
from tidelog.feeds.feeds import Feeds
from tidelog.feeds.span import span_of_prefix
from tidelog.journal.durability import FsyncPolicy
from tidelog.replication.message import LinkRole
from tidelog.testing.network import Route


def fill(machine: Machine) -> None:
    machine.disk.capacity_bytes = machine.disk.used_bytes


def test_a_full_sync_that_finds_no_space_is_tried_again() -> None:
    world = World()
    world.a.start()
    world.a.live.run("SET", "x", "1" * 3000)
    world.b.start(world.a.address)
    fill(world.b)
    world.loop.run(3)
    assert not is_stable(world.b)
    world.b.disk.capacity_bytes = None
    level(world, world.a, world.b)
    assert value(world.b, "x") == b"1" * 3000


def test_a_leader_takes_back_what_several_followers_send_at_the_same_time() -> None:
    world = World(policy=FsyncPolicy.NEVER)
    world.pair()
    world.c.start(world.a.address)
    world.until(lambda: is_stable(world.c))
    world.a.live.store.journal.writer.sync()
    for number in range(20):
        world.a.live.run("SET", f"key{number}", "kept")
    level(world, world.a, world.b, world.c)
    world.a.crash("lose_all")
    world.loop.run(1)
    world.network.route = Route(600_000)  # both are asked before either answers
    world.a.start()
    world.until(lambda: world.a.live.replication.write_refusal is None)
    assert value(world.a, "key19") == b"kept"
    level(world, world.a, world.b, world.c)


def test_a_leader_without_space_to_remember_a_follower_lets_it_come_again() -> None:
    world = World()
    world.a.start()
    world.a.live.run("SET", "x", "1")
    world.a.live.store.save()
    fill(world.a)
    world.b.start(world.a.address)
    world.loop.run(3)
    assert not is_stable(world.b)
    world.a.disk.capacity_bytes = None
    level(world, world.a, world.b)


def test_a_leader_without_space_to_forget_a_follower_goes_on() -> None:
    world = World()
    world.pair()
    world.b.kill()
    world.until(lambda: not world.a.live.replication.followers.links)
    world.a.disk.fail("write", errno.ENOSPC, path_contains="role", times=None)
    world.loop.run(limits.FOLLOWER_FORGOTTEN_US / 1e6 + 1)
    world.a.live.run("SET", "x", "1")
    known = world.a.live.replication._file
    assert [each.address for each in known.stored.followers] == [world.b.address]
    world.a.disk.clear_faults()
    world.until(lambda: not known.stored.followers, limits.FOLLOWER_FORGOTTEN_RETRY_US / 1e6 + 1)


def test_a_promotion_without_space_takes_no_write_before_its_epoch_has_begun() -> None:
    world = World()
    world.pair()
    world.a.live.run("SET", "x", "1")
    level(world, world.a, world.b)
    world.a.kill()
    replication, journal = world.b.live.replication, world.b.live.store.journal
    world.loop.run(1)
    epochs = len(journal.epochs)
    world.b.disk.fail("write", errno.ENOSPC, path_contains="/shard-", times=None)  # not of the file with the role
    with pytest.raises(JournalFull):
        replication.lead()
    assert replication.role is LinkRole.LEADER
    with pytest.raises(Refused, match="READONLY"):
        world.b.live.run("SET", "x", "2")
    world.loop.run(1)
    world.b.disk.clear_faults()
    world.until(lambda: replication.write_refusal is None)
    world.b.live.run("SET", "x", "2")
    assert len(journal.epochs) == epochs + 1
    world.a.start()
    world.a.live.replication.follow(world.b.address)
    level(world, world.b, world.a)
    assert world.a.live.store.journal.epochs == journal.epochs
    world.b.kill()
    world.b.start()
    assert world.b.live.store.journal.epochs[: epochs + 1] == journal.epochs


def test_a_follower_that_has_no_space_for_its_new_role_goes_on_following() -> None:
    world = World()
    world.pair()
    fill(world.b)
    with pytest.raises(OSError, match="ENOSPC"):
        world.b.live.replication.lead()
    assert world.b.live.replication.role is LinkRole.FOLLOWER
    world.b.disk.capacity_bytes = None
    world.a.live.run("SET", "x", "1")
    level(world, world.a, world.b)


def test_a_wait_for_what_was_set_aside_is_never_over() -> None:
    world = World()
    world.pair()
    world.c.start(world.a.address)
    world.until(lambda: is_stable(world.c))
    level(world, world.a, world.b, world.c)
    world.network.partition([world.a.host], [world.b.host, world.c.host])
    world.a.live.run("SET", "lost", "1")
    done: list[str] = []
    world.a.live.replication.wait(world.a.live.last_ts, 1, is_durable=False, done=lambda: done.append("lost"))
    world.b.live.replication.lead()
    world.b.live.run("SET", "x", "2")
    world.network.heal()
    world.a.live.replication.follow(world.b.address)
    world.c.live.replication.follow(world.b.address)
    level(world, world.b, world.a, world.c)
    world.a.live.replication.lead()
    world.a.live.run("SET", "x", "3")
    world.c.live.replication.follow(world.a.address)
    level(world, world.a, world.c)
    world.loop.run(2)
    assert not done


def test_a_leader_without_space_for_its_new_role_does_not_hand_over() -> None:
    world = World()
    world.pair()
    world.a.live.run("SET", "x", "1")
    fill(world.a)
    world.a.live.replication.fail_over(None, 0, is_forced=False)
    world.loop.run(2)
    assert world.a.live.replication.role is LinkRole.LEADER
    assert not world.a.live.holds_writes
    world.a.disk.capacity_bytes = None
    world.a.live.run("SET", "x", "2")
    level(world, world.a, world.b)


def test_the_end_of_a_chain_knows_a_clock_bound_above_all_that_it_is_told_is_closed() -> None:
    world = World()
    world.pair()
    world.c.start(world.b.address)
    world.until(lambda: is_stable(world.c))
    world.loop.run(1)
    closed_ts = world.c.live.store.announced_ts
    world.a.clock.ahead_us = 3_600_000_000
    world.until(lambda: world.c.live.store.announced_ts > closed_ts + 3_500_000_000)
    closed_ts = world.c.live.store.announced_ts
    world.c.live.replication.lead()
    assert world.c.live.store.journal.epochs[-1].first_ts > closed_ts


def test_what_the_last_leader_has_closed_is_open_again_where_the_next_begins_below_it() -> None:
    world = World()
    world.pair()
    world.c.start(world.b.address)
    late = Machine(world.network, "late", 9, world.settings)
    late.start(world.a.address)
    world.until(lambda: is_stable(world.c) and is_stable(late))
    world.network.partition([late.host], [world.a.host])
    world.a.clock.ahead_us = 3_600_000_000
    world.until(lambda: world.c.live.store.announced_ts > late.clock.wall_us())
    world.a.kill()
    late.live.replication.lead()
    world.b.live.replication.follow(late.address)
    epochs = late.live.store.journal.epochs
    world.until(lambda: all(each.live.store.journal.epochs == epochs for each in (world.b, world.c)))
    world.loop.run(1)
    for machine in (world.b, world.c):
        assert epochs[-1].first_ts <= machine.live.store.announced_ts <= late.live.store.journal.hlc.last


def test_a_feed_of_a_former_leader_ends_if_the_next_one_began_below_its_checkpoints() -> None:
    world = World()
    world.pair()
    world.a.live.run("SET", "x", "1")
    level(world, world.a, world.b)
    spans = [span_of_prefix(b"")]
    feeds, known = Feeds(world.a.live.store, world.a.clock), Rebuilt(spans)
    feeds.open(ChangeFeedRequest(spans, is_initial=True), 3, known)
    world.network.partition([world.a.host], [world.b.host])
    world.b.live.replication.lead()
    world.b.live.run("SET", "x", "2")
    world.loop.run(15)
    while feeds.work(world.a.clock.monotonic_us() + 1):
        pass
    feeds.tick()
    assert known.checkpoint > world.b.live.last_ts > world.a.live.last_ts
    world.network.heal()
    world.a.live.replication.follow(world.b.address)
    level(world, world.b, world.a)
    feeds.advance()
    assert known.ended == [f"FEEDDIVERGED since={world.b.live.store.journal.epochs[-1].last_ts}"]


def test_an_epoch_beside_a_full_sync_does_not_hide_the_history_before_it() -> None:
    world = World()
    world.a.start()
    world.a.live.run("SET", "x", "1")
    world.a.live.store.save()
    world.a.kill()
    world.a.start()  # an epoch begins, and nothing happens in it
    world.b.start(world.a.address)
    level(world, world.a, world.b)
    assert len(world.b.live.store.journal.epochs) == 2
    world.b.kill()
    world.b.start()
    assert world.b.live.store.journal.erased_ts == world.b.live.last_ts
    world.b.live.replication.lead()
    world.a.live.replication.follow(world.b.address)
    level(world, world.b, world.a)


def test_a_follower_without_space_closes_nothing_that_it_cannot_show() -> None:
    world = World()
    world.pair()
    world.c.start(world.b.address)
    world.until(lambda: is_stable(world.c))
    spans = [span_of_prefix(b"")]
    feeds, known = Feeds(world.c.live.store, world.c.clock), Rebuilt(spans)
    feeds.open(ChangeFeedRequest(spans, is_initial=True), 3, known)
    while feeds.work(world.c.clock.monotonic_us() + 1):
        pass
    fill(world.b)
    world.a.live.run("SET", "x", "1")
    world.loop.run(2)
    feeds.tick()
    assert known.is_steady
    assert known.checkpoint < world.a.live.last_ts
    world.b.disk.capacity_bytes = None
    level(world, world.a, world.b)
    level(world, world.a, world.c)
    feeds.advance()
    assert known.state == {b"x": b"1"}


def test_a_leader_that_comes_back_takes_a_long_tail_before_it_leads() -> None:
    world = World(policy=FsyncPolicy.NEVER)
    world.pair()
    world.a.live.store.journal.writer.sync()
    for number in range(300):
        world.a.live.run("SET", f"key{number}", "x" * 2000)
    level(world, world.a, world.b)
    world.a.crash("lose_all")
    world.network.route = Route(bytes_per_s=60_000)  # twice as long as followers are waited for
    world.a.start()
    world.until(lambda: world.a.live.replication.write_refusal is None)
    assert value(world.a, "key299") == b"x" * 2000
    level(world, world.a, world.b)
    assert world.b.live.replication.facts().set_aside_records == 0


def test_a_leader_that_comes_back_does_not_wait_for_a_tail_that_stops_coming() -> None:
    world = World(policy=FsyncPolicy.NEVER)
    world.pair()
    world.a.live.store.journal.writer.sync()
    for number in range(300):
        world.a.live.run("SET", f"key{number}", "x" * 2000)
    level(world, world.a, world.b)
    world.a.crash("lose_all")
    world.network.route = Route(bytes_per_s=60_000)
    world.a.start()
    world.loop.run(4)
    assert world.a.live.replication.followers.is_taking_tail
    world.network.partition([world.a.host], [world.b.host])
    world.until(lambda: world.a.live.replication.write_refusal is None, 12)


def test_lags_are_counted_anew_when_the_data_is_loaded_again() -> None:
    world = World()
    world.pair()
    world.c.start(world.a.address)
    for number in range(50):
        world.a.live.run("SET", f"key{number}", "x" * 200)
    level(world, world.a, world.b, world.c)
    world.loop.run(1)
    world.c.kill()
    world.network.partition([world.a.host], [world.b.host])
    world.b.live.replication.lead()
    world.a.live.run("SET", "lost", "1")
    world.b.live.run("SET", "x", "1" * 1000)
    world.network.heal()
    world.a.live.replication.follow(world.b.address)
    level(world, world.b, world.a)
    assert world.a.live.replication.facts().set_aside_records == 1, "it was loaded again"
    world.c.start()
    lags: list[int] = []

    def has_come() -> bool:
        lags.extend(each.lag_bytes for each in world.a.live.replication.facts().followers)
        return is_stable(world.c)

    world.until(has_come)
    assert all(lag >= 0 for lag in lags)
