"""The fixtures of the tests of channels."""

from __future__ import annotations

from tests.channels.leftovers import leftovers
from tests.channels.replicas import with_replica
from tests.channels.servers import channel_servers, machine, server

__all__ = ["channel_servers", "leftovers", "machine", "server", "with_replica"]
