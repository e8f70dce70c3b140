"""All shards' feeds as one: whole transactions in order of `ts`.

A pass goes up to one `visible`, which is the end of a cycle over all shards: each transaction that has begun by then
has ended on every shard, so what a pass hands out is in order of `ts`, and its end is a checkpoint for all spans.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from heapq import heappop, heappush
from typing import NamedTuple

from tidelog.errors import TooOld
from tidelog.feeds.shard_feed import ShardFeed
from tidelog.feeds.span import Span
from tidelog.ids import ShardId, Ts
from tidelog.journal.durability import Visible
from tidelog.journal.journal import Journal
from tidelog.journal.reader import Part, Record, Wants
from tidelog.journal.segment import Position


class Moment(NamedTuple):
    """What the shards have of one transaction, as far as it may concern the spans."""

    ts: Ts
    parts: list[Part]


class Router:
    """A place in the history of some shards, usually all."""

    def __init__(
        self,
        journal: Journal,
        shards: Sequence[ShardId],
        since: Ts,
        spans: Sequence[Span],
        wants: Wants | None = None,
    ) -> None:
        if since < journal.erased_ts:
            raise TooOld(f"the journal no longer has what followed ts {since}", oldest=journal.erased_ts)
        self._journal = journal
        self._visible = journal.writer.visible
        """How far the pass that is under way goes."""
        self._ends: list[Position | None] = list(self._visible.ends)
        self._feeds: dict[ShardId, ShardFeed] = {}
        self._queues: dict[ShardId, deque[Part]] = {shard: deque() for shard in shards}
        """Parts that were read and not yet handed out ..."""
        self._heads: list[tuple[Ts, ShardId, Part]] = []
        """... and, as a heap, the first of each shard."""
        self._missing: set[ShardId] = set(shards)
        """Shards without a head, of which there may be more: what comes next of one may be older than the heads."""
        try:
            for shard in shards:
                end = partial(self._ends.__getitem__, shard)
                self._feeds[shard] = ShardFeed(journal, shard, since, end, spans, wants)
        except BaseException:
            self.close()
            raise

    @property
    def visible_ts(self) -> Ts:
        """The end of the pass that is under way."""
        return self._visible.ts

    @property
    def reached_ts(self) -> Ts:
        """Everything at or below it has been handed out, if somebody wants it."""
        places = [feed.reached_ts for shard, feed in self._feeds.items() if shard in self._missing]
        return Ts(min([*places, self._heads[0][0] - 1] if self._heads else [*places, self._visible.ts]))

    @property
    def bytes_read(self) -> int:
        return sum(feed.bytes_read for feed in self._feeds.values())

    @property
    def frames_skipped(self) -> int:
        return sum(feed.frames_skipped for feed in self._feeds.values())

    def records_behind(self, visible: Visible) -> int:
        """How many records are still to be read, those among them that will be passed over."""
        return sum(max(0, visible.lsns[shard] - feed.next_lsn) for shard, feed in self._feeds.items())

    def begin_pass(self) -> Visible:
        """Go on to what is visible now; returns it. Only after the pass before has ended."""
        self._visible = self._journal.writer.visible
        self._ends[:] = self._visible.ends
        self._missing |= {shard for shard in self._feeds if all(head[1] != shard for head in self._heads)}
        return self._visible

    def read(self) -> list[Moment] | None:
        """Some more transactions; None: the pass has ended. An empty list is no end."""
        try:
            return self._read()
        except TooOld as error:
            raise TooOld(str(error), oldest=self._journal.erased_ts) from error

    def _read(self) -> list[Moment] | None:
        if len(self._feeds) == 1:  # hot: with one shard, as is usual, there is nothing to merge
            (feed,) = self._feeds.values()
            found = feed.read()
            return None if found is None else [Moment(part.ts, [part]) for part in found]
        for shard in list(self._missing):
            if not self._fill(shard):
                return []
        moments: list[Moment] = []
        while self._heads and not self._missing:
            ts = self._heads[0][0]
            parts: list[Part] = []
            while self._heads and self._heads[0][0] == ts:
                _, shard, part = heappop(self._heads)
                parts.append(part)
                self._push(shard)
            moments.append(Moment(ts, parts))
        return moments if moments or self._missing else None

    def _fill(self, shard: ShardId) -> bool:
        """Get a head of a shard that has none; false: it takes longer."""
        found = self._feeds[shard].read()
        if found is None:
            self._missing.discard(shard)  # until the next pass
            return True
        if found:
            self._queues[shard].extend(found)
            self._missing.discard(shard)
            self._push(shard)
        return bool(found)

    def _push(self, shard: ShardId) -> None:
        queue = self._queues[shard]
        if queue:
            part = queue.popleft()
            heappush(self._heads, (part.ts, shard, part))
        else:
            self._missing.add(shard)

    def payload_of(self, part: Part, record: Record) -> bytes:
        return self._feeds[part.shard].payload_of(record)

    def close(self) -> None:
        for feed in self._feeds.values():
            feed.close()
