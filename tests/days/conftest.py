"""Every test here runs on real servers."""

from __future__ import annotations

from tests.days.servers import any_server, server, servers

__all__ = ["any_server", "server", "servers"]
