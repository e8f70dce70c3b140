"""A feed for code without an event loop: a function is called with each event, until the feed ends or it returns true.

Everything runs in the thread of the caller. So an exception of a signal handler (Ctrl-C) arrives wherever that thread
is, whether it waits for the next event or writes to a pipe. While the function runs, the feed reads nothing, and the
server waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from tidelog.address import ServerAddress
from tidelog.client.client import Client
from tidelog.client.event import Checkpoint, Event
from tidelog.errors import ServerUnreachable

_LOG: Final = logging.getLogger("tidelog.client")

Handle = Callable[[Event, Checkpoint | None], bool]
"""Gets an event, and the newest checkpoint over all spans; true: that is enough."""

Result = TypeVar("Result")


class Listener:
    """A client and a loop of its own."""

    def __init__(self, url: str | ServerAddress) -> None:
        self.client = Client(url)
        self._loop = asyncio.new_event_loop()

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self.client.aclose())
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def newest_ts(self) -> int:
        """Up to where everything is visible that has happened."""
        return min(each.ts for each in self._run(self.client.positions()))

    def listen(self, handle: Handle, **wanted: Any) -> None:
        """Handle the events of `Client.feed(**wanted)`. With a name, checkpoints are acknowledged once handled."""
        self._run(self._listen(handle, wanted))

    async def _listen(self, handle: Handle, wanted: dict[str, Any]) -> None:
        name = wanted.get("name")
        feed = self.client.feed(**wanted)
        acknowledged = None
        try:
            async for event in feed:
                is_enough = handle(event, feed.checkpoint)
                if name is not None and feed.checkpoint is not None and feed.checkpoint is not acknowledged:
                    acknowledged = feed.checkpoint
                    await self._acknowledge(name, acknowledged.ts)
                if is_enough:
                    break
        finally:
            await feed.aclose()

    async def _acknowledge(self, name: str, ts: int) -> None:
        try:
            await self.client.acknowledge(name, ts)
        except ServerUnreachable as error:
            _LOG.info("ts %d of %s is acknowledged with the next checkpoint: %s", ts, name, error)

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        task = self._loop.create_task(work)
        try:
            return self._loop.run_until_complete(task)
        finally:
            if not task.done():  # a signal came in the middle of it
                task.cancel()
                self._loop.run_until_complete(asyncio.wait([task]))
