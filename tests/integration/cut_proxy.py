"""A network that can be cut: proxies on ports of the loopback interface, each in front of one server.

Servers announce the ports of their proxies, so all of them, Sentinels and clients meet there. A proxy that is cut is a
machine whose network is gone: what was connected hears nothing any more, and nobody gets through. Nothing is closed,
because a real cut tells nobody either; what was on its way is lost when the network is mended.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Final

_READ_BYTES: Final = 65536
_READY_S_MAX: Final = 10.0
_LOOK_S: Final = 0.02


class CutProxy:
    """Runs in a thread of its own, from the beginning to the end of the block."""

    def __init__(self) -> None:
        self.target = 0
        """The port of the server behind it. Not in the constructor: a server is told the port of its proxy."""
        self.port = 0
        self._is_cut = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._is_ready = threading.Event()
        self._stopped: asyncio.Event
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._run()))

    def __enter__(self) -> CutProxy:
        self._thread.start()
        assert self._is_ready.wait(_READY_S_MAX)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(_READY_S_MAX)
        self._loop.close()

    def cut(self) -> None:
        """From now on nothing passes, in either direction."""
        self._is_cut = True

    def mend(self) -> None:
        """New connections get through. Those from before the cut are reset: their bytes are gone."""
        self._is_cut = False
        self._loop.call_soon_threadsafe(self._end_all)

    def _end_all(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _run(self) -> None:
        self._stopped = asyncio.Event()
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", 0))
        server = await asyncio.start_server(self._serve, sock=listening)
        self.port = listening.getsockname()[1]
        self._is_ready.set()
        await self._stopped.wait()
        server.close()
        self._end_all()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        ends = [writer]
        ways: list[asyncio.Task[None]] = []
        try:
            while self._is_cut:
                await asyncio.sleep(
                    _LOOK_S
                )  # it seems to be connected: on the loopback interface nothing prevents that
            there, to_there = await asyncio.open_connection("127.0.0.1", self.target)
            ends.append(to_there)
            ways = [asyncio.create_task(self._pass_on(*way)) for way in ((reader, to_there), (there, writer))]
            # Either end closes both: no program here goes on reading after it has sent its last byte.
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            for way in ways:
                way.cancel()
            for end in ends:
                end.transport.abort()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_READ_BYTES):
            while self._is_cut:
                await asyncio.sleep(_LOOK_S)
            writer.write(data)
            await writer.drain()
