"""The history of one shard after a ts, for some spans of keys: what every other feed is made of.

It reads frames from the ring if they are still there, from disk otherwise, and never past what is visible. A sealed
frame whose summary says that it holds no key of the spans is not read; of the others, `wants` says what is handed out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidelog.feeds.span import Span
from tidelog.ids import Lsn, ShardId, Ts
from tidelog.journal.blob import BlobPieces
from tidelog.journal.readable import ReadableJournal
from tidelog.journal.reader import Part, Record, ShardReader, Wants
from tidelog.journal.segment import FilePosition
from tidelog.journal.sidecar import FrameSummary


class ShardFeed:
    """A place in one shard's history."""

    def __init__(
        self,
        journal: ReadableJournal,
        shard: ShardId,
        since: Ts,
        end: Callable[[], FilePosition | None],
        spans: Sequence[Span],
        wants: Wants | None = None,
    ) -> None:
        self._journal = journal
        self._spans = spans
        self._shard = shard
        self._frame_bytes = journal.meta.geometry.frame_bytes
        self._summaries: dict[Lsn, Sequence[FrameSummary]] = {}
        """Of the segment that is being read."""
        self.bytes_read = 0
        """From files, those of sidecars among them."""
        self.frames_skipped = 0
        self._reader: ShardReader = journal.shard_reader(shard, end, self._count, wants)
        try:
            self._reader.seek_ts(since)
        except BaseException:
            self._reader.close()
            raise

    def _count(self, size: int) -> None:
        self.bytes_read += size

    def read(self) -> list[Part] | None:
        """The next parts of transactions that may concern the spans; None: nothing more is visible."""
        while (place := self._reader.next_sealed()) is not None:
            summary = self._summary(place.segment, place.at // self._frame_bytes)
            if summary is None or self._may_hold(summary):
                break
            self.frames_skipped += 1
            self._reader.skip_sealed(summary.end_lsn)
        return self._reader.read()

    def _may_hold(self, summary: FrameSummary) -> bool:
        for span in self._spans:
            held = summary.may_hold_key(span.start) if span.is_key else summary.may_hold_span(span.start, span.end)
            if held:
                return True
        return False

    def _summary(self, segment: Lsn, frame: int) -> FrameSummary | None:
        known = self._summaries.get(segment)
        if known is None or frame >= len(known):
            self._summaries.clear()  # those of other segments
            known = self._summaries[segment] = self._journal.summaries(self._shard, segment, self._count)
        return known[frame] if frame < len(known) else None

    @property
    def next_lsn(self) -> int:
        """Of the next record that is read, or about that."""
        return self._reader.next_lsn

    @property
    def reached_ts(self) -> int:
        """Everything of the shard at or below it has been read or passed over."""
        return self._reader.reached_ts

    def blob_of(self, record: Record) -> BlobPieces:
        return self._reader.blob_of(record)

    def close(self) -> None:
        self._reader.close()
