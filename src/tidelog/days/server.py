"""The server that day streams are on, by its URL."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tidelog.address import ServerAddress
from tidelog.redis_client import connect


def server_at(url: str, *, password: str | None = None) -> Any:
    """A redis-py client for `Writer`, `Reader` and the rest; the caller closes it.

    The URL may name several servers (`redis://a:6399,b:6399/0`), Sentinels (`redis+sentinel://host:26379/service`) or
    a Redis Cluster (`redis+cluster://host`). With several servers the client uses the one that leads, and finds it
    again after a failover. A password that is given here counts instead of the URL's.
    """
    address = ServerAddress.parse(url, takes_settings=True, takes_cluster=True)
    return connect(address if password is None else replace(address, password=password))
