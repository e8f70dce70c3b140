"""The servers that channels are on.

Which server it is makes no difference to a command: the client is tried on all of them. So one is enough here, but for
`--long`.
"""

from __future__ import annotations

from typing import Final

import pytest

from tests.channels.leftovers import leftovers
from tests.channels.servers import ChannelServer, ChannelServers, channel_servers, emptied

__all__ = ["channel_servers", "leftovers"]

REDIS: Final = pytest.param("redis", marks=pytest.mark.long)
CLUSTER: Final = pytest.param("cluster", marks=pytest.mark.long)


@pytest.fixture(params=["tidelog", REDIS, CLUSTER])
def any_server(request: pytest.FixtureRequest, channel_servers: ChannelServers) -> ChannelServer:
    return emptied(channel_servers.get(request.param))


@pytest.fixture(params=["tidelog", REDIS])
def one_server(request: pytest.FixtureRequest, channel_servers: ChannelServers) -> ChannelServer:
    return emptied(channel_servers.get(request.param))
