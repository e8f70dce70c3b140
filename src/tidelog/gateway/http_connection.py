"""Connections of HTTP clients: how many there may be, and how long a request may take to arrive.

    a request arrives     its headers, and then its body, have some seconds each from their first byte on: a byte now
                          and then does not help
    too many              a connection on which no answer is under way makes room for a new one: first the oldest that
                          never sent a whole request, then the oldest between two requests. So those who hang do not
                          keep /health from being answered
    too many of one       the same among its own; this machine is one on which many may be
      address

    further requests      wait while an answer is under way. They are read all the same, up to a bound: only a
                          connection that is read tells that its client is gone, and a poll may wait for an hour. Past
                          the bound reading pauses; if the answer then takes long, the connection is closed

If there is none that can go, the new one is told to come back later. uvicorn does the rest, with httptools, a parser in
C, and closes connections that idle between requests.
"""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from typing import Any, Final

import httptools
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


_READ_AT_ONCE_BYTES: Final = 16 * limits.KIB
"""So many requests are taken apart at most before the first of them is answered."""


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
        super().__init__(config, server_state, {**app_state, "cut": self.cut}, _loop)
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
        self._held = b""
        """What has come behind requests that are not answered yet."""
        self._crowded: asyncio.TimerHandle | None = None
        """Runs while reading pauses because more has come than is kept."""

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
        self._set_crowded(is_crowded=False)
        self._held = b""
        if self._under_way is not None:
            self._under_way.disconnected = not self._under_way.response_complete
            self._under_way.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._unset_keepalive_if_required()
        was_arriving = self._arriving
        self._held = self._held + data if self._held else data
        self._read_held()
        self._watch()
        if was_arriving is self._arriving is Arriving.HEADERS:
            self._header_bytes += len(data)
            if self._header_bytes > limits.HTTP_HEADERS_BYTES_MAX:
                self._end_with(_TOO_LARGE)
        elif self._held or self.pipeline:
            self._read_on()

    def on_headers_complete(self) -> None:
        self._header_bytes = 0
        if not self.parser.should_upgrade():
            self._has_body_to_come = True
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():
            self._has_body_to_come = False
            super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._under_way = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        self._set_crowded(is_crowded=False)
        super().on_response_complete()
        if self._held and not self.transport.is_closing():
            self._unset_keepalive_if_required()
            self._read_held()
        self._watch()

    def send_400_response(self, msg: str) -> None:
        """What came makes no sense, maybe in the middle of a request whose answer has begun: nobody reads on."""
        under_way = self._under_way
        has_begun = self._has_body_to_come
        if under_way is not None and not under_way.response_complete:
            has_begun = under_way.response_started
            under_way.disconnected = True  # nothing that the application still sends can follow
            under_way.message_event.set()
        if has_begun:
            self.cut()
        else:
            super().send_400_response(msg)

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._abort_later()

    # --- bytes --------------------------------------------------------------------------------------------------

    def _read_held(self) -> None:
        """Take requests apart until one has to wait for another's answer."""
        while self._held and not self.pipeline and not self.transport.is_closing():
            data, self._held = self._held[:_READ_AT_ONCE_BYTES], self._held[_READ_AT_ONCE_BYTES:]
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                self._ignore_upgrade(data[upgrade.args[0] :])
            except httptools.HttpParserError:
                self._refuse()

    def _ignore_upgrade(self, rest: bytes) -> None:
        """A client would rather speak something else (Java's asks for HTTP/2): read its request as if it did not.

        The parser has ended with the headers of such a request, and would lose its body.
        """
        method = self.parser.get_method()
        if method == b"CONNECT":
            self._refuse()
            return
        lines = [b"%b %b HTTP/%b" % (method, self.url, self.parser.get_http_version().encode())]
        for name, value in self.headers:
            if name == b"connection":
                kept = [each for each in value.split(b",") if each.strip().lower() != b"upgrade"]
                lines.append(b"connection: " + b",".join(kept))
            elif name != b"upgrade":
                lines.append(name + b": " + value)
        self.parser = httptools.HttpRequestParser(self)
        self._held = b"\r\n".join([*lines, b"", rest]) + self._held

    def _refuse(self) -> None:
        problem = "Invalid HTTP request received."
        self.logger.warning(problem)
        self._held = b""
        self.send_400_response(problem)

    def _read_on(self) -> None:
        """Go on receiving while there is room: uvicorn pauses with the first request that has to wait."""
        if len(self._held) <= limits.HTTP_PIPELINED_BYTES_MAX:
            self.flow.resume_reading()
        else:
            self.flow.pause_reading()
            self._set_crowded(is_crowded=True)

    def _set_crowded(self, *, is_crowded: bool) -> None:
        if self._crowded is not None and not is_crowded:
            self._crowded.cancel()
            self._crowded = None
        elif self._crowded is None and is_crowded:
            self._crowded = self.loop.call_later(limits.HTTP_PIPELINED_S_MAX, self.cut)

    # --- time ---------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Note what is arriving. Its time begins when that changes, and not with every byte."""
        arriving = None
        if self._has_body_to_come:
            arriving = None if self._held else Arriving.BODY
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
