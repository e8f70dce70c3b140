"""The fixtures of the tests of channels over HTTP."""

from __future__ import annotations

from tests.channels.http.gateways import http_servers, site

__all__ = ["http_servers", "site"]
