"""Cooling: what is idle is sealed and compressed, what is read stays warm, and all of it is the same to readers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.streams.plain import filled, plain
from tidelog import limits
from tidelog.server.cooling import Cooling
from tidelog.store.keyspace import Database
from tidelog.streams.stream import Stream
from tidelog.testing.clock import SimulatedClock


class World:
    def __init__(self) -> None:
        self.clock = SimulatedClock()
        self.databases = [Database(0), Database(1)]
        self.cooling = Cooling(asyncio.get_running_loop(), self.databases, self.clock)

    async def pass_over(self) -> None:
        """One whole pass."""
        self.clock.advance(1_000_000 * limits.COLD_AFTER_S)
        for _ in range(2000):
            self.cooling.tick()
            await asyncio.sleep(0)
            if self.cooling.is_resting:
                break
            await asyncio.sleep(0.0005)


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


def test_idle_nodes_become_cold() -> None:
    async def check(world: World) -> None:
        stream, small, other = filled(2500, size=50), filled(99, size=50), filled(150, size=50)
        world.databases[0].put(b"k", stream)
        world.databases[0].put(b"small", small)
        world.databases[0].put(b"string", b"value")
        world.databases[1].put(b"other", other)
        before, warm_bytes = plain(stream), stream.size_bytes
        await world.pass_over()
        assert cold(stream) == [False, False]
        assert plain(stream) == before  # read, so that it stays warm
        await world.pass_over()
        assert cold(stream) == [False, False, False]
        await world.pass_over()
        assert cold(stream) == [True, True, True]
        assert cold(other) == [True]
        assert not small.sealed
        assert stream.size_bytes < warm_bytes / 3
        assert plain(stream) == before
        assert world.cooling.compressed_count == 4
        stream.append(10**6, 0, 0, [b"t"], [b"e"])
        assert plain(stream)["rows"][:-1] == before["rows"]

    run(check)


def test_a_node_that_grows_is_not_sealed() -> None:
    async def check(world: World) -> None:
        stream = filled(200)
        world.databases[0].put(b"k", stream)
        for _ in range(3):
            await world.pass_over()
            filled(1, stream=stream)
        assert not stream.sealed

    run(check)


def test_passes_have_time_between_them() -> None:
    async def check(world: World) -> None:
        stream = filled(1000)
        world.databases[0].put(b"k", stream)
        await world.pass_over()
        assert stream.sealed[0].is_idle
        for _ in range(100):
            world.cooling.tick()
        assert world.cooling.is_resting
        world.cooling.close()
        await world.pass_over()
        assert not stream.sealed[0].is_cold

    run(check)
