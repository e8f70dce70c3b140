"""limits: every strategy on Redis storage, from threads, from asyncio and from processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import limits.aio.strategies
import pytest
from limits import parse
from limits.storage import storage_from_string
from limits.strategies import STRATEGIES

from tests.libraries.backing_server import BackingServer, url_of
from tests.libraries.job_log import JobLog
from tests.libraries.server_kills import kill_under_load
from tests.libraries.worker_process import Workers, wait_until

pytestmark = pytest.mark.library("limits")
PROMISE: Final = "No more hits than the limit are allowed in a window, from however many clients."
EVERY: Final = sorted(STRATEGIES)
WINDOW_S: Final = 2
THREADS: Final = 8


@pytest.fixture
def storage(server: BackingServer) -> Iterator[Any]:
    made: Any = storage_from_string(url_of(server))
    yield made
    made.storage.close()


@pytest.mark.parametrize("strategy", EVERY)
def test_threads(storage: Any, strategy: str) -> None:
    """Eight threads share a limit with each strategy, and exactly as many hits are allowed as it says."""
    limiter, item = STRATEGIES[strategy](storage), parse("50 per hour")
    with ThreadPoolExecutor(THREADS) as pool:
        hits = list(pool.map(lambda _: limiter.hit(item, "user"), range(120)))
    assert hits.count(True) == 50
    assert not limiter.test(item, "user")
    assert limiter.hit(item, "another user", cost=50)
    assert not limiter.hit(item, "another user")


@pytest.mark.parametrize("strategy", EVERY)
def test_windows(storage: Any, strategy: str) -> None:
    """A window passes, and hits are allowed again."""
    limiter, item = STRATEGIES[strategy](storage), parse(f"3 per {WINDOW_S} second")
    began_s = time.time()
    assert limiter.test(item)
    allowed = [limiter.hit(item) for _ in range(4)]
    stats = limiter.get_window_stats(item)
    if time.time() - began_s < WINDOW_S / 2:
        assert allowed == [True, True, True, False]
        assert stats.remaining == 0
        assert stats.reset_time >= began_s
    time.sleep(2 * WINDOW_S + 0.1 if strategy == "sliding-window-counter" else WINDOW_S + 0.1)
    assert limiter.get_window_stats(item).remaining == 3
    assert limiter.hit(item, cost=3)
    limiter.clear(item)
    assert limiter.get_window_stats(item).remaining == 3
    limiter.hit(item)
    assert storage.check()
    assert storage.reset() == 1


@pytest.mark.parametrize("client", ["redispy", "coredis"])
@pytest.mark.parametrize("strategy", EVERY)
def test_asyncio(server: BackingServer, strategy: str, client: str) -> None:
    """Tasks of asyncio share a limit with each strategy, by redis-py and by coredis."""
    pytest.importorskip("redis" if client == "redispy" else client)

    async def use() -> None:
        storage: Any = storage_from_string(f"async+{url_of(server)}", implementation=client)
        make_limiter: Any = limits.aio.strategies.STRATEGIES[strategy]
        limiter, item = make_limiter(storage), parse("50 per hour")
        hits = await asyncio.gather(*(limiter.hit(item, "user") for _ in range(80)))
        assert hits.count(True) == 50
        assert not await limiter.test(item, "user")
        assert (await limiter.get_window_stats(item, "user")).remaining == 0
        await limiter.clear(item, "user")
        assert await limiter.hit(item, "user", cost=50)
        assert await storage.reset() >= 1
        if client == "redispy":
            await storage.bridge.storage.aclose()
        else:
            storage.bridge.storage.connection_pool.disconnect()

    asyncio.run(use())


def test_a_restart(server: BackingServer, storage: Any) -> None:
    """The server is killed, and hits that it had counted still count, with each strategy."""
    limiters, item = [STRATEGIES[strategy](storage) for strategy in EVERY], parse("50 per hour")
    for number, limiter in enumerate(limiters):
        assert [limiter.hit(item, str(number)) for _ in range(30)] == 30 * [True]
    server.kill()
    server.start_again()
    for number, limiter in enumerate(limiters):
        assert [limiter.hit(item, str(number)) for _ in range(25)] == 20 * [True] + 5 * [False]


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("strategy", EVERY)
def test_processes_while_the_server_is_killed(
    server: BackingServer, workers: Workers, jobs: JobLog, strategy: str
) -> None:
    """The server is killed three times under the hits of four processes, and the limit holds."""
    limit, each = 2_000, 700
    hitting = [
        workers.start("-m", "tests.libraries.limit_hits", strategy, f"{limit} per day", str(each)) for _ in range(4)
    ]
    kill_under_load(server, jobs, "allowed", (400, 800, 1200))
    wait_until(lambda: all(process.has_ended() for process in hitting), "the end of the hits", 100)
    allowed, unknown = jobs.total("allowed"), jobs.total("unknown")
    assert allowed + unknown + jobs.total("refused") == 4 * each
    assert 0 < unknown <= 4 * 3
    assert limit - unknown <= allowed <= limit
