"""The servers that channels are on."""

from __future__ import annotations

from tests.channels.servers import any_server, channel_servers, one_server

__all__ = ["any_server", "channel_servers", "one_server"]
