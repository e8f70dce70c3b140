"""Messages that a failover took back, and handles that were given out for them.

A server and its replica are parted, as if the first had failed: what it takes from then on is lost. The replica goes
on, and gives the places of the lost messages to others.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import pytest
import redis

from tests.channels.replicas import linked
from tests.channels.servers import in_loop
from tests.channels.test_channels import values
from tidelog.address import ServerAddress
from tidelog.channels import AckHandleMalformed, Channels, Confirmation, NotConfirmed, backend_at, message_of

KEY: Final = b"0123456789abcdef"


def confirming(port: int) -> Channels:
    return Channels(backend_at(ServerAddress(port=port)), handle_keys=[KEY], confirm=Confirmation(1, 100))


def part(replica_port: int) -> None:
    with redis.Redis(port=replica_port) as replica:
        replica.replicaof("NO", "ONE")


async def publish(channels: Channels, *ids: str) -> None:
    """Whether or not somebody confirms it."""
    for each in ids:
        with suppress(NotConfirmed):
            await channels.publish("news", message_of(each, each))


@pytest.mark.parametrize("others", [("y1", "y2"), ("y1", "x2"), ("x2", "x1"), ("y1", "y2", "y3")])
@in_loop
async def test_a_handle_for_lost_messages_acknowledges_no_others(
    with_replica: tuple[int, int], others: tuple[str, ...]
) -> None:
    """Also if the last place has the same message again: what came before it is another one."""
    port, replica_port = with_replica
    await linked(port)
    async with confirming(port) as before, confirming(replica_port) as after:
        await before.subscribe("news", "a")
        await before.publish("news", message_of("sure", "sure"))
        part(replica_port)
        await publish(before, "x1", "x2")
        fetched = await before.fetch("news", "a")
        assert values(fetched) == ["sure", "x1", "x2"]
        assert fetched.handle is not None
        await publish(after, *others)
        with pytest.raises(AckHandleMalformed, match="for messages that the channel news does not have"):
            await after.acknowledge("news", "a", fetched.handle)
        again = await after.fetch("news", "a", after=fetched.handle)  # as a stream reads on
        assert values(again) == ["sure", *others]
        assert again.handle is not None
        assert await after.acknowledge("news", "a", again.handle)
        assert not await after.acknowledge("news", "a", fetched.handle), "it is stale now, which is a success"


@in_loop
async def test_a_handle_for_messages_that_were_kept_is_good(with_replica: tuple[int, int]) -> None:
    port, replica_port = with_replica
    await linked(port)
    async with confirming(port) as before, confirming(replica_port) as after:
        await before.subscribe("news", "a")
        await before.publish_several("news", [message_of(each, each) for each in ("s1", "s2", "s3")])
        first = await before.fetch("news", "a", messages_max=2)
        part(replica_port)
        await publish(before, "x1")
        await publish(after, "y1")
        assert values(await after.fetch("news", "a", after=first.handle)) == ["s3", "y1"]
        assert first.handle is not None
        assert await after.acknowledge("news", "a", first.handle)
        assert values(await after.fetch("news", "a")) == ["s3", "y1"]


@in_loop
async def test_messages_that_expired_since_are_acknowledged(with_replica: tuple[int, int]) -> None:
    port, _ = with_replica
    await linked(port)
    async with confirming(port) as channels:
        await channels.subscribe("news", "a")
        await publish(channels, "x1", "x2")
        handle = (await channels.fetch("news", "a")).handle
        assert handle is not None
        with redis.Redis(port=port) as client:
            client.delete("c.{news}.m.1", "c.{news}.m.2")
        assert await channels.acknowledge("news", "a", handle)


@in_loop
async def test_a_subscriber_is_made_when_replicas_have_it(with_replica: tuple[int, int]) -> None:
    """Otherwise a failover would take it back, and with it everything published until it is made again."""
    port, replica_port = with_replica
    await linked(port)
    async with confirming(port) as channels:
        await channels.subscribe("news", "a")
        with redis.Redis(port=replica_port) as replica:
            assert replica.get("c.{news}.r.a") == b"0"
        part(replica_port)
        with pytest.raises(NotConfirmed):
            await channels.subscribe("news", "b")
        with pytest.raises(NotConfirmed):
            await channels.subscribe("news", "a")


@in_loop
async def test_gateways_that_confirm_and_such_that_do_not_read_each_other(with_replica: tuple[int, int]) -> None:
    port, _ = with_replica
    await linked(port)
    plain = Channels(backend_at(ServerAddress(port=port)), handle_keys=[KEY])
    async with confirming(port) as sure, plain:
        await plain.subscribe("news", "a")
        for number, channels in enumerate((plain, sure, sure, plain, sure)):
            await channels.publish("news", message_of(f"m{number}", number))
        for reader, acknowledger, count in ((plain, sure, 2), (sure, plain, 1), (sure, sure, 1), (plain, plain, 1)):
            fetched = await reader.fetch("news", "a", messages_max=count)
            assert len(fetched.messages) == count
            assert fetched.handle is not None
            assert await acknowledger.acknowledge("news", "a", fetched.handle)
        assert (await plain.fetch("news", "a")).handle is None
