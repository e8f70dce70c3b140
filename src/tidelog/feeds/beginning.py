"""Where feeds begin: now, after a ts, where the reader of a name has come to, or with the values of now.

A client that comes back says in which epoch it has seen what. If some of that was lost, it is told so instead of being
given a history with a hole. It is told the same if its SINCE promised that nothing more comes up to there, and the
epoch that followed has begun before: what happened since may lie at or below it.

A follower that has not got what a client has seen elsewhere cannot know whether it was lost. It says so, and the client
asks again, or asks another server.
"""

from __future__ import annotations

import contextlib

from tidelog.errors import ClientError, FeedBehind, FeedDiverged
from tidelog.feeds.feed import ChangeFeedRequest
from tidelog.feeds.holds import FeedHolds
from tidelog.ids import U64_MAX, Ts
from tidelog.journal.control import Epoch
from tidelog.ports import Clock
from tidelog.store.store import Store


class Beginnings:
    """The places in one journal from which feeds go on."""

    def __init__(self, store: Store, clock: Clock, holds: FeedHolds) -> None:
        self._store = store
        self._journal = store.journal
        self._clock = clock
        self._holds = holds
        self._first_ts: dict[Ts, Ts] = {}
        """Where an epoch ended -> the first ts after it, if somebody came from there."""

    def of(self, request: ChangeFeedRequest) -> Ts:
        """The ts after which a feed begins."""
        writer = self._journal.writer
        if request.is_initial:
            return writer.last_ts  # all up to here is in what will be read, a flush as well
        since, epoch, seen = request.since, request.epoch, request.seen
        if request.name is not None and since is None:
            named = self._holds.get(request.database, request.name)
            since = named.ts
            if named.epoch:
                epoch, seen = named.epoch, named.seen
        if since is None:
            return writer.last_ts
        now = max(self._journal.hlc.last, self._clock.wall_us())
        if epoch is not None and seen is not None:
            self._refuse_diverged(since, epoch, seen, now)
        if since > now:
            raise ClientError(f"SINCE {since} lies ahead of the clock here")
        self._journal.refuse_erased(since)
        return since

    def _refuse_diverged(self, since: Ts, epoch: int, seen: Ts, now: int) -> None:
        """`FeedDiverged` unless what a client has seen, and was promised, in an epoch is still so."""
        after = self._epoch_after(epoch)
        if after is None:
            if self._store.is_follower and seen > self._journal.writer.visible.ts:
                raise FeedBehind(f"ts {seen} has not come here yet")
            return
        end = after.last_ts
        if seen > end:
            raise FeedDiverged("history after that was lost", since=end)
        if since > end and (since > now or self._first_ts_of(after) <= since):
            raise FeedDiverged(f"the epoch after it goes back behind {since}", since=end)

    def _epoch_after(self, epoch: int) -> Epoch | None:
        """The one that followed; None: it is the newest."""
        epochs = self._journal.epochs
        for index, known in enumerate(epochs):
            if known.id == epoch:
                return epochs[index + 1] if index + 1 < len(epochs) else None
        if self._store.is_follower:
            raise FeedBehind(f"epoch {epoch} has not come here yet")
        raise FeedDiverged(f"epoch {epoch} is not one of this history", since=Ts(0))

    def _first_ts_of(self, epoch: Epoch) -> Ts:
        """The first ts of what happened in an epoch or after it, or a lower one above the end of the epoch before."""
        if epoch.first_ts:
            return epoch.first_ts
        end = epoch.last_ts  # of an earlier version: the journal says it, as long as it has it
        if end not in self._first_ts and self._journal.erased_ts <= end < self._journal.writer.visible.ts:
            with contextlib.closing(self._journal.reader_since(end)) as reader:
                first = next(reader.read(), None)
            if first is not None:
                self._first_ts[end] = first.ts
        return self._first_ts.get(end, Ts(U64_MAX))
