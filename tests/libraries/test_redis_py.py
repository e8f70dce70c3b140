"""redis-py's own pieces that are more than a command: locks, for threads and for asyncio, and scripts."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest
import redis
import redis.asyncio
from redis.exceptions import LockError, LockNotOwnedError, NoScriptError, ResponseError

from tests.libraries.backing_server import BackingServer, client_of, url_of
from tests.libraries.job_log import JobLog
from tests.libraries.lock_rounds import LOCK
from tests.libraries.lock_rules import check_exclusion, check_killed_holder
from tests.libraries.worker_process import Workers

pytestmark = pytest.mark.library("redis")
PROMISE: Final = "A lock has one holder at a time; the lock of a killed process is free again when it expires."
LOCKS: Final = ["redis-py", "redis-py-asyncio"]

ADD: Final = """
local sum = 0
for _, key in ipairs(KEYS) do
    sum = sum + redis.call('INCRBY', key, ARGV[1])
end
return sum
"""


def test_lock(server: BackingServer) -> None:
    """A lock is taken, extended, renewed and let go."""
    with client_of(server) as client:
        lock = client.lock("work", timeout=10)
        assert lock.acquire()
        assert lock.owned()
        assert lock.locked()
        other = client.lock("work", timeout=10)
        assert not other.acquire(blocking=False)
        assert not other.acquire(blocking_timeout=0.05)
        assert lock.extend(20)
        assert 20_000 < client.pttl("work") <= 30_000
        assert lock.extend(5, replace_ttl=True)
        assert client.pttl("work") <= 5_000
        assert lock.reacquire()
        assert 5_000 < client.pttl("work") <= 10_000
        lock.release()
        assert not lock.locked()
        with pytest.raises(LockError):
            lock.release()


def test_lock_that_is_not_owned(server: BackingServer) -> None:
    """A lock that went to another holder cannot be let go, extended or renewed by the first."""
    with client_of(server) as client:
        lock = client.lock("work", timeout=10)
        lock.acquire()
        client.set("work", "somebody else's")
        for act in (lock.release, lock.reacquire, lambda: lock.extend(5)):
            lock.local.token = b"mine"
            with pytest.raises(LockNotOwnedError):
                act()
        assert client.get("work") == "somebody else's"


def test_lock_of_asyncio(server: BackingServer) -> None:
    """Tasks of asyncio add to a number under a lock."""

    async def use() -> None:
        async with redis.asyncio.Redis.from_url(url_of(server)) as client:

            async def add() -> None:
                for _ in range(5):
                    async with client.lock("work", timeout=10, sleep=0.001):
                        number = int(await client.get("number") or "0")
                        await asyncio.sleep(0)
                        await client.set("number", number + 1)

            await asyncio.gather(*(add() for _ in range(8)))
            assert await client.get("number") == b"40"
            lock = client.lock("work", timeout=10)
            assert await lock.acquire()
            assert await lock.extend(10)
            assert await lock.reacquire()
            await lock.release()
            with pytest.raises(LockError):
                await lock.release()

    asyncio.run(use())


@pytest.mark.parametrize("library", LOCKS)
def test_exclusion(server: BackingServer, workers: Workers, jobs: JobLog, library: str) -> None:
    """Three processes add to a number under a lock, and no addition is lost."""
    check_exclusion(server, workers, jobs, library, processes=3, rounds=20)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("library", LOCKS)
def test_exclusion_while_the_server_is_killed(
    server: BackingServer, workers: Workers, jobs: JobLog, library: str
) -> None:
    """The server is killed three times while processes add under a lock, and no addition is lost."""
    check_exclusion(server, workers, jobs, library, processes=4, rounds=150, kills=3)


@pytest.mark.parametrize("library", LOCKS)
def test_killed_holder(server: BackingServer, workers: Workers, jobs: JobLog, library: str) -> None:
    """A process is killed with the lock in its hands; the next one gets it when it expires."""
    check_killed_holder(server, workers, jobs, library, LOCK)


def test_registered_script(server: BackingServer) -> None:
    """A registered script is sent again to a server that has forgotten it, also in a pipeline."""
    with client_of(server) as client:
        add = client.register_script(ADD)
        assert add(keys=["a", "b"], args=[3]) == 6
        client.script_flush()
        with pytest.raises(NoScriptError):
            client.evalsha(add.sha, 0)
        assert add(keys=["a", "b"], args=[1]) == 8
        client.script_flush()
        with client.pipeline() as pipeline:
            pipeline.set("a", 10)
            add(keys=["a"], args=[5], client=pipeline)
            pipeline.get("a")
            assert pipeline.execute() == [True, 15, "15"]
        assert client.script_exists(add.sha, "f" * 40) == [True, False]
        assert client.script_load(ADD) == add.sha
        assert client.eval_ro("return redis.call('GET', KEYS[1])", 1, "a") == "15"
        with pytest.raises(ResponseError):
            client.eval_ro("return redis.call('SET', KEYS[1], 1)", 1, "a")


def test_registered_script_of_asyncio(server: BackingServer) -> None:
    """A registered script runs from asyncio, also in a pipeline."""

    async def use() -> None:
        async with redis.asyncio.Redis.from_url(url_of(server)) as client:
            add: Any = client.register_script(ADD)
            assert await add(keys=["a", "b"], args=[3]) == 6
            async with client.pipeline() as pipeline:
                await add(keys=["a"], args=[5], client=pipeline)
                pipeline.get("a")
                assert await pipeline.execute() == [8, b"8"]

    asyncio.run(use())


def test_functions(server: BackingServer) -> None:
    """A library of functions is loaded, listed, called, saved and restored."""
    code = """#!lua name=sums
    redis.register_function('add', function(keys, args) return redis.call('INCRBY', keys[1], args[1]) end)
    redis.register_function{function_name='read', callback=function(keys) return redis.call('GET', keys[1]) end,
                            flags={'no-writes'}}
    """
    with client_of(server) as client:
        client.function_flush()
        assert client.function_load(code) == "sums"
        assert client.fcall("add", 1, "a", 5) == 5
        assert client.fcall_ro("read", 1, "a") == "5"
        assert len(client.function_list()) == 1
        with client_of(server, decode_responses=False) as plain:
            saved = plain.function_dump()
            plain.function_delete("sums")
            plain.function_restore(saved)
        assert client.fcall("add", 1, "a", 5) == 10
        client.function_flush()


def test_blocking_pops(server: BackingServer) -> None:
    """Blocking pops take from lists and sorted sets, and from the first key that has something."""
    with client_of(server) as client:
        client.rpush("list", "a", "b", "c")
        client.zadd("scores", {"x": 1, "y": 2})
        assert client.blpop(["none", "list"], timeout=1) == ("list", "a")
        assert client.brpoplpush("list", "other", timeout=1) == "c"
        assert client.blmove("list", "other", timeout=1, src="LEFT", dest="RIGHT") == "b"
        assert client.blmpop(1, 1, "other", direction="LEFT", count=5) == ["other", ["c", "b"]]
        assert client.brpop("list", timeout=0.05) is None
        assert client.bzpopmin(["none", "scores"], timeout=1) == ("scores", "x", 1.0)
        assert client.bzpopmax("scores", timeout=1) == ("scores", "y", 2.0)
        assert client.bzmpop(0.05, 1, ["scores"], min=True) is None
