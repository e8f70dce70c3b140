"""Snapshots of a running server on a simulated disk: what they show, and what becomes of failures."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from tests.store.changes import change, state
from tidelog import limits
from tidelog.errors import CommandError
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.frame import Geometry
from tidelog.journal.journal import Settings
from tidelog.journal.retention import RetentionLimits
from tidelog.journal.snapshot import Snapshot, list_snapshot_paths, open_snapshot
from tidelog.server.snapshots import ServerSnapshots
from tidelog.server.turns import Turns
from tidelog.store.store import Store
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk

SECONDS_MAX = 20


class World:
    """A store on a simulated disk, its turns and its snapshots."""

    def __init__(self, policy: FsyncPolicy = FsyncPolicy.EVERYSEC, after_bytes: int = 0) -> None:
        self.disk, self.rng, self.after_bytes, self.policy = SimulatedDisk(1), Random(1), after_bytes, policy
        self.open()

    def open(self) -> None:
        self.clock = SimulatedClock()
        settings = Settings(
            Geometry(frame_bytes=4096, frames_per_segment=4), 2, self.policy, retention=RetentionLimits(bytes_max=0)
        )
        self.store = Store.open(self.disk, "/data", self.clock, settings, lambda: 1, Random(1))
        loop = asyncio.get_running_loop()
        self.turns = Turns(loop, self.store.journal, self.clock.monotonic_us)
        self.snapshots = ServerSnapshots(loop, self.store, self.turns, self.clock, self.after_bytes)

    async def close(self) -> None:
        self.snapshots.close()
        await self.turns.drain()
        self.store.journal.close()

    def write(self, count: int = 100) -> None:
        for _ in range(count):
            change(self.store, self.rng)
        self.store.journal.writer.write()

    async def wait(self) -> None:
        """Until none is under way, and nothing is being erased."""
        while self.snapshots.is_under_way or self.snapshots.erasing.is_under_way:
            await asyncio.sleep(0.001)

    @property
    def paths(self) -> list[str]:
        return list_snapshot_paths(self.disk, "/data")

    @property
    def newest(self) -> Snapshot:
        return open_snapshot(self.disk, self.paths[-1])

    def shown(self) -> dict[Any, Any]:
        """What the newest snapshot shows."""
        store = Store(self.clock, Random(1))
        store.slots = self.store.slots
        self.newest.read(self.disk, store.replay, lambda _epoch: None)
        return state(store)

    def has_leftovers(self) -> bool:
        return any(name.endswith(".partial") for name in self.disk.list("/data/snapshots"))


def in_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run a test on a loop, for a while at most."""

    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*arguments, **named), SECONDS_MAX))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    run.__wrapped__ = test  # type: ignore[attr-defined]
    return run


@pytest.mark.parametrize("policy", list(FsyncPolicy))
@in_loop
async def test_a_snapshot_shows_its_moment_while_writing_goes_on(
    policy: FsyncPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CAPTURE_SLICE_S", 0.0)
    monkeypatch.setattr(limits, "CAPTURE_IDLE_SLICE_S", 0.00001)
    world = World(policy)
    world.write(300)
    expected, point_ts = state(world.store), world.store.journal.writer.written_ts
    world.snapshots.begin()
    with pytest.raises(CommandError, match="ERR Background save already in progress"):
        world.snapshots.begin()
    with pytest.raises(CommandError, match="ERR Background save already in progress"):
        world.snapshots.save()
    await asyncio.sleep(0)  # the moment is the end of this turn
    changes = 0
    while world.snapshots.is_under_way:
        world.write(1)
        changes += 1
        await asyncio.sleep(0)
    assert changes > 1
    assert world.newest.point.ts == point_ts
    assert world.store.journal.writer.durable_ts >= point_ts
    assert world.shown() == expected
    assert world.newest.point.keys == len(expected) == world.snapshots.facts.newest_keys
    assert world.snapshots.facts.error is None
    final = state(world.store)
    await world.close()
    world.open()
    assert state(world.store) == final
    await world.close()


@in_loop
async def test_save_saves_here_and_now_also_during_an_fsync() -> None:
    world = World(FsyncPolicy.ALWAYS)
    world.write()
    world.turns.commit._begin()
    world.write()
    world.clock.advance(5_000_000)
    world.snapshots.save()
    assert world.shown() == state(world.store)
    assert world.snapshots.last_s == world.clock.wall_us() // 1_000_000
    world.snapshots.save()  # nothing is new, and that is fine
    assert len(world.paths) == 1
    await world.close()


@in_loop
async def test_facts_are_right_after_a_restart() -> None:
    world = World()
    world.write(200)
    before = world.snapshots.facts
    assert (before.newest_ts, before.newest_bytes) == (0, 0)
    assert before.bytes_since > 0
    world.snapshots.save()
    assert (world.snapshots.facts.bytes_since, world.snapshots.facts.records_since) == (0, 0)
    world.write(150)
    facts = world.snapshots.facts
    ts = world.newest.point.ts
    assert (facts.newest_ts, facts.records_since > 0, facts.bytes_since > 0) == (ts, True, True)
    await world.wait()
    world.snapshots.close()
    await world.turns.drain()
    world.disk.kill()
    world.open()
    after = world.snapshots.facts
    assert (after.newest_ts, after.newest_keys, after.records_since) == (ts, facts.newest_keys, facts.records_since)
    # The start that follows a death adds an epoch and a mark to each shard.
    assert facts.bytes_since < after.bytes_since < facts.bytes_since + 1000
    assert world.snapshots.last_s == ts // 1_000_000
    await world.close()


@in_loop
async def test_it_is_made_by_itself_and_old_segments_go() -> None:
    world = World(after_bytes=30_000)
    for _ in range(40):
        world.write(50)
        world.snapshots.tick()
        await world.wait()
    assert world.snapshots.count >= 3
    assert len(world.paths) == limits.SNAPSHOTS_KEPT
    assert world.snapshots.bytes_since <= max(30_000, world.snapshots.facts.newest_bytes) + 30_000
    assert "journal-0000000000000000.dj0" not in world.disk.list("/data/shard-0")
    final = state(world.store)
    await world.close()
    world.open()
    assert state(world.store) == final
    await world.close()


@in_loop
async def test_never_by_itself_if_told_so() -> None:
    world = World(after_bytes=0)
    world.write(300)
    assert not world.snapshots.is_due
    await world.close()


@pytest.mark.parametrize(
    ("operation", "path", "number"),
    [
        ("make_folder", "snapshots", errno.ENOSPC),
        ("create", ".partial", errno.ENOSPC),
        ("write", ".partial", errno.ENOSPC),
        ("write", ".partial", errno.EIO),
        ("sync", ".partial", errno.EIO),
        ("rename", ".partial", errno.EIO),
        ("sync_folder", "snapshots", errno.EIO),
    ],
)
@in_loop
async def test_a_failure_is_told_leaves_nothing_and_is_tried_again_later(
    operation: Any, path: str, number: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(after_bytes=10)
    world.write(300)
    world.disk.fail(operation, number, path_contains=path)
    world.snapshots.tick()
    await world.wait()
    failed = world.snapshots.facts
    assert (bool(failed.error), failed.failures) == (True, 1)
    assert "no snapshot" in caplog.text
    assert not world.store.is_capturing
    world.write()  # the server goes on
    assert not world.snapshots.is_due, "not at once"
    monkeypatch.setattr(world.snapshots, "_retry_s", 0.0)
    world.snapshots.tick()
    await world.wait()
    assert world.snapshots.facts.error is None
    assert world.shown() == state(world.store)
    assert not world.has_leftovers()
    await world.close()


@in_loop
async def test_a_follower_that_waits_for_one_is_not_a_reason_to_fail_again_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.write()
    world.disk.fail("sync", errno.EIO, path_contains=".partial")
    for _ in range(5):
        world.snapshots.begin_for_follower()
        await world.wait()
    assert (world.snapshots.failures, world.snapshots.count) == (1, 0)
    monkeypatch.setattr(world.snapshots, "_retry_s", 0.0)
    world.snapshots.begin_for_follower()
    await world.wait()
    assert world.snapshots.count == 1
    await world.close()


@in_loop
async def test_each_failure_in_a_row_doubles_the_pause() -> None:
    world = World(after_bytes=10)
    pauses = []
    for _ in range(9):
        began = world.snapshots._retry_s
        world.snapshots._failed(OSError("x"))
        pauses.append(world.snapshots._retry_s - began)
    assert limits.SNAPSHOT_RETRY_S_MIN * 1.5 < pauses[2] < limits.SNAPSHOT_RETRY_S_MIN * 2.5
    assert abs(pauses[-1]) < 1, "and then no longer"
    await world.close()


@in_loop
async def test_a_full_journal_makes_it_wait() -> None:
    world = World(after_bytes=10)
    world.write(50)
    while not world.store.journal.writer.batch_bytes:  # a command may change nothing
        change(world.store, world.rng)
    world.disk.fail("write", errno.ENOSPC, path_contains="/data/shard", times=None)
    world.snapshots.begin()
    await world.wait()
    assert "no space" in (world.snapshots.error or "")
    assert not world.snapshots.is_due
    world.disk.clear_faults()
    world.store.journal.writer.write()
    world.snapshots.begin()
    await world.wait()
    assert world.shown() == state(world.store)
    await world.close()


@in_loop
async def test_a_failed_save_says_so() -> None:
    world = World()
    world.write()
    world.disk.fail("sync", errno.EIO, path_contains=".partial")
    with pytest.raises(CommandError, match="ERR the snapshot failed"):
        world.snapshots.save()
    assert not world.has_leftovers()
    assert not world.store.is_capturing
    world.snapshots.save()
    assert world.shown() == state(world.store)
    await world.close()


@pytest.mark.parametrize("turns", [0, 1, 2, 5, 20])
@in_loop
async def test_a_stop_gives_it_up_cleanly(turns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CAPTURE_SLICE_S", 0.0)
    monkeypatch.setattr(limits, "CAPTURE_IDLE_SLICE_S", 0.0)
    world = World()
    world.write(300)
    world.snapshots.begin()
    for _ in range(turns):
        await asyncio.sleep(0)
    await world.close()
    assert not world.has_leftovers()
    assert world.paths == []
    assert world.disk.open_paths == []


@in_loop
async def test_the_last_save_does_not_wait_for_one_under_way() -> None:
    world = World()
    world.write(300)
    world.snapshots.begin()
    await asyncio.sleep(0)
    world.write()
    world.snapshots.save_last()
    assert world.shown() == state(world.store)
    await world.close()
    assert len(world.paths) == 1


@in_loop
async def test_sidecars_are_made_in_passing() -> None:
    world = World()
    world.write(600)
    while world.store.journal.writer.sealed or world.snapshots._is_making_sidecar:
        world.snapshots.tick()
        await asyncio.sleep(0.001)
    assert any(name.startswith("sidecar-") for name in world.disk.list("/data/shard-0"))
    await world.close()
