"""A connection to a running server, for commands that ask it for something: one request at a time, and no more.

hiredis decodes the replies, as in the server; redis-py is not among what an installation needs.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from tidelog.errors import ClientError, EnvironmentFault

URL_DEFAULT: Final = "redis://127.0.0.1:6399"
_PORT_DEFAULT: Final = 6399
_TIMEOUT_S: Final = 30.0
_PASSWORD_FILE: Final = "TIDELOG_REQUIREPASS_FILE"


class ServerUnreachable(EnvironmentFault):
    """No server answers there, or it does not let us in."""


class ServerRefused(EnvironmentFault):
    """The server answered a request with an error."""


class Address(NamedTuple):
    """Where a server is."""

    url: str
    """Without its password: for messages."""
    host: str
    port: int
    path: str | None
    """Of a unix socket."""
    is_tls: bool
    username: bytes | None
    password: bytes | None
    database: int | None = None
    """None: the URL names none."""

    def choose_database(self, given: int) -> int:
        """The one that the URL or the option names; 0, the option's default, leaves it to the URL."""
        if given and self.database not in (None, given):
            raise ClientError(f"--database {given} contradicts the URL, which names {self.database}")
        return given or self.database or 0


def read_url(url: str) -> Address:
    """`redis://[[user]:password@]host[:port][/database]`, `rediss://...` for TLS, `unix:///path`.

    `ValueError` if it is none.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("redis", "rediss", "unix"):
        raise ValueError("a URL begins with redis://, rediss:// or unix://")
    password = None if parts.password is None else unquote(parts.password).encode()
    username = unquote(parts.username).encode() if parts.username else None
    if parts.scheme == "unix":
        return Address(f"unix://{parts.path}", "", 0, parts.path, False, username, password)
    host, port = parts.hostname or "127.0.0.1", parts.port or _PORT_DEFAULT
    shown = f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}"
    path = parts.path.strip("/")
    if path and not (path.isascii() and path.isdecimal()):
        raise ValueError("what follows the port is the number of a database")
    return Address(shown, host, port, None, parts.scheme == "rediss", username, password, int(path) if path else None)


def find_address(url: str) -> Address:
    """The same of an option that has to be right, and that promises nothing we would not do."""
    try:
        address = read_url(url)
        if urlsplit(url).query:
            raise ValueError("settings after a ? are not understood")
    except ValueError as error:
        raise ServerUnreachable(f"{without_password(url)!r} is no URL of a server: {error}") from None
    return address


def without_password(url: str) -> str:
    """A URL that may be wrong in any way, for a message that may end up anywhere."""
    before, at, after = url.rpartition("@")
    scheme, separator, _ = before.partition("://")
    return f"{scheme}{separator}...@{after}" if at and separator else f"...@{after}" if at else url


def find_password(address: Address, file: str | None, environment: Mapping[str, str]) -> bytes | None:
    """From the file, the URL, or the file that the environment names for the server."""
    from tidelog.engine.parameters import BadValue
    from tidelog.server.configuration import BadConfiguration, read_password

    named = file or (environment.get(_PASSWORD_FILE) if address.password is None else None)
    if named is None:
        return address.password
    try:
        return read_password(named)
    except BadValue as problem:
        raise BadConfiguration(f"{'--password-file' if file else _PASSWORD_FILE} {problem}") from None


class ServerLink:
    """One connection."""

    def __init__(self, address: Address, password: bytes | None) -> None:
        import hiredis

        self.url = address.url
        self._address = address
        self._reader: Any = hiredis.Reader()
        self._socket = self._connect(address)
        if password is not None:
            self.call(b"AUTH", *([address.username] if address.username else []), password)

    def _connect(self, address: Address) -> socket.socket:
        try:
            if address.path is not None:
                link = socket.socket(socket.AF_UNIX)
                link.settimeout(_TIMEOUT_S)
                link.connect(address.path)
                return link
            link = socket.create_connection((address.host, address.port), _TIMEOUT_S)
            if address.is_tls:
                import ssl

                return ssl.create_default_context().wrap_socket(link, server_hostname=address.host)
            return link
        except OSError as error:
            raise ServerUnreachable(f"no server answers at {address.url}: {error.strerror or error}") from None

    def call(self, *words: bytes) -> Any:
        """The reply to a command; `ServerRefused` if it is an error."""
        import hiredis

        request = [b"*%d\r\n" % len(words), *(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)]
        try:
            self._socket.sendall(b"".join(request))
            while (reply := self._reader.gets()) is False:
                data = self._socket.recv(65536)
                if not data:
                    raise ConnectionResetError("it closed the connection")
                self._reader.feed(data)
        except (OSError, hiredis.ProtocolError) as error:
            raise ServerUnreachable(f"the server at {self.url} went away: {error}") from None
        if isinstance(reply, hiredis.ReplyError):
            raise ServerRefused(str(reply))
        return reply

    def select(self, database: int) -> None:
        """Use the database that the option or the URL names."""
        self.call(b"SELECT", b"%d" % self._address.choose_database(database))

    def info(self, section: str) -> dict[str, str]:
        """A section of INFO."""
        reply: bytes = self.call(b"INFO", section.encode())
        lines = [line for line in reply.decode(errors="replace").splitlines() if line and not line.startswith("#")]
        return dict(line.partition(":")[::2] for line in lines)

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> ServerLink:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connect(url: str, password_file: str | None) -> ServerLink:
    """As the options and the environment say."""
    address = find_address(url)
    return ServerLink(address, find_password(address, password_file, os.environ))
