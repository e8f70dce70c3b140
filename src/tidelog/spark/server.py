"""The server that is talked to: commands over RESP, entries in bulk over Flight where there is Flight.

The driver takes from the options where the server is and, once all options are known to be right, finds out what it can
do (`explored`): a Tidelog says in INFO on which port its Flight listens, and a plain Redis has none. What it found
travels to the executors, password included, so that no file has to lie there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

import pyarrow.flight as flight
import redis
from redis.backoff import ExponentialBackoff, NoBackoff
from redis.retry import Retry

from tidelog import limits
from tidelog.client.link import ServerUnreachable, explained
from tidelog.days.location import Location
from tidelog.errors import ClientError
from tidelog.spark.options import BadOption, Options

URL_DEFAULT: Final = "redis://127.0.0.1:6399"
_SCHEMES: Final = {"redis": "grpc", "rediss": "grpc+tls", "unix": "grpc"}
_ATTEMPTS: Final = 3
_REPLY_S_MAX: Final = 60.0


@dataclass(frozen=True, slots=True)
class Server:
    """Where a server is, and what it can do."""

    url: str
    """Without a password."""
    database: int
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    is_tidelog: bool = True
    flight: str | None = None
    """Where its Flight listens; None: there is none, and entries come over RESP."""

    @contextmanager
    def connect(self, *, retries: bool = True) -> Iterator[redis.Redis]:
        """A connection whose replies are as they came: nothing is decoded or made into dicts.

        `retries`: what fails is tried again, which is fine for what changes nothing.
        """
        retry = Retry(ExponentialBackoff(cap=1, base=0.05), _ATTEMPTS) if retries else Retry(NoBackoff(), 0)
        try:
            client: Any = redis.Redis.from_url(
                self.url,
                db=self.database,
                username=self.username,
                password=self.password,
                protocol=2,
                retry=retry,
                socket_timeout=_REPLY_S_MAX,
                socket_connect_timeout=limits.CLIENT_CONNECT_S_MAX,
                single_connection_client=True,
            )
        except (redis.RedisError, OSError) as error:
            raise _about(self.url, error) from None
        client.response_callbacks.clear()
        try:
            yield client
        except (redis.RedisError, OSError) as error:
            raise _about(self.url, error) from None
        finally:
            client.close()

    @contextmanager
    def open_flight(self) -> Iterator[tuple[Any, Any]]:
        """A Flight client, and the options of its calls."""
        assert self.flight is not None
        try:
            with flight.FlightClient(self.flight) as client:
                headers = []
                if self.password is not None:
                    headers.append(client.authenticate_basic_token(self.username or "default", self.password))
                yield client, flight.FlightCallOptions(headers=headers)
        except (flight.FlightUnavailableError, flight.FlightTimedOutError) as error:
            raise ServerUnreachable(f"no Flight answers at {self.flight}: {_first_line(error)}") from None
        except flight.FlightError as error:
            raise ClientError(f"Flight at {self.flight}: {_first_line(error)}") from None


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


def take_server(options: Options) -> Server:
    """Where the server is, as the options say. On the driver."""
    url = options.text("url") or URL_DEFAULT
    given_flight = options.text("flight")
    password_file = options.text("password_file")
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise BadOption(f"url: it is none: {error}") from None
    if parts.scheme not in _SCHEMES:
        raise BadOption(f"url: it begins with redis://, rediss:// or unix://, not with {parts.scheme!r}")
    if parts.query:
        raise BadOption("url: settings after a ? are not understood")
    if given_flight is not None and not given_flight.startswith(("grpc://", "grpc+tls://", "grpc+unix://")):
        raise BadOption(f"flight={given_flight!r}: it is grpc://HOST:PORT, or grpc+tls:// with TLS")
    path = parts.path.strip("/")
    database = options.number("database", 0, 2**31 - 1)
    if parts.scheme != "unix" and path:
        if not path.isdigit():
            raise BadOption(f"url: what follows the port is the number of a database, not {path!r}")
        if database is not None and database != int(path):
            raise BadOption(f"database={database} contradicts the url, which names {path}")
        database = int(path)
    password = unquote(parts.password) if parts.password is not None else None
    if password_file is not None:
        if password is not None:
            raise BadOption("password_file contradicts the url, which has a password: give one of them")
        password = _read_password(password_file)
    netloc = parts.netloc.rpartition("@")[2]
    shown = f"unix://{parts.path}" if parts.scheme == "unix" else f"{parts.scheme}://{netloc}"
    username = unquote(parts.username) if parts.username else None
    return Server(shown, database or 0, username, password, flight=given_flight)


def server_at(location: Location) -> Server:
    """The server of a job."""
    return Server(location.url, location.database, location.username, location.password)


def source_options(server: Server) -> dict[str, str]:
    """What the data source is told to find a server that is known."""
    scheme, _, rest = server.url.partition("://")
    if server.password is not None:
        rest = f"{quote(server.username or '', safe='')}:{quote(server.password, safe='')}@{rest}"
    return {"url": f"{scheme}://{rest}", "database": str(server.database)}


def explored(server: Server) -> Server:
    """The same with what it can do, which it is asked."""
    with server.connect() as client:
        facts = _facts(call(client, "INFO", "tidelog"))
    is_tidelog = "tidelog_version" in facts
    location = server.flight
    if location is None and facts.get("flight_port", "0") != "0":
        parts = urlsplit(server.url)
        host = parts.hostname or "127.0.0.1"
        place = f"[{host}]" if ":" in host else host
        location = f"{_SCHEMES[parts.scheme]}://{place}:{facts['flight_port']}"
    return replace(server, is_tidelog=is_tidelog, flight=location)


def _facts(reply: bytes) -> dict[str, str]:
    lines = reply.decode(errors="replace").splitlines()
    return dict(line.partition(":")[::2] for line in lines if ":" in line)


def _read_password(path: str) -> str:
    try:
        return Path(path).read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise BadOption(f"password_file={path!r}: {error}") from None


def _about(url: str, error: Exception) -> Exception:
    """The error in our words, with where it was met."""
    found = explained(error)
    return type(found)(f"{url}: {found}") if type(found) is ServerUnreachable else found


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].partition(". gRPC client debug context")[0]
