"""Old segments go when they are past the limits; before the disk is full also those that only the limits keep."""

from __future__ import annotations

import asyncio
import errno
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from random import Random
from time import perf_counter

import pytest

from tests.store.changes import change
from tidelog.errors import JournalFull
from tidelog.journal.frame import Geometry
from tidelog.journal.journal import Settings
from tidelog.journal.retention import NO_LIMIT, RetentionLimits
from tidelog.journal.segment import list_segments
from tidelog.server.erasing import Erasing
from tidelog.store.store import Store
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk

GEOMETRY = Geometry(frame_bytes=4096, frames_per_segment=4)
SEGMENT_BYTES = 4 * 4096


class World:
    """A journal of many segments, of which a snapshot covers all but the last."""

    def __init__(self) -> None:
        self.disk, self.rng = SimulatedDisk(1), Random(1)
        settings = Settings(GEOMETRY, retention=RetentionLimits(NO_LIMIT, NO_LIMIT, snapshots_kept=1))
        self.store = Store.open(self.disk, "/data", SimulatedClock(), settings, lambda: 1, Random(1))
        self.journal = self.store.journal
        self.write(2500)
        capture = self.store.begin_capture()
        assert capture is not None
        while not capture.is_done:
            capture.visit(1000)
        self.store.end_capture()
        self.journal.finish_snapshot(capture.snapshot)
        self.thread = ThreadPoolExecutor(1)
        self.erasing = Erasing(asyncio.get_running_loop(), self.journal, self.thread)

    def write(self, count: int) -> None:
        for _ in range(count):
            change(self.store, self.rng)
            self.journal.writer.write()

    @property
    def segment_count(self) -> int:
        return len(list_segments(self.disk, "/data/shard-0"))

    def leave_room(self, size: int) -> None:
        self.disk.capacity_bytes = self.disk.used_bytes + size

    async def tick(self, times: int = 3) -> None:
        """As often as it takes to be sure that what can go is gone."""
        for _ in range(times):
            self.erasing._next_s = min(self.erasing._next_s, perf_counter())
            self.erasing.tick()
            await self.end()

    async def end(self) -> None:
        """Wait for what is under way."""
        while self.erasing.is_under_way:
            await asyncio.sleep(0.001)

    def close(self) -> None:
        self.erasing.close()
        self.thread.shutdown()
        self.disk.capacity_bytes = None
        self.journal.close()


def in_world(test: Callable[[World], object]) -> None:
    async def run() -> None:
        world = World()
        try:
            await asyncio.wait_for(test(world), 30)  # type: ignore[arg-type]
        finally:
            world.close()

    asyncio.run(run())


def test_what_only_the_limits_keep_goes_before_the_disk_is_full(caplog: pytest.LogCaptureFixture) -> None:
    async def test(world: World) -> None:
        before = world.segment_count
        assert before > 6
        world.leave_room(2 * SEGMENT_BYTES)
        await world.tick()
        assert world.segment_count == before
        assert not world.erasing.facts.is_low
        world.leave_room(SEGMENT_BYTES)
        await world.tick()
        facts = world.erasing.facts
        assert 1 <= facts.segments_erased == before - world.segment_count <= 2, "no more than it takes"
        assert facts.bytes_erased >= facts.segments_erased * SEGMENT_BYTES
        assert not facts.is_low
        assert world.journal.erased_ts > 0
        [line] = caplog.messages
        assert "the disk is nearly full" in line
        assert f"erased {facts.segments_erased} segments" in line
        assert f"after ts {world.journal.erased_ts}" in line

    with caplog.at_level(logging.WARNING, "tidelog"):
        in_world(test)


def test_what_a_holder_needs_stays_on_a_full_disk(caplog: pytest.LogCaptureFixture) -> None:
    async def test(world: World) -> None:
        before = world.segment_count
        world.journal.holders.hold("feed", world.journal.erased_ts, world.journal._clock.wall_us())
        world.leave_room(0)
        await world.tick(5)
        assert world.segment_count == before
        assert world.erasing.facts.is_low
        assert [line.partition(":")[0] for line in caplog.messages] == [
            "the disk is nearly full (0 bytes are free) and no segment of the journal can be erased"
        ], "said once"
        world.journal.holders.release("feed")
        await world.tick()
        assert world.segment_count < before

    with caplog.at_level(logging.WARNING, "tidelog"):
        in_world(test)


def test_a_write_that_found_no_space_gets_it() -> None:
    """Also when the disk says that there is room: a quota may not show there."""

    async def test(world: World) -> None:
        before = world.segment_count
        world.disk.fail("write", errno.EDQUOT, path_contains="shard-0", times=None)
        with pytest.raises(JournalFull):
            world.write(100)
        await world.tick(1)
        assert world.segment_count < before
        world.disk.clear_faults()
        world.journal.writer.write()
        await world.tick(1)
        assert not world.erasing.facts.is_low

    in_world(test)


def test_no_history_goes_because_descriptors_ran_out() -> None:
    async def test(world: World) -> None:
        before = world.segment_count
        world.disk.fail("write", errno.EMFILE, path_contains="shard-0", times=None)
        with pytest.raises(JournalFull):
            world.write(100)
        await world.tick()
        assert world.segment_count == before
        world.disk.clear_faults()
        world.journal.writer.write()

    in_world(test)


def test_a_limit_that_changes_counts_at_once_and_is_not_told_as_need() -> None:
    async def test(world: World) -> None:
        before = world.segment_count
        world.journal.retention = replace(world.journal.retention, bytes_max=0)
        world.erasing.begin()
        await world.end()
        assert world.segment_count < before
        assert world.erasing.facts.segments_erased == 0

    in_world(test)


def test_a_limit_that_changes_while_segments_are_erased_counts_right_after() -> None:
    async def test(world: World) -> None:
        before = world.segment_count
        world.erasing.begin()
        held = threading.Event()
        world.thread.submit(held.wait, 30)  # the removal waits, so the choice is made before the limit changes
        await asyncio.sleep(0)
        world.journal.retention = replace(world.journal.retention, bytes_max=0)
        world.erasing.begin()
        held.set()
        await world.end()
        world.erasing.tick()
        await world.end()
        assert world.segment_count < before

    in_world(test)
