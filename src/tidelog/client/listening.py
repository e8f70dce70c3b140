"""A feed for code without an event loop: a function is called with each event, until the feed ends or it returns true.

Everything runs in the thread of the caller. So an exception of a signal handler (Ctrl-C) arrives wherever that thread
is, whether it waits for the next event or writes to a pipe. While the function runs, the feed reads nothing, and the
server waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from tidelog.address import ServerAddress
from tidelog.client.client import Client
from tidelog.client.event import Checkpoint, Event
from tidelog.client.feed import Lost
from tidelog.client.interruption import InterruptibleLoop
from tidelog.errors import ClientError, ServerUnreachable

_LOG: Final = logging.getLogger("tidelog.client")

Handle = Callable[[Event, Checkpoint | None], bool]
"""Gets an event, and the newest checkpoint over all spans; true: that is enough."""

Result = TypeVar("Result")


class _Watched:
    """A file descriptor that is read while a feed goes on. Its end, or an error, ends the feed."""

    def __init__(self, source: int | None, on_source: Callable[[], bool]) -> None:
        self._source = source
        self._on_source = on_source
        self._error: BaseException | None = None
        self._is_over = False

    @contextmanager
    def during(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        if self._source is None:
            yield
            return
        task = asyncio.current_task()
        assert task is not None
        try:
            loop.add_reader(self._source, self._read, task)
        except OSError as error:
            raise ClientError(f"file descriptor {self._source} is not a pipe or a socket: {error}") from None
        try:
            yield
        except asyncio.CancelledError:
            if self._error is not None:
                raise self._error from None
            if not self._is_over:
                raise
            task.uncancel()
        finally:
            loop.remove_reader(self._source)

    def _read(self, task: asyncio.Task[Any]) -> None:
        try:
            self._is_over = not self._on_source()
        except Exception as error:  # which the caller of `listen` gets
            self._error = error
        if self._is_over or self._error is not None:
            task.cancel()


class _Acknowledging:
    """Tells the server how far a named feed was handled."""

    def __init__(
        self, client: Client, name: str | None, database: int | None, handled_ts: Callable[[], int | None]
    ) -> None:
        self._client = client
        self._name = name
        self._database = database
        self._handled_ts = handled_ts
        self._told_ts = -1

    async def go_on(self) -> None:
        ts = self._handled_ts()
        if self._name is None or ts is None or ts <= self._told_ts:
            return
        try:
            await self._client.acknowledge(self._name, ts, database=self._database)
            self._told_ts = ts
        except ServerUnreachable as error:
            _LOG.info("ts %d of %s is acknowledged later: %s", ts, self._name, error)


class Listener:
    """A client and a loop of its own; `receiving.py` reads channels with it."""

    def __init__(self, url: str | ServerAddress) -> None:
        self.client = Client(url)
        self._loop = asyncio.new_event_loop()
        self.interruptible = InterruptibleLoop(self._loop)

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.run_through(self.client.aclose())
        finally:  # also if a signal came meanwhile
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The result of a call of the client, such as `client.positions()`. A signal ends it in order."""
        return self.interruptible.run(work)

    def newest_ts(self, on_lost: Callable[[Lost], None] = lambda _: None) -> int:
        """Up to where everything is visible that has happened. Several servers are waited for as a feed does."""
        return self.run_through(self._newest_ts(on_lost))

    async def _newest_ts(self, on_lost: Callable[[Lost], None]) -> int:
        patience = self.client.patience()
        while True:
            try:
                return min(each.ts for each in await self.client.positions())
            except ServerUnreachable as error:
                pause_s = patience.pause_s(error)
                if pause_s is None:
                    raise
                on_lost(Lost(str(error), None, pause_s, has_begun=False))
            await asyncio.sleep(pause_s)

    def listen(
        self,
        handle: Handle,
        *,
        handled_ts: Callable[[], int | None] = lambda: None,
        on_end: Callable[[bool], None] = lambda _: None,
        source: int | None = None,
        on_source: Callable[[], bool] = lambda: True,
        **wanted: Any,
    ) -> None:
        """Handle the events of `Client.feed(**wanted)`.

        handled_ts   for a named feed: the ts up to which it may be acknowledged; asked after each event
        on_end       called before the last acknowledgement, with whether the feed came to its end
        source       a file descriptor to read from meanwhile
        on_source    called when there is something to read from it; false: that is the end
        """
        watched = _Watched(source, on_source)
        self.run_through(self._listen(handle, handled_ts, on_end, watched, wanted))

    async def _listen(
        self,
        handle: Handle,
        handled_ts: Callable[[], int | None],
        on_end: Callable[[bool], None],
        watched: _Watched,
        wanted: dict[str, Any],
    ) -> None:
        name = wanted.get("name")
        feed = self.client.feed(**wanted)
        acknowledging = _Acknowledging(self.client, name, wanted.get("database"), handled_ts)
        is_at_end = False
        try:
            with watched.during(asyncio.get_running_loop()):
                async for event in feed:
                    is_enough = handle(event, feed.checkpoint)
                    await acknowledging.go_on()
                    if is_enough:
                        break
                is_at_end = True
        finally:
            try:
                on_end(is_at_end)
            finally:
                await acknowledging.go_on()
                await feed.aclose()

    def run_through(self, work: Coroutine[Any, Any, Result]) -> Result:
        """As `run`, but a signal is left to its handler, which may put it off."""
        task = self._loop.create_task(work)
        try:
            return self._loop.run_until_complete(task)
        finally:
            if not task.done():  # a signal came in the middle of it
                task.cancel()
                self._loop.run_until_complete(asyncio.wait([task]))
