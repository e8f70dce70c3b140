"""Connections of HTTP clients: how many there may be, and how long a request may take to arrive.

    a request arrives     its headers, and then its body, have some seconds each from their first byte on: a byte now
                          and then does not help
    too many              a connection on which no answer is under way makes room for a new one: first the oldest that
                          never sent a whole request, then the oldest between two requests. So those who hang do not
                          keep /health from being answered
    too many of one       the same among its own; this machine is one on which many may be
      address

If there is none that can go, the new one is told to come back later. uvicorn does the rest, and closes connections
that idle between requests.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from tidelog import limits
from tidelog.gateway.hosts import is_loopback

_BUSY: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\nretry-after: 5\r\nconnection: close\r\n"
    b"content-length: 26\r\n\r\nthere are too many clients"
)
_TOO_LATE: Final = (
    b"HTTP/1.1 408 Request Timeout\r\ncontent-type: text/plain\r\nconnection: close\r\n"
    b"content-length: 25\r\n\r\nthe request came too late"
)


class HttpClients:
    """All connections of a gateway, the oldest first."""

    def __init__(self, per_address_max: int, connections_max: int | None = None) -> None:
        self._per_address_max = per_address_max
        self._connections_max = limits.HTTP_CONNECTIONS_MAX if connections_max is None else connections_max
        self._by_address: dict[str, dict[HttpConnection, None]] = {}
        self._all: dict[HttpConnection, None] = {}

    def __len__(self) -> int:
        return len(self._all)

    def admit(self, connection: HttpConnection) -> bool:
        """Take a new connection, at the cost of another if need be; false: there is no room for it."""
        same = self._by_address.get(connection.address, {})
        has_room = True
        if len(same) >= self._per_address_max and not is_loopback(connection.address):
            has_room = _cut_one(same)
        elif len(self._all) >= self._connections_max:
            has_room = _cut_one(self._all)
        if has_room:
            self._all[connection] = None
            self._by_address.setdefault(connection.address, {})[connection] = None
        return has_room

    def remove(self, connection: HttpConnection) -> None:
        """Fine if it was not taken."""
        self._all.pop(connection, None)
        same = self._by_address.get(connection.address, {})
        same.pop(connection, None)
        if not same:
            self._by_address.pop(connection.address, None)


def _cut_one(connections: dict[HttpConnection, None]) -> bool:
    waiting = [each for each in connections if not each.is_answering]
    found = next((each for each in waiting if not each.has_asked), None) or next(iter(waiting), None)
    if found is None:
        return False
    found.cut()
    return True


class HttpConnection(H11Protocol):
    """One connection, with bounds on how long a request takes to arrive."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        clients: HttpClients,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._clients = clients
        self.address = ""
        self._arriving: object = None
        """What is waited for: `h11.IDLE` for headers, `h11.SEND_BODY` for a body, None for nothing."""
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def has_asked(self) -> bool:
        """Whether a whole request has come some time."""
        return cast("object", self.cycle) is not None

    @property
    def is_answering(self) -> bool:
        return self.has_asked and not self.cycle.response_complete

    # --- what uvicorn and the transport call --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.address = self.client[0] if self.client is not None else ""
        if self._clients.admit(self):
            self._watch()
        else:
            self._end_with(_BUSY)

    def connection_lost(self, exc: Exception | None) -> None:
        self._clients.remove(self)
        self._set_deadline(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self.transport.is_closing():
            super().data_received(data)
            self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._abort_later()

    # --- time ---------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Note what is arriving. Its time begins when that changes, and not with every byte."""
        state = self.conn.their_state
        is_idle = state is h11.IDLE and (self.is_answering or self.timeout_keep_alive_task is not None)
        arriving = state if state in (h11.IDLE, h11.SEND_BODY) and not is_idle else None
        if arriving is not self._arriving or self.transport.is_closing():
            self._set_deadline(None if self.transport.is_closing() else arriving)

    def _set_deadline(self, arriving: object) -> None:
        self._arriving = arriving
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if arriving is not None:
            seconds = limits.HTTP_HEADERS_S_MAX if arriving is h11.IDLE else limits.HTTP_BODY_S_MAX
            self._deadline = self.loop.call_later(seconds, self._time_out)

    def _time_out(self) -> None:
        self._deadline = None
        if self.is_answering or self.conn.our_state is not h11.IDLE:
            self.cut()  # there is an answer, or a part of one, already
        else:
            self._end_with(_TOO_LATE)

    # --- ending -------------------------------------------------------------------------------------------------

    def _end_with(self, answer: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(answer)
            self.transport.close()
            self._abort_later()

    def _abort_later(self) -> None:
        """A client that takes nothing does not stay for ever."""
        self.loop.call_later(limits.HTTP_CLOSING_S_MAX, self.transport.abort)

    def cut(self) -> None:
        self._clients.remove(self)
        self.transport.abort()
