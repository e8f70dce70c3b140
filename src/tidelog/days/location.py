"""Where a server is, in a form that can be sent elsewhere: tasks on other machines make their own connections.

It has the password in it, so that no file has to lie there, and does not show it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.retry import Retry

from tidelog.days.exchange import Server

_REPLY_S_MAX: Final = 30.0


@dataclass(frozen=True, slots=True)
class Location:
    """A server: Tidelog, any Redis, or a node of a Redis Cluster."""

    url: str
    """Without its password: for messages."""
    host: str
    port: int
    path: str | None = None
    """Of a unix socket, instead of host and port."""
    is_tls: bool = False
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    database: int = 0
    is_cluster: bool = False

    def connect(self) -> Server:
        """A client; the caller closes it. A cluster is asked for its nodes at once, others when they are first used."""
        options: dict[str, Any] = {
            "username": self.username,
            "password": self.password,
            "encoding_errors": "surrogateescape",
            "socket_timeout": _REPLY_S_MAX,
        }
        if self.is_cluster:
            return RedisCluster(host=self.host, port=self.port, ssl=self.is_tls, **options)
        # Once more at once: a connection may have been closed while nobody used it. Who waits for a server says so.
        options |= {"db": self.database, "retry": Retry(NoBackoff(), 1)}
        if self.path is not None:
            return redis.Redis(unix_socket_path=self.path, **options)
        return redis.Redis(self.host, self.port, ssl=self.is_tls, **options)
