"""A backend at the other end of two connections that somebody else opens: one for calls, and one for wakes.

Calls of all requests share a connection: each is sent at once, and replies come in the order of the calls. That saves a
pool, its locks and most of the system calls, and is right here because no call waits inside the server. (One that is to
be confirmed by replicas does; those need `ServerBackend`.)

    call --> written behind those under way --> the reply of the oldest is the next that comes
    the connection is lost --> all under way are sent again on a new one, as every call may be

Connections are made when they are first needed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import hiredis

from tidelog import limits
from tidelog.channels.backend import Confirmation, ScannedKeys, ScanPlace, WakeLink, Word, script_commands
from tidelog.channels.scripts import LuaScript
from tidelog.errors import InternalError, ServerRefused, ServerUnreachable

OpenLink = Callable[[Callable[[], asyncio.Protocol]], Awaitable[asyncio.Protocol]]
"""Connects a protocol that the caller makes, and returns it; `ServerUnreachable` if there is no way (any more)."""

_NOSCRIPT: Final = "NOSCRIPT"


class LinkLost(Exception):
    """The connection was lost before the reply came."""


class PipelinedLink(asyncio.Protocol):
    """A connection for calls. Hot."""

    def __init__(self) -> None:
        self._reader: Any = hiredis.Reader()
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[asyncio.Future[Any]] = deque()
        """For the replies to come, in this order."""

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def send(self, words: Sequence[Word]) -> asyncio.Future[Any]:
        """The reply to a command, when it comes. An error reply is an exception among the results, not raised."""
        assert self._transport is not None
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append(reply)
        self._transport.write(hiredis.pack_command(tuple(words)))  # type: ignore[arg-type]  # it takes any number
        return reply

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's is none by its class

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not False:
            waiting = self._waiting.popleft() if self._waiting else None  # a server may say why it closes
            if waiting is not None and not waiting.done():  # else its caller has gone away
                waiting.set_result(reply)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_exception(LinkLost(str(exc or "closed")))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class PipelinedBackend:
    """Channels in a server that the caller connects."""

    def __init__(self, open_link: OpenLink, url: str) -> None:
        self.url = url
        self._open_link = open_link
        self._link: PipelinedLink | None = None
        self._opening = asyncio.Lock()
        self._turns = asyncio.Semaphore(limits.CHANNEL_CALLS_MAX)

    async def run(
        self, script: LuaScript, keys: Sequence[bytes], arguments: Sequence[Word], confirm: Confirmation | None = None
    ) -> Any:
        if confirm is not None:
            raise InternalError("a publish that waits for replicas would hold up all other calls of this backend")
        by_name, whole = script_commands(script, keys, arguments)
        reply = await self._reply(by_name)
        if isinstance(reply, hiredis.ReplyError) and str(reply).startswith(_NOSCRIPT):
            reply = await self._reply(whole)
        return self._checked(reply)

    async def call(self, *words: Word) -> Any:
        return self._checked(await self._reply(words))

    async def ask(self, commands: Sequence[Sequence[Word]]) -> list[Any]:
        return [self._checked(await self._reply(command)) for command in commands]

    async def scan(self, place: ScanPlace, pattern: bytes, count: int, _beside: bytes | None, /) -> ScannedKeys:
        cursor, keys = await self.call("SCAN", place.cursor, "MATCH", pattern, "COUNT", count)
        return ScannedKeys(keys, ScanPlace(0, int(cursor)) if int(cursor) else None)

    async def wake_link(self) -> WakeLink:
        return PushLink(self._open_link)

    async def aclose(self) -> None:
        if self._link is not None:
            self._link.close()

    async def _reply(self, words: Sequence[Word]) -> Any:
        """Hot."""
        async with self._turns:
            for attempt in range(limits.CHANNEL_ATTEMPTS_MORE + 1):
                link = self._link
                if link is None or not link.is_open:
                    link = await self._opened()
                try:
                    return await link.send(words)
                except LinkLost:
                    await asyncio.sleep(limits.CHANNEL_RETRY_S_MIN * attempt)
        raise ServerUnreachable(f"the connection to {self.url} was lost again and again")

    async def _opened(self) -> PipelinedLink:
        async with self._opening:
            if self._link is None or not self._link.is_open:
                made = await self._open_link(PipelinedLink)
                assert isinstance(made, PipelinedLink)
                self._link = made
            return self._link

    def _checked(self, reply: Any) -> Any:
        if isinstance(reply, hiredis.ReplyError):
            raise ServerRefused(f"{self.url} refused: {reply}")
        return reply


class PushLink(asyncio.Protocol):
    """A connection for pub/sub: whatever comes is read one by one."""

    def __init__(self, open_link: OpenLink) -> None:
        self._open_link = open_link
        self._reader: Any = hiredis.Reader()
        self._transport: asyncio.Transport | None = None
        self._came = asyncio.Event()
        self._is_lost = False

    async def connect(self) -> None:
        await self._open_link(lambda: self)

    async def disconnect(self, nowait: bool = False) -> None:  # noqa: ARG002  # as redis-py has it
        if self._transport is not None:
            self._transport.close()

    async def send_command(self, *words: Any, **_options: Any) -> None:
        if self._transport is None:
            raise ServerUnreachable("the connection for wakes was lost")
        self._transport.write(hiredis.pack_command(words))

    async def read_response(self, *, timeout: float, disconnect_on_error: bool) -> Any:  # noqa: ARG002
        """The next reply or message; None if none comes in time."""
        while (reply := self._reader.gets()) is False:
            if self._is_lost:
                raise ConnectionResetError("the connection for wakes was lost")
            self._came.clear()
            try:
                async with asyncio.timeout(timeout):
                    await self._came.wait()
            except TimeoutError:
                return None
        return reply

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's is none by its class

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        self._came.set()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._transport = None
        self._is_lost = True
        self._came.set()
