"""Channels on a Redis Cluster: on every master, with publishes that wait for replicas, and through failovers."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import pytest

from tests.channels.cluster_of_six import ClusterOfSix, Node
from tests.channels.servers import ChannelServers, in_loop
from tests.channels.test_channels import numbered, values
from tidelog import limits
from tidelog.address import ServerAddress
from tidelog.channels import Channels, Confirmation, NotConfirmed, message_of
from tidelog.channels.backend import backend_at
from tidelog.errors import EnvironmentFault

CHANNELS = [f"ch{number}" for number in range(12)]


@in_loop
async def test_channels_are_on_all_masters_and_one_connection_hears_them(channel_servers: ChannelServers) -> None:
    server = channel_servers.get("cluster")
    server.client.flushall()
    async with server.channels() as channels, server.channels() as publisher:
        for channel in CHANNELS:
            await channels.subscribe(channel, "a")
        assert channel_servers.six is not None
        masters = [node for node in channel_servers.six.nodes if channel_servers.six.role(node) == "master"]
        assert all(int(node.call("DBSIZE")) > 0 for node in masters)
        tasks = [asyncio.create_task(channels.fetch_when_there(channel, "a", timeout_s=30)) for channel in CHANNELS]
        await asyncio.sleep(0.2)
        await asyncio.gather(*(publisher.publish(channel, numbered(1)[0]) for channel in CHANNELS))
        assert [values(fetched) for fetched in await asyncio.gather(*tasks)] == [[1]] * len(CHANNELS)


@in_loop
async def test_a_publish_waits_for_the_replica_of_its_slot(channel_servers: ChannelServers) -> None:
    server = channel_servers.get("cluster")
    server.client.flushall()
    server.everywhere("SCRIPT FLUSH")
    async with server.channels(confirm_replicas=1) as channels:
        for channel in CHANNELS:
            assert (await channels.publish(channel, numbered(1)[0])).is_new
            assert not (await channels.publish(channel, numbered(1)[0])).is_new
    address = ServerAddress.parse(server.url, takes_cluster=True)
    async with Channels(backend_at(address), confirm=Confirmation(2, 50)) as channels:
        with pytest.raises(NotConfirmed, match="1 of 2 replicas have what was written after 50 ms"):
            await channels.publish("ch1", numbered(2)[0])


@in_loop
async def test_a_master_that_hangs_holds_up_its_own_channels_only(channel_servers: ChannelServers) -> None:
    server = channel_servers.get("cluster")
    server.client.flushall()
    cluster = channel_servers.six
    assert cluster is not None
    async with server.channels() as channels:
        for channel in CHANNELS:
            await channels.subscribe(channel, "a")
        masters = {channel: cluster.master_of(f"c.{{{channel}}}.clock") for channel in CHANNELS}
        hangs = masters[CHANNELS[0]]
        others = [channel for channel in CHANNELS if masters[channel] != hangs]
        hangs.process.send_signal(signal.SIGSTOP)  # for less than it takes to be replaced
        try:
            calls = [channels.publish(CHANNELS[0], message_of(f"m{n}", n)) for n in range(2 * limits.CHANNEL_CALLS_MAX)]
            waiting = asyncio.gather(*calls)
            await asyncio.sleep(0.1)
            async with asyncio.timeout(1):
                for channel in others:
                    await channels.publish(channel, numbered(1)[0])
                    assert values(await channels.fetch(channel, "a")) == [1]
        finally:
            hangs.process.send_signal(signal.SIGCONT)
        assert all(each.is_new for each in await waiting)


async def play_with_failover(cluster: ClusterOfSix, fail: Node, how: str) -> None:
    """Publish to all channels while a master goes; all that was confirmed comes, in order, at least once."""
    address = ServerAddress.parse(cluster.url, takes_cluster=True)
    confirmed: dict[str, list[int]] = {channel: [] for channel in CHANNELS}
    is_over = False

    async with (
        Channels(backend_at(address), confirm=Confirmation(1, 500)) as publisher,
        Channels.at(cluster.url) as reader,
    ):
        for channel in CHANNELS:
            await reader.subscribe(channel, "a")
            await publisher.publish(channel, message_of("subscribed", -1))  # replicas have the subscriber, too

        async def publish(channel: str) -> None:
            number = 0
            while not is_over:
                try:
                    await publisher.publish(channel, message_of(f"m{number}", number))
                except EnvironmentFault:
                    await asyncio.sleep(0.05)
                else:
                    confirmed[channel].append(number)
                    number += 1
                    await asyncio.sleep(0.02)

        publishing = [asyncio.create_task(publish(channel)) for channel in CHANNELS]
        await asyncio.sleep(0.5)
        replica = next(
            node for node in cluster.nodes if node.call("INFO", "replication").get("master_port") == fail.port
        )
        if how == "kill":
            fail.process.kill()
        else:
            replica.call("CLUSTER FAILOVER")
        deadline = time.monotonic() + 60
        while cluster.role(replica) != "master":
            assert time.monotonic() < deadline
            await asyncio.sleep(0.1)
        before = {channel: len(numbers) for channel, numbers in confirmed.items()}
        if how == "kill":  # the slots of the dead master have no replica now, so nothing there can be confirmed
            await asyncio.sleep(3)
        else:
            while any(len(confirmed[channel]) < before[channel] + 10 for channel in CHANNELS):
                assert time.monotonic() < deadline
                await asyncio.sleep(0.1)
        is_over = True
        await asyncio.gather(*publishing)
        for channel in CHANNELS:
            got: list[int] = []
            while (fetched := await reader.fetch(channel, "a")).handle is not None:
                got += values(fetched)
                await reader.acknowledge(channel, "a", fetched.handle)
            once = list(dict.fromkeys(number for number in got if number >= 0))
            assert once == sorted(once)
            assert set(confirmed[channel]) <= set(once)


@in_loop
async def test_a_failover_that_was_asked_for_loses_nothing(tmp_path: Path) -> None:
    cluster = ClusterOfSix(tmp_path)
    try:
        await play_with_failover(cluster, cluster.nodes[0], "ask")
    finally:
        cluster.close()


@pytest.mark.long
@pytest.mark.timeout(180)
@pytest.mark.parametrize("master", [0, 1, 2])
@in_loop
async def test_a_master_that_is_killed_loses_nothing_that_was_confirmed(tmp_path: Path, master: int) -> None:
    cluster = ClusterOfSix(tmp_path)
    try:
        await play_with_failover(cluster, cluster.nodes[master], "kill")
    finally:
        cluster.close()
