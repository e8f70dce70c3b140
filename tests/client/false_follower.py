"""A server that says it follows, and answers CHANGEFEED with what it is told to: what a real one does rarely. And one
that leads, and is not there yet when it is asked for a feed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import hiredis

from tidelog.types.change import bulk, number


def checkpoint(ts: int, epoch: int) -> bytes:
    return b"*6\r\n" + bulk(b"checkpoint") + number(ts) + bulk(b"") * 2 + number(epoch) + number(ts)


class FalseFollower:
    """`async with` opens it."""

    def __init__(self, visible_ts: int, epoch: int, feed: Callable[[], bytes | None], each_s: float = 0.02) -> None:
        """`feed`: what comes next of a feed, every so often; None: it is cut off."""
        self._position = b"*1\r\n*3\r\n" + number(0) + number(visible_ts) + number(epoch)
        self._feed = feed
        self._each_s = each_s
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[Any]] = set()
        self.port = 0
        self.feeds: list[list[bytes]] = []
        """The commands that began one."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        commands: Any = hiredis.Reader()
        try:
            while data := await reader.read(1 << 16):
                commands.feed(data)
                while (words := commands.gets()) is not False:
                    if words[0] == b"CHANGEFEED":
                        self.feeds.append(words)
                        await self._send_feed(writer)
                        return
                    reply = self._reply(words)
                    if reply is None:
                        return
                    writer.write(reply)
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            self._connections.discard(task)

    def _reply(self, words: list[bytes]) -> bytes | None:
        """None: it hangs up."""
        match words[0]:
            case b"ROLE":
                return b"*5\r\n" + bulk(b"slave") + bulk(b"h") + number(1) + bulk(b"connected") + number(0)
            case b"DBSIZE":
                return number(0)
            case b"FEED":
                return self._position
        return b"+OK\r\n"

    async def _send_feed(self, writer: asyncio.StreamWriter) -> None:
        while (piece := self._feed()) is not None:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(self._each_s)


class FalseLeader(FalseFollower):
    """It leads, and hangs up or cannot answer the first times that it is asked how far it is."""

    refusals = 3

    def __init__(self) -> None:
        super().__init__(5, 7, lambda: checkpoint(6, 7))
        self._asked = 0

    def _reply(self, words: list[bytes]) -> bytes | None:
        if words[0] == b"ROLE":
            return b"*3\r\n" + bulk(b"master") + number(5) + b"*0\r\n"
        if words[0] == b"FEED":
            self._asked += 1
            if self._asked <= self.refusals:
                return None if self._asked % 2 else b"-LOADING not yet\r\n"
        return super()._reply(words)
