"""A feed as its reader sees it: one run of events, over any number of connections.

    connecting --events--> reading --connection lost, or closed in order--> waiting a little --> connecting
                              |
                              +-- UNTIL is reached: the end      an error that connecting again cannot heal: raised

It resumes at its last checkpoint and drops events that it has delivered already. Of several servers, the first
connection is waited for as any later one; that of a single server is not tried again (`patience.py`).

With several servers, a connection is to the one that leads. A feed that will do with one that follows goes there if it
can, and to the leader if that one

- refuses it: it may not have come as far as the feed, or have less of the journal. Only the leader's word is final;
- does not come further: it may have lost its leader, and not know yet.
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
from tidelog.errors import ClientError, ServerUnreachable

_LOG: Final = logging.getLogger("tidelog.client")


class Lost(NamedTuple):
    """A connection that was lost, or that could not be made."""

    reason: str
    since: int | None
    """Where the feed will resume; None: at its beginning."""
    delay_s: float
    """When it tries to."""
    has_begun: bool = True
    """False: there has been no connection yet."""


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
        make_link: Callable[[bool], Link],
        request: FeedRequest,
        *,
        from_followers: bool = False,
        waits_at_start: bool = False,
        reconnect_s_max: float | None = None,
        on_lost: Callable[[Lost], None] | None = None,
    ) -> None:
        """`make_link` is told whether one that follows will do. `waits_at_start`: there are several servers."""
        self._make_link = make_link
        self._request = request
        self._from_followers = from_followers and request.name is None  # names are the leader's alone
        self._needs_leader = False
        """A follower could not go on."""
        self._on_lost = on_lost
        self.progress = Progress(request)
        self._patience = Patience(reconnect_s_max, at_start=waits_at_start)
        """With connections that bring nothing."""
        self._checkpoint_s: float | None = None
        """When this connection brought the last one."""
        self._further: tuple[int, float] | None = None
        """Its highest ts, and when it came."""

    async def run(self) -> AsyncGenerator[Event, None]:
        progress = self.progress
        while True:
            link = self._make_link(self._from_followers and not self._needs_leader)
            self._checkpoint_s = self._further = None
            try:
                await self._open(link)
                self._patience.reached()
                for restart in progress.start_over():
                    yield restart
                while not progress.has_ended():
                    event = await link.read()
                    self._on_event(link, event)
                    if progress.take(event):
                        yield event
                return
            except ServerUnreachable as error:
                pause_s = self._patience.pause_s(error)
                if pause_s is None:
                    raise
                reason = str(error)
            except ClientError as error:
                pause_s = None if link.is_leader else self._patience.pause_s(error)
                if pause_s is None:
                    raise
                reason = f"the follower at {link.place}: {error}"
                self._needs_leader = True
            finally:
                await link.close()
            await self._wait(reason, pause_s)

    async def _open(self, link: Link) -> None:
        await link.connect()
        shards = await link.call("FEED", "POSITION")
        visible_ts, epoch = min((ts, epoch) for _, ts, epoch in shards)
        if not link.is_leader and self.progress.is_ahead(visible_ts):
            self._needs_leader = True
            raise ServerUnreachable(f"the follower at {link.place} is behind what was delivered")
        await link.send(self._request.command(self.progress.begin(visible_ts, epoch)))

    def _on_event(self, link: Link, event: Event) -> None:
        self._patience.reset()
        if link.is_leader:
            self._needs_leader = False  # the next time, a follower will do again
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
            self._check_further(link, event.ts, now_s)

    def _check_further(self, link: Link, ts: int, now_s: float) -> None:
        """A leader always comes further: its clock does. One that follows may have been cut off from it."""
        if self._further is None or ts > self._further[0]:
            self._further = ts, now_s
        elif not link.is_leader and link.silent_s_max is not None and now_s - self._further[1] > link.silent_s_max:
            self._needs_leader = True
            raise ServerUnreachable(f"the follower at {link.place} has not come further for {link.silent_s_max:g} s")

    async def _wait(self, reason: str, pause_s: float) -> None:
        since, has_begun = self.progress.since, self._patience.has_reached
        if has_begun:
            _LOG.info("feed lost: %s; resuming after ts %s in %.3f s", reason, since, pause_s)
        else:
            _LOG.info("feed waits for a server: %s; trying again in %.3f s", reason, pause_s)
        if self._on_lost is not None:
            self._on_lost(Lost(reason, since, pause_s, has_begun))
        await asyncio.sleep(pause_s)
