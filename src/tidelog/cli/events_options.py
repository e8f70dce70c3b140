"""What `tidelog events ...` commands share: which job set, on which server, and what becomes of its errors."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidelog.cli.server_link import ServerRefused, ServerUnreachable, find_address, find_password
from tidelog.errors import EnvironmentFault

if TYPE_CHECKING:
    from tidelog.days.location import Location

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


def find_location(url: str, password_file: str | None, database: int, *, is_cluster: bool = False) -> Location:
    """The server that the options mean."""
    try:
        from tidelog.days.location import Location
    except ModuleNotFoundError as error:
        if error.name != "redis":
            raise
        raise EnvironmentFault("this needs redis-py: pip install 'tidelog[client]'") from None
    address = find_address(url)
    database = address.choose_database(database)
    if is_cluster and (address.path is not None or database):
        raise ServerUnreachable("a cluster has neither a unix socket nor databases")
    password = find_password(address, password_file, os.environ)
    return Location(
        address.url,
        address.host,
        address.port,
        address.path,
        address.is_tls,
        None if address.username is None else address.username.decode(),
        None if password is None else password.decode("utf-8", "surrogateescape"),
        database,
        is_cluster,
    )


@contextmanager
def days_server(url: str, password_file: str | None, database: int, *, is_cluster: bool = False) -> Iterator[Any]:
    """A client of the server: Tidelog, or any Redis. What goes wrong in the block is told in our words."""
    with connected(find_location(url, password_file, database, is_cluster=is_cluster)) as client:
        yield client


@contextmanager
def connected(location: Location) -> Iterator[Any]:
    """The same for a location that is known."""
    import redis

    try:
        with location.connect() as client:
            yield client
    except redis.AuthenticationError as error:
        raise ServerRefused(f"the server at {location.url} does not let us in: {error}") from None
    except (redis.ConnectionError, redis.TimeoutError, redis.exceptions.RedisClusterException) as error:
        raise ServerUnreachable(f"no server answers at {location.url}: {error}") from None
    except redis.ResponseError as error:
        raise ServerRefused(f"the server at {location.url} refused: {error}") from None
