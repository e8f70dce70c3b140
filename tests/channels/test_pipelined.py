"""A backend whose calls share one connection: replies find their callers, and a lost connection is made anew."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.channels.servers import ChannelServers, in_loop
from tidelog.channels import Channels, Confirmation, message_of
from tidelog.channels.pipelined import PipelinedBackend
from tidelog.channels.scripts import SUBSCRIBE
from tidelog.errors import InternalError, ServerRefused, ServerUnreachable


class Way:
    """The way to a server over TCP, which can be cut."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._transports: list[asyncio.Transport] = []
        self.opened = 0
        self.is_blocked = False

    async def __call__(self, make: Callable[[], asyncio.Protocol]) -> asyncio.Protocol:
        if self.is_blocked:
            raise ServerUnreachable("there is no way")
        transport, protocol = await asyncio.get_running_loop().create_connection(make, "127.0.0.1", self._port)
        self._transports.append(transport)
        self.opened += 1
        return protocol

    def cut(self) -> None:
        for transport in self._transports:
            transport.abort()


@pytest.fixture
def port(channel_servers: ChannelServers) -> int:
    server = channel_servers.get("redis")
    server.client.flushall()
    server.client.script_flush()
    return int(server.url.rpartition(":")[2])


@in_loop
async def test_many_calls_share_one_connection(port: int) -> None:
    way = Way(port)
    backend = PipelinedBackend(way, "here")
    replies = await asyncio.gather(*(backend.call("ECHO", str(number)) for number in range(300)))
    assert replies == [b"%d" % number for number in range(300)]
    assert way.opened == 1
    assert await backend.ask([("ECHO", "a"), ("ECHO", "b")]) == [b"a", b"b"]
    with pytest.raises(ServerRefused, match="wrong number"):
        await backend.call("GET")
    with pytest.raises(InternalError):
        await backend.run(SUBSCRIBE, [b"a", b"b"], [1000], Confirmation(1))
    await backend.aclose()


@in_loop
async def test_a_caller_that_goes_away_does_not_shift_replies(port: int) -> None:
    backend = PipelinedBackend(Way(port), "here")
    await backend.call("PING")
    calls = [asyncio.create_task(backend.call("ECHO", str(number))) for number in range(10)]
    await asyncio.sleep(0)
    for call in calls[::2]:
        call.cancel()
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert found[1::2] == [b"%d" % number for number in range(1, 10, 2)]
    await backend.aclose()


@in_loop
async def test_calls_survive_a_connection_that_is_lost(port: int) -> None:
    way = Way(port)
    async with Channels(PipelinedBackend(way, "here")) as channels:
        await channels.subscribe("news", "me")
        way.cut()
        await channels.publish("news", message_of("a", 1))
        waiting = asyncio.create_task(channels.fetch_when_there("news", "me", timeout_s=20))
        assert [each.value for each in (await waiting).messages] == [1]
        way.is_blocked = True
        way.cut()
        await asyncio.sleep(0.01)
        with pytest.raises(ServerUnreachable):
            await channels.fetch("news", "me")


@in_loop
async def test_wakes_come_over_a_connection_of_their_own(port: int) -> None:
    way = Way(port)
    async with Channels(PipelinedBackend(way, "here")) as channels:
        await channels.subscribe("news", "me")
        for number in range(2):
            waiting = asyncio.create_task(channels.fetch_when_there("news", "me", timeout_s=20))
            await asyncio.sleep(0.3)
            began = asyncio.get_running_loop().time()
            await channels.publish("news", message_of(f"m{number}", number))
            found = await waiting
            assert asyncio.get_running_loop().time() - began < 1
            assert found.handle is not None
            await channels.acknowledge("news", "me", found.handle)
            way.cut()  # the second round begins with new connections
        assert channels.wakes.wake_count == 2
        assert (await channels.list_page()).channels[0].channel == "news"
