"""Where feeds begin: now, after a ts, where the reader of a name has come to, or with the values of now.

A client that comes back says in which epoch it has seen what: if some of that was lost, it is told so instead of being
given a history with a hole.
"""

from __future__ import annotations

import contextlib

from tidelog.errors import ClientError, FeedDiverged
from tidelog.feeds.feed import ChangeFeedRequest
from tidelog.feeds.holds import FeedHolds
from tidelog.ids import U64_MAX, Ts
from tidelog.journal.journal import Journal
from tidelog.ports import Clock


class Beginnings:
    """The places in one journal from which feeds go on."""

    def __init__(self, journal: Journal, clock: Clock, holds: FeedHolds) -> None:
        self._journal = journal
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
            end = self._end_of_epoch(epoch, seen)
            if self._journal.erased_ts <= end < since and (since > now or self._first_after(end) <= since):
                since = end
        if since > now:
            raise ClientError(f"SINCE {since} lies ahead of the clock here")
        self._journal.refuse_erased(since)
        return since

    def _end_of_epoch(self, epoch: int, seen: Ts) -> Ts:
        """The last ts of an epoch, if what a client has seen in it is still history."""
        epochs = self._journal.epochs
        for index, known in enumerate(epochs):
            if known.id == epoch:
                if index + 1 == len(epochs):
                    return Ts(U64_MAX)
                if seen > epochs[index + 1].last_ts:
                    raise FeedDiverged("history after that was lost", since=epochs[index + 1].last_ts)
                return epochs[index + 1].last_ts
        raise FeedDiverged(f"epoch {epoch} is not one of this history", since=Ts(0))

    def _first_after(self, end: Ts) -> Ts:
        """The first ts of what followed an epoch that ended at this.

        A client may have a checkpoint after that: where a backup was restored, the clock can be behind the one that it
        had before. Then the client has to begin at the end of what it shares with us.
        """
        if end not in self._first_ts and self._journal.writer.visible.ts > end:
            with contextlib.closing(self._journal.reader_since(end)) as reader:
                first = next(reader.read(), None)
            if first is not None:
                self._first_ts[end] = first.ts
        return self._first_ts.get(end, Ts(U64_MAX))
