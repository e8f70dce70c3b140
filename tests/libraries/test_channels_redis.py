"""channels_redis: both of its layers, with channels and groups, among processes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest
from channels.exceptions import ChannelFull
from channels_redis.core import RedisChannelLayer
from redis.exceptions import ConnectionError as LostConnection

from tests.libraries.backing_server import BackingServer, client_of, url_of
from tests.libraries.channels_consumer import GROUP, WORK, make_layer
from tests.libraries.job_log import JobLog
from tests.libraries.server_kills import kill_under_load, wait_for
from tests.libraries.worker_process import WorkerProcess, Workers, wait_until

pytestmark = pytest.mark.library("channels-redis", "channels")
PROMISE: Final = (
    "A message is delivered once. A process or a server that is killed may take with it, or repeat, the one message "
    "that was on its way to each consumer."
)
LAYERS: Final = ["core", "pubsub"]


def with_layer(server: BackingServer, kind: str, use: Callable[[Any], Awaitable[None]]) -> None:
    async def run() -> None:
        layer = make_layer(kind, url_of(server))
        try:
            await use(layer)
        finally:
            await layer.flush()

    asyncio.run(run())


async def receive_all(layer: Any, channel: str, count: int) -> list[int]:
    return [(await asyncio.wait_for(layer.receive(channel), 30))["number"] for _ in range(count)]


@pytest.mark.parametrize("kind", LAYERS)
def test_channels_and_groups(server: BackingServer, kind: str) -> None:
    """Messages reach a channel in order, and every channel of a group, with both layers."""

    async def use(layer: Any) -> None:
        first, second = await layer.new_channel(), await layer.new_channel()
        for number in range(5):
            await layer.send(first, {"type": "test", "number": number})
        assert await receive_all(layer, first, 5) == list(range(5))
        await layer.group_add(GROUP, first)
        await layer.group_add(GROUP, second)
        await layer.group_send(GROUP, {"type": "test", "number": 7, "bytes": b"\x00\xff"})
        assert await receive_all(layer, first, 1) == await receive_all(layer, second, 1) == [7]
        await layer.group_discard(GROUP, second)
        await layer.group_send(GROUP, {"type": "test", "number": 8})
        await layer.send(second, {"type": "test", "number": 9})
        assert await receive_all(layer, first, 1) == [8]
        assert await receive_all(layer, second, 1) == [9]

    with_layer(server, kind, use)


def test_capacity(server: BackingServer) -> None:
    """A channel that is full refuses messages, and a group passes it over."""

    async def use(_: Any) -> None:
        layer: Any = RedisChannelLayer(hosts=[url_of(server)], capacity=3)
        channel = await layer.new_channel()
        await layer.group_add(GROUP, channel)
        for number in range(5):
            await layer.group_send(GROUP, {"type": "test", "number": number})
        with pytest.raises(ChannelFull):
            await layer.send(channel, {"type": "test", "number": 5})
        assert await receive_all(layer, channel, 3) == [0, 1, 2]
        await layer.flush()

    with_layer(server, "core", use)
    with client_of(server) as client:
        assert client.keys("*") == []


def test_a_receiver_that_is_cancelled(server: BackingServer) -> None:
    """A waiting receiver is cancelled, and no message is lost."""

    async def use(layer: Any) -> None:
        for number in range(20):
            waiting = asyncio.ensure_future(layer.receive(WORK))
            await asyncio.sleep(0.002 * (number % 5))
            waiting.cancel()
            await layer.send(WORK, {"type": "test", "number": number})
            try:
                received = (await waiting)["number"]
            except asyncio.CancelledError:
                (received,) = await receive_all(layer, WORK, 1)
            assert received == number

    with_layer(server, "core", use)


def start_listeners(server: BackingServer, workers: Workers, jobs: JobLog, kind: str) -> list[WorkerProcess]:
    started = [workers.start("-m", "tests.libraries.channels_consumer", kind, "group") for _ in range(2)]
    wait_for(jobs, "listening", 2)
    if kind == "pubsub":
        wait_until_subscribed(server)
    return started


def wait_until_subscribed(server: BackingServer) -> None:
    channel = f"asgi__group__{GROUP}"
    with client_of(server) as client:
        wait_until(lambda: client.pubsub_numsub(channel) == [(channel, 2)], "both processes have subscribed")


def send_to_group(server: BackingServer, kind: str, numbers: range) -> None:
    async def run() -> None:
        layer = make_layer(kind, url_of(server))
        for number in numbers:
            await layer.group_send(GROUP, {"type": "test", "number": number})
        # Not flush: that would remove the group.
        await (layer.close_pools() if kind == "core" else layer.flush())

    asyncio.run(run())


@pytest.mark.parametrize("kind", LAYERS)
def test_group_of_processes(server: BackingServer, workers: Workers, jobs: JobLog, kind: str) -> None:
    """Two processes are in a group, and each gets every message once, with both layers."""
    start_listeners(server, workers, jobs, kind)
    send_to_group(server, kind, range(40))
    wait_for(jobs, "got", 80)
    assert jobs.counts("got") == {str(number): 2 for number in range(40)}


@pytest.mark.long
@pytest.mark.parametrize("kind", LAYERS)
def test_group_of_processes_survives(server: BackingServer, workers: Workers, jobs: JobLog, kind: str) -> None:
    """The server is killed, the processes stay in their group, and later messages reach them."""
    start_listeners(server, workers, jobs, kind)
    for part in range(3):
        if part:
            server.kill()
            server.start_again()
            if kind == "pubsub":
                wait_until_subscribed(server)
        send_to_group(server, kind, range(40 * part, 40 * part + 40))
        wait_for(jobs, "got", 80 * part + 80)
    assert jobs.counts("got") == {str(number): 2 for number in range(120)}


def send_work(server: BackingServer, numbers: range) -> None:
    async def run() -> None:
        layer = make_layer("core", url_of(server))
        for number in numbers:
            while True:
                try:
                    await layer.send(WORK, {"type": "test", "number": number})
                    break
                except LostConnection:
                    await asyncio.sleep(0.1)
        await layer.close_pools()

    asyncio.run(run())


def test_killed_consumer(server: BackingServer, workers: Workers, jobs: JobLog) -> None:
    """A consumer is killed with messages waiting, and another one gets them."""
    send_work(server, range(100))
    first = workers.start("-m", "tests.libraries.channels_consumer", "core", "work")
    wait_for(jobs, "got", 20)
    first.kill()
    workers.start("-m", "tests.libraries.channels_consumer", "core", "work")
    wait_until(lambda: len(jobs.counts("got")) >= 99 and "99" in jobs.counts("got"), "the rest of the messages")
    assert jobs.total("got") <= 101


@pytest.mark.long
@pytest.mark.timeout(300)
def test_work_while_the_server_is_killed(server: BackingServer, workers: Workers, jobs: JobLog) -> None:
    """The server is killed three times under load, and only what was on its way is lost or repeated."""
    # One consumer: what it has in its hands is in a place that the next one to receive empties.
    kills, every = 3, 900
    workers.start("-m", "tests.libraries.channels_consumer", "core", "work")
    for part in range(kills):
        send_work(server, range(300 * part, 300 * part + 300))
        kill_under_load(server, jobs, "got", [300 * part + 100])
    send_work(server, range(every, every + 1))
    wait_until(lambda: str(every) in jobs.counts("got"), "the last message")
    wait_until(lambda: len(jobs.counts("got")) >= every + 1 - kills, "all but what was on its way")
    assert jobs.total("got") <= every + 1 + kills
