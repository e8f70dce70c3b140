"""What `tidelog events ...` commands share: which job set, on which server, and what becomes of its errors."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final

import typer

from tidelog.cli.server_link import ServerRefused, ServerUnreachable, find_password, read_url
from tidelog.errors import EnvironmentFault

_TIMEOUT_S: Final = 30.0

Queue = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue.", show_default=False)]
JobSetName = Annotated[str, typer.Argument(metavar="JOBSET", help="The job set.", show_default=False)]
IsCluster = Annotated[bool, typer.Option("--cluster", help="The server is a node of a Redis Cluster.")]


class Terminated(KeyboardInterrupt):
    """SIGTERM. It goes the way of Ctrl-C, and ends the command in order."""


def terminate_in_order() -> None:
    """From now on, SIGTERM is `Terminated`."""

    def on_terminate(_number: int, _frame: object) -> None:
        raise Terminated

    signal.signal(signal.SIGTERM, on_terminate)


@contextmanager
def days_server(url: str, password_file: str | None, database: int, *, is_cluster: bool = False) -> Iterator[Any]:
    """A client of the server: Tidelog, or any Redis. What goes wrong in the block is told in our words."""
    try:
        import redis
        from redis.backoff import NoBackoff
        from redis.cluster import RedisCluster
        from redis.retry import Retry
    except ModuleNotFoundError as error:
        if error.name != "redis":
            raise
        raise EnvironmentFault("this needs redis-py: pip install 'tidelog[client]'") from None
    try:
        address = read_url(url)
    except ValueError as error:
        raise ServerUnreachable(f"{url!r} is no URL of a server: {error}") from None
    password = find_password(address, password_file, os.environ)
    options: dict[str, Any] = {
        "username": None if address.username is None else address.username.decode(),
        "password": None if password is None else password.decode("utf-8", "surrogateescape"),
        "encoding_errors": "surrogateescape",
        "socket_timeout": _TIMEOUT_S,
    }
    # Once more at once: a connection may have been closed while nobody used it. Who waits for a server says so.
    once_more = Retry(NoBackoff(), 1)
    if is_cluster and (address.path is not None or database):
        raise ServerUnreachable("a cluster has neither a unix socket nor databases")
    try:
        if is_cluster:
            client: Any = RedisCluster(host=address.host, port=address.port, ssl=address.is_tls, **options)
        elif address.path is not None:
            client = redis.Redis(unix_socket_path=address.path, db=database, retry=once_more, **options)
        else:
            client = redis.Redis(
                address.host, address.port, db=database, ssl=address.is_tls, retry=once_more, **options
            )
        with client:
            yield client
    except redis.AuthenticationError as error:
        raise ServerRefused(f"the server at {address.url} does not let us in: {error}") from None
    except (redis.ConnectionError, redis.TimeoutError, redis.exceptions.RedisClusterException) as error:
        raise ServerUnreachable(f"no server answers at {address.url}: {error}") from None
    except redis.ResponseError as error:
        raise ServerRefused(f"the server at {address.url} refused: {error}") from None
