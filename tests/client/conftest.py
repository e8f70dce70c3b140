"""The servers of these tests: one that feeds are read of, and those that channels are on."""

from __future__ import annotations

from tests.channels.leftovers import leftovers
from tests.channels.servers import any_server, channel_servers, one_server
from tests.integration.feed_server import redis, server

__all__ = ["any_server", "channel_servers", "leftovers", "one_server", "redis", "server"]
