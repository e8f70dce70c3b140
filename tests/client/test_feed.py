"""A feed of several servers: it goes on at another one where it was, and is told if that one has less."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.client.bounded import run_bounded
from tests.client.false_follower import FalseFollower, FalseLeader, checkpoint
from tests.integration.heir import Heir, heir
from tests.integration.server_process import ServerProcess
from tidelog import limits
from tidelog.client import Checkpoint, Client, Feed, FeedDiverged, ServerUnreachable, Value
from tidelog.client.feed import Lost

__all__ = ["heir"]

SOON_MS = 20


async def value_of(feed: Feed, key: bytes) -> list[bytes]:
    """The values up to one of a key."""
    found = []
    async for event in feed:
        if isinstance(event, Value):
            found.append(event.key)
            if event.key == key:
                break
    return found


async def past(feed: Feed, is_enough: Callable[[Checkpoint], bool]) -> None:
    async for event in feed:
        if isinstance(event, Checkpoint) and is_enough(event):
            break


def keys(first: int, last: int) -> list[bytes]:
    return [b"k%d" % number for number in range(first, last + 1)]


def write(heir: Heir, wanted: list[bytes]) -> None:
    with heir.client() as client:
        for key in wanted:
            client.set(key, b"v")


@run_bounded
async def test_a_feed_goes_on_at_another_server(heir: Heir) -> None:
    lost: list[Lost] = []
    async with Client(heir.url) as client:
        feed = client.feed(prefix=b"k", since=0, checkpoint_ms=SOON_MS, on_lost=lost.append)
        write(heir, keys(1, 20))
        assert await value_of(feed, b"k20") == keys(1, 20)
        await past(feed, lambda _: True)
        write(heir, keys(21, 30))
        assert await value_of(feed, b"k30") == keys(21, 30)
        await asyncio.to_thread(heir.take_over)
        write(heir, keys(31, 40))
        assert await value_of(feed, b"k40") == keys(31, 40)
        assert lost
        assert [position.shard for position in await client.positions()] == [0], "from whom that leads now"


@run_bounded
async def test_a_feed_that_has_seen_more_is_told_so(heir: Heir) -> None:
    async with Client(heir.url) as client:
        feed = client.feed(prefix=b"k", since=0, checkpoint_ms=SOON_MS)
        write(heir, keys(1, 5))
        await value_of(feed, b"k5")
        checkpoint_ts = (await client.positions())[0].ts
        heir.copy()
        write(heir, keys(6, 7))
        await value_of(feed, b"k7")
        await asyncio.to_thread(heir.take_over)
        with pytest.raises(FeedDiverged) as caught:
            await value_of(feed, b"never")
        assert caught.value.since == checkpoint_ts


# --- the first connection ---------------------------------------------------------------------------------------------


@run_bounded
async def test_the_first_connection_is_waited_for_while_somebody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CLIENT_START_S_MAX", 0.0)
    async with FalseFollower(5, 7, lambda: None) as follower:
        url = f"redis://127.0.0.1:{follower.port},127.0.0.1:1"
        async with Client(url) as client:
            lost: list[Lost] = []
            with pytest.raises(ServerUnreachable, match=rf"127\.0\.0\.1:{follower.port}: it follows h:1; 127"):
                await anext(client.feed(on_lost=lost.append, reconnect_s_max=0.3))
            assert len(lost) > 1
            assert not any(each.has_begun for each in lost)


@run_bounded
async def test_several_of_which_none_answers_are_waited_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CLIENT_START_S_MAX", 0.3)
    async with Client("redis://127.0.0.1:1,127.0.0.1:2") as client:
        lost: list[Lost] = []
        with pytest.raises(ServerUnreachable, match="no server answers at redis://127"):
            await anext(client.feed(on_lost=lost.append))
        assert len(lost) > 1


@run_bounded
async def test_a_single_server_that_does_not_answer_is_an_error_at_once() -> None:
    async with Client("redis://127.0.0.1:1") as client:
        with pytest.raises(ServerUnreachable):
            await anext(client.feed(on_lost=lambda _: pytest.fail("it was not to wait")))


@run_bounded
async def test_one_that_leads_and_is_gone_before_it_answers_is_looked_for_again() -> None:
    """A failover that begins between the search and the feed."""
    async with FalseLeader() as leader, Client(f"redis://127.0.0.1:{leader.port},127.0.0.1:1") as client:
        lost: list[Lost] = []
        feed = client.feed(since=0, on_lost=lost.append)
        assert isinstance(await anext(feed), Checkpoint)
        assert [each.has_begun for each in lost] == [False] * leader.refusals


# --- followers --------------------------------------------------------------------------------------------------------


def several(server: ServerProcess, follower: FalseFollower) -> str:
    return f"redis://127.0.0.1:{server.port},127.0.0.1:{follower.port}"


@pytest.mark.parametrize("refusal", [b"-FEEDDIVERGED since=0\r\n", b"-FEEDTOOOLD oldest=9\r\n", b"-ERR no\r\n"])
def test_what_a_follower_refuses_the_leader_may_have(server: ServerProcess, redis: Any, refusal: bytes) -> None:
    redis.set("k", "v")

    @run_bounded
    async def read() -> None:
        lost: list[Lost] = []
        async with (
            FalseFollower(5, 7, lambda: refusal) as follower,
            Client(several(server, follower)) as client,
        ):
            feed = client.feed(keys=b"k", since=0, from_followers=True, on_lost=lost.append)
            assert await value_of(feed, b"k") == [b"k"]
            assert len(follower.feeds) == 1
            assert f"the follower at 127.0.0.1:{follower.port}: " in lost[0].reason

    read()


def test_what_the_leader_refuses_is_final(server: ServerProcess) -> None:
    @run_bounded
    async def read() -> None:
        async with (
            FalseFollower(5, 7, lambda: b"-FEEDDIVERGED since=1\r\n") as follower,
            Client(several(server, follower)) as client,
        ):
            for name in (None, "reader"):
                since = Checkpoint(5, b"", b"", 99, 5)
                with pytest.raises(FeedDiverged) as caught:
                    await anext(client.feed(since=since, from_followers=True, name=name))
                assert caught.value.since == 0
            assert len(follower.feeds) == 1, "a name is the leader's alone"

    read()


def test_a_follower_that_does_not_come_further_is_left(
    server: ServerProcess, redis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CLIENT_SILENT_S_MAX", 0.2)
    _, ts, epoch = redis.execute_command("FEED", "POSITION")[0]
    redis.set("k", "v")

    @run_bounded
    async def read() -> None:
        lost: list[Lost] = []
        async with (
            FalseFollower(ts, epoch, lambda: checkpoint(ts, epoch)) as follower,
            Client(several(server, follower)) as client,
        ):
            feed = client.feed(keys=b"k", since=ts, from_followers=True, checkpoint_ms=SOON_MS, on_lost=lost.append)
            assert await value_of(feed, b"k") == [b"k"]
            assert [each.since for each in lost] == [ts]
            assert "has not come further for" in lost[0].reason

    read()


def test_initial_values_do_not_begin_anew_where_they_are_older(server: ServerProcess, redis: Any) -> None:
    redis.set("k", "v")
    _, ts, epoch = redis.execute_command("FEED", "POSITION")[0]
    pieces = iter([_value(ts, b"k"), None])

    @run_bounded
    async def read() -> None:
        async with (
            FalseFollower(ts - 1, epoch, lambda: next(pieces)) as follower,
            Client(several(server, follower)) as client,
        ):
            feed = client.feed(keys=b"k", initial=True, from_followers=True, checkpoint_ms=SOON_MS)
            kinds = []
            async for event in feed:
                kinds.append(event.kind)
                if isinstance(event, Checkpoint):
                    break
            assert kinds[:3] == ["value", "deleterange", "value"]
            assert len(follower.feeds) == 1, "the second time it was behind"

    read()


def _value(ts: int, key: bytes) -> bytes:
    return b"*6\r\n$5\r\nvalue\r\n:%d\r\n$%d\r\n%b\r\n$6\r\nstring\r\n$-1\r\n$1\r\nv\r\n" % (ts, len(key), key)
