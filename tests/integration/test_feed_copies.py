"""Copies of a keyspace, kept by feeds whose connections are cut at random while others write."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.client.cut_link import CutLink
from tests.feeds.rebuilt import apply_list
from tests.integration.server_process import ServerProcess
from tidelog.client import Client, DeleteRange, Steady, Value

SECONDS_MAX = 60


class Copy:
    """Strings, hashes and lists, as events tell of them."""

    def __init__(self) -> None:
        self.values: dict[bytes, Any] = {}
        self.newest: dict[bytes, int] = {}

    def apply(self, event: Value) -> None:
        assert event.ts >= self.newest.get(event.key, 0), "changes of a key come in order"
        self.newest[event.key] = event.ts
        if event.type == "string":
            self.values[event.key] = event.value
        elif event.type == "none":
            self.values.pop(event.key, None)
        elif event.type == "list":
            apply_list(self.values, event.key, event.field, event.value)
        elif event.value is None:
            del self.values[event.key][event.field]
            if not self.values[event.key]:
                del self.values[event.key]
        else:
            assert event.field is not None
            self.values.setdefault(event.key, {})[event.field] = event.value

    def clear(self, start: bytes, end: bytes) -> None:
        for key in [key for key in self.values if start <= key and (not end or key < end)]:
            del self.values[key]


def random_write(random: Random, redis: Any) -> None:
    """One transaction, of several keys now and then."""
    pipeline = redis.pipeline(transaction=True)
    for _ in range(random.choice([1, 1, 3])):
        number = random.randrange(60)
        choice = random.randrange(16)
        if choice < 4:
            pipeline.set(f"s{number}", random.randbytes(random.choice([3, 300])))
        elif choice < 7:
            pipeline.hset(f"h{number}", f"f{random.randrange(4)}", random.randrange(1000))
        elif choice < 8:
            pipeline.hdel(f"h{number}", f"f{random.randrange(4)}")
        elif choice < 10:
            pipeline.delete(f"{random.choice('shl')}{number}")
        else:
            write_to_list(random, pipeline, f"l{number % 6}", f"l{random.randrange(6)}")
    if random.random() < 0.005:
        pipeline.flushdb()
    pipeline.execute(raise_on_error=False)  # LSET of a list that is not there


def write_to_list(random: Random, pipeline: Any, name: str, other: str) -> None:
    """Mostly as a queue; a change that comes twice, or not at all, is seen in all that come after it."""
    element = str(random.randrange(5))
    match random.randrange(12):
        case 0 | 1 | 2:
            pipeline.lpush(name, element, random.randrange(1000))
        case 3 | 4:
            pipeline.rpush(name, *range(random.choice([1, 3, 70])))
        case 5:
            pipeline.lpop(name, random.choice([None, 3]))
        case 6:
            pipeline.rpop(name)
        case 7:
            pipeline.lmove(name, other, "LEFT", "RIGHT")
        case 8:
            pipeline.linsert(name, "BEFORE", element, "inserted")
        case 9:
            pipeline.lrem(name, 2, element)
        case 10:
            pipeline.ltrim(name, 0, 40)
        case 11:
            pipeline.lset(name, -1, "set")


_READS = {b"s": "get", b"h": "hgetall", b"e": "get"}


def state_of(redis: Any) -> dict[bytes, Any]:
    return {
        key: ("list", redis.lrange(key, 0, -1)) if key.startswith(b"l") else getattr(redis, _READS[key[:1]])(key)
        for key in redis.scan_iter(count=1000)
    }


async def write_and_cut(random: Random, redis: Any, link: CutLink) -> None:
    for _ in range(1500):
        random_write(random, redis)
        if random.random() < 0.02:
            link.bytes_max = random.choice([None, random.randrange(200, 50_000)])
            link.cut()
        if random.random() < 0.2:
            await asyncio.sleep(random.choice([0, 0.001, 0.02]))
    link.bytes_max = None
    link.cut()
    redis.set("end", "end")


async def copy(begun: asyncio.Semaphore, link: CutLink, **wanted: Any) -> Copy:
    kept = Copy()
    async with Client(link.url) as client:
        feed = client.feed(checkpoint_ms=20, **wanted)
        first = await anext(feed)  # who cannot connect at first is told so, and does not try again
        begun.release()
        assert isinstance(first, Steady | Value)
        if isinstance(first, Value):
            kept.apply(first)
        async for event in feed:
            if isinstance(event, Value):
                if event.key == b"end":
                    break
                kept.apply(event)
            elif isinstance(event, DeleteRange):
                kept.clear(event.start, event.end)
    return kept


@pytest.fixture(params=[1, 3], ids=["1 shard", "3 shards"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path / "data", "--shards", str(request.param)) as made:
        yield made


@pytest.mark.parametrize("seed", [1, 2])
def test_a_copy_is_what_the_server_has(server: ServerProcess, seed: int) -> None:
    random = Random(seed)
    redis: Any = server.client()

    async def work() -> None:
        async with asyncio.timeout(SECONDS_MAX), CutLink(server.port) as link, CutLink(server.port) as whole:
            begun = asyncio.Semaphore(0)
            history = asyncio.create_task(copy(begun, link, since=0))
            for _ in range(300):
                random_write(random, redis)
            values = asyncio.create_task(copy(begun, link, initial=True))
            parts = asyncio.create_task(copy(begun, link, initial=True, prefix=["s1", "h", "l"], keys=["end"]))
            steady = asyncio.create_task(copy(begun, whole, initial=True))
            for _ in range(4):
                await begun.acquire()
            await write_and_cut(random, redis, link)
            expected = state_of(redis)
            del expected[b"end"]
            assert (await steady).values == expected
            assert (await history).values == expected
            assert (await values).values == expected
            wanted = {key: value for key, value in expected.items() if key.startswith((b"s1", b"h", b"l"))}
            assert (await parts).values == wanted
            assert link.count > 10

    asyncio.run(work())
