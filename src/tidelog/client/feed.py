"""A feed as its reader sees it: one run of events, over any number of connections.

    connecting --events--> reading --connection lost, or closed in order--> waiting a little --> connecting
                              |
                              +-- UNTIL is reached: the end      an error that connecting again cannot heal: raised

It resumes at its last checkpoint and drops events that it has delivered already. The first connection is not tried
again, so that a wrong address is an error at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Final, NamedTuple, Self

from tidelog import limits
from tidelog.client.event import Checkpoint, Event
from tidelog.client.link import Link
from tidelog.client.patience import Patience
from tidelog.client.progress import Progress
from tidelog.client.request import FeedRequest
from tidelog.errors import ServerUnreachable

_LOG: Final = logging.getLogger("tidelog.client")


class Lost(NamedTuple):
    """A connection that was lost."""

    reason: str
    since: int | None
    """Where the feed will resume; None: at its beginning."""
    delay_s: float
    """When it tries to."""


class Feed(AsyncIterator[Event]):
    """An asynchronous iterator of events. Closing, dropping or cancelling it leaves no socket behind."""

    def __init__(self, connections: FeedConnections) -> None:
        self._progress = connections.progress
        # The generator must not know of this object: who drops the one then drops the other, which closes its link.
        self._events = connections.run()

    @property
    def checkpoint(self) -> Checkpoint | None:
        """Nothing at or below it will follow, in any of the spans: to keep, and to begin with the next time."""
        return self._progress.checkpoint

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        return await self._events.__anext__()

    async def aclose(self) -> None:
        await self._events.aclose()


class FeedConnections:
    """The connections of a feed, one after the other."""

    def __init__(
        self,
        make_link: Callable[[], Link],
        request: FeedRequest,
        *,
        reconnect_s_max: float | None = None,
        on_lost: Callable[[Lost], None] | None = None,
    ) -> None:
        self._make_link = make_link
        self._request = request
        self._on_lost = on_lost
        self.progress = Progress(request)
        self._patience = Patience(reconnect_s_max)
        """With connections that bring nothing."""
        self._checkpoint_s: float | None = None
        """When this connection brought the last one."""

    async def run(self) -> AsyncGenerator[Event, None]:
        progress = self.progress
        has_connected = False
        while True:
            link = self._make_link()
            self._checkpoint_s = None
            try:
                await self._open(link)
                has_connected = True
                for restart in progress.start_over():
                    yield restart
                while not progress.has_ended():
                    event = await link.read()
                    self._on_event(link, event)
                    if progress.take(event):
                        yield event
                return
            except ServerUnreachable as error:
                pause_s = self._patience.pause_s() if has_connected else None
                if pause_s is None:
                    raise
                reason = str(error)
            finally:
                await link.close()
            await self._wait(reason, pause_s)

    async def _open(self, link: Link) -> None:
        await link.connect()
        shards = await link.call("FEED", "POSITION")
        visible_ts, epoch = min((ts, epoch) for _, ts, epoch in shards)
        await link.send(self._request.command(self.progress.begin(visible_ts, epoch)))

    def _on_event(self, link: Link, event: Event) -> None:
        self._patience.reset()
        if isinstance(event, Checkpoint):
            # From here on they come regularly; before, a server may read much that we do not want.
            asked_ms, now_s = self._request.checkpoint_ms, asyncio.get_running_loop().time()
            between_s = None if asked_ms is None else asked_ms / 1000
            if between_s is None and self._checkpoint_s is not None:
                between_s = now_s - self._checkpoint_s  # as often as the server does
            self._checkpoint_s = now_s
            if between_s is not None:
                silent_s_max = limits.CLIENT_SILENT_S_MAX + 3 * between_s
                link.silent_s_max = max(silent_s_max, link.silent_s_max or 0.0)

    async def _wait(self, reason: str, pause_s: float) -> None:
        since = self.progress.since
        _LOG.info("feed lost: %s; resuming after ts %s in %.3f s", reason, since, pause_s)
        if self._on_lost is not None:
            self._on_lost(Lost(reason, since, pause_s))
        await asyncio.sleep(pause_s)
