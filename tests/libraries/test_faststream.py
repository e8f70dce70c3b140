"""FastStream: workers that take messages from channels, lists and streams, and are killed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import pytest
from faststream.redis import RedisBroker
from redis.exceptions import ConnectionError as LostConnection

from tests.libraries.backing_server import BackingServer, client_of, url_of
from tests.libraries.faststream_app import BATCHES, CHANNEL, ECHO, GROUP, LIST, SLOW, STREAM
from tests.libraries.job_log import JobLog
from tests.libraries.server_kills import kill_under_load, wait_for
from tests.libraries.worker_process import WorkerProcess, Workers, wait_until

pytestmark = pytest.mark.library("faststream")
PROMISE: Final = (
    "A message of a stream is handled at least once; one of a list at most once after it was taken; one of a channel "
    "only by those who listen."
)


def start_workers(workers: Workers, jobs: JobLog, count: int) -> list[WorkerProcess]:
    ready = jobs.total("ready") + count
    started = [workers.start("-m", "tests.libraries.faststream_app") for _ in range(count)]
    wait_for(jobs, "ready", ready)
    return started


def with_broker(server: BackingServer, use: Callable[[RedisBroker], Awaitable[None]]) -> None:
    async def run() -> None:
        async with RedisBroker(url_of(server)) as broker:
            await use(broker)

    asyncio.run(run())


def publish(server: BackingServer, numbers: Iterable[int], **where: Any) -> None:
    """Each until it is acknowledged: one whose answer was lost may be there twice."""

    async def use(broker: RedisBroker) -> None:
        for number in numbers:
            while True:
                try:
                    await broker.publish(number, **where)
                    break
                except LostConnection:
                    await asyncio.sleep(0.1)

    with_broker(server, use)


def jobs_of(source: str, numbers: Iterable[int]) -> Counter[str]:
    return Counter(f"{source}:{number}" for number in numbers)


def test_messages(server: BackingServer, workers: Workers, jobs: JobLog) -> None:
    """A worker handles messages of a channel, a list and a stream once each, retries one that failed, and answers."""
    start_workers(workers, jobs, 1)

    async def use(broker: RedisBroker) -> None:
        for number in range(20):
            await broker.publish(number, list=LIST)
            await broker.publish(number, stream=STREAM)
            await broker.publish(number, channel=f"{CHANNEL}.{number}")
        await broker.publish_batch(*range(20), list=BATCHES)
        await broker.publish(-1, stream=STREAM)
        answer = await broker.request({"text": "hello"}, ECHO, timeout=30)
        assert await answer.decode() == {"text": "hello", "seen": True}

    with_broker(server, use)
    expected = jobs_of("stream", [-1])
    for source in ("list", "stream", "channel", "batch"):
        expected += jobs_of(source, range(20))
    wait_until(lambda: jobs.counts("done") >= expected, "all messages")
    assert jobs.counts("done") == expected
    assert jobs.counts("started") == expected + jobs_of("stream", [-1])
    with client_of(server) as client:
        wait_until(lambda: client.xpending(STREAM, GROUP)["pending"] == 0, "all are acknowledged")


def test_killed_worker(server: BackingServer, workers: Workers, jobs: JobLog) -> None:
    """A worker is killed with a message of a stream in its hands, and another one handles it."""
    (first,) = start_workers(workers, jobs, 1)
    publish(server, [*range(10), SLOW], stream=STREAM)
    wait_for(jobs, "started", 11)
    first.kill()
    start_workers(workers, jobs, 1)
    publish(server, range(10, 20), stream=STREAM)
    expected = jobs_of("stream", [*range(20), SLOW])
    wait_until(lambda: jobs.counts("done") >= expected, "all messages, also that of the killed worker")
    assert jobs.counts("done") == expected
    assert jobs.counts("started")[f"stream:{SLOW}"] == 2


@pytest.mark.long
def test_killed_worker_of_a_list(server: BackingServer, workers: Workers, jobs: JobLog) -> None:
    """A worker is killed with a message of a list in its hands, and only that one is lost."""
    (first,) = start_workers(workers, jobs, 1)
    publish(server, [*range(10), SLOW, *range(10, 20)], list=LIST)
    wait_for(jobs, "started", 11)
    first.kill()
    start_workers(workers, jobs, 1)
    wait_for(jobs, "done", 20)
    assert jobs.counts("done") == jobs_of("list", range(20))


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_server_is_killed(server: BackingServer, workers: Workers, jobs: JobLog) -> None:
    """The server is killed three times under load: a stream loses no message, a list only those on their way."""
    started = start_workers(workers, jobs, 2)
    every = 600
    for part in range(3):
        numbers = range(100 * part, 100 * part + 100)
        publish(server, numbers, list=LIST)
        publish(server, numbers, stream=STREAM)
        kill_under_load(server, jobs, "done", [200 * part + 100])
    # A message that a worker was taking from the list when the server was killed is lost with its answer.
    on_their_way = 3 * len(started)
    stream = jobs_of("stream", range(300))

    def is_done() -> bool:
        done = jobs.counts("done")
        return stream.keys() <= done.keys() and len(done) >= every - on_their_way

    wait_until(is_done, "all messages", 100)
    done = jobs.counts("done")
    assert sum(count - 1 for count in done.values()) <= 2 * on_their_way, (
        "each worker has two subscribers of the stream"
    )
