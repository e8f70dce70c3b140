"""Channels from Python: what is published, who gets it, and what is refused."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tests.channels.servers import ChannelServer, ChannelServers, emptied
from tests.client.bounded import run_bounded
from tidelog import limits
from tidelog.channels import BadChannelInput, InvalidChannel, NotConfirmed, made_message
from tidelog.client import Client, ListedChannel, ReceivedMessage
from tidelog.client.channel import Channel, portions_of
from tidelog.errors import BadAddress, LimitExceeded, ServerUnreachable


async def received(channel: Channel, subscriber: str, count: int) -> list[ReceivedMessage]:
    """So many messages, acknowledged."""
    got: list[ReceivedMessage] = []
    async with channel.subscribe(subscriber) as messages:
        while len(got) < count:
            got.append(await anext(messages))
    return got


@run_bounded
async def test_two_subscribers_each_get_everything_in_order(any_server: ChannelServer) -> None:
    async with Client(any_server.url) as client:
        channel = client.channel("orders")
        assert (await channel.publish("before anybody subscribed")).is_new
        async with channel.subscribe("a") as first, channel.subscribe("b") as second:
            assert (first.is_new, second.is_new) == (True, True)
            published = await channel.publish({"total": 3}, id="order-17")
            assert (published.id, published.clock, published.is_new) == ("order-17", 2, True)
            assert [each.is_new for each in await channel.publish_many(["x", None])] == [True, True]
            for messages in (first, second):
                got = [await anext(messages) for _ in range(3)]
                assert [message.content for message in got] == [{"total": 3}, "x", None]
                assert got[0].id == "order-17"
        assert (any_server.cursor("orders", "a"), any_server.cursor("orders", "b")) == (4, 4)


@run_bounded
async def test_a_message_is_received_as_soon_as_it_is_published(any_server: ChannelServer) -> None:
    async with (
        Client(any_server.url) as other,
        Client(any_server.url) as client,
        client.channel("orders").subscribe("me") as messages,
    ):
        for number in range(5):
            waiting = asyncio.ensure_future(anext(messages))
            await asyncio.sleep(0.2 if number == 0 else 0.02)
            await other.channel("orders").publish(number)
            began_s = asyncio.get_running_loop().time()
            assert (await waiting).content == number
            assert asyncio.get_running_loop().time() - began_s < limits.CHANNEL_LOOK_S / 2


@run_bounded
async def test_a_repeated_id_is_the_same_message(any_server: ChannelServer) -> None:
    async with Client(any_server.url) as client:
        channel = client.channel("orders")
        async with channel.subscribe("me") as messages:
            first = await channel.publish("first", id="m1")
            again = await channel.publish("again", id="m1")
            assert (first.is_new, again.is_new, again.clock) == (True, False, first.clock)
            known = await channel.publish_many(["again", "second"], ids=["m1", "m2"])
            assert [each.is_new for each in known] == [False, True]
            assert [(await anext(messages)).content for _ in range(2)] == ["first", "second"]


@run_bounded
async def test_ids_that_are_not_given_are_all_different(one_server: ChannelServer) -> None:
    async with Client(one_server.url) as client:
        published = await client.channel("orders").publish_many(["the same"] * 50)
    assert len({each.id for each in published}) == 50


@run_bounded
async def test_more_messages_than_are_published_together(
    one_server: ChannelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CHANNEL_PUBLISH_BYTES_MAX", 40_000)
    async with Client(one_server.url) as client:
        channel = client.channel("orders")
        await received(channel, "me", 0)
        contents = [[number, "x" * (number * 50)] for number in range(300)]
        assert len(await channel.publish_many(contents)) == 300
        assert await channel.publish_many([]) == []
        assert [message.content for message in await received(channel, "me", 300)] == contents


def test_portions_have_so_many_messages_and_bytes_at_most() -> None:
    small = [made_message(f"m{number}", b"1") for number in range(600)]
    assert [len(each) for each in portions_of(small)] == [256, 256, 88]
    large = [made_message(f"l{number}", b'"%b"' % (b"x" * 1_000_000)) for number in range(6)]
    assert [len(each) for each in portions_of(large)] == [4, 2]
    assert list(portions_of([])) == []


@run_bounded
async def test_content_keeps_the_text_that_was_published(one_server: ChannelServer) -> None:
    text = b'{"price": 1.50, "price": 100000000000000000000000000000000.0, "of": [1,\n 2]}'
    async with Client(one_server.url) as client:
        channel = client.channel("orders")
        async with channel.subscribe("me") as messages:
            await channel.publish_messages([made_message("m1", text), made_message("m2", b"9" * 5000)])
            message = await anext(messages)
            assert message.json == text
            assert message.content is message.content
            assert message.content["of"] == [1, 2]
            assert repr(message).startswith("ReceivedMessage(id='m1', json=b'{")
            with pytest.raises(ValueError, match="4300"):
                assert (await anext(messages)).content


# --- the end of a subscriber ----------------------------------------------------------------------------------------


@run_bounded
async def test_unsubscribe_removes_the_place_in_the_channel(any_server: ChannelServer) -> None:
    async with Client(any_server.url) as client:
        channel = client.channel("orders")
        await received(channel, "me", 0)
        await channel.publish(1)
        assert await channel.unsubscribe("me")
        assert not await channel.unsubscribe("me")
        async with channel.subscribe("me") as messages:
            assert messages.is_new
            await channel.publish(2)
            assert (await anext(messages)).content == 2


@run_bounded
async def test_the_expiry_is_the_channels(one_server: ChannelServer) -> None:
    async with Client(one_server.url) as client:
        for name, expire, expire_ms in (("a", 2.5, 2500), ("b", timedelta(hours=1), 3_600_000)):
            channel = client.channel(name, expire=expire)
            await received(channel, "me", 0)
            await channel.publish(1)
            for key in ("clock", "r.me", "m.1"):
                assert expire_ms - 2000 < one_server.client.pttl(f"c.{{{name}}}.{key}") <= expire_ms


# --- lists ----------------------------------------------------------------------------------------------------------


@run_bounded
async def test_a_list_of_all_channels(any_server: ChannelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CHANNEL_SCAN_KEYS", 3)  # so that there are many pages
    monkeypatch.setattr(limits, "CHANNEL_LISTED_DEFAULT", 5)

    def shown(listed: list[ListedChannel]) -> list[tuple[str, int | None, list[tuple[str, int | None]]]]:
        return [(each.channel, each.clock, [(row.subscriber, row.lag) for row in each.subscribers]) for each in listed]

    async with Client(any_server.url) as client:
        assert await client.list_channels() == []
        expected = []
        for number in range(12):
            channel = client.channel(f"ch{number:02}")
            names = [f"s{each:02}" for each in range(number)]
            for name in names:
                await received(channel, name, 0)
            await channel.publish_many(range(3))
            expected.append((channel.name, 3, [(name, 3) for name in names]))
        assert shown(await client.list_channels()) == expected
        assert shown(await client.list_channels("ch03")) == expected[3:4]
        assert await client.list_channels("nothing") == []


# --- what is refused ------------------------------------------------------------------------------------------------


@run_bounded
async def test_what_cannot_be_is_refused_before_anything_is_asked() -> None:
    async with Client("redis://127.0.0.1:1") as client:
        with pytest.raises(InvalidChannel, match="'a b' is not the name of a channel"):
            client.channel("a b")
        for expire in (0, -1, 0.5, float("nan"), timedelta(days=400)):
            with pytest.raises(LimitExceeded, match="messages expire after 1 to"):
                client.channel("orders", expire=expire)
        channel = client.channel("orders")
        with pytest.raises(BadChannelInput, match="belong to webhooks"):
            channel.subscribe("webhook-x")
        with pytest.raises(BadChannelInput, match="belong to webhooks"):
            await channel.unsubscribe("webhook-x")
        for batch in (0, 1025):
            with pytest.raises(LimitExceeded, match="a batch has 1 to 1024 messages"):
                channel.subscribe("me", batch=batch)
        with pytest.raises(BadChannelInput, match="is not the name of a subscriber"):
            await anext(channel.subscribe("a b"))
        with pytest.raises(BadChannelInput, match="is not the name of a message"):
            await channel.publish(1, id="a b")
        with pytest.raises(BadChannelInput, match="cannot be JSON"):
            await channel.publish(object())
        with pytest.raises(ValueError, match="zip"):
            await channel.publish_many([1, 2], ids=["a"])


@run_bounded
async def test_no_server_is_said_soon() -> None:
    async with Client("redis://:hidden@127.0.0.1:1") as client:
        channel = client.channel("orders")
        with pytest.raises(ServerUnreachable, match=r"no server answers at redis://127\.0\.0\.1:1"):
            await channel.publish(1)
        with pytest.raises(ServerUnreachable):
            await anext(channel.subscribe("me"))
        with pytest.raises(ServerUnreachable):
            async with channel.subscribe("me"):
                pass
        with pytest.raises(ServerUnreachable):
            await client.list_channels()


@run_bounded
async def test_a_cluster_has_channels_and_no_feeds(channel_servers: ChannelServers) -> None:
    server = emptied(channel_servers.get("cluster"))
    async with Client(server.url) as client:
        with pytest.raises(
            BadAddress, match=r"redis\+cluster://.* has channels only: feeds are of a Tidelog: use redis:"
        ):
            client.feed()
        with pytest.raises(BadAddress):
            await client.positions()
        with pytest.raises(BadAddress):
            await client.acknowledge("reader", 1)
        assert (await client.channel("orders", confirm_replicas=1).publish(1)).is_new
        with pytest.raises(NotConfirmed, match="1 of 2 replicas"):
            await client.channel("orders", confirm_replicas=2).publish(2, id="m2")
        assert not (await client.channel("orders").publish(2, id="m2")).is_new
