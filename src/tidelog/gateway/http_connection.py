"""Connections of HTTP clients: how many there may be, and how long a request may take to arrive.

    a request arrives     its headers, and then its body, have some seconds each from their first byte on: a byte now
                          and then does not help
    too many              a connection on which no answer is under way makes room for a new one: first the oldest that
                          never sent a whole request, then the oldest between two requests. So those who hang do not
                          keep /health from being answered
    too many of one       the same among its own; this machine is one on which many may be
      address

    too much              headers, or requests that are sent before those before them are answered, have a limit

If there is none that can go, the new one is told to come back later. uvicorn does the rest, with httptools, a parser in
C, and closes connections that idle between requests.
"""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from typing import Any, Final

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
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
_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain\r\nconnection: close\r\n"
    b"content-length: 25\r\n\r\nthe headers are too large"
)


class Arriving(Enum):
    """What of a request is to come."""

    HEADERS = auto()
    BODY = auto()


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


class HttpConnection(HttpToolsProtocol):
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
        self._has_body_to_come = False
        self._header_bytes = 0
        """What has come of headers that are not complete."""
        self._under_way: RequestResponseCycle | None = None
        """The request that is answered, or was last. uvicorn's `cycle` is the one that came last."""
        self._arriving: Arriving | None = None
        """What is waited for; None: nothing."""
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def has_asked(self) -> bool:
        """Whether the headers of a request have come some time."""
        return self._under_way is not None

    @property
    def is_answering(self) -> bool:
        return self._under_way is not None and not self._under_way.response_complete

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
        if self._under_way is not None:
            self._under_way.disconnected = not self._under_way.response_complete
            self._under_way.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        was_arriving = self._arriving
        super().data_received(data)
        self._watch()
        if was_arriving is self._arriving is Arriving.HEADERS:
            self._header_bytes += len(data)
            if self._header_bytes > limits.HTTP_HEADERS_BYTES_MAX:
                self._end_with(_TOO_LARGE)

    def on_headers_complete(self) -> None:
        self._has_body_to_come = True
        self._header_bytes = 0
        super().on_headers_complete()
        if len(self.pipeline) > limits.HTTP_PIPELINED_MAX:
            self.cut()

    def on_message_complete(self) -> None:
        self._has_body_to_come = False
        super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._under_way = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._abort_later()

    # --- time ---------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Note what is arriving. Its time begins when that changes, and not with every byte."""
        arriving = None
        if self._has_body_to_come:
            arriving = Arriving.BODY
        elif not self.is_answering and self.timeout_keep_alive_task is None:
            arriving = Arriving.HEADERS
        if arriving is not self._arriving or self.transport.is_closing():
            self._set_deadline(None if self.transport.is_closing() else arriving)

    def _set_deadline(self, arriving: Arriving | None) -> None:
        self._arriving = arriving
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if arriving is not None:
            seconds = limits.HTTP_HEADERS_S_MAX if arriving is Arriving.HEADERS else limits.HTTP_BODY_S_MAX
            self._deadline = self.loop.call_later(seconds, self._time_out)

    def _time_out(self) -> None:
        self._deadline = None
        if self._arriving is Arriving.BODY:
            self.cut()  # there may be an answer, or a part of one, already
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
