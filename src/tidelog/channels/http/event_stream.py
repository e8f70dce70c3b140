"""The messages of a subscriber as server-sent events, which a browser's `EventSource` reads.

    retry: 500

    data: {"messageID":"a1","content":{"text":"hello!"}}

    id: AQAAAAAAAAAC...
    data: {"messageID":"a2","content":2}

    : still here

Each message is one event. The last one of a fetch carries a handle as its id, so that a client that was cut off inside
acknowledges what came before, and gets the whole fetch again. When a browser connects again it sends the last id it
has seen (`Last-Event-ID`), and that acknowledges. Nothing else does: that a socket took some bytes does not mean that
anybody has read them.

So within a stream nothing moves; it reads on behind the last handle that it gave out. It ends, and the browser comes
back with its acknowledgement, some time after its first message, or after many of them. A client that wants longer
streams acknowledges the ids itself, as those who poll do. While a stream is open its subscriber does not expire.

A browser comes back from a stream that ended and from a connection that was refused, but never from an answer that says
no. So what passes by itself, such as a server that still loads its data, is told within a stream of its own, which ends
at once (`put_off`).

Content is put on one line: a line break in JSON text is a space, never a part of a string.
"""

from __future__ import annotations

import asyncio
from typing import Final

from tidelog import limits
from tidelog.channels.channels import Channels, FetchedMessages
from tidelog.channels.http.answer import Answer, answer_to, message_json
from tidelog.channels.http.call import HttpCall
from tidelog.channels.http.figures import ChannelFigures
from tidelog.channels.message import ChannelMessage
from tidelog.errors import ChannelError, EnvironmentFault

_ASKED_FOR: Final = b"text/event-stream"
_CONTENT_TYPE: Final = b"text/event-stream; charset=utf-8"
_BEGINNING: Final = b"retry: %d\n\n" % limits.CHANNEL_STREAM_RETRY_MS
_HEARTBEAT: Final = b": still here\n\n"
_LATER: Final = (429, 503)
_LATER_BEGINNING: Final = b"retry: %d\n\n" % (1000 * limits.CHANNEL_RETRY_AFTER_S)
_HEADERS: Final = (
    (b"content-type", _CONTENT_TYPE),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)
"""Nobody on the way is to keep events, or to hold them back."""
_KEPT_PART: Final = 3
"""A subscriber is kept alive so often within its expiry."""


class MessageStream:
    """One stream."""

    def __init__(self, channels: Channels, figures: ChannelFigures, call: HttpCall, messages_max: int) -> None:
        self._channels = channels
        self._figures = figures
        self._call = call
        self._channel, self._subscriber = call.names
        self._messages_max = messages_max
        self._found: FetchedMessages
        self._after: str | None = None
        """The last handle that was sent."""
        self._sent_count = 0
        self._ends_s = float("inf")
        """When it ends, so that the client acknowledges."""
        self._kept_each_s = call.expire_ms / 1000 / _KEPT_PART
        self._kept_s = _now_s()
        """When its subscriber was last kept alive."""

    async def begin(self) -> None:
        """Raises what is wrong before anything was sent."""
        self._found = await self._channels.fetch(self._channel, self._subscriber, messages_max=self._messages_max)

    async def run(self) -> bool:
        """Until it ends; always True."""
        call = self._call
        headers = [*_HEADERS, (b"x-request-id", call.request_id.encode("latin-1")), *call.more_headers]
        call.status = 200
        await call.send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send(_BEGINNING)
        try:
            await self._deliver_all()
        except (ChannelError, EnvironmentFault) as error:
            if not self._channels.wakes.is_stopped:
                await self._send(_error_event(answer_to(error)))
        await call.send({"type": "http.response.body", "body": b"", "more_body": False})
        return True

    async def _deliver_all(self) -> None:
        while True:
            await self._deliver(self._found)
            left_s = self._ends_s - _now_s()
            if self._channels.wakes.is_stopped or left_s <= 0:
                return
            if self._sent_count >= limits.CHANNEL_STREAM_UNACKNOWLEDGED_MAX:
                return
            await self._keep()
            self._found = await self._channels.fetch_when_there(
                self._channel,
                self._subscriber,
                messages_max=self._messages_max,
                timeout_s=min(left_s, limits.CHANNEL_STREAM_SILENT_S, self._kept_each_s),
                after=self._after,
            )
            if self._found.handle is None:
                await self._send(_HEARTBEAT)

    async def _deliver(self, found: FetchedMessages) -> None:
        if found.handle is None:
            return
        self._after = found.handle
        self._sent_count += len(found.messages)
        self._figures.delivered += len(found.messages)
        self._ends_s = min(self._ends_s, _now_s() + limits.CHANNEL_STREAM_UNACKNOWLEDGED_S)
        await self._send(events_of(found.messages, found.handle))

    async def _keep(self) -> None:
        """Let the subscriber live, if it is time; if it is gone, the next fetch says so."""
        now_s = _now_s()
        if now_s - self._kept_s >= self._kept_each_s:
            self._kept_s = now_s
            await self._channels.keep(self._channel, self._subscriber, expire_ms=self._call.expire_ms)

    async def _send(self, data: bytes) -> None:
        if len(data) <= limits.CHANNEL_BODY_LARGE_BYTES:
            await self._call.send({"type": "http.response.body", "body": data, "more_body": True})
            return
        self._call.hold(len(data))
        await self._call.send_large(data, is_whole=False)
        self._call.release()


def asks_for_stream(call: HttpCall) -> bool:
    return _ASKED_FOR in call.headers.get(b"accept", b"")


def put_off(answer: Answer) -> Answer:
    """For one who asks for a stream: an answer that says "later" becomes a stream that says so and ends."""
    if answer.status not in _LATER:
        return answer
    return Answer(200, _LATER_BEGINNING + _error_event(answer), _CONTENT_TYPE, answer.headers)


def _error_event(answer: Answer) -> bytes:
    return b"event: error\ndata: %b\n\n" % answer.body


def events_of(messages: list[ChannelMessage], handle: str) -> bytes:
    """The events of a fetch. Without a message there is only the id, which a browser notes all the same."""
    data = [b"data: %b\n\n" % _one_line(message_json(each)) for each in messages]
    noted = b"id: %b\n" % handle.encode()
    if not data:
        return noted + b"\n"
    return b"".join([*data[:-1], noted, data[-1]])


def _one_line(content: bytes) -> bytes:
    return content.replace(b"\r", b" ").replace(b"\n", b" ")


def _now_s() -> float:
    return asyncio.get_running_loop().time()
