"""The clock of a channel wraps: the document's example, and all calls around it, on every backend."""

from __future__ import annotations

from typing import Final

import pytest

from tests.channels.servers import ChannelServer, in_loop
from tests.channels.test_channels import drained, numbered, values
from tidelog.channels import AckHandleMalformed, SubscriptionNotFound
from tidelog.channels.clock import LARGEST, after
from tidelog.channels.handle import made_handle

KEY: Final = b"0123456789abcdef"
UNREAD: Final = (2**53 - 2, 2**53 - 1, -(2**53 - 1), -(2**53 - 1) + 1)
"""The document's four unread messages."""


def start_at(server: ChannelServer, clock: int) -> None:
    """A channel that has had so many messages, and a subscriber that has read them all."""
    for key in ("c.{chX}.clock", "c.{chX}.r.sA"):
        server.client.set(key, clock, px=1_800_000)


@in_loop
async def test_four_unread_messages_around_the_wrap(server: ChannelServer) -> None:
    start_at(server, 2**53 - 3)
    async with server.channels() as channels:
        published = [await channels.publish("chX", message) for message in numbered(1, 2, 3, 4)]
        assert tuple(each.clock for each in published) == UNREAD
        assert server.client.get("c.{chX}.clock") == b"-9007199254740990"
        for clock, message in zip(UNREAD, numbered(1, 2, 3, 4), strict=True):
            assert message.content in server.client.get(f"c.{{chX}}.m.{clock}")
            assert int(server.client.get(f"c.{{chX}}.mid.{message.id}")) == clock
        fetched = await channels.fetch("chX", "sA")
        assert (values(fetched), fetched.has_more) == ([1, 2, 3, 4], False)
        assert fetched.handle is not None
        await channels.acknowledge("chX", "sA", fetched.handle)
        assert server.cursor("chX", "sA") == UNREAD[-1]
        assert (await channels.fetch("chX", "sA")).handle is None


@in_loop
async def test_a_handle_is_for_the_latest_clock_not_for_the_largest(server: ChannelServer) -> None:
    start_at(server, 2**53 - 3)
    async with server.channels() as channels:
        await channels.publish_several("chX", numbered(1, 2, 3, 4))
        for messages_max, cursor in ((3, UNREAD[2]), (1, UNREAD[3])):
            handle = (await channels.fetch("chX", "sA", messages_max=messages_max)).handle
            assert handle is not None
            assert await channels.acknowledge("chX", "sA", handle)
            assert server.cursor("chX", "sA") == cursor


@in_loop
async def test_every_step_over_the_wrap(server: ChannelServer) -> None:
    start_at(server, LARGEST - 3)
    async with server.channels() as channels:
        for number in range(8):
            published = await channels.publish("chX", numbered(number)[0])
            assert published.clock == after(LARGEST - 3, number + 1)
            assert not (await channels.publish("chX", numbered(number)[0])).is_new
            assert await drained(channels, "chX", "sA") == [number]
            assert not (await channels.subscribe("chX", "sA")).is_new
            assert server.cursor("chX", "sA") == published.clock


@in_loop
async def test_acknowledgements_compare_over_the_wrap(server: ChannelServer) -> None:
    start_at(server, LARGEST - 1)
    async with server.channels(handle_keys=[KEY]) as channels:
        await channels.publish_several("chX", numbered(1, 2, 3))  # LARGEST, -LARGEST, -LARGEST + 1

        async def acknowledge(clock: int) -> bool:
            return await channels.acknowledge("chX", "sA", made_handle(KEY, "chX", "sA", clock))

        for beyond in (-LARGEST + 2, -1, 0):
            with pytest.raises(AckHandleMalformed):
                await acknowledge(beyond)
        assert not await acknowledge(LARGEST - 1)
        assert not await acknowledge(LARGEST - 5)
        assert await acknowledge(-LARGEST)
        assert not await acknowledge(LARGEST)
        assert await acknowledge(-LARGEST + 1)
        assert server.cursor("chX", "sA") == -LARGEST + 1


@pytest.mark.parametrize(
    ("clock", "cursor"), [(-LARGEST, -LARGEST + 1), (LARGEST, -LARGEST), (0, 1), (-1, 0), (5, 5 - LARGEST - 1)]
)
@in_loop
async def test_a_cursor_beyond_the_clock_is_not_found(server: ChannelServer, clock: int, cursor: int) -> None:
    start_at(server, clock)
    server.client.set("c.{chX}.r.sA", cursor)
    async with server.channels() as channels:
        with pytest.raises(SubscriptionNotFound):
            await channels.fetch("chX", "sA")
        assert (await channels.subscribe("chX", "sA")).is_new
        assert server.cursor("chX", "sA") == clock


@in_loop
async def test_the_list_counts_over_the_wrap(server: ChannelServer) -> None:
    start_at(server, 2**53 - 3)
    async with server.channels() as channels:
        await channels.publish_several("chX", numbered(1, 2, 3, 4))
        page = await channels.list_page(channel="chX")
        assert [(each.clock, [row.lag for row in each.subscribers]) for each in page.channels] == [(UNREAD[3], [4])]


@in_loop
async def test_from_minus_one_to_zero(server: ChannelServer) -> None:
    start_at(server, -2)
    async with server.channels() as channels:
        await channels.publish_several("chX", numbered(1, 2, 3))
        assert server.client.get("c.{chX}.mid.m2") == b"0"
        assert await drained(channels, "chX", "sA") == [1, 2, 3]
        assert server.client.get("c.{chX}.r.sA") == b"1"
