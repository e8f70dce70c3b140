"""The server that the options name, and connections to it.

`ServerLink` sends one request at a time, and decodes replies with hiredis, as the server does: commands that need no
more start sooner without redis-py. A node of a Redis Cluster that has not the key says which node has it: the link
goes there.
"""

from __future__ import annotations

import os
import re
import socket
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Final

from tidelog.address import ServerAddress
from tidelog.cli.exits import complain
from tidelog.errors import ServerRefused, ServerUnreachable

_TIMEOUT_S: Final = 30.0
_HOPS_MAX: Final = 3
_MOVED: Final = re.compile(r"MOVED \d+ (.*):(\d+)")


class ServerLink:
    """One connection."""

    def __init__(self, address: ServerAddress, *, hops_left: int = _HOPS_MAX) -> None:
        import hiredis

        self._hops_left = hops_left
        """How often a request may be sent on; while a cluster is being changed, its nodes may not agree."""
        self.url = address.url
        self._address = address
        self._others: dict[str, ServerLink] = {}
        """Links to other nodes of a cluster, by host and port."""
        self._reader: Any = hiredis.Reader()
        self._socket = self._connect(address)
        if address.password is not None:
            login = [address.username, address.password] if address.username else [address.password]
            self.call(b"AUTH", *(word.encode("utf-8", "surrogateescape") for word in login))
        if address.database:
            self.call(b"SELECT", b"%d" % address.database)

    def _connect(self, address: ServerAddress) -> socket.socket:
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
            moved = _MOVED.fullmatch(str(reply))
            if moved is not None and self._hops_left:
                return self._other(moved[1], moved[2]).call(*words)
            raise ServerRefused(str(reply))
        return reply

    def _other(self, host: str, port: str) -> ServerLink:
        """The link to another node of the cluster."""
        name = f"{host}:{port}"
        if name not in self._others:
            address = replace(self._address, host=host or self._address.host, port=int(port), path=None)
            self._others[name] = ServerLink(address, hops_left=self._hops_left - 1)
        return self._others[name]

    def info(self, section: str) -> dict[str, str]:
        """A section of INFO."""
        reply: bytes = self.call(b"INFO", section.encode())
        lines = [line for line in reply.decode(errors="replace").splitlines() if line and not line.startswith("#")]
        return dict(line.partition(":")[::2] for line in lines)

    def close(self) -> None:
        for other in self._others.values():
            other.close()
        self._socket.close()

    def __enter__(self) -> ServerLink:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def find_address(
    url: str,
    password_file: str | None,
    database: int = 0,
    *,
    is_cluster: bool = False,
    takes_settings: bool = False,
    takes_cluster: bool = False,
) -> ServerAddress:
    """The server that the options and the environment name. Database 0 is the option's default: the URL decides."""
    from tidelog.server.configuration import with_password

    address = ServerAddress.parse(
        url,
        database=database or None,
        is_cluster=is_cluster,
        takes_settings=takes_settings,
        takes_cluster=takes_cluster,
    )
    return with_password(address, password_file, os.environ, option="--password-file", warn=complain)


def connect(url: str, password_file: str | None, database: int = 0, *, is_cluster: bool = False) -> ServerLink:
    """A connection to that server."""
    return ServerLink(find_address(url, password_file, database, is_cluster=is_cluster))


def connected(address: ServerAddress) -> AbstractContextManager[Any]:
    """A redis-py client, for commands that need more than `ServerLink`."""
    from tidelog import redis_client

    return redis_client.connected(address)
