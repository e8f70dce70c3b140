"""A server whose streams lie on disk answers every command as one that has them in memory.

Both have tiny nodes and run the same commands. In one of them everything that is sealed is cold, hardly anything stays
open, and threads read nodes when they please.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.engine.made import make_connections, make_engine
from tests.engine.test_staging import encode, settle
from tests.server.test_connection import Transport
from tests.store.made import Machine
from tests.streams.cold_nodes import cool
from tests.streams.plain import plain
from tidelog import limits
from tidelog.server.connection import Connection
from tidelog.server.turns import Turns
from tidelog.store.dead_letters import PendingExpiry
from tidelog.streams.cold import OPENED
from tidelog.streams.stream import Stream

KEYS = [b"s", b"t", b"dead"]
COMMANDS_COUNT = 200


class RandomWorker:
    """A thread that is as quick or slow as chance has it."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.waiting: list[tuple[Callable[[], None], Callable[[], None]]] = []

    def submit(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        self.waiting.append((work, done))

    def run_one(self) -> None:
        work, done = self.waiting.pop(0)
        work()
        done()


class Side:
    """One of the two servers."""

    def __init__(self, rng: random.Random, *, is_cold: bool) -> None:
        self.is_cold = is_cold
        self.machine = Machine()
        self.workers = [RandomWorker(rng) for _ in range(2)] if is_cold else []
        self._rng = rng
        loop = asyncio.get_running_loop()
        self.engine = make_engine(self.machine.store, self.machine.clock, loop, fetch_workers=self.workers)
        connections = make_connections(self.engine)
        turns = Turns(loop, self.machine.store.journal, self.machine.clock.monotonic_us)
        fetching = self.engine.fetching
        self.expiry = PendingExpiry(self.machine.store, None if fetching is None else fetching.fetch_once)
        self.session, self._transport = Connection(self.engine, turns, connections), Transport()
        made: Any = self._transport
        self.session.connection_made(made)

    async def ask(self, data: bytes) -> bytes:
        self.session.data_received(data)
        await self.work()
        return bytes(self._transport.take())

    async def work(self) -> None:
        await settle()
        while busy := [worker for worker in self.workers if worker.waiting]:
            self._rng.choice(busy).run_one()
            await settle()

    async def pass_time(self, us: int) -> None:
        self.machine.clock.advance(us)
        self.machine.store.note_time()
        self.expiry.run()
        await self.work()

    def look(self) -> dict[bytes, Any]:
        """All streams."""
        database = self.machine.store.database(0)
        found = {key: database.find(key) for key in (*KEYS, b"copy", b"moved")}
        return {key: plain(value) for key, value in found.items() if isinstance(value, Stream)}

    def chill(self) -> None:
        """Both seal the same nodes, as T commands evict by nodes, and one of them lets go of their bytes."""
        if self.is_cold:
            cool(self.machine.store, is_pressed=False)
            OPENED.clear()
        elif self.machine.store.cooling is not None:
            for _ in self.machine.store.cooling.look(is_pressed=False):
                pass


def random_id(rng: random.Random) -> bytes:
    return rng.choice([b"%d-0", b"%d-1", b"%d"]) % rng.randrange(1, 200)


def random_command(rng: random.Random) -> list[bytes]:
    key, group, consumer = rng.choice(KEYS[:2]), b"g%d" % rng.randrange(2), b"c%d" % rng.randrange(2)
    count, offset = b"%d" % rng.choice([1, 2, 7, 30]), b"%d" % rng.randrange(0, 130)
    some = [random_id(rng) for _ in range(rng.randrange(1, 5))]
    interval = rng.choice([[b"-", b"+"], [random_id(rng), b"+"], [b"-", random_id(rng)], sorted(some * 2)[:2]])
    retry = rng.choice([[], [b"RETRY", b"1000", b"3000"], [b"RETRY", b"0", b"0"], [b"RETRY", b"500", b"0"]])
    commands = [
        [b"TREAD", key, offset, count],
        [b"TREAD", key, offset, count, b"REV"],
        [b"TREAD", key, offset, count, b"WITHINFO"],
        [b"XRANGE", key, *interval],
        [b"XRANGE", key, *interval, b"COUNT", count],
        [b"XREVRANGE", key, *interval[::-1]],
        [b"XREVRANGE", key, *interval[::-1], b"COUNT", count],
        [b"XREAD", b"COUNT", count, b"STREAMS", b"s", b"t", random_id(rng), random_id(rng)],
        [b"XREAD", b"COUNT", count, b"STREAMS", key, random_id(rng)],
        [b"TGROUP", key, group, b"DEADLETTER", b"dead", b"MAXDELIVERIES", b"3"],
        [b"XGROUP", b"CREATE", key, group, rng.choice([b"0", b"$", random_id(rng)])],
        [b"XGROUP", b"SETID", key, group, rng.choice([b"0", b"$", random_id(rng)])],
        [b"TREAD", key, b"0", count, b"GROUP", group, *retry],
        [b"TREAD", key, b"0", count, b"GROUP", group, *retry],
        [b"XREADGROUP", b"GROUP", group, consumer, b"COUNT", count, b"STREAMS", key, b">"],
        [b"XREADGROUP", b"GROUP", group, consumer, b"COUNT", count, b"STREAMS", key, b"0"],
        [b"XREADGROUP", b"GROUP", group, consumer, b"STREAMS", key, key, b">", b"0"],
        [b"XCLAIM", key, group, consumer, b"0", *some, *rng.choice([[], [b"FORCE"], [b"JUSTID"]])],
        [b"XAUTOCLAIM", key, group, consumer, b"0", random_id(rng), b"COUNT", count],
        [b"XPENDING", key, group, b"-", b"+", b"20"],
        [b"XACK", key, group, *some],
        [b"TACK", key, group, offset],
        [b"XDEL", key, *some],
        [b"XTRIM", key, b"MINID", random_id(rng)],
        [b"XTRIM", key, b"MAXLEN", b"%d" % rng.randrange(40, 120)],
        [b"TEVICT", key, b"%d" % rng.randrange(40)],
        [b"TCOMPACT", key],
        [b"XINFO", b"STREAM", key],
        [b"XINFO", b"STREAM", key, b"FULL", b"COUNT", count],
        [b"XINFO", b"GROUPS", key],
        [b"XLEN", key],
        [b"COPY", key, b"copy", b"REPLACE"],
        [b"RENAME", b"copy", b"moved"],
        [b"TREAD", b"moved", offset, count],
        [b"TREAD", b"dead", b"1", b"100"],
        [b"XSETID", key, b"1000-0"],
        [b"DEL", key] if rng.random() < 0.05 else [b"EXISTS", key],
    ]
    return rng.choice(commands)


def as_sent(rng: random.Random, commands: list[list[bytes]]) -> bytes:
    sent = b"".join(encode(*words) for words in commands)
    return encode(b"MULTI") + sent + encode(b"EXEC") if rng.random() < 0.2 else sent


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(limits, "NODE_ENTRIES_MAX", 5)
    monkeypatch.setattr(limits, "HOT_NODES_KEPT", 0)
    monkeypatch.setattr(limits, "IDLE_SEAL_ENTRIES_MIN", 1)
    monkeypatch.setattr(OPENED, "_bytes_max", 300)
    monkeypatch.setattr(limits, "FETCHED_TOGETHER_BYTES_MAX", 2000)
    OPENED.clear()
    yield
    OPENED.clear()


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("seed", range(12))
def test_what_lies_on_disk_is_answered_as_what_is_in_memory(seed: int) -> None:
    async def test() -> None:
        rng = random.Random(seed)
        sides = [Side(random.Random(seed), is_cold=is_cold) for is_cold in (False, True)]
        next_id = dict.fromkeys(KEYS, 1)
        for _ in range(COMMANDS_COUNT):
            commands = [random_command(rng) for _ in range(rng.randrange(1, 4))]
            if rng.random() < 0.5:
                key = rng.choice(KEYS[:2])
                for _ in range(rng.randrange(1, 15)):
                    fields = [b"tag", b"t%d" % rng.randrange(30), b"entry", b"x" * rng.randrange(30)]
                    commands.append([b"XADD", key, b"%d-%d" % (next_id[key], rng.randrange(1, 3)), *fields])
                    next_id[key] += 1
            data, us = as_sent(rng, commands), rng.choice([0, 0, 100_000, 2_000_000])
            hot, cold = [await side.ask(data) for side in sides]
            assert cold == hot, commands
            for side in sides:
                await side.pass_time(us)
            if rng.random() < 0.5:
                for side in sides:
                    side.chill()
        for side in sides:
            side.session.connection_lost(None)
        assert not OPENED.pinned_count
        assert sides[1].look() == sides[0].look()
        fetching = sides[1].engine.fetching
        assert fetching is not None
        assert fetching.fetched_count > 10

    asyncio.run(asyncio.wait_for(test(), 120))
