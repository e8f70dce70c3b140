"""When a message counts as handled, and what comes again."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.channels.servers import ChannelServer
from tests.client.bounded import run_bounded
from tests.client.cut_link import CutLink
from tests.integration.server_process import environment
from tidelog import limits
from tidelog.client import Client, MessageReader, ServerUnreachable, SubscriptionNotFound
from tidelog.client.channel import Channel


async def filled(client: Client, count: int = 5) -> Channel:
    """A channel whose subscriber `me` has so many messages to read."""
    channel = client.channel("orders")
    async with channel.subscribe("me"):
        pass
    await channel.publish_many(range(count))
    return channel


async def left(channel: Channel) -> list[Any]:
    """What the subscriber would get now; it is not acknowledged."""
    source = channel.source("me")
    await source.begin()
    return [message.content for message in await source.fetch(waits=False)]


class Broken(Exception):
    """A handler has failed."""


async def consume(channel: Channel, until: int, *, then: Callable[[], None]) -> None:
    """Handle messages in a block up to one, while which something happens."""
    async with channel.subscribe("me") as messages:
        async for message in messages:
            if message.content == until:
                then()
                break


def fail() -> None:
    raise Broken


# --- blocks ---------------------------------------------------------------------------------------------------------


@run_bounded
async def test_a_message_whose_handler_raised_comes_again_and_those_before_do_not(any_server: ChannelServer) -> None:
    async with Client(any_server.url) as client:
        channel = await filled(client)
        with pytest.raises(Broken):
            await consume(channel, 2, then=fail)
        assert any_server.cursor("orders", "me") == 2
        assert await left(channel) == [2, 3, 4]


@run_bounded
async def test_a_break_counts_as_handled_when_the_block_ends_in_order(any_server: ChannelServer) -> None:
    async with Client(any_server.url) as client:
        channel = await filled(client)
        async with channel.subscribe("me") as messages:
            async for message in messages:
                if message.content == 2:
                    break
            assert await left(channel) == [0, 1, 2, 3, 4]  # the fetch was not used up yet
        assert await left(channel) == [3, 4]


@run_bounded
async def test_a_break_before_an_error_in_the_block_does_not(one_server: ChannelServer) -> None:
    async with Client(one_server.url) as client:
        channel = await filled(client)

        async def break_and_fail() -> None:
            async with channel.subscribe("me") as messages:
                async for message in messages:
                    if message.content == 2:
                        break
                raise Broken

        with pytest.raises(Broken):
            await break_and_fail()
        assert await left(channel) == [2, 3, 4]


@run_bounded
async def test_a_second_loop_in_a_block_goes_on_with_the_next_message(one_server: ChannelServer) -> None:
    async with Client(one_server.url) as client:
        channel = await filled(client)
        got = []
        async with channel.subscribe("me") as messages:
            assert (await anext(messages)).content == 0
            async for message in messages:
                got.append(message.content)
                break
            async for message in messages:
                got.append(message.content)
                if message.content == 4:
                    break
        assert got == [1, 2, 3, 4]
        assert await left(channel) == []


@run_bounded
async def test_a_block_without_messages_changes_nothing(one_server: ChannelServer) -> None:
    async with Client(one_server.url) as client:
        channel = await filled(client)
        async with channel.subscribe("me") as messages:
            assert messages.is_new is False
        assert await left(channel) == [0, 1, 2, 3, 4]


@run_bounded
async def test_a_cancelled_consumer_keeps_what_it_handled(one_server: ChannelServer) -> None:
    async with Client(one_server.url) as client:
        channel = await filled(client)
        is_at_two = asyncio.Event()

        async def consume_and_stall() -> None:
            async with channel.subscribe("me") as messages:
                async for message in messages:
                    if message.content == 2:
                        is_at_two.set()
                        await asyncio.sleep(60)

        consuming = asyncio.create_task(consume_and_stall())
        await is_at_two.wait()
        consuming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await consuming
        assert await left(channel) == [2, 3, 4]


@run_bounded
async def test_a_wait_that_is_cancelled_loses_nothing(any_server: ChannelServer) -> None:
    async with Client(any_server.url) as client:
        channel = client.channel("orders")
        async with channel.subscribe("me") as messages:
            for number in range(30):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.0005 * number):
                        await anext(messages)
            publishing = asyncio.create_task(channel.publish_many(range(200)))
            got: list[Any] = []
            while len(got) < 200:
                try:
                    async with asyncio.timeout(0.001 * (len(got) % 5)):
                        got.append((await anext(messages)).content)
                except TimeoutError:
                    pass
                if not len(got) % 5:
                    await asyncio.sleep(0.001)
                    if len(got) < 200:
                        got.append((await anext(messages)).content)
            await publishing
            assert got == list(range(200))
        assert await left(channel) == []


# --- loops without a block ------------------------------------------------------------------------------------------


@run_bounded
async def test_a_loop_without_a_block_that_is_left_acknowledges_nothing_more(any_server: ChannelServer) -> None:
    async with Client(any_server.url) as client:
        channel = await filled(client)
        async for message in channel.subscribe("me", batch=2):
            if message.content == 3:
                break
        gc.collect()
        await asyncio.sleep(0.05)
        assert await left(channel) == [2, 3, 4]  # the first fetch was used up, and acknowledged


@run_bounded
async def test_an_error_in_a_loop_without_a_block(one_server: ChannelServer) -> None:
    async with Client(one_server.url) as client:
        channel = await filled(client)

        async def fail_at_one() -> None:
            async for message in channel.subscribe("me"):
                if message.content == 1:
                    raise Broken

        with pytest.raises(Broken):
            await fail_at_one()
        assert await left(channel) == [0, 1, 2, 3, 4]


@run_bounded
async def test_what_was_given_out_can_be_acknowledged_at_once(one_server: ChannelServer) -> None:
    async with Client(one_server.url) as client:
        channel = await filled(client)
        messages = channel.subscribe("me")
        async for message in messages:
            if message.content == 2:
                await messages.acknowledge()
                break
        assert await left(channel) == [3, 4]


# --- when acknowledgements are sent -----------------------------------------------------------------------------------


@run_bounded
async def test_a_fetch_that_is_used_up_is_acknowledged_before_the_next(one_server: ChannelServer) -> None:
    async with Client(one_server.url) as client:
        channel = await filled(client, 6)
        cursors = []
        async with channel.subscribe("me", batch=3) as messages:
            async for message in messages:
                cursors.append(one_server.cursor("orders", "me"))
                if message.content == 5:
                    break
        assert cursors == [0, 0, 0, 3, 3, 3]


@run_bounded
async def test_a_slow_consumer_acknowledges_within_a_fetch(
    one_server: ChannelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CLIENT_CHANNEL_ACK_S", 0.1)
    async with Client(one_server.url) as client:
        channel = await filled(client)
        messages = channel.subscribe("me")
        for _ in range(3):
            await anext(messages)
            await asyncio.sleep(0.11)
        assert one_server.cursor("orders", "me") == 2  # not the one in hand
        assert await left(channel) == [2, 3, 4]


@run_bounded
async def test_a_live_message_is_acknowledged_when_the_next_is_asked_for(one_server: ChannelServer) -> None:
    async with Client(one_server.url) as client:
        channel = await filled(client, 1)
        async with channel.subscribe("me") as messages:
            await anext(messages)
            assert one_server.cursor("orders", "me") == 0
            waiting = asyncio.ensure_future(anext(messages))
            while one_server.cursor("orders", "me") != 1:
                await asyncio.sleep(0.005)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting


CONSUMER = """
import asyncio, sys
from tidelog.client import Client

async def consume(url):
    async with Client(url) as client:
        async with client.channel("orders").subscribe("me", batch=2) as messages:
            async for message in messages:
                print(message.content, flush=True)
                if message.content == 3:
                    await asyncio.sleep(60)

asyncio.run(consume(sys.argv[1]))
"""


@run_bounded
async def test_a_killed_consumer_gets_again_what_it_had_in_its_hands(any_server: ChannelServer) -> None:
    async with Client(any_server.url) as client:
        channel = await filled(client)
        command = [sys.executable, "-c", CONSUMER, any_server.url]
        with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            lines = [await asyncio.to_thread(process.stdout.readline) for _ in range(4)]
            process.kill()
        assert [int(line) for line in lines] == [0, 1, 2, 3]
        assert await left(channel) == [2, 3, 4]


# --- ends -------------------------------------------------------------------------------------------------------------


@run_bounded
async def test_a_closed_client_ends_its_readers(one_server: ChannelServer) -> None:
    async def consume_all(messages: MessageReader) -> list[Any]:
        return [message.content async for message in messages]

    async with Client(one_server.url) as client:
        channel = await filled(client)
        messages = channel.subscribe("me")
        consuming = asyncio.create_task(consume_all(messages))
        while one_server.cursor("orders", "me") < 5:
            await asyncio.sleep(0.005)
    assert await consuming == [0, 1, 2, 3, 4]
    with pytest.raises(StopAsyncIteration):
        await anext(messages)


@run_bounded
async def test_a_reader_that_is_closed_and_cancelled_is_cancelled(one_server: ChannelServer) -> None:
    async with Client(one_server.url) as client:
        messages = client.channel("orders").subscribe("me")
        waiting = asyncio.ensure_future(anext(messages))
        await asyncio.sleep(0.1)
        waiting.cancel()
        await messages.aclose()
        with pytest.raises(asyncio.CancelledError):
            await waiting


@run_bounded
async def test_one_task_at_a_time(one_server: ChannelServer) -> None:
    async with Client(one_server.url) as client, client.channel("orders").subscribe("me") as messages:
        waiting = asyncio.ensure_future(anext(messages))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="another task is already waiting"):
            await anext(messages)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting


@run_bounded
async def test_a_block_says_when_it_could_not_acknowledge(
    one_server: ChannelServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(limits, "CLIENT_CHANNEL_LEAVE_S", 0.3)
    port = int(one_server.url.rpartition(":")[2])
    async with Client(one_server.url) as plain:
        channel = await filled(plain)
        async with CutLink(port) as link, Client(link.url) as client:
            orders = client.channel("orders")

            def go_away() -> None:
                link.is_refusing = True
                link.cut()

            def go_away_and_fail() -> None:
                go_away()
                raise Broken

            with pytest.raises(ServerUnreachable, match=r"no reply for 0\.3 s: messages that were handled may come"):
                await consume(orders, 0, then=go_away)
            link.is_refusing = False
            with pytest.raises(Broken):  # which is not hidden by the other
                await consume(orders, 1, then=go_away_and_fail)
            assert "messages that were handled may come again: no reply for 0.3 s" in caplog.text
        assert await left(channel) == [0, 1, 2, 3, 4]


@run_bounded
async def test_a_block_says_that_its_subscriber_is_gone(one_server: ChannelServer) -> None:
    async with Client(one_server.url) as client:
        channel = await filled(client)
        with pytest.raises(SubscriptionNotFound):
            await consume(channel, 0, then=lambda: one_server.client.delete("c.{orders}.r.me"))
