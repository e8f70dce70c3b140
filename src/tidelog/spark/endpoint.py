"""The server that a source or a job talks to: commands over RESP, and entries in bulk over Flight if it has Flight.

The driver takes the address from the options. Once it knows that all options are right, it asks the server what it can
do (`explored`): a Tidelog says in INFO on which port its Flight listens, and a plain Redis has no Flight. The result
travels to the executors, password included, so that they need no password file.

The address may name several servers of which one leads, or Sentinels. Executors get all of it, and find the leader as
the driver does. What a batch is, is always asked of the leader. With `from_followers`, tasks then read it from servers
that follow. A feed waits there until it has come as far. Entries are read there only if the server has all of them
already (`pinned`).
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow.flight as flight
import redis
from redis.exceptions import AskError

from tidelog.address import URL_DEFAULT, ServerAddress
from tidelog.client.link import explained
from tidelog.errors import BadAddress, ClientError, ServerUnreachable
from tidelog.redis_client import connect_raw
from tidelog.server.configuration import BadConfiguration, with_password
from tidelog.server_search import FoundServer, ServerNotFound
from tidelog.spark.options import BadOption, Options


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a server, and what the server can do."""

    address: ServerAddress
    is_tidelog: bool = True
    flight: str | None = None
    """The address of its Flight; None: it has none, and entries come over RESP. Of several, that of one of them."""
    from_followers: bool = False
    """Of several servers, tasks read from those that follow, if they can."""

    @property
    def url(self) -> str:
        """Without a password: for messages."""
        return self.address.url

    @property
    def database(self) -> int:
        return self.address.database

    @contextmanager
    def connect(self, *, retries: bool = True, is_follower_fine: bool = False) -> Iterator[redis.Redis]:
        """A connection whose replies are left as they came.

        retries            a request that fails is sent again, which is fine for one that changes nothing
        is_follower_fine   if `from_followers`, it may be to one that follows
        """
        turn = random.randrange(1 << 16) if self.from_followers and is_follower_fine else None
        try:
            client = connect_raw(self.address, retries=retries, follower=turn)
            try:
                yield client
            finally:
                client.close()
        except (redis.RedisError, OSError) as error:
            raise _about(self.url, error) from None

    def pinned(self, has_all: Callable[[Any], bool]) -> Endpoint:
        """One of several servers, to read from it and from no other; this one, if it is only one.

        `has_all` is asked, with a connection, whether one that follows has what is to be read.
        """
        if not self.address.is_searched:
            return self
        if self.from_followers:
            with self.connect(retries=False, is_follower_fine=True) as client:
                if is_leader(client) or has_all(client):
                    return self._at(client)
        with self.connect() as client:
            return self._at(client)

    def _at(self, client: Any) -> Endpoint:
        """The server at the other end of a connection."""
        address = self.address.server_at(client.connection.host, client.connection.port)
        return _explored(Endpoint(address), client)

    @contextmanager
    def open_flight(self) -> Iterator[tuple[Any, Any]]:
        """A Flight client, and the options of its calls. Of several servers, the one that leads."""
        if self.address.is_searched:
            with self.connect() as found:
                leader = self._at(found)
            with leader.open_flight() as opened:
                yield opened
            return
        if self.flight is None:
            raise ClientError(f"{self.url} has no Flight: start it with --flight-port")
        login = self.address.username or "default", self.address.password
        try:
            with flight.FlightClient(self.flight) as client:
                headers = [] if login[1] is None else [client.authenticate_basic_token(*login)]
                yield client, flight.FlightCallOptions(headers=headers)
        except (flight.FlightUnavailableError, flight.FlightTimedOutError) as error:
            raise ServerUnreachable(f"no Flight answers at {self.flight}: {_first_line(error)}") from None
        except flight.FlightError as error:
            raise ClientError(f"Flight at {self.flight}: {_first_line(error)}") from None


def is_leader(client: Any) -> bool:
    """Whether a connection is to a server that follows no other, as far as it was looked for."""
    found: FoundServer | None = getattr(client.connection, "found", None)
    return found is None or found.is_leader


def call(client: Any, *words: bytes | str | int) -> Any:
    """The reply to a command, as it came."""
    return client.execute_command(*words)


def call_all(client: Any, commands: Sequence[Sequence[bytes | str | int]]) -> list[Any]:
    """The replies to commands that are sent together, outside of any transaction."""
    if not commands:
        return []
    pipeline = client.pipeline(transaction=False)
    for words in commands:
        pipeline.execute_command(*words)
    found: list[Any] = pipeline.execute()
    return found


def take_endpoint(options: Options) -> Endpoint:
    """The server, or the servers, that the options name. On the driver."""
    url = options.text("url") or URL_DEFAULT
    given_flight = options.text("flight")
    password_file = options.text("password_file")
    if given_flight is not None and not given_flight.startswith(("grpc://", "grpc+tls://", "grpc+unix://")):
        raise BadOption(f"flight={given_flight!r}: it is grpc://HOST:PORT, or grpc+tls:// with TLS")
    try:
        address = ServerAddress.parse(url, database=options.number("database", 0, 2**31 - 1))
        if password_file is not None and address.password is not None:
            raise BadOption("password_file contradicts the url, which has a password: give one of them")
        if given_flight is not None and address.is_searched:
            raise BadOption("flight names one server, and the url several: leave it out, they are asked for theirs")
        address = with_password(address, password_file, os.environ, option="password_file")
    except BadAddress as error:
        raise BadOption(f"url: {error.problem}") from None
    except BadConfiguration as error:
        raise BadOption(str(error)) from None
    return Endpoint(address, flight=given_flight)


def take_read_endpoint(options: Options) -> Endpoint:
    """The same for what may be read from servers that follow."""
    return replace(take_endpoint(options), from_followers=options.flag("from_followers", False))


def source_options(server: Endpoint) -> dict[str, str]:
    """The options that make the data source use a server that is already known."""
    return {"url": server.address.url_with_password, "database": str(server.database)}


def explored(server: Endpoint) -> Endpoint:
    """The same server with what it can do, as it says itself."""
    with server.connect() as client:
        return _explored(server, client)


def _explored(server: Endpoint, client: Any) -> Endpoint:
    facts = _facts(call(client, "INFO", "tidelog"))
    found = server.flight
    if found is None and facts.get("flight_port", "0") != "0":
        at = server.address.host if server.address.path is not None else client.connection.host
        host = f"[{at}]" if ":" in at else at
        found = f"{'grpc+tls' if server.address.is_tls else 'grpc'}://{host}:{facts['flight_port']}"
    return replace(server, is_tidelog="tidelog_version" in facts, flight=found)


def _facts(reply: bytes) -> dict[str, str]:
    lines = reply.decode(errors="replace").splitlines()
    return dict(line.partition(":")[::2] for line in lines if ":" in line)


def _about(url: str, error: Exception) -> Exception:
    """The error in our words, with the server where it happened."""
    if isinstance(error, AskError):  # or MovedError, which is one
        return ClientError(f"{url} has not all keys: this is a cluster, and the source reads from one server")
    found = explained(error)
    is_told = isinstance(found, ServerNotFound) or not isinstance(found, ServerUnreachable)
    return found if is_told else ServerUnreachable(f"{url}: {found}")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].partition(". gRPC client debug context")[0]
