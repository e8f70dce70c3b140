"""The feeds of all shards as one: transactions in order of `ts`, large ones in pieces.

The end of a pass (`journal/passes.py`) is a checkpoint for all spans.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.feeds.shard_feed import ShardFeed
from tidelog.feeds.span import Span
from tidelog.feeds.whale import Whale
from tidelog.ids import ShardId, Ts
from tidelog.journal.passes import ShardPasses
from tidelog.journal.readable import ReadableJournal
from tidelog.journal.reader import Part, Record, Wants


class Router(ShardPasses[ShardFeed]):
    """A place in the history of some shards, usually all, of what may concern some spans."""

    def __init__(
        self,
        journal: ReadableJournal,
        shards: Sequence[ShardId],
        since: Ts,
        spans: Sequence[Span],
        wants: Wants | None = None,
    ) -> None:
        journal.refuse_erased(since)
        super().__init__(journal, shards, lambda shard, end: ShardFeed(journal, shard, since, end, spans, wants))

    @property
    def bytes_read(self) -> int:
        return sum(feed.bytes_read for feed in self._readers.values())

    @property
    def frames_skipped(self) -> int:
        return sum(feed.frames_skipped for feed in self._readers.values())

    def whale_of(self, part: Part, record: Record) -> Whale:
        """A record with the flag BLOB."""
        return Whale(self.blob_of(part, record))
