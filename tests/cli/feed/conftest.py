"""The server that these tests read feeds of."""

from tests.integration.feed_server import redis, server

__all__ = ["redis", "server"]
