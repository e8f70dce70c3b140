"""The feeds of all shards as one: transactions in order of `ts`, large ones in pieces.

A pass goes up to one `visible`, which is the end of a cycle over all shards: each transaction that has begun by then
has ended on every shard, so a pass hands out transactions in order of `ts`, and its end is a checkpoint for all spans.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tidelog.errors import TooOld
from tidelog.feeds.shard_feed import ShardFeed
from tidelog.feeds.span import Span
from tidelog.feeds.whale import Whale
from tidelog.ids import ShardId, Ts
from tidelog.journal.durability import Visible
from tidelog.journal.journal import Journal
from tidelog.journal.merge import ShardMerge
from tidelog.journal.reader import Part, Record, Wants
from tidelog.journal.segment import FilePosition


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
        journal.refuse_erased(since)
        self._journal = journal
        self._visible = journal.writer.visible
        """How far the pass that is under way goes."""
        self._ends: list[FilePosition | None] = list(self._visible.ends)
        self._feeds: dict[ShardId, ShardFeed] = {}
        try:
            for shard in shards:
                end = partial(self._ends.__getitem__, shard)
                self._feeds[shard] = ShardFeed(journal, shard, since, end, spans, wants)
        except BaseException:
            self.close()
            raise
        self._merge = ShardMerge(self._feeds)

    @property
    def visible_ts(self) -> Ts:
        """The end of the pass that is under way."""
        return self._visible.ts

    @property
    def reached_ts(self) -> Ts:
        """Everything at or below it has been handed out, if somebody wants it."""
        merge = self._merge
        places = [feed.reached_ts for shard, feed in self._feeds.items() if shard in merge.missing]
        return Ts(min([*places, self._visible.ts if merge.next_ts is None else merge.next_ts - 1]))

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
        self._merge.begin_pass()
        return self._visible

    def read(self) -> list[Part] | None:
        """Some more of the transactions, as far as they may concern the spans; None: the pass has ended. An empty list
        is no end."""
        try:
            return self._merge.read()
        except TooOld as error:
            raise TooOld(str(error), oldest=self._journal.erased_ts) from error

    def whale_of(self, part: Part, record: Record) -> Whale:
        """A record with the flag BLOB."""
        return Whale(self._feeds[part.shard].blob_of(record))

    def close(self) -> None:
        for feed in self._feeds.values():
            feed.close()
