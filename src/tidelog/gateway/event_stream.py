"""A feed as server-sent events: the sink that takes them in, and the response that writes them.

    feed --RESP--> sink: bounded, waits for the reader --> response: JSON, some events at a time --> socket

A slow reader stops the response, then the sink is full, and the feed goes back to the journal. At most one piece of
JSON waits for the socket. Checkpoints carry `id: <ts>-<epoch>-<seen>`, which a browser sends back when it connects
again; the stream begins with an id, so that a browser has one before the first checkpoint.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from typing import Any, Final

import hiredis
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tidelog import limits
from tidelog.engine.feeding import Feeding
from tidelog.feeds.event import FIELDS
from tidelog.feeds.feeds import OpenFeed
from tidelog.resp.json_form import reply_to_json

_RESUMED_PART: Final = 4
"""A reader is sent more when it has left no more than this part of the buffer."""
_RETRY: Final = b"retry: 2000\n"
"""How long a browser waits before it connects again, in ms."""
_HEARTBEAT: Final = b": still here\n\n"
_HEADERS: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}
"""Nobody on the way is to keep events, or to hold them back."""


class StreamSink:
    """The events that a feed has sent and the browser has not taken yet. One for each stream."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self._chunks: deque[bytes] = deque()
        self.unsent_bytes = 0
        self._was_full = False
        self._news = asyncio.Event()
        self.has_ended = False
        """Take no more events; those that are here can still be read."""
        self.error: str | None = None
        self.is_abandoned = False
        """Its reader is gone."""

    @property
    def is_full(self) -> bool:
        bound = limits.HTTP_FEED_BUFFER_BYTES
        self._was_full = self.unsent_bytes > (bound // _RESUMED_PART if self._was_full else bound)
        return self._was_full

    def send(self, events: bytes) -> None:
        self._chunks.append(events)
        self.unsent_bytes += len(events)
        self._news.set()

    def end(self, error: str | None) -> None:
        self.has_ended, self.error = True, error
        self._news.set()

    def abandon(self) -> None:
        self.is_abandoned = True
        self._news.set()

    def take(self) -> bytes:
        """The oldest that was sent; empty: there is nothing."""
        if not self._chunks:
            return b""
        chunk = self._chunks.popleft()
        self.unsent_bytes -= len(chunk)
        return chunk

    async def wait(self, seconds_max: float) -> bool:
        """Until something happens; false: nothing did."""
        self._news.clear()
        try:
            async with asyncio.timeout(seconds_max):
                await self._news.wait()
        except TimeoutError:
            return False
        return True


class EventStream(Response):
    """Writes what a sink gets until the feed ends, the reader goes away, or the server stops."""

    media_type = "text/event-stream"

    def __init__(self, feeding: Feeding, opened: OpenFeed, sink: StreamSink, beginning: bytes) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]  # nobody knows
        self._feeding = feeding
        self._opened = opened
        self._sink = sink
        self._beginning = _RETRY + beginning
        self._reader: Any = hiredis.Reader()

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        watching = asyncio.create_task(self._watch(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            piece = self._beginning
            while piece and not self._sink.is_abandoned:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                await asyncio.sleep(0)  # sending does not wait for anybody while the socket takes it
                piece = await self._next_piece()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except asyncio.CancelledError:
            if not self._sink.has_ended:
                raise
            # The server stops, and the reader has not taken in time what was left: there is nobody to tell.
        finally:
            watching.cancel()
            self._sink.abandon()
            self._feeding.leave(self._opened)

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._sink.abandon()

    async def _next_piece(self) -> bytes:
        """Some events; empty: that was all."""
        sink = self._sink
        while True:
            piece = self._some_events()
            if piece or sink.is_abandoned:
                return piece
            chunk = sink.take()
            if chunk:
                self._reader.feed(chunk)
            elif sink.has_ended:
                error, sink.error = sink.error, None
                return b"" if error is None else encode_error(error)
            elif not await sink.wait(limits.HTTP_FEED_SILENT_S_MAX):
                return _HEARTBEAT

    def _some_events(self) -> bytes:
        found = []
        for _ in range(limits.HTTP_FEED_EVENTS_AT_ONCE):
            event = self._reader.gets()
            if event is False:
                break
            found.append(encode_event(event))
        return b"".join(found)


def encode_event(event: list[Any]) -> bytes:
    """An event of a feed, decoded from RESP, as a server-sent event."""
    kind = event[0]
    fields = dict(zip(FIELDS[kind], event[1:], strict=True))
    place = b"id: %b\n" % event_id(fields["ts"], fields["epoch"], fields["seen"]) if kind == b"checkpoint" else b""
    named = {"kind": kind.decode(), **{name: reply_to_json(value) for name, value in fields.items()}}
    return b"event: %b\n%bdata: %b\n\n" % (kind, place, _json(named))


def encode_error(error: str) -> bytes:
    """`CODE name=number` as an event; the end follows."""
    return b"event: error\ndata: %b\n\n" % _json(error_members(error))


def error_members(error: str) -> dict[str, Any]:
    """`FEEDTOOOLD oldest=5` is `{"error": "FEEDTOOOLD", "oldest": 5}`."""
    code, _, rest = error.partition(" ")
    name, _, number = rest.partition("=")
    return {"error": code, name: int(number)} if number.isdecimal() else {"error": code, "message": rest}


def event_id(ts: int, epoch: int, seen: int) -> bytes:
    return b"%d-%d-%d" % (ts, epoch, seen)


def _json(members: dict[str, Any]) -> bytes:
    return json.dumps(members, separators=(",", ":"), ensure_ascii=False).encode()
