"""Large values that a follower receives: a thread writes and decodes them, in order, and others go on meanwhile."""

from __future__ import annotations

import errno

import pytest

from tests.replication.simulated_server import FOLDER, Machine
from tests.replication.test_replication import World, is_stable, level, value
from tests.simulation.replication_history import full_state
from tidelog import limits
from tidelog.errors import JournalFailed
from tidelog.journal.operation import Val
from tidelog.journal.segment import list_segments
from tidelog.journal.verify import verify
from tidelog.testing.disk import CRASH_STYLES, CrashStyle
from tidelog.testing.network import Route

LARGE = bytes(range(256)) * 24
"""In many pieces, and in frames that are smaller than it."""


@pytest.fixture(autouse=True)
def _small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REPLICATION_STAGED_BYTES_MIN", 3000)
    monkeypatch.setattr(limits, "REPLICATION_LONG_BYTES", 400)
    monkeypatch.setattr(limits, "REPLICATION_PAYLOAD_BYTES", 700)
    monkeypatch.setattr(limits, "REPLICATION_READ_BYTES", 500)
    monkeypatch.setattr(limits, "REPLICATION_PUMP_BYTES", 1000)
    monkeypatch.setattr(limits, "STAGED_PIECE_BYTES", 1500)
    monkeypatch.setattr(limits, "STAGED_SYNC_BYTES", 3000)


def pair(shards: int = 1, work_s: float = 0.001) -> World:
    """A leader and its follower, whose thread takes so long."""
    world = World(shards)
    world.pair()
    world.b.kill()
    world.b.work_s = work_s
    world.b.start()
    world.until(lambda: is_stable(world.b))
    return world


def blob_bytes(machine: Machine) -> int:
    folder = f"{FOLDER}/shard-0"
    sizes = []
    for name in machine.disk.list(folder):
        if name.startswith("blob-"):
            file = machine.disk.open(f"{folder}/{name}", "read")
            sizes.append(file.size())
            file.close()
    return sum(sizes)


def held_bytes(machine: Machine) -> int:
    """What a follower has of a transaction that is not whole."""
    following = machine.live.replication._following
    reception = None if following is None else following._reception
    return 0 if reception is None else reception._incoming.held_bytes


def expect_sound(machine: Machine) -> None:
    store = machine.live.store
    store.journal.writer.sync()
    found = verify(machine.disk.clone(1), FOLDER, store.types.operations)
    assert found.is_sound, found


@pytest.mark.parametrize("shards", [1, 3])
def test_every_kind_of_value_arrives_and_is_recovered(shards: int) -> None:
    world = pair(shards)
    run = world.a.live.run
    run("SET", "string", LARGE)
    run("SET", "expiring", LARGE, "EX", "1000")
    run("MSET", "one", LARGE, "small", "1", "two", LARGE + b"2")
    run("HSET", "hash", "small", "1", "large", LARGE)
    run("SADD", "set", LARGE)
    run("RPUSH", "list", "first", LARGE, "last")
    run("XADD", "stream", "1-1", "field", LARGE)
    run("TWRITE", "tagged", "tag", LARGE)
    run("DEL", "one")

    level(world, world.a, world.b)
    expected = full_state(world.a.live.store)
    assert full_state(world.b.live.store) == expected
    assert world.b.live.run("MGET", "string", "expiring", "one", "two") == [LARGE, LARGE, None, LARGE + b"2"]
    expect_sound(world.b)
    world.b.kill()
    world.b.start()
    assert full_state(world.b.live.store) == expected


def test_what_comes_after_a_large_value_waits_and_clients_do_not() -> None:
    world = pair(work_s=5)
    world.a.live.run("SET", "before", "1")
    world.a.live.run("SET", "large", LARGE)
    world.a.live.run("SET", "after", "1")
    world.loop.run(3)
    assert value(world.b, "before") == b"1"
    assert value(world.b, "large") is None
    assert value(world.b, "after") is None
    assert world.b.live.store.announced_ts < world.a.live.last_ts
    level(world, world.a, world.b)
    assert value(world.b, "large") == LARGE
    assert value(world.b, "after") == b"1"
    assert world.b.live.replication.facts().link_error == ""


def test_of_several_that_came_together_each_is_acknowledged_when_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REPLICATION_READ_BYTES", 10 * len(LARGE))
    monkeypatch.setattr(limits, "REPLICATION_PUMP_BYTES", 10 * len(LARGE))
    world = pair(work_s=5.05)
    store = world.a.live.store
    for key in (b"large", b"larger"):
        transaction = store.begin()
        transaction.run([Val([(key, LARGE + b"2")])])
        store.commit(transaction)
    first_ts = world.a.live.last_ts - 1
    world.a.live.write()
    world.until(lambda: world.b.live.last_ts >= first_ts)
    world.loop.run(0.01)
    assert world.a.live.replication.followers.links[0].written.ts == first_ts
    assert value(world.b, "larger") is None
    level(world, world.a, world.b)
    assert value(world.b, "larger") == LARGE + b"2"


def test_several_large_values_of_one_transaction_appear_together() -> None:
    world = pair(shards=3, work_s=1)
    store = world.a.live.store
    transaction = store.begin()
    for number in range(5):
        transaction.run([Val([(b"key%d" % number, LARGE + b"%d" % number if number % 2 else b"small")])])
    store.commit(transaction)
    world.a.live.write()
    world.loop.run(0.5)
    assert world.b.live.run("DBSIZE") == 0
    level(world, world.a, world.b)
    assert value(world.b, "key3") == LARGE + b"3"
    assert world.b.live.run("DBSIZE") == 5


def test_a_link_that_ends_while_the_thread_works_leaves_nothing_to_wait_for() -> None:
    world = pair(work_s=2)
    world.a.live.run("SET", "large", LARGE)
    writer = world.b.live.store.journal.writer
    world.until(lambda: writer.is_staging)
    world.a.kill()
    world.loop.run(5)
    assert value(world.b, "large") is None, "its link was over when it was written"
    assert not writer.is_staging
    world.a.start()
    level(world, world.a, world.b)
    assert value(world.b, "large") == LARGE
    assert not writer.is_staging


def test_links_that_end_before_all_has_come_leave_nothing_in_the_blob_file() -> None:
    world = pair()
    world.a.live.run("SET", "small", "1")
    level(world, world.a, world.b)
    before = blob_bytes(world.b)
    world.network.route = Route(100, 100, 2000.0)
    world.a.live.run("SET", "large", LARGE)
    for _ in range(3):
        world.until(lambda: held_bytes(world.b) > len(LARGE) // 2)
        world.a.kill()
        world.a.start()
        world.until(lambda: held_bytes(world.b) == 0)
    assert value(world.b, "large") is None
    assert blob_bytes(world.b) == before
    level(world, world.a, world.b)
    assert value(world.b, "large") == LARGE


@pytest.mark.parametrize("style", CRASH_STYLES)
def test_a_crash_while_the_thread_works_loses_only_what_was_not_whole(style: CrashStyle) -> None:
    world = pair(work_s=2)
    world.a.live.run("SET", "large", LARGE)
    writer = world.b.live.store.journal.writer
    world.until(lambda: writer.is_staging)
    world.b.crash(style)
    world.b.start()
    assert value(world.b, "large") is None
    level(world, world.a, world.b)
    assert value(world.b, "large") == LARGE
    expect_sound(world.b)


def test_without_space_it_waits_and_takes_no_more_of_it_by_trying_again() -> None:
    world = pair()
    world.a.live.run("SET", "first", LARGE)
    level(world, world.a, world.b)
    before = blob_bytes(world.b)
    world.b.disk.capacity_bytes = world.b.disk.used_bytes + len(LARGE) // 2
    world.a.live.run("SET", "large", LARGE)
    world.loop.run(20)
    assert is_stable(world.b), "the link stays"
    assert value(world.b, "large") is None
    world.b.disk.capacity_bytes = None
    level(world, world.a, world.b)
    assert value(world.b, "large") == LARGE
    assert blob_bytes(world.b) < before + len(LARGE) + 100
    expect_sound(world.b)


def test_a_follower_that_waits_for_space_can_be_stopped() -> None:
    world = pair()
    world.b.disk.fail("write", errno.ENOSPC, path_contains="/blob-", times=None)
    world.a.live.run("SET", "large", LARGE)
    world.loop.run(2)
    assert world.b.live.store.journal.writer.is_staging
    world.b.disk.clear_faults()
    world.b.stop()
    world.b.start()
    level(world, world.a, world.b)
    assert value(world.b, "large") == LARGE


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_after_a_failure_of_the_disk_nothing_more_is_taken(operation: str) -> None:
    world = pair()
    world.b.disk.fail(operation, errno.EIO, path_contains="/blob-", times=None)  # type: ignore[arg-type]
    world.a.live.run("SET", "large", LARGE)
    with pytest.raises(JournalFailed):
        world.loop.run(2)
    assert world.b.live.last_ts < world.a.live.last_ts
    world.b.disk.clear_faults()
    world.b.crash("lose_all")
    world.b.start()
    level(world, world.a, world.b)
    assert value(world.b, "large") == LARGE


def test_a_segment_that_ends_before_the_record_comes() -> None:
    """By the records before it: they are appended together with it."""
    world = pair()
    store = world.a.live.store
    transaction = store.begin()
    for number in range(60):
        transaction.run([Val([(b"small %d" % number, bytes(400))])])
    transaction.run([Val([(b"large", LARGE)])])
    store.commit(transaction)
    world.a.live.write()
    level(world, world.a, world.b)
    assert len(list_segments(world.b.disk, f"{FOLDER}/shard-0")) > 1
    assert value(world.b, "large") == LARGE
    expect_sound(world.b)
    world.b.kill()
    world.b.start()
    assert value(world.b, "large") == LARGE


def test_a_segment_that_has_ended_when_the_thread_is_done_is_written_to_again() -> None:
    world = pair(work_s=2)
    world.a.live.run("SET", "large", LARGE)
    writer = world.b.live.store.journal.writer
    world.until(lambda: writer.is_staging)
    shard = writer._shards[0]
    segment = shard.place[0]
    shard._segment += 1  # type: ignore[assignment]  # as if others had filled it: a follower has no others
    world.loop.run(2.5)
    shard._segment = segment  # type: ignore[assignment]
    assert value(world.b, "large") is None
    assert writer.is_staging
    level(world, world.a, world.b)
    assert value(world.b, "large") == LARGE


def test_a_follower_that_is_to_lead_while_the_thread_works_leads_without_it() -> None:
    world = pair(work_s=2)
    world.a.live.run("SET", "large", LARGE)
    writer = world.b.live.store.journal.writer
    world.until(lambda: writer.is_staging)
    world.b.live.replication.lead()
    world.b.live.run("SET", "small", "1")
    world.loop.run(5)
    assert not writer.is_staging
    assert value(world.b, "large") is None
    world.a.live.replication.follow(world.b.address)
    level(world, world.b, world.a)
    assert value(world.a, "large") is None
    assert value(world.a, "small") == b"1"
