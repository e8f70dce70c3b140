"""Cooling of a running server: nodes go to disk while it runs, and all of it is the same to readers."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable

import pytest

from tests.store.changes import open_store
from tests.streams.plain import filled, plain
from tidelog import limits
from tidelog.server.cooling import Cooling
from tidelog.server.memory import Memory, total_bytes
from tidelog.streams.cold import OPENED
from tidelog.streams.stream import Stream
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk


class World:
    def __init__(self) -> None:
        self.clock = SimulatedClock()
        self.disk = SimulatedDisk()
        self.store = open_store(self.disk, 1)
        self.is_pressed = False
        self.cooling = Cooling(
            asyncio.get_running_loop(), self.store.cooling, self.clock, is_pressed=lambda: self.is_pressed
        )

    def put(self, key: bytes, stream: Stream, number: int = 0) -> Stream:
        database = self.store.database(number)
        database.put(key, stream)
        stream.get_in_line(database.cooling_line(key))
        return stream

    async def work(self) -> None:
        """Until there is nothing to do."""
        for _ in range(2000):
            self.cooling.tick()
            await asyncio.sleep(0.0005)
            if self.cooling.is_resting:
                break

    async def pass_over(self) -> None:
        """One whole pass."""
        self.clock.advance(1_000_000 * limits.COLD_AFTER_S)
        await self.work()


def run(test: Callable[[World], object]) -> None:
    async def inside() -> None:
        world = World()
        made = test(world)
        assert asyncio.iscoroutine(made)
        await made
        world.cooling.close()

    asyncio.run(inside())


def cold(stream: Stream) -> list[bool]:
    return [node.is_cold for node in stream.sealed]


def test_all_but_the_last_nodes_become_cold_at_once() -> None:
    async def check(world: World) -> None:
        stream = world.put(b"k", Stream())
        await world.pass_over()
        filled(5500, stream=stream, size=50)
        before = plain(stream)
        await world.work()
        assert cold(stream) == [True, True, False, False, False]
        assert plain(stream) == before
        filled(1000, stream=stream, size=50)
        await world.work()
        assert cold(stream) == [True, True, True, False, False, False]

    run(check)


def test_what_does_not_grow_becomes_cold() -> None:
    async def check(world: World) -> None:
        stream = world.put(b"k", filled(2500, size=50))
        small = world.put(b"small", filled(99, size=50))
        other = world.put(b"other", filled(150, size=50), 1)
        world.store.database(0).put(b"string", b"value")
        before, hot_bytes = plain(stream), stream.size_bytes
        await world.pass_over()
        assert cold(stream) == [False, False]
        await world.pass_over()
        assert cold(stream) == [True, True, True]
        assert cold(other) == [True]
        assert not small.sealed
        assert stream.size_bytes < hot_bytes / 3
        assert plain(stream) == before
        stream.append(10**6, 0, 0, [b"t"], [b"e"])
        assert plain(stream)["rows"][:-1] == before["rows"]

    run(check)


def test_a_node_that_grows_is_not_sealed() -> None:
    async def check(world: World) -> None:
        stream = world.put(b"k", filled(200))
        for _ in range(3):
            await world.pass_over()
            filled(1, stream=stream)
        assert not stream.sealed

    run(check)


def test_under_pressure_everything_becomes_cold() -> None:
    async def check(world: World) -> None:
        stream = world.put(b"k", filled(1200))
        await world.pass_over()
        assert cold(stream) == [False]
        filled(1, stream=stream)
        world.is_pressed = True
        world.cooling.tick()
        world.is_pressed = False
        await world.work()
        assert cold(stream) == [True, True]

    run(check)


def test_passes_have_time_between_them() -> None:
    async def check(world: World) -> None:
        stream = world.put(b"k", filled(1000))
        await world.pass_over()
        for _ in range(100):
            world.cooling.tick()
        assert world.cooling.is_resting
        world.cooling.close()
        await world.pass_over()
        assert cold(stream) == [False]

    run(check)


def test_a_full_disk_loses_nothing() -> None:
    async def check(world: World) -> None:
        stream = world.put(b"k", Stream())
        filled(6000, stream=stream, size=50)
        before = plain(stream)
        world.disk.fail("write", errno.ENOSPC, times=None)
        await world.work()
        assert cold(stream) == [False] * 6
        assert world.cooling.failures
        world.disk.clear_faults()
        await world.work()
        assert not any(cold(stream))
        world.clock.advance(1_000_000 * limits.COOLING_RETRY_S)
        await world.work()
        assert cold(stream) == [True] * 3 + [False] * 3
        assert plain(stream) == before

    run(check)


def test_old_nodes_that_cannot_be_read_are_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    async def check(world: World) -> None:
        stream = world.put(b"k", filled(6000, size=50))
        await world.work()
        assert stream.line is not None
        world.disk.fail("open", errno.EMFILE, times=None, path_contains="nodes-")
        for _ in range(3):
            stream.line.add(stream.sealed[0], also_cold=True)
            await world.work()
            assert not stream.sealed[0].is_in_line
        assert len(caplog.records) == 1
        world.disk.clear_faults()
        place = stream.sealed[0].place
        stream.line.add(stream.sealed[0], also_cold=True)
        await world.work()
        assert stream.sealed[0].place is not place

    run(check)


def test_what_was_just_written_stays_open_only_for_its_readers() -> None:
    async def check(world: World) -> None:
        stream = world.put(b"k", filled(6000, size=50))
        await world.work()
        cooled = stream.sealed[:3]
        assert [node in OPENED for node in cooled] == [True] * 3
        assert stream.read(1001, 1)  # from the second node
        for _ in range(2):
            world.clock.advance(1_000_000 * limits.WRITTEN_NODES_OPEN_S)
            await world.work()
        assert [node in OPENED for node in cooled] == [False, True, False]
        assert OPENED.bytes_held >= cooled[1].opened_bytes
        held = OPENED.bytes_held
        assert stream.read(1, 1)
        assert cooled[0] in OPENED
        assert OPENED.bytes_held > held

    run(check)


def test_memory_is_given_back_while_more_is_in_line(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []
    monkeypatch.setattr(limits, "GIVEN_BACK_BYTES_MIN", 1)

    async def check(world: World) -> None:
        monkeypatch.setattr("tidelog.server.cooling.give_back", lambda: given.append(1))
        stream = world.put(b"k", Stream())
        for is_pressed, seconds, times in ((False, 30, 3), (True, 5, 5)):
            world.is_pressed = is_pressed
            given.clear()
            for _ in range(seconds):
                filled(1000, stream=stream)
                world.clock.advance(1_000_000)
                world.cooling.tick()
                await asyncio.sleep(0.005)
            assert times - 2 <= len(given) <= times + 1

    run(check)


def test_what_is_hot_is_known_roughly() -> None:
    async def check(world: World) -> None:
        cooling = world.store.cooling
        assert cooling is not None
        stream = world.put(b"k", Stream())
        filled(6000, stream=stream, size=50)
        node_bytes = stream.sealed[0].opened_bytes
        assert (cooling.hot_bytes, cooling.totals.node_count) == (6 * node_bytes, 6)
        await world.work()
        assert (cooling.hot_bytes, cooling.totals.node_count) == (3 * node_bytes, 3)
        assert cooling.totals.other_bytes == stream.other_bytes
        world.store.database(0).remove(b"k")
        assert cooling.hot_bytes == 3 * node_bytes
        await world.pass_over()
        assert (cooling.hot_bytes, cooling.totals.node_count, cooling.totals.other_bytes) == (0, 0, 0)

    run(check)


def test_memory_is_tight_before_it_is_too_much() -> None:
    memory = Memory(1000, 77, resident=lambda: 901)
    assert (memory.is_tight, memory.is_exceeded, memory.hot_stream_bytes) == (True, False, 77)
    assert not Memory(1002, resident=lambda: 901).is_tight
    assert not Memory(0, resident=lambda: 901).is_tight
    assert Memory(0).hot_stream_bytes == total_bytes() // 16
