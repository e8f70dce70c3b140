"""Where in a shard's files an lsn or a ts is: bisection over segments and the heads of frames, up to some end."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from functools import partial

from tidelog.errors import TooOld
from tidelog.ids import Lsn, Ts
from tidelog.journal.frame import FrameHeader
from tidelog.journal.segment import Position
from tidelog.journal.source import ShardSource


class Places:
    """The frames of a shard that may be read."""

    def __init__(self, source: ShardSource, end: Callable[[], Position | None]) -> None:
        self._source = source
        self._end = end
        self._frame_bytes = source.geometry.frame_bytes

    def of_lsn(self, lsn: Lsn) -> Position | None:
        """The newest frame that begins before a record; None: there are no frames.

        Epochs have no lsn, and those that follow the record before it may lie there.
        """
        segments = self._source.segments()
        if not segments:
            return None
        if segments[0] > lsn:
            raise TooOld(f"lsn {lsn} of shard {self._source.shard} is no longer in the journal", oldest=segments[0])
        segment = segments[max(bisect_left(segments, lsn) - 1, 0)]
        found = bisect_left(range(self._frame_count(segment)), lsn, key=partial(self._lsn, segment)) - 1
        return Position(segment, max(found, 0) * self._frame_bytes)

    def of_ts(self, ts: Ts) -> Position | None:
        """The newest frame that begins at or before `ts`, or the first; None: there are no frames."""
        segments = [segment for segment in self._source.segments() if self._frame_count(segment)]
        if not segments:
            return None
        index = max(bisect_right(segments, ts, key=lambda first: self._header(first, 0).ts) - 1, 0)
        segment = segments[index]
        frames = range(self._frame_count(segment))
        found = bisect_right(frames, ts, key=lambda frame: self._header(segment, frame).ts) - 1
        return Position(segment, max(found, 0) * self._frame_bytes)

    def ts_after(self, ts: Ts, records: int) -> Ts | None:
        """A ts with about so many records between `ts` and it, a frame's more or less; None: there are not as many."""
        place = self.of_ts(ts)
        if place is None:
            return None
        lsn = self._lsn(place.segment, place.at // self._frame_bytes) + records
        segments = self._source.segments()
        for segment in segments[max(bisect_right(segments, lsn) - 1, 0) :]:
            frames = range(self._frame_count(segment))
            for frame in frames[bisect_left(frames, lsn, key=partial(self._lsn, segment)) :]:
                found = Ts(self._header(segment, frame).ts - 1)  # before what the frame begins with
                if found > ts:
                    return found
        return None

    def _frame_count(self, segment: Lsn) -> int:
        """Frames of a segment that have begun."""
        end = self._end()
        if end is None or end.segment < segment:
            return 0
        if end.segment > segment:
            return self._source.geometry.frames_per_segment
        return -(-end.at // self._frame_bytes)

    def _header(self, segment: Lsn, frame: int) -> FrameHeader:
        return self._source.frame_header(segment, frame * self._frame_bytes)

    def _lsn(self, segment: Lsn, frame: int) -> Lsn:
        return self._header(segment, frame).lsn
