"""The servers of these tests: one that feeds are read of, and those that channels are on."""

from __future__ import annotations

import pytest

from tests.channels.servers import KINDS, ChannelServer, ChannelServers, channel_servers
from tests.integration.feed_server import redis, server

__all__ = ["channel_servers", "redis", "server"]


@pytest.fixture(params=KINDS)
def any_server(request: pytest.FixtureRequest, channel_servers: ChannelServers) -> ChannelServer:
    """A Tidelog, a Redis or a Redis Cluster, which is empty."""
    return emptied(channel_servers.get(request.param))


@pytest.fixture(params=["tidelog", "redis"])
def one_server(request: pytest.FixtureRequest, channel_servers: ChannelServers) -> ChannelServer:
    """A Tidelog or a Redis, which is empty."""
    return emptied(channel_servers.get(request.param))


def emptied(server: ChannelServer) -> ChannelServer:
    server.client.flushall()
    return server
