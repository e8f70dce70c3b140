"""A proxy for HTTP that loses replies: the request was done, and its client never hears of it.

Of each kind of request (its method) a part of the replies is lost, in one of two ways: the connection is cut instead,
or it stays open and nothing comes. What is lost is drawn from a seed, and counted.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from random import Random
from typing import Final

_SILENT_PART: Final = 0.1
"""Of the replies that are lost, those after which the connection stays open."""


class LosingProxy:
    """Runs in a thread of its own, from the beginning to the end of the block."""

    def __init__(self, target: int, seed: int, lost_part: float = 0.15) -> None:
        """`target`: the port of the gateway behind it."""
        self._target = target
        self._rng = Random(seed)
        self._lost_part = lost_part
        self.lost: Counter[str] = Counter()
        """By method."""
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._is_ready = threading.Event()
        self._stopped: asyncio.Event
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._run()))

    def __enter__(self) -> LosingProxy:
        self._thread.start()
        assert self._is_ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(10)
        self._loop.close()

    async def _run(self) -> None:
        self._stopped = asyncio.Event()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._is_ready.set()
        await self._stopped.wait()
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, to_there = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        fates: asyncio.Queue[str] = asyncio.Queue()
        sending = asyncio.create_task(self._hand_on(reader, to_there, fates))
        try:
            while data := await there.read(65536):
                fate = fates.get_nowait() if data.startswith(b"HTTP/1.1 ") and not fates.empty() else ""
                if fate:
                    self.lost[fate] += 1
                    if self._rng.random() < _SILENT_PART:
                        await asyncio.sleep(3600)
                    return
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            sending.cancel()
            to_there.close()
            writer.close()

    async def _hand_on(
        self, reader: asyncio.StreamReader, to_there: asyncio.StreamWriter, fates: asyncio.Queue[str]
    ) -> None:
        """Pass requests on, and decide what becomes of their replies: lost ones have the name of the method."""
        while data := await reader.read(65536):
            method = data.split(b" ", 1)[0].decode("latin-1")
            if method in ("GET", "PUT", "POST", "DELETE"):
                fates.put_nowait(method if self._rng.random() < self._lost_part else "")
            to_there.write(data)
        to_there.close()
