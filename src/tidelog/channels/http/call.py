"""One request: what its headers, its query and its body say, each read when it is asked for.

Hot: a waiting client sends one every time it gets a message. So nothing is made of a request that its call does not
use, and its parts are not copied into objects of a framework.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl

from starlette.types import Receive, Scope, Send

from tidelog import limits
from tidelog.channels.http.answer import Answer, BodyEncoded
from tidelog.channels.http.body_room import BodyRoom
from tidelog.errors import BadChannelInput, MessageTooLarge

_BEARER: Final = "bearer"
_PLAIN: Final = b"identity"


class ClientGone(Exception):
    """The client closed the connection before its request was complete, or does not read: there is nobody to answer."""


class HttpCall:
    """A request under way."""

    __slots__ = (
        "_held_bytes",
        "_query",
        "_room",
        "expire_ms",
        "headers",
        "method",
        "more_headers",
        "names",
        "receive",
        "request_id",
        "scope",
        "send",
        "status",
    )

    def __init__(self, scope: Scope, receive: Receive, send: Send, room: BodyRoom) -> None:
        self.scope = scope
        self.receive = receive
        self.send = send
        self.method: str = scope["method"]
        self.headers: Mapping[bytes, bytes] = dict(scope["headers"])
        """In lower case; of a header that comes several times, the last."""
        self.names: tuple[str, ...] = ()
        """What stands in the path where its template has names."""
        self.expire_ms = 0
        """What the grant for the channel says."""
        self.request_id = ""
        self.more_headers: tuple[tuple[bytes, bytes], ...] = ()
        """For the answer, whichever it is."""
        self.status = 0
        """Of the answer, once it is sent or begun; 0: there is none."""
        self._query: dict[str, str] | None = None
        self._room = room
        self._held_bytes = 0
        """Of the room for large bodies."""

    @property
    def path(self) -> str:
        path: str = self.scope["path"]
        return path

    @property
    def client(self) -> str:
        """The address of the client, for the log."""
        client = self.scope.get("client")
        return "" if client is None else str(client[0])

    def header(self, name: bytes) -> str | None:
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    @property
    def bearer(self) -> str | None:
        """The token of `Authorization: Bearer <token>`."""
        value = self.headers.get(b"authorization")
        if value is None:
            return None
        kind, _, token = value.decode("latin-1").partition(" ")
        return token.strip() if kind.lower() == _BEARER else None

    def parameter(self, name: str) -> str | None:
        """A parameter of the query; if it comes several times, the first."""
        if self._query is None:
            self._query = _read_query(self.scope["query_string"])
        return self._query.get(name)

    def needed(self, name: str) -> str:
        """A parameter of the query that must be there."""
        value = self.parameter(name)
        if not value:
            raise BadChannelInput(f'the parameter "{name}" is missing')
        return value

    async def body(self, bytes_max: int) -> bytes:
        """The whole body; no more than the bound is ever held."""
        encoding = self.headers.get(b"content-encoding", _PLAIN)
        if encoding.lower() != _PLAIN:
            raise BodyEncoded("send the body as it is, without a Content-Encoding")
        announced = self.headers.get(b"content-length", b"")
        if announced.isdigit() and int(announced) > bytes_max:
            raise _too_large(bytes_max)
        pieces: list[bytes] = []
        size = 0
        while True:
            message: Any = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            piece = message.get("body", b"")
            size += len(piece)
            if size > bytes_max:
                raise _too_large(bytes_max)
            if size > limits.CHANNEL_BODY_LARGE_BYTES:
                self.hold(size)
            pieces.append(piece)
            if not message.get("more_body", False):
                return b"".join(pieces)

    # --- large bodies -----------------------------------------------------------------------------------------

    def hold(self, size_bytes: int) -> None:
        """Have room for a body of this size; `TooManyBytes` if there is none."""
        if size_bytes > self._held_bytes:
            self._room.take(size_bytes - self._held_bytes)
            self._held_bytes = size_bytes

    def release(self) -> None:
        """Nothing large is held any more."""
        if self._held_bytes:
            self._room.give_back(self._held_bytes)
            self._held_bytes = 0

    async def send_large(self, body: bytes, *, is_whole: bool) -> None:
        """Send a large body as the client takes it; return when little of it is left. `is_whole`: nothing follows.

        A client that does not take a piece of it for some time is cut off: `ClientGone`.
        """
        size = limits.CHANNEL_BODY_LARGE_BYTES
        for begin in range(0, len(body), size):
            await self._send_piece(body[begin : begin + size], has_more=True)
        await self._send_piece(b"", has_more=not is_whole)  # to send is to wait for what was sent before

    async def _send_piece(self, piece: bytes, *, has_more: bool) -> None:
        try:
            async with asyncio.timeout(limits.CHANNEL_TAKEN_S_MAX):
                await self.send({"type": "http.response.body", "body": piece, "more_body": has_more})
        except TimeoutError:
            cut = self.scope.get("state", {}).get("cut")  # `http_connection.py` offers it
            if cut is not None:
                cut()
                await asyncio.sleep(0)  # the server learns of it, and does not miss the end of the answer
            raise ClientGone from None


CallGate = Callable[[HttpCall], Awaitable[Answer | None]]
"""Returns the refusal of a request, or None if it may pass."""


def _too_large(bytes_max: int) -> MessageTooLarge:
    return MessageTooLarge(f"the body of this request has at most {bytes_max} bytes")


def _read_query(query: bytes) -> dict[str, str]:
    if not query:
        return {}
    text = query.decode("latin-1")
    try:
        pairs = parse_qsl(
            text, keep_blank_values=True, max_num_fields=limits.CHANNEL_QUERY_FIELDS_MAX, errors="replace"
        )
    except ValueError:
        raise BadChannelInput(f"a query has at most {limits.CHANNEL_QUERY_FIELDS_MAX} parameters") from None
    return dict(reversed(pairs))
