"""What channels promise, on every backend: one suite for Tidelog, Redis and a Redis Cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import pytest

from tests.channels.servers import ChannelServer, SimulatedBackend, in_loop
from tidelog import limits
from tidelog.channels import (
    AckHandleMalformed,
    BadChannelInput,
    ChannelMessage,
    Channels,
    FetchedMessages,
    InvalidChannel,
    MessageTooLarge,
    SubscriptionNotFound,
    made_message,
    message_of,
)
from tidelog.channels.handle import made_handle
from tidelog.channels.message import ChannelPlace
from tidelog.errors import LimitExceeded

KEY: Final = b"0123456789abcdef"
BAD_NAMES: Final = ("", "-a", "_a", "a.b", "a}b", "{a}", "a b", "ä", "a" * 64, "a\n", "a/b")


def numbered(*numbers: int) -> list[ChannelMessage]:
    return [message_of(f"m{number}", number) for number in numbers]


def values(fetched: FetchedMessages) -> list[Any]:
    return [message.value for message in fetched.messages]


async def drained(channels: Channels, channel: str, subscriber: str, messages_max: int = 64) -> list[Any]:
    """All that a subscriber gets, acknowledged as it comes."""
    got = []
    while True:
        fetched = await channels.fetch(channel, subscriber, messages_max=messages_max)
        got += values(fetched)
        if fetched.handle is None:
            assert not fetched.has_more
            return got
        assert await channels.acknowledge(channel, subscriber, fetched.handle)


# --- the calls ------------------------------------------------------------------------------------------------------


@in_loop
async def test_every_subscriber_gets_every_message_in_order(server: ChannelServer) -> None:
    async with server.channels() as channels:
        await channels.publish("news", message_of("early", "before anybody subscribed"))
        assert (await channels.subscribe("news", "a")).is_new
        await channels.publish_several("news", numbered(1, 2))
        assert (await channels.subscribe("news", "b")).is_new
        await channels.publish("news", numbered(3)[0])
        assert await drained(channels, "news", "a") == [1, 2, 3]
        assert await drained(channels, "news", "b", messages_max=1) == [3]


@in_loop
async def test_what_is_not_acknowledged_comes_again(server: ChannelServer) -> None:
    async with server.channels() as channels:
        await channels.subscribe("news", "a")
        await channels.publish_several("news", numbered(1, 2, 3))
        first = await channels.fetch("news", "a", messages_max=2)
        assert (values(first), first.has_more) == ([1, 2], True)
        again = await channels.fetch("news", "a", messages_max=2)
        assert again == first
        assert first.handle is not None
        assert await channels.acknowledge("news", "a", first.handle)
        rest = await channels.fetch("news", "a", messages_max=2)
        assert (values(rest), rest.has_more) == ([3], False)


@in_loop
async def test_an_empty_fetch_has_nothing_to_acknowledge(server: ChannelServer) -> None:
    async with server.channels() as channels:
        await channels.subscribe("news", "a")
        assert await channels.fetch("news", "a") == FetchedMessages([], None, False, 0)


@in_loop
async def test_to_subscribe_again_changes_nothing(server: ChannelServer) -> None:
    async with server.channels() as channels:
        await channels.subscribe("news", "a")
        await channels.publish("news", numbered(1)[0])
        assert not (await channels.subscribe("news", "a")).is_new
        assert await drained(channels, "news", "a") == [1]


@in_loop
async def test_a_subscriber_that_was_removed_is_not_found(server: ChannelServer) -> None:
    async with server.channels() as channels:
        await channels.subscribe("news", "a")
        await channels.publish("news", numbered(1)[0])
        handle = (await channels.fetch("news", "a")).handle
        assert handle is not None
        assert await channels.unsubscribe("news", "a")
        assert not await channels.unsubscribe("news", "a")
        with pytest.raises(SubscriptionNotFound, match=r"the channel news has no subscriber a: .*subscribe \(again\)"):
            await channels.fetch("news", "a")
        with pytest.raises(SubscriptionNotFound):
            await channels.acknowledge("news", "a", handle)
        await channels.subscribe("news", "a")
        assert await drained(channels, "news", "a") == []


@in_loop
async def test_nobody_is_found_where_nothing_was_made(server: ChannelServer) -> None:
    async with server.channels(handle_keys=[KEY]) as channels:
        with pytest.raises(SubscriptionNotFound) as caught:
            await channels.fetch("news", "a")
        assert caught.value.code == "dsps.storage.subscription-not-found"
        with pytest.raises(SubscriptionNotFound):
            await channels.acknowledge("news", "a", made_handle(KEY, "news", "a", 0))
        assert list(server.client.scan_iter()) == []


# --- publishing -----------------------------------------------------------------------------------------------------


@in_loop
async def test_a_repeated_id_is_the_same_message(server: ChannelServer) -> None:
    async with server.channels() as channels:
        await channels.subscribe("news", "a")
        assert await channels.publish("news", message_of("m1", "first")) == ("m1", 1, True)
        await channels.publish("news", message_of("m2", "second"))
        assert await channels.publish("news", message_of("m1", "again")) == ("m1", 1, False)
        assert server.clock("news") == 2
        assert await drained(channels, "news", "a") == ["first", "second"]


@in_loop
async def test_of_several_only_the_new_ones_are_published(server: ChannelServer) -> None:
    async with server.channels() as channels:
        await channels.subscribe("news", "a")
        await channels.publish_several("news", numbered(1, 2))
        twice = [*numbered(2, 3), message_of("m3", "the same id in one call"), *numbered(4, 1)]
        published = await channels.publish_several("news", twice)
        assert published == [("m2", 2, False), ("m3", 3, True), ("m3", 3, False), ("m4", 4, True), ("m1", 1, False)]
        assert await drained(channels, "news", "a") == [1, 2, 3, 4]


@in_loop
async def test_the_same_id_in_two_channels_is_two_messages(server: ChannelServer) -> None:
    async with server.channels() as channels:
        for channel in ("one", "two"):
            await channels.subscribe(channel, "a")
            assert (await channels.publish(channel, message_of("m", channel))).is_new
        assert await drained(channels, "two", "a") == ["two"]


@in_loop
async def test_publishers_at_the_same_time_lose_nothing(server: ChannelServer) -> None:
    async with server.channels() as channels, server.channels() as others:
        await channels.subscribe("news", "a")
        calls = [each.publish("news", message_of(f"m{n}", n)) for n in range(40) for each in (channels, others)]
        published = await asyncio.gather(*calls)
        assert sum(each.is_new for each in published) == 40
        got = await drained(channels, "news", "a", messages_max=7)
        assert sorted(got) == list(range(40))
        by_clock = sorted((each.clock, each.id) for each in published if each.is_new)
        assert [f"m{n}" for n in got] == [name for _, name in by_clock]


@in_loop
async def test_content_stays_as_it_was_written(server: ChannelServer) -> None:
    contents = (b'{"b": 1, "a": 1.0, "b": 1e400}', '["ä\\ud800"]'.encode(), b"null", b"1" * 5000, b'"\\u0000"')
    async with server.channels() as channels:
        await channels.subscribe("news", "a")
        await channels.publish_several(
            "news", [made_message(f"m{number}", content) for number, content in enumerate(contents)]
        )
        assert tuple(message.content for message in (await channels.fetch("news", "a")).messages) == contents


# --- one moment, bounded --------------------------------------------------------------------------------------------


@in_loop
async def test_a_fetch_is_one_call(server: ChannelServer) -> None:
    """Clock, cursor and bodies that are read one after the other are of several moments."""
    async with server.channels(handle_keys=[KEY]) as channels:
        await channels.subscribe("news", "a")
        await channels.publish_several("news", numbered(*range(64)))
        asked: list[Sequence[Any]] = []
        client = channels._backend._client  # type: ignore[attr-defined]
        send = client.execute_command

        async def watched(*words: Any, **options: Any) -> Any:
            asked.append(words)
            return await send(*words, **options)

        client.execute_command = watched
        try:
            await channels.fetch("news", "a")  # the first time the server may not know the script
            asked.clear()
            assert len((await channels.fetch("news", "a")).messages) == 64
        finally:
            del client.execute_command
        assert [words[0] for words in asked] == ["EVALSHA"]


@in_loop
async def test_fetches_during_publishes_see_a_beginning_of_what_follows(server: ChannelServer) -> None:
    async with server.channels() as channels:
        await channels.subscribe("news", "a")

        async def publish() -> None:
            for start in range(0, 90, 3):
                await channels.publish_several("news", numbered(start, start + 1, start + 2))

        publishing = asyncio.create_task(publish())
        seen: list[Any] = []
        while not publishing.done():
            fetched = await channels.fetch("news", "a", messages_max=1000)
            assert values(fetched)[: len(seen)] == seen
            assert len(fetched.messages) % 3 == 0
            seen = values(fetched)
        await publishing
        assert await drained(channels, "news", "a") == list(range(90))


@in_loop
async def test_a_fetch_ends_before_it_has_too_many_bytes(
    server: ChannelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CHANNEL_FETCH_BYTES", 1000)
    async with server.channels() as channels:
        await channels.subscribe("news", "a")
        sizes = [400, 400, 400, 2000, 10, 10]
        for number, size in enumerate(sizes):
            await channels.publish("news", message_of(f"m{number}", "x" * size))
        parts = []
        while (fetched := await channels.fetch("news", "a")).handle is not None:
            parts.append([len(value) for value in values(fetched)])
            await channels.acknowledge("news", "a", fetched.handle)
        assert parts == [[400, 400], [400], [2000], [10, 10]]


@in_loop
async def test_bodies_that_have_all_gone_still_move_the_cursor(server: ChannelServer) -> None:
    async with server.channels() as channels:
        await channels.subscribe("news", "a")
        await channels.publish_several("news", numbered(1, 2, 3))
        for clock in (1, 2, 3):
            server.client.delete(f"c.{{news}}.m.{clock}")
        fetched = await channels.fetch("news", "a")
        assert (fetched.messages, fetched.has_more) == ([], False)
        assert fetched.handle is not None
        assert await channels.acknowledge("news", "a", fetched.handle)
        assert server.cursor("news", "a") == 3
        assert (await channels.fetch("news", "a")).handle is None


@in_loop
async def test_a_long_gap_is_crossed_in_bounded_steps(server: ChannelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CHANNEL_LOOKED_AT_MAX", 40)
    async with server.channels() as channels:
        await channels.subscribe("news", "a")
        server.client.set("c.{news}.clock", 100, keepttl=True)  # a hundred that have expired
        await channels.publish("news", message_of("m", "there"))
        steps = []
        while (fetched := await channels.fetch("news", "a")).handle is not None:
            steps.append((len(fetched.messages), fetched.has_more))
            await channels.acknowledge("news", "a", fetched.handle)
        assert steps == [(0, True), (0, True), (1, False)]


@in_loop
async def test_a_gap_between_messages_is_passed_over(server: ChannelServer) -> None:
    async with server.channels() as channels:
        await channels.subscribe("news", "a")
        await channels.publish_several("news", numbered(*range(50)))
        for clock in (1, *range(3, 30), 50):
            server.client.delete(f"c.{{news}}.m.{clock}")
        fetched = await channels.fetch("news", "a", messages_max=10)
        assert values(fetched) == [1, *range(29, 38)]
        assert await drained(channels, "news", "a") == [1, *range(29, 49)]


@in_loop
async def test_a_body_that_is_no_message_blocks_nobody(server: ChannelServer) -> None:
    async with server.channels() as channels:
        await channels.subscribe("news", "a")
        await channels.publish_several("news", numbered(1, 2, 3))
        server.client.set("c.{news}.m.2", b"\xff not JSON")
        fetched = await channels.fetch("news", "a")
        assert (values(fetched), fetched.unreadable, fetched.has_more) == ([1, 3], 1, False)
        assert await drained(channels, "news", "a") == [1, 3]


@in_loop
async def test_a_part_of_a_fetch_is_acknowledged_by_its_clock(server: ChannelServer) -> None:
    async with server.channels() as channels:
        await channels.subscribe("news", "a")
        await channels.publish_several("news", numbered(*range(1, 9)))
        server.client.set("c.{news}.m.3", b"not JSON")
        server.client.delete("c.{news}.m.1", "c.{news}.m.5", "c.{news}.m.8")
        fetched = await channels.fetch("news", "a")
        assert (values(fetched), [place.clock for place in fetched.places]) == ([2, 4, 6, 7], [2, 4, 6, 8])
        assert await channels.acknowledge_through("news", "a", fetched.places[1])
        assert not await channels.acknowledge_through("news", "a", fetched.places[0])
        assert values(await channels.fetch("news", "a")) == [6, 7]
        assert await channels.acknowledge_through("news", "a", fetched.places[-1])
        assert (await channels.fetch("news", "a")).handle is None
        with pytest.raises(AckHandleMalformed):
            await channels.acknowledge_through("news", "a", ChannelPlace(9))


@in_loop
async def test_what_is_asked_for_is_bounded(server: ChannelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async with server.channels() as channels:
        await channels.subscribe("news", "a")
        for count in (-1, 0, limits.CHANNEL_FETCH_MESSAGES_MAX + 1):
            with pytest.raises(LimitExceeded, match="a fetch is of 1 to 1024 messages"):
                await channels.fetch("news", "a", messages_max=count)
        await channels.fetch("news", "a", messages_max=limits.CHANNEL_FETCH_MESSAGES_MAX)
        for count in (0, limits.CHANNEL_PUBLISH_MESSAGES_MAX + 1):
            with pytest.raises(LimitExceeded, match="from 1 to 256 messages are published together"):
                await channels.publish_several("news", numbered(*range(count)))
        await channels.publish_several("news", numbered(*range(limits.CHANNEL_PUBLISH_MESSAGES_MAX)))
        for expire_ms in (0, 999, limits.CHANNEL_EXPIRE_MS_MAX + 1):
            with pytest.raises(LimitExceeded, match="messages expire after 1000 to"):
                await channels.subscribe("news", "a", expire_ms=expire_ms)
        for timeout_s in (-0.1, float("nan"), limits.CHANNEL_POLL_S_MAX + 1):
            with pytest.raises(LimitExceeded, match="a fetch waits for 0 to 3600 s"):
                await channels.fetch_when_there("news", "a", timeout_s=timeout_s)
        monkeypatch.setattr(limits, "CHANNEL_PUBLISH_BYTES_MAX", 100)
        with pytest.raises(MessageTooLarge, match="published together have at most 100 bytes"):
            await channels.publish_several("news", [message_of(f"l{n}", "x" * 40) for n in range(2)])
        await channels.publish("news", message_of("alone", "x" * 200))


@pytest.mark.parametrize("name", BAD_NAMES)
@in_loop
async def test_names_that_cannot_be_are_refused_before_anything_is_asked(name: str, machine: SimulatedBackend) -> None:
    async with Channels(machine) as channels:
        for call in (
            lambda: channels.subscribe(name, "a"),
            lambda: channels.unsubscribe(name, "a"),
            lambda: channels.fetch(name, "a"),
            lambda: channels.publish(name, ChannelMessage("m", b"1")),
            lambda: channels.acknowledge(name, "a", "handle"),
        ):
            with pytest.raises(InvalidChannel) as caught:
                await call()
            assert caught.value.code == "dsps.storage.invalid-channel"
        for call in (
            lambda: channels.subscribe("news", name),
            lambda: channels.unsubscribe("news", name),
            lambda: channels.fetch("news", name),
            lambda: channels.publish("news", ChannelMessage(name, b"1")),
            lambda: channels.acknowledge("news", name, "handle"),
        ):
            with pytest.raises(BadChannelInput):
                await call()
        assert machine.machine("DBSIZE") == 0


# --- acknowledging --------------------------------------------------------------------------------------------------


@in_loop
async def test_a_stale_handle_is_a_success_and_moves_nothing(server: ChannelServer) -> None:
    async with server.channels() as channels:
        await channels.subscribe("news", "a")
        await channels.publish_several("news", numbered(1, 2))
        first = (await channels.fetch("news", "a", messages_max=1)).handle
        both = (await channels.fetch("news", "a")).handle
        assert first is not None
        assert both is not None
        assert await channels.acknowledge("news", "a", both)
        assert not await channels.acknowledge("news", "a", both)
        assert not await channels.acknowledge("news", "a", first)
        assert server.cursor("news", "a") == 2


@in_loop
async def test_a_handle_beyond_the_clock_is_malformed(server: ChannelServer) -> None:
    async with server.channels(handle_keys=[KEY]) as channels:
        await channels.subscribe("news", "a")
        await channels.publish("news", numbered(1)[0])
        for clock in (2, 2**53 - 1):
            with pytest.raises(AckHandleMalformed, match="for messages that the channel news does not have") as caught:
                await channels.acknowledge("news", "a", made_handle(KEY, "news", "a", clock))
            assert caught.value.code == "dsps.storage.ack-handle-malformed"
        assert server.cursor("news", "a") == 0


@in_loop
async def test_a_handle_is_for_its_subscriber_and_channel_only(server: ChannelServer) -> None:
    async with server.channels() as channels:
        for channel, subscriber in (("one", "a"), ("one", "b"), ("two", "a")):
            await channels.subscribe(channel, subscriber)
        await channels.publish("one", numbered(1)[0])
        await channels.publish("two", numbered(1)[0])
        handle = (await channels.fetch("one", "a")).handle
        assert handle is not None
        for channel, subscriber in (("one", "b"), ("two", "a")):
            with pytest.raises(AckHandleMalformed, match=f"to the subscriber {subscriber} of the channel {channel}"):
                await channels.acknowledge(channel, subscriber, handle)
        assert await channels.acknowledge("one", "a", handle)


@in_loop
async def test_handles_are_valid_at_every_gateway_and_after_a_restart(server: ChannelServer) -> None:
    async with server.channels() as channels, server.channels() as others:
        await channels.subscribe("news", "a")
        await channels.publish_several("news", numbered(1, 2))
        one, two = await asyncio.gather(
            channels.fetch("news", "a", messages_max=1), others.fetch("news", "a", messages_max=2)
        )
    async with server.channels() as restarted:
        for fetched in (one, two):
            assert fetched.handle is not None
            assert await restarted.acknowledge("news", "a", fetched.handle)


# --- what goes away -------------------------------------------------------------------------------------------------


@in_loop
async def test_without_its_clock_a_subscriber_is_not_found(server: ChannelServer) -> None:
    """To start the clock anew below the cursor would hide messages until it has caught up."""
    async with server.channels(handle_keys=[KEY]) as channels:
        await channels.subscribe("news", "a")
        await channels.publish_several("news", numbered(1, 2))
        assert await drained(channels, "news", "a") == [1, 2]
        server.client.delete("c.{news}.clock")
        with pytest.raises(SubscriptionNotFound):
            await channels.fetch("news", "a")
        await channels.publish("news", message_of("other", 3))
        for handle in (made_handle(KEY, "news", "a", clock) for clock in (1, 2)):
            with pytest.raises(SubscriptionNotFound):  # its cursor is beyond the clock
                await channels.acknowledge("news", "a", handle)
        with pytest.raises(SubscriptionNotFound):
            await channels.fetch("news", "a")
        assert (await channels.subscribe("news", "a")).is_new
        await channels.publish("news", message_of("another", 4))
        assert await drained(channels, "news", "a") == [4]


@in_loop
async def test_a_subscriber_expires_and_is_told(machine: SimulatedBackend) -> None:
    async with Channels(machine) as channels:
        await channels.subscribe("news", "a", expire_ms=10_000)
        machine.advance(6000)
        await channels.publish("news", numbered(1)[0], expire_ms=10_000)
        machine.advance(4000)
        with pytest.raises(SubscriptionNotFound):
            await channels.fetch("news", "a")
        assert (await channels.subscribe("news", "a", expire_ms=10_000)).is_new
        assert (await channels.fetch("news", "a")).messages == []


@in_loop
async def test_the_clock_outlives_every_subscriber(machine: SimulatedBackend) -> None:
    """If it did not, the next publish would start it anew below the cursor, and its message would never be seen."""
    async with Channels(machine) as channels:
        await channels.subscribe("news", "a", expire_ms=10_000)
        await channels.publish_several("news", numbered(1, 2), expire_ms=10_000)
        handle = (await channels.fetch("news", "a")).handle
        assert handle is not None
        machine.advance(9000)
        await channels.acknowledge("news", "a", handle, expire_ms=10_000)
        machine.advance(9000)
        await channels.subscribe("news", "a", expire_ms=10_000)
        machine.advance(9000)
        await channels.publish("news", numbered(3)[0], expire_ms=10_000)
        assert values(await channels.fetch("news", "a")) == [3]


@in_loop
async def test_a_shorter_expiry_does_not_take_the_clock_away(machine: SimulatedBackend) -> None:
    """An expiry that is configured anew, or two gateways that differ for a while."""
    async with Channels(machine) as channels:
        await channels.subscribe("news", "a", expire_ms=100_000)
        await channels.publish("news", numbered(1)[0], expire_ms=1000)
        machine.advance(50_000)
        await channels.publish("news", numbered(2)[0], expire_ms=1000)
        fetched = await channels.fetch("news", "a")
        assert values(fetched) == [2]
        assert fetched.handle is not None
        await channels.acknowledge("news", "a", fetched.handle, expire_ms=1000)
        assert machine.machine("PTTL", "c.{news}.r.a") == 50_000


@in_loop
async def test_a_handle_that_is_acknowledged_again_keeps_its_subscriber_alive(machine: SimulatedBackend) -> None:
    async with Channels(machine) as channels:
        await channels.subscribe("news", "a", expire_ms=10_000)
        await channels.publish("news", numbered(1)[0], expire_ms=10_000)
        handle = (await channels.fetch("news", "a")).handle
        assert handle is not None
        for _ in range(5):
            machine.advance(9000)
            await channels.acknowledge("news", "a", handle, expire_ms=10_000)
        assert machine.machine("PTTL", "c.{news}.clock") == machine.machine("PTTL", "c.{news}.r.a") == 10_000


@in_loop
async def test_an_id_may_come_again_when_its_message_has_expired(machine: SimulatedBackend) -> None:
    async with Channels(machine) as channels:
        await channels.subscribe("news", "a", expire_ms=100_000)
        await channels.publish("news", message_of("m", 1), expire_ms=1000)
        machine.advance(999)
        assert not (await channels.publish("news", message_of("m", 2), expire_ms=1000)).is_new
        machine.advance(1)
        assert (await channels.publish("news", message_of("m", 3), expire_ms=1000)).is_new
        assert values(await channels.fetch("news", "a")) == [3]


# --- reading ahead, and living on -------------------------------------------------------------------------------------


@in_loop
async def test_a_fetch_reads_on_behind_a_handle(server: ChannelServer) -> None:
    async with server.channels() as channels:
        await channels.subscribe("news", "a")
        await channels.publish_several("news", numbered(1, 2, 3, 4))
        first = await channels.fetch("news", "a", messages_max=2)
        second = await channels.fetch("news", "a", messages_max=1, after=first.handle)
        assert (values(second), second.has_more) == ([3], True)
        third = await channels.fetch_when_there("news", "a", timeout_s=5, after=second.handle)
        assert (values(third), third.has_more) == ([4], False)
        nothing = await channels.fetch("news", "a", after=third.handle)
        assert (nothing.messages, nothing.handle) == ([], None)
        assert values(await channels.fetch("news", "a")) == [1, 2, 3, 4]  # nothing has moved
        assert second.handle is not None
        assert await channels.acknowledge("news", "a", second.handle)
        assert values(await channels.fetch("news", "a", after=first.handle)) == [4]  # it is behind the cursor
        with pytest.raises(AckHandleMalformed):
            await channels.fetch("news", "a", after="nothing that was given out")


@in_loop
async def test_a_subscriber_is_kept_and_never_made(server: ChannelServer) -> None:
    async with server.channels() as channels:
        assert not await channels.keep("news", "a", expire_ms=60_000)
        assert not server.client.exists("c.{news}.r.a")
        await channels.subscribe("news", "a", expire_ms=60_000)
        assert await channels.keep("news", "a", expire_ms=600_000)
        for key in ("c.{news}.r.a", "c.{news}.clock"):
            assert 500_000 < server.client.pttl(key) <= 600_000


@in_loop
async def test_reading_ahead_over_the_wrap(server: ChannelServer) -> None:
    async with server.channels() as channels:
        await channels.subscribe("news", "a")
        for key in ("c.{news}.clock", "c.{news}.r.a"):
            server.client.set(key, 2**53 - 3, keepttl=True)
        await channels.publish_several("news", numbered(1, 2, 3, 4))
        first = await channels.fetch("news", "a", messages_max=3)
        assert values(await channels.fetch("news", "a", after=first.handle)) == [4]
