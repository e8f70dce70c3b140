"""The server that the options name, and connections to it.

`ServerLink` sends one request at a time, and decodes replies with hiredis, as the server does: commands that need no
more start sooner without redis-py. A node of a Redis Cluster that has not the key says which node has it: the link
goes there. If the options name several servers, the link is to the one that leads (`server_search.py`); while none of
those that answer does, it waits for a while.
"""

from __future__ import annotations

import os
import random
import re
import socket
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Final

from tidelog import limits
from tidelog.address import ServerAddress, shown_place
from tidelog.cli.exits import complain
from tidelog.errors import ServerRefused, ServerUnreachable
from tidelog.server_search import (
    Answer,
    FoundServer,
    NoAnswer,
    Question,
    RefusedCommand,
    ServerNotFound,
    ServerSearch,
    Steps,
)

_TIMEOUT_S: Final = 30.0
_HOPS_MAX: Final = 3
_MOVED: Final = re.compile(r"MOVED \d+ (.*):(\d+)")


class _NotLetIn(ServerRefused):
    """The password is wrong."""


class ServerLink:
    """One connection."""

    def __init__(
        self,
        address: ServerAddress,
        *,
        hops_left: int = _HOPS_MAX,
        timeout_s: float = _TIMEOUT_S,
        waits: bool = True,
    ) -> None:
        """`waits`: until one of several servers leads. False: the caller does."""
        import hiredis

        self._hops_left = hops_left
        """How often a request may be sent on; while a cluster is being changed, its nodes may not agree."""
        self._timeout_s = timeout_s
        self.url = address.url
        if address.is_searched:
            address = _leader_of(address, waits=waits)
        self._address = address
        self._others: dict[str, ServerLink] = {}
        """Links to other nodes of a cluster, by host and port."""
        self._reader: Any = hiredis.Reader()
        self._socket = self._connect(address)
        try:
            self._log_in(address)
        except BaseException:
            self.close()
            raise

    def _log_in(self, address: ServerAddress) -> None:
        if address.password is not None:
            login = [address.username, address.password] if address.username else [address.password]
            try:
                self.call(b"AUTH", *(word.encode("utf-8", "surrogateescape") for word in login))
            except ServerRefused as error:
                raise _NotLetIn(str(error)) from None
        if address.database:
            self.call(b"SELECT", b"%d" % address.database)

    def _connect(self, address: ServerAddress) -> socket.socket:
        try:
            if address.path is not None:
                link = socket.socket(socket.AF_UNIX)
                link.settimeout(self._timeout_s)
                link.connect(address.path)
                return link
            link = socket.create_connection((address.host, address.port), self._timeout_s)
            if address.is_tls:
                import ssl

                return ssl.create_default_context().wrap_socket(link, server_hostname=address.host)
            return link
        except OSError as error:
            raise ServerUnreachable(f"no server answers at {address.url}: {error.strerror or error}") from None

    @property
    def place(self) -> str:
        """The server at the other end, for messages."""
        return self._address.path or shown_place(self._address.host, self._address.port)

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


# --- one of several servers -------------------------------------------------------------------------------------------


def _leader_of(address: ServerAddress, *, waits: bool) -> ServerAddress:
    """The server that leads, which is waited for if somebody answers."""
    search = ServerSearch(address)
    for pause_s in _pauses() if waits else [None]:
        try:
            found = _searched(search)
            return address.server_at(found.host, found.port)
        except ServerNotFound as error:
            if pause_s is None or not error.has_answered:
                text = f"no server answers at {address.url}: {error}"
                raise type(error)(text, has_answered=error.has_answered) from None
            time.sleep(pause_s)
        except ServerRefused as error:
            raise ServerRefused(f"the server at {address.url} does not let us in: {error}") from None
    raise AssertionError("the last pause is None")


def _pauses() -> Iterator[float | None]:
    """Doubling, and each shortened at random; None: that is enough."""
    for number in range(limits.CLIENT_SEARCHES_MAX):
        longest_s = min(limits.CLIENT_SEARCH_PAUSE_S_MAX, limits.CLIENT_RECONNECT_S_MIN * 2.0**number)
        yield longest_s * random.uniform(0.5, 1.0)
    yield None


def _searched(search: ServerSearch) -> FoundServer:
    steps: Steps = search.steps()
    try:
        question = next(steps)
        while True:
            question = steps.send(_answer(question))
    except StopIteration as end:
        found: FoundServer = end.value
        return found


def _answer(question: Question) -> Answer:
    replies: list[Any] = []
    try:
        with ServerLink(replace(question.address, database=0), timeout_s=limits.CLIENT_ASK_S_MAX) as link:
            for command in question.commands:
                try:
                    replies.append(link.call(*(word.encode() for word in command)))
                except ServerRefused as error:
                    replies.append(RefusedCommand(str(error)))
    except _NotLetIn as error:
        return NoAnswer(str(error), is_refused=True)
    except ServerUnreachable as error:
        return NoAnswer(str(error))
    return replies


# --- what the options name --------------------------------------------------------------------------------------------


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


def connect(
    url: str, password_file: str | None, database: int = 0, *, is_cluster: bool = False, takes_cluster: bool = False
) -> ServerLink:
    """A connection to that server; to a cluster, if it is one, by one of its nodes."""
    return ServerLink(find_address(url, password_file, database, is_cluster=is_cluster, takes_cluster=takes_cluster))


def connected(address: ServerAddress, *, waits: bool = True) -> AbstractContextManager[Any]:
    """A redis-py client, for commands that need more than `ServerLink`; `waits`: as there."""
    from tidelog import redis_client

    return redis_client.connected(address, waits=waits)
