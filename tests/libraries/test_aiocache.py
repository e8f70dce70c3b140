"""aiocache: values, decorators, and its two locks."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest
from aiocache import RedisCache, cached, multi_cached
from aiocache.lock import OptimisticLock, OptimisticLockError, RedLock
from aiocache.serializers import PickleSerializer

from tests.libraries.backing_server import BackingServer, client_of
from tests.libraries.job_log import JobLog
from tests.libraries.server_kills import kill_under_load
from tests.libraries.worker_process import Workers, wait_until

pytestmark = [
    pytest.mark.library("aiocache"),
    # It closes its client by an old name.
    pytest.mark.filterwarnings("ignore:Call to deprecated close:DeprecationWarning"),
]
PROMISE: Final = "An optimistic lock writes only what nobody has changed in between."


def test_values(server: BackingServer) -> None:
    """Values are set, read, counted, expired and removed, one or many at a time."""

    async def use() -> None:
        async with RedisCache(port=server.port, namespace="web", serializer=PickleSerializer()) as cache:
            assert await cache.set("a", {"nested": (1, 2)})
            assert await cache.get("a") == {"nested": (1, 2)}
            assert await cache.get("missing", default=7) == 7
            assert await cache.multi_set([("b", 1), ("c", [2])], ttl=60)
            assert await cache.multi_get(["a", "b", "missing", "c"]) == [{"nested": (1, 2)}, 1, None, [2]]
            assert await cache.add("new", 1, ttl=0.05)
            with pytest.raises(ValueError, match="already exists"):
                await cache.add("a", 1)
            assert await cache.exists("a")
            assert await cache.expire("a", 100)
            assert await cache.raw("ttl", "web:a") > 50
            assert await cache.expire("a", 0)
            assert await cache.raw("ttl", "web:a") == -1
            assert await cache.increment("hits", 5) == 5
            assert sum(await asyncio.gather(*(cache.increment("hits") for _ in range(20)))) == sum(range(6, 26))
            await asyncio.sleep(0.06)
            assert not await cache.exists("new")
            assert await cache.delete("b") == 1
            await cache.raw("set", "other", "kept")
            assert await cache.clear(namespace="web")
            assert await cache.raw("keys", "*") == [b"other"]

    asyncio.run(use())


def test_decorators(server: BackingServer) -> None:
    """A decorated function is called once, and again when its value has expired."""
    calls: list[Any] = []

    @cached(ttl=0.2, cache=RedisCache, key="answer", port=server.port)
    async def compute() -> int:
        calls.append("compute")
        return 42

    @multi_cached(keys_from_attr="names", cache=RedisCache, port=server.port)
    async def look_up(names: list[str]) -> dict[str, str]:
        calls.append(names)
        return {name: name.upper() for name in names}

    async def use() -> None:
        assert [await compute(), await compute()] == [42, 42]
        assert calls == ["compute"]
        await asyncio.sleep(0.25)
        assert await compute() == 42
        assert calls == 2 * ["compute"]
        assert await look_up(names=["a", "b"]) == {"a": "A", "b": "B"}
        assert await look_up(names=["a", "c"]) == {"a": "A", "c": "C"}
        assert calls[2:] == [["a", "b"], ["c"]]
        await compute.cache.close()
        await look_up.cache.close()

    asyncio.run(use())


def test_locks(server: BackingServer) -> None:
    """An optimistic lock refuses a changed value; a lock against stampedes lets one task compute."""

    async def use() -> None:
        async with RedisCache(port=server.port) as cache:
            await cache.set("value", "first")
            async with OptimisticLock(cache, "value") as lock:
                assert await lock.cas("second", ttl=60)
            async with OptimisticLock(cache, "value") as lock:
                await cache.set("value", "changed")
                with pytest.raises(OptimisticLockError):
                    await lock.cas("third")
            assert await cache.get("value") == "changed"

            computed: list[int] = []

            async def get_or_compute(number: int) -> int:
                async with RedLock(cache, "page", lease=20):
                    kept: int | None = await cache.get("page")
                    if kept is None:
                        computed.append(number)
                        await asyncio.sleep(0.05)
                        await cache.set("page", number)
                        kept = number
                    return kept

            assert len(set(await asyncio.gather(*(get_or_compute(number) for number in range(10))))) == 1
            assert len(computed) == 1
            assert not await cache.exists("page-lock")

    asyncio.run(use())


def check_additions(server: BackingServer, workers: Workers, jobs: JobLog, rounds: int, kills: int) -> None:
    with client_of(server) as client:
        client.set("number", 0)
        adding = [workers.start("-m", "tests.libraries.aiocache_rounds", str(rounds)) for _ in range(3)]
        kill_under_load(server, jobs, "added", [3 * rounds * (kill + 1) // (kills + 1) for kill in range(kills)])
        wait_until(lambda: all(process.has_ended() for process in adding), "the end of the additions", 100)
        added = jobs.total("added")
        assert added == 3 * rounds, workers.output()
        assert added <= int(client.get("number") or 0) <= added + jobs.total("unknown")


def test_processes(server: BackingServer, workers: Workers, jobs: JobLog) -> None:
    """Three processes add to a number under an optimistic lock, and no addition is lost."""
    check_additions(server, workers, jobs, 20, kills=0)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_processes_while_the_server_is_killed(server: BackingServer, workers: Workers, jobs: JobLog) -> None:
    """The server is killed three times while processes add under an optimistic lock, and no addition is lost."""
    check_additions(server, workers, jobs, 200, kills=3)
