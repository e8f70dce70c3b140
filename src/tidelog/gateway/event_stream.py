"""A feed as server-sent events: the sink that takes them in, and the response that writes them.

    feed --RESP--> sink: bounded, waits for the reader --> response: JSON, some events at a time --> socket

A slow reader stops the response, then the sink is full, and the feed goes back to the journal. At most one piece of
JSON waits for the socket. A large string is not decoded with its event: `#t`, which no event has, stands in its place
there, and its JSON is made in pieces as the socket takes them.

Checkpoints carry `id: <ts>-<epoch>-<seen>`, which a browser sends back when it connects again; the stream begins with
an id, so that a browser has one before the first checkpoint.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from typing import Any, Final

import hiredis
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tidelog import limits
from tidelog.engine.feeding import Feeding
from tidelog.errors import TidelogError
from tidelog.feeds.event import FIELDS
from tidelog.feeds.open_feed import OpenFeed
from tidelog.resp.json_form import reply_to_json, string_pieces
from tidelog.types.change import LargeString

_RESUMED_PART: Final = 4
"""A reader is sent more when it has left no more than this part of the buffer."""
_RETRY: Final = b"retry: 2000\n"
"""How long a browser waits before it connects again, in ms."""
_STAND_IN: Final = b"#t\r\n"
_LOG: Final = logging.getLogger("tidelog")
_HEARTBEAT: Final = b": still here\n\n"
_HEADERS: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}
"""Nobody on the way is to keep events, or to hold them back."""


class StreamSink:
    """The events that a feed has sent and the browser has not taken yet. One for each stream."""

    def __init__(self, peer: str, on_sent: Callable[[bytes | LargeString], None] = lambda _: None) -> None:
        self.peer = peer
        self._on_sent = on_sent
        self._chunks: deque[bytes | LargeString] = deque()
        self.unsent_bytes = 0
        self._large_count = 0
        """How many of them are large strings that were not read to their end."""
        self._was_full = False
        self._news = asyncio.Event()
        self.has_ended = False
        """Take no more events; those that are here can still be read."""
        self.error: str | None = None
        self.is_abandoned = False
        """Its reader is gone."""

    @property
    def is_held(self) -> bool:
        return False  # it keeps what follows

    @property
    def is_full(self) -> bool:
        if self._large_count:
            return True
        bound = limits.HTTP_FEED_BUFFER_BYTES
        self._was_full = self.unsent_bytes > (bound // _RESUMED_PART if self._was_full else bound)
        return self._was_full

    def send(self, data: bytes | LargeString) -> None:
        self._on_sent(data)
        self._chunks.append(data)
        if isinstance(data, bytes):
            self.unsent_bytes += len(data)
        else:
            self.unsent_bytes += data.memory_bytes
            self._large_count += 1
        self._news.set()

    def release(self, string: LargeString) -> None:
        """A large string was read to its end."""
        self._large_count -= 1
        self.unsent_bytes -= string.memory_bytes

    def cut(self) -> None:
        self.has_ended = True
        self.abandon()

    def end(self, error: str | None) -> None:
        self.has_ended, self.error = True, error
        self._news.set()

    def abandon(self) -> None:
        self.is_abandoned = True
        self._news.set()

    def take(self) -> bytes | LargeString | None:
        """The oldest that was sent; None: there is nothing."""
        if not self._chunks:
            return None
        chunk = self._chunks.popleft()
        if isinstance(chunk, bytes):
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
        self._strings: deque[LargeString] = deque()
        """Those of the event that the reader has begun."""

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        watching = asyncio.create_task(self._watch(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async with aclosing(self._pieces()) as pieces:
                async for piece in pieces:
                    if self._sink.is_abandoned:
                        break
                    if piece:
                        await send({"type": "http.response.body", "body": piece, "more_body": True})
                    await asyncio.sleep(0)  # sending does not wait for anybody while the socket takes it
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except asyncio.CancelledError:
            if not self._sink.has_ended:
                raise
            # The server stops, and the reader has not taken in time what was left: there is nobody to tell.
        except (TidelogError, OSError) as error:
            # Without its end the response is cut, as it must be inside an event.
            _LOG.warning("feed of %s: cut inside an event, which cannot be read any more: %s", self._sink.peer, error)
        finally:
            watching.cancel()
            self._sink.abandon()
            self._feeding.leave(self._opened)

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._sink.abandon()

    async def _pieces(self) -> AsyncGenerator[bytes, None]:
        """The text of the stream; an empty piece only lets others have their turn."""
        sink = self._sink
        yield self._beginning
        while True:
            found: list[bytes] = []
            for _ in range(limits.HTTP_FEED_EVENTS_AT_ONCE):
                event = self._reader.gets()
                if event is False:
                    break
                if not self._strings:
                    found.append(encode_event(event))
                    continue
                yield b"".join(found)
                found = []
                for piece in self._large_event(event):
                    yield piece
            if found:
                yield b"".join(found)
                continue
            chunk = sink.take()
            if isinstance(chunk, bytes):
                self._reader.feed(chunk)
            elif chunk is not None:
                self._reader.feed(_STAND_IN)
                self._strings.append(chunk)
            elif sink.has_ended:
                if sink.error is not None:
                    yield encode_error(sink.error)
                return
            elif not await sink.wait(limits.HTTP_FEED_SILENT_S_MAX):
                yield _HEARTBEAT

    def _large_event(self, event: list[Any]) -> Iterator[bytes]:
        """An event that large strings stand in: they were sent since the event before it."""
        kind = event[0]
        yield b'event: %b\ndata: {"kind":"%b"' % (kind, kind)
        for name, value in zip(FIELDS[kind], event[1:], strict=True):
            yield b',"%b":' % name.encode()
            yield from self._value_pieces(value)
        yield b"}\n\n"

    def _value_pieces(self, value: Any) -> Iterator[bytes]:
        if value is True:
            string = self._strings.popleft()
            yield from string_pieces(string.read, string.size)
            self._sink.release(string)
        elif isinstance(value, list):
            for index, part in enumerate(value):
                yield b"," if index else b"["
                yield from self._value_pieces(part)
            yield b"]" if value else b"[]"
        else:
            yield _json(reply_to_json(value))


def encode_event(event: list[Any]) -> bytes:
    """An event of a feed, decoded from RESP, as a server-sent event."""
    kind = event[0]
    fields = dict(zip(FIELDS[kind], event[1:], strict=True))
    place = b"id: %b\n" % event_id(fields["ts"], fields["epoch"], fields["seen"]) if kind == b"checkpoint" else b""
    named = {"kind": kind.decode(), **{name: reply_to_json(value) for name, value in fields.items()}}
    return b"event: %b\n%bdata: %b\n\n" % (kind, place, _json(named))


def encode_error(error: str) -> bytes:
    """`CODE name=number` as an event; the end follows."""
    return _error_event(error_members(error))


def put_off(error: dict[str, Any], retry_after_s: int) -> bytes:
    """A whole stream that says why there is none now, and when a browser is to connect again."""
    return b"retry: %d\n\n" % (1000 * retry_after_s) + _error_event(error)


def _error_event(error: dict[str, Any]) -> bytes:
    return b"event: error\ndata: %b\n\n" % _json(error)


def error_members(error: str) -> dict[str, Any]:
    """`FEEDTOOOLD oldest=5` is `{"error": "FEEDTOOOLD", "oldest": 5}`."""
    code, _, rest = error.partition(" ")
    name, _, number = rest.partition("=")
    return {"error": code, name: int(number)} if number.isdecimal() else {"error": code, "message": rest}


def event_id(ts: int, epoch: int, seen: int) -> bytes:
    return b"%d-%d-%d" % (ts, epoch, seen)


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
