"""Reading a channel over lost connections, restarts and failovers, and what happens when a subscriber is gone."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from tests.channels.cluster_of_six import ClusterOfSix
from tests.channels.servers import ChannelServer
from tests.client.bounded import run_bounded
from tests.client.cut_link import CutLink
from tests.integration.server_process import ServerProcess
from tidelog import limits
from tidelog.client import ChannelOutage, Client, ServerRefused, ServerUnreachable, SubscriptionNotFound
from tidelog.client.channel import Channel


def port_of(server: ChannelServer) -> int:
    return int(server.url.rpartition(":")[2])


async def publish_patiently(channel: Channel, content: Any) -> None:
    while True:
        try:
            await channel.publish(content, id="the-same")
        except ServerUnreachable:
            await asyncio.sleep(0.05)
        else:
            return


async def subscribed(channel: Channel, *subscribers: str) -> None:
    for name in subscribers:
        async with channel.subscribe(name):
            pass


# --- lost connections -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
@run_bounded
async def test_connections_that_are_cut_again_and_again_lose_and_repeat_nothing(
    one_server: ChannelServer, seed: int
) -> None:
    chance = random.Random(seed)
    async with CutLink(port_of(one_server)) as link, Client(link.url) as client, Client(one_server.url) as other:
        await subscribed(client.channel("orders"), "me")

        async def publish() -> None:
            for number in range(300):
                await other.channel("orders").publish(number)

        async def cut() -> None:
            while True:
                await asyncio.sleep(chance.uniform(0.001, 0.03))
                link.cut()

        got: list[Any] = []
        async with client.channel("orders").subscribe("me", batch=5) as messages:
            tasks = [asyncio.create_task(publish()), asyncio.create_task(cut())]
            async for message in messages:
                got.append(message.content)
                if chance.random() < 0.1:
                    link.cut()
                if len(got) == 300:
                    break
            tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert got == list(range(300))  # a call that is repeated does the same: nothing comes twice here
        assert link.count > 10
        assert one_server.cursor("orders", "me") == 300


@run_bounded
async def test_a_server_that_is_away_for_a_while_is_waited_for(one_server: ChannelServer) -> None:
    outages: list[ChannelOutage] = []
    async with (
        CutLink(port_of(one_server)) as link,
        Client(one_server.url) as other,
        Client(link.url) as client,
        client.channel("orders").subscribe("me", on_lost=outages.append) as messages,
    ):
        await other.channel("orders").publish(1)
        assert (await anext(messages)).content == 1
        link.is_refusing = True
        link.cut()
        waiting = asyncio.ensure_future(anext(messages))
        await other.channel("orders").publish(2)
        while len(outages) < 2:
            await asyncio.sleep(0.01)
        link.is_refusing = False
        assert (await waiting).content == 2
    assert "127.0.0.1" in outages[0].reason
    assert 0 < outages[0].delay_s <= limits.CLIENT_RECONNECT_S_MIN


@run_bounded
async def test_it_gives_up_if_it_is_told_to(one_server: ChannelServer) -> None:
    async with CutLink(port_of(one_server)) as link, Client(link.url) as client:
        messages = client.channel("orders").subscribe("me", reconnect_s_max=0.5)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await anext(messages)
        link.is_refusing = True
        link.cut()
        with pytest.raises(ServerUnreachable):
            await anext(messages)


@run_bounded
async def test_a_closed_client_ends_a_reader_that_waits_for_the_server(one_server: ChannelServer) -> None:
    outages: list[ChannelOutage] = []
    async with CutLink(port_of(one_server)) as link:
        async with Client(link.url) as client:
            messages = client.channel("orders").subscribe("me", on_lost=outages.append)
            waiting = asyncio.ensure_future(anext(messages))
            await asyncio.sleep(0.1)
            link.is_refusing = True
            link.cut()
            while not outages:
                await asyncio.sleep(0.01)
        with pytest.raises(StopAsyncIteration):
            await waiting


@run_bounded
async def test_a_refusal_is_not_tried_again(one_server: ChannelServer) -> None:
    async with Client(one_server.url) as client, client.channel("orders").subscribe("me") as messages:
        one_server.client.set("c.{orders}.clock", "soon")
        with pytest.raises(ServerRefused, match="does not hold a clock"):
            await anext(messages)


# --- restarts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_killed", [False, True])
@run_bounded
async def test_it_goes_on_after_a_restart_of_the_server(tmp_path: Path, is_killed: bool) -> None:
    """With fsync always: what was published is there, and what was acknowledged does not come again."""
    place = tmp_path / "data", "--fsync", "always", "--unix-socket", str(tmp_path / "socket")
    server = await asyncio.to_thread(ServerProcess, *place)
    try:
        async with Client(f"unix://{tmp_path}/socket") as client:
            channel = client.channel("orders")
            await subscribed(channel, "other")
            async with channel.subscribe("me", batch=4) as messages:
                got = []
                for start in range(0, 40, 10):
                    await channel.publish_many(range(start, start + 10))
                    got += [(await anext(messages)).content for _ in range(7)]
                    if is_killed:
                        server.kill()
                    else:
                        await asyncio.to_thread(server.terminate)
                    server.close()
                    server = await asyncio.to_thread(ServerProcess, *place)
                got += [(await anext(messages)).content for _ in range(12)]
            assert got == list(range(40))
            async with channel.subscribe("me", create=False) as messages:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.2):
                        await anext(messages)
            async with channel.subscribe("other", create=False) as messages:
                assert [(await anext(messages)).content for _ in range(40)] == list(range(40))
    finally:
        server.close()


@pytest.mark.parametrize("is_killed", [False, pytest.param(True, marks=pytest.mark.long)])
@run_bounded
async def test_a_failover_of_a_cluster_is_waited_for(tmp_path: Path, is_killed: bool) -> None:
    cluster = await asyncio.to_thread(ClusterOfSix, tmp_path)
    try:
        await _read_over_a_failover(cluster, is_killed=is_killed)
    finally:
        cluster.close()


async def _read_over_a_failover(cluster: ClusterOfSix, *, is_killed: bool) -> None:
    channels = [f"ch{number}" for number in range(6)]  # on all masters
    async with Client(cluster.url) as client:
        readers = [client.channel(name).subscribe("me") for name in channels]
        for reader in readers:
            await reader.__aenter__()
        for name in channels:
            await client.channel(name, confirm_replicas=1).publish("before")
        replica = cluster.nodes[3]  # of the first
        waiting = [asyncio.ensure_future(anext(reader)) for reader in readers]
        assert [(await each).content for each in waiting] == ["before"] * len(channels)
        waiting = [asyncio.ensure_future(anext(reader)) for reader in readers]
        if is_killed:
            cluster.nodes[0].process.kill()
        else:
            replica.call("CLUSTER FAILOVER")
        while cluster.role(replica) != "master":
            await asyncio.sleep(0.05)
        for name in channels:
            await publish_patiently(client.channel(name), "after")
        assert [(await each).content for each in waiting] == ["after"] * len(channels)
        for reader in readers:
            await reader.__aexit__(None, None, None)


# --- subscribers that are gone ----------------------------------------------------------------------------------------


@run_bounded
async def test_a_subscriber_that_is_gone_is_told(any_server: ChannelServer) -> None:
    async with Client(any_server.url) as client:
        channel = client.channel("orders")
        async with channel.subscribe("me") as messages:
            await channel.publish(1)
            assert (await anext(messages)).content == 1
            await channel.unsubscribe("me")
            with pytest.raises(SubscriptionNotFound, match="the channel orders has no subscriber me"):
                await anext(messages)
            # and again, if it is asked again
            with pytest.raises(SubscriptionNotFound):
                await anext(messages)
            await subscribed(channel, "me")
            await channel.publish(2)
            assert (await anext(messages)).content == 2


@run_bounded
async def test_a_subscriber_that_is_removed_while_it_waits(one_server: ChannelServer) -> None:
    async with Client(one_server.url) as client:
        channel = client.channel("orders")
        async with channel.subscribe("me") as messages:
            waiting = asyncio.ensure_future(anext(messages))
            await asyncio.sleep(0.2)
            await channel.unsubscribe("me")
            await channel.publish("wakes it")
            with pytest.raises(SubscriptionNotFound):
                await waiting


@run_bounded
async def test_it_begins_anew_if_it_is_to(any_server: ChannelServer, caplog: pytest.LogCaptureFixture) -> None:
    async with Client(any_server.url) as client:
        channel = client.channel("orders")
        async with channel.subscribe("me", anew=True) as messages:
            await channel.publish_many([1, 2, 3])
            assert (await anext(messages)).content == 1
            any_server.client.flushall()  # as if all had expired: the channel begins at 0 again
            await subscribed(channel, "other")
            await channel.publish_many([4, 5])
            # What was fetched before is still given out. Its acknowledgement must not count for the new life, in
            # which the same clocks are other messages.
            await messages.acknowledge()
            await channel.publish_many([6, 7])
            assert [(await anext(messages)).content for _ in range(4)] == [2, 3, 6, 7]
        assert "me of orders begins anew, and may have missed messages" in caplog.text
        assert any_server.cursor("orders", "me") == 4


@run_bounded
async def test_one_that_must_be_there_is_not_made(any_server: ChannelServer) -> None:
    async with Client(any_server.url) as client:
        channel = client.channel("orders")
        with pytest.raises(SubscriptionNotFound, match="has no subscriber me, and it is not to be made"):
            await anext(channel.subscribe("me", create=False))
        assert await client.list_channels() == []
        await subscribed(channel, "me")
        await channel.publish(1)
        async with channel.subscribe("me", create=False) as messages:
            assert messages.is_new is False
            assert (await anext(messages)).content == 1


# --- lives ------------------------------------------------------------------------------------------------------------


@run_bounded
async def test_a_subscriber_lives_while_its_reader_waits(one_server: ChannelServer) -> None:
    async with Client(one_server.url) as client:
        channel = client.channel("orders", expire=1.0)
        async with channel.subscribe("me") as messages:
            waiting = asyncio.ensure_future(anext(messages))
            await asyncio.sleep(2.5)
            await channel.publish(1)
            assert (await waiting).content == 1
        await asyncio.sleep(1.1)
        with pytest.raises(SubscriptionNotFound):
            await anext(channel.subscribe("me", create=False))


@run_bounded
async def test_nothing_is_asked_all_the_time_while_there_is_nothing(one_server: ChannelServer) -> None:
    async with Client(one_server.url) as client:
        messages = client.channel("orders").subscribe("me")
        waiting = asyncio.ensure_future(anext(messages))
        await asyncio.sleep(0.5)
        before = one_server.client.info("stats")["total_commands_processed"]
        await asyncio.sleep(2)
        assert one_server.client.info("stats")["total_commands_processed"] - before <= 6
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting


@run_bounded
async def test_messages_that_have_expired_are_passed_over(
    any_server: ChannelServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(limits, "CHANNEL_LOOKED_AT_MAX", 3)
    async with Client(any_server.url) as client:
        channel = client.channel("orders")
        await subscribed(channel, "me")
        await channel.publish_many(range(10))
        for clock in (1, 2, 3, 4, 6, 7, 8, 9):
            any_server.client.delete(f"c.{{orders}}.m.{clock}")
        any_server.client.set("c.{orders}.m.10", b"not a message")
        async with channel.subscribe("me") as messages:
            assert (await anext(messages)).content == 4
            waiting = asyncio.ensure_future(anext(messages))
            while any_server.cursor("orders", "me") != 10:
                await asyncio.sleep(0.01)
            await channel.publish("new")
            assert (await waiting).content == "new"
        assert "me of orders: passed over 1 bodies that are not messages" in caplog.text


@run_bounded
async def test_a_server_that_has_lost_messages_is_read_on(
    one_server: ChannelServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with Client(one_server.url) as client:
        channel = client.channel("orders")
        async with channel.subscribe("me") as messages:
            await channel.publish_many([1, 2])
            assert [(await anext(messages)).content for _ in range(2)] == [1, 2]
            one_server.client.set("c.{orders}.clock", 1, keepttl=True)  # as after a crash without fsync
            assert (await anext(messages)).content == 1
            await channel.publish_many([3, 4])
            assert [(await anext(messages)).content for _ in range(2)] == [3, 4]
        assert "me of orders reads on where it last acknowledged: " in caplog.text
        assert one_server.cursor("orders", "me") == 3
