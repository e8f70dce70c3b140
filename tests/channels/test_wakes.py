"""Those who wait for messages are told in time, and never miss one.

In most tests nobody looks without being told: what comes, comes by a wake.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from random import Random
from typing import Any

import pytest

from tests.channels.servers import ChannelServer, SimulatedBackend, in_loop
from tests.channels.test_channels import numbered, values
from tidelog import limits
from tidelog.channels import Channels, FetchedMessages, SubscriptionNotFound
from tidelog.channels.wakes import Wakes
from tidelog.errors import ServerUnreachable

NEVER_S = 1e6


@pytest.fixture
def only_wakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks without being told."""
    monkeypatch.setattr(limits, "CHANNEL_LOOK_S", NEVER_S)


async def until(is_so: Callable[[], bool | Awaitable[bool]]) -> None:
    while True:
        found = is_so()
        if found if isinstance(found, bool) else await found:
            return
        await asyncio.sleep(0.01)


def waiting(channels: Channels, channel: str = "news", subscriber: str = "a") -> asyncio.Task[FetchedMessages]:
    return asyncio.create_task(channels.fetch_when_there(channel, subscriber, timeout_s=50))


def heard(server: ChannelServer, channel: str = "news") -> bool:
    """Whether some connection listens to the channel."""
    name = f"c.{{{channel}}}.wake"
    if not server.is_cluster:
        return bool(server.client.execute_command("PUBSUB NUMSUB", name)[0][1])
    found = [node.redis_connection.execute_command("PUBSUB NUMSUB", name) for node in server.client.get_primaries()]
    return any(each[0][1] for each in found)


@contextmanager
def counted(channels: Channels) -> Iterator[list[Any]]:
    """The scripts that run on the backend of these channels."""
    backend: Any = channels._backend
    run = backend.run
    ran: list[Any] = []

    async def counting(script: Any, *rest: Any) -> Any:
        ran.append(script)
        return await run(script, *rest)

    backend.run = counting
    yield ran
    backend.run = run


@pytest.mark.usefixtures("only_wakes")
@in_loop
async def test_a_message_ends_the_wait(server: ChannelServer) -> None:
    async with server.channels() as channels, server.channels() as publisher:
        await channels.subscribe("news", "a")
        for number in range(5):
            task = waiting(channels)
            await asyncio.sleep(0.02 * number)
            await publisher.publish("news", numbered(number)[0])
            fetched = await task
            assert values(fetched) == [number]
            assert fetched.handle is not None
            await channels.acknowledge("news", "a", fetched.handle)


@pytest.mark.usefixtures("only_wakes")
@in_loop
async def test_what_is_there_is_not_waited_for(server: ChannelServer) -> None:
    async with server.channels() as channels:
        await channels.subscribe("news", "a")
        await channels.publish("news", numbered(1)[0])
        assert values(await waiting(channels)) == [1]
        server.client.delete("c.{news}.m.1")
        fetched = await waiting(channels)  # all expired: to acknowledge is the way on
        assert fetched.messages == []
        assert fetched.handle is not None


@pytest.mark.parametrize("listens_already", [False, True])
@pytest.mark.usefixtures("only_wakes")
@in_loop
async def test_a_publish_between_the_empty_fetch_and_the_wait_is_not_missed(
    server: ChannelServer, listens_already: bool
) -> None:
    async with server.channels() as channels, server.channels() as publisher:
        await channels.subscribe("news", "a")
        if listens_already:
            assert (await channels.fetch_when_there("news", "a", timeout_s=0.2)).handle is None
        backend: Any = channels._backend
        run = backend.run
        published = False

        async def with_publish(script: Any, *rest: Any) -> Any:
            nonlocal published
            reply = await run(script, *rest)
            if not published:
                published = True
                await publisher.publish("news", numbered(1)[0])
                await asyncio.sleep(0.05)  # its wake comes, if anybody listens, before the fetch has even returned
            return reply

        backend.run = with_publish
        assert values(await waiting(channels)) == [1]


@pytest.mark.usefixtures("only_wakes")
@in_loop
async def test_a_lost_connection_means_to_look_again(server: ChannelServer) -> None:
    async with server.channels() as channels, server.channels() as publisher:
        await channels.subscribe("news", "a")
        task = waiting(channels)
        await until(lambda: heard(server))
        for lost in (1, 2):
            server.everywhere("CLIENT KILL", "TYPE", "pubsub")
            await until(lambda lost=lost: channels.wakes.loss_count == lost)  # type: ignore[misc]
            await until(lambda: heard(server))
        assert not task.done()
        await publisher.publish("news", numbered(1)[0])
        assert values(await task) == [1]


@pytest.mark.usefixtures("only_wakes")
@in_loop
async def test_a_publish_while_the_connection_is_lost_is_not_missed(server: ChannelServer) -> None:
    async with server.channels() as channels, server.channels() as publisher:
        await channels.subscribe("news", "a")
        for number in range(5):
            task = waiting(channels)
            await until(lambda: heard(server))
            server.everywhere("CLIENT KILL", "TYPE", "pubsub")
            await publisher.publish("news", numbered(number)[0])
            fetched = await task
            assert values(fetched) == [number]
            assert fetched.handle is not None
            await channels.acknowledge("news", "a", fetched.handle)


@in_loop
async def test_who_waits_also_looks_by_itself(server: ChannelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CHANNEL_LOOK_S", 0.05)

    async def no_link() -> Any:
        raise ConnectionRefusedError

    async with server.channels() as channels:
        monkeypatch.setattr(channels.wakes, "_open_link", no_link)
        await channels.subscribe("news", "a")
        task = waiting(channels)
        await asyncio.sleep(0.1)
        await channels.publish("news", numbered(1)[0])
        assert values(await task) == [1]


@in_loop
async def test_more_channels_than_are_listened_to(server: ChannelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CHANNEL_WAKES_MAX", 2)
    monkeypatch.setattr(limits, "CHANNEL_LOOK_S", 0.1)
    async with server.channels() as channels:
        names = ["one", "two", "three", "four"]
        for name in names:
            await channels.subscribe(name, "a")
        tasks = [waiting(channels, name) for name in names]
        await asyncio.sleep(0.05)
        assert channels.wakes.topic_count == 2
        for name in names:
            await channels.publish(name, numbered(1)[0])
        assert [values(fetched) for fetched in await asyncio.gather(*tasks)] == [[1]] * 4
        task = waiting(channels, "three")  # takes the place of one that nobody waits for now
        assert values(await task) == [1]
        assert channels.wakes.topic_count == 2


@pytest.mark.usefixtures("only_wakes")
@in_loop
async def test_a_channel_is_heard_for_a_while_after_the_last_wait(
    server: ChannelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CHANNEL_WAKES_LINGER_S", 0.2)
    async with server.channels(handle_keys=[b"0123456789abcdef"]) as channels:
        await channels.subscribe("news", "a")
        await channels.fetch_when_there("news", "a", timeout_s=0.1)
        assert heard(server)
        with counted(channels) as ran:
            await channels.fetch_when_there("news", "a", timeout_s=0.05)
        assert len(ran) == 2, "one look, and one at the end of the time"
        await until(lambda: not heard(server))
        assert channels.wakes.topic_count == 0
        task = waiting(channels)
        await until(lambda: heard(server))
        await channels.publish("news", numbered(1)[0])
        assert values(await task) == [1]


@pytest.mark.usefixtures("only_wakes")
@in_loop
async def test_all_who_wait_for_a_channel_are_woken_and_nobody_else(server: ChannelServer) -> None:
    async with server.channels() as channels:
        readers = [f"r{number}" for number in range(20)]
        for reader in readers:
            await channels.subscribe("news", reader)
            await channels.subscribe("quiet", reader)
        tasks = [waiting(channels, "news", reader) for reader in readers]
        quiet = [waiting(channels, "quiet", reader) for reader in readers]
        await until(lambda: heard(server) and heard(server, "quiet"))
        with counted(channels) as ran:
            seen = -1
            while seen != len(ran):  # until all have looked after the confirmation
                seen = len(ran)
                await asyncio.sleep(0.2)
        with counted(channels) as ran:
            await channels.publish("news", numbered(1)[0])
            assert [values(fetched) for fetched in await asyncio.gather(*tasks)] == [[1]] * len(readers)
            assert len(ran) == 1 + len(readers)
        channels.stop_waiting()
        assert [fetched.messages for fetched in await asyncio.gather(*quiet)] == [[]] * len(readers)


@pytest.mark.usefixtures("only_wakes")
@in_loop
async def test_many_wakes_during_a_look_are_one(server: ChannelServer) -> None:
    async with server.channels() as channels, server.channels() as publisher:
        await channels.subscribe("news", "a")
        await channels.subscribe("other", "b")
        with channels.wakes.listen(b"c.{news}.wake") as listener:
            await until(lambda: heard(server))
            await listener.wait(1)  # the confirmation
            before = channels.wakes.wake_count
            for number in range(30):
                await publisher.publish("news", numbered(number)[0])
            await until(lambda: channels.wakes.wake_count == before + 30)
            await listener.wait(NEVER_S)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await listener.wait(NEVER_S)


@pytest.mark.usefixtures("only_wakes")
@in_loop
async def test_a_stop_ends_all_waits_and_asks_nothing_more(
    server: ChannelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CHANNEL_WAKES_MAX", 1)
    async with server.channels() as channels:
        await channels.subscribe("news", "a")
        await channels.subscribe("beyond", "a")
        tasks = [waiting(channels) for _ in range(3)]
        await until(lambda: heard(server))
        tasks.append(waiting(channels, "beyond"))
        await asyncio.sleep(0.1)
        with counted(channels) as ran:
            channels.stop_waiting()
            assert await asyncio.gather(*tasks) == [FetchedMessages([], None, False, 0)] * 4
            assert ran == []
        assert await waiting(channels) == FetchedMessages([], None, False, 0)


@in_loop
async def test_a_stop_does_not_wait_for_a_look_that_hangs(
    machine: SimulatedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CHANNEL_LOOK_S", 0.01)
    run = machine.run

    async def hang(*_: Any) -> Any:
        hanging.set()
        await asyncio.sleep(NEVER_S)

    hanging = asyncio.Event()
    async with Channels(machine) as channels:
        await channels.subscribe("news", "a")
        looked_before = waiting(channels)
        await asyncio.sleep(0)
        monkeypatch.setattr(machine, "run", hang)
        await hanging.wait()
        looks_first = waiting(channels)
        await asyncio.sleep(0.01)
        channels.stop_waiting()
        assert await looked_before == FetchedMessages([], None, False, 0)
        with pytest.raises(ServerUnreachable, match="a simulated machine did not answer before the stop"):
            await looks_first
        monkeypatch.setattr(machine, "run", run)


@in_loop
async def test_a_subscriber_that_goes_while_it_waits_is_told(
    server: ChannelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CHANNEL_LOOK_S", 0.1)
    async with server.channels() as channels:
        await channels.subscribe("news", "a")
        task = waiting(channels)
        await asyncio.sleep(0.05)
        await channels.unsubscribe("news", "a")
        with pytest.raises(SubscriptionNotFound):
            await task


@in_loop
async def test_waits_end_in_time(machine: SimulatedBackend) -> None:
    async with Channels(machine) as channels:
        await channels.subscribe("news", "a")
        begun = asyncio.get_running_loop().time()
        assert (await channels.fetch_when_there("news", "a", timeout_s=0.2)).handle is None
        assert 0.2 <= asyncio.get_running_loop().time() - begun < 2
        assert (await channels.fetch_when_there("news", "a", timeout_s=0)).handle is None


@pytest.mark.usefixtures("only_wakes")
@in_loop
async def test_a_wait_that_is_given_up_leaves_nothing_behind(server: ChannelServer) -> None:
    async with server.channels() as channels:
        await channels.subscribe("news", "a")
        tasks = [waiting(channels) for _ in range(10)]
        await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await channels.publish("news", numbered(1)[0])
        assert values(await waiting(channels)) == [1]


class SilentLink:
    """A connection that has died without a sign: what is sent is lost, and nothing comes."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, ...]] = []
        self.is_open = False

    async def connect(self) -> None:
        self.is_open = True

    async def disconnect(self, nowait: bool = False) -> None:
        self.is_open = not nowait

    async def send_command(self, *words: Any, **_: Any) -> None:
        self.sent.append(words)

    async def read_response(self, *, timeout: float, disconnect_on_error: bool) -> Any:
        assert not disconnect_on_error
        await asyncio.sleep(timeout)


@pytest.mark.usefixtures("only_wakes")
@in_loop
async def test_a_connection_that_died_without_a_sign_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CHANNEL_WAKES_SILENT_S", 0.05)
    links: list[SilentLink] = []

    async def open_link() -> SilentLink:
        links.append(SilentLink())
        return links[-1]

    wakes = Wakes(open_link, Random(1))
    with wakes.listen(b"c.{news}.wake") as listener:
        await listener.wait(10)
        await until(lambda: len(links) == 2)
        assert links[0].sent == [("SUBSCRIBE", b"c.{news}.wake"), ("PING",)]
        assert not links[0].is_open
        await until(lambda: links[1].sent == [("SUBSCRIBE", b"c.{news}.wake")])
    await wakes.aclose()
    assert not links[-1].is_open


class DeafLink(SilentLink):
    """One on which a send that is cancelled ends as if nothing had happened, as it may with redis-py."""

    async def send_command(self, *words: Any, **_: Any) -> None:
        self.sent.append(words)
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(NEVER_S)


@in_loop
async def test_a_cancellation_that_was_swallowed_leaves_nothing_behind() -> None:
    link = DeafLink()

    async def open_link() -> DeafLink:
        return link

    wakes = Wakes(open_link, Random(1))
    before = asyncio.all_tasks()
    with wakes.listen(b"c.{news}.wake"):
        await until(lambda: bool(link.sent))
    await wakes.aclose()
    assert asyncio.all_tasks() - before == set()
