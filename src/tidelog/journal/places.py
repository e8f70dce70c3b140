"""Where in a shard's files an lsn or a ts is: bisection over segments and the heads of frames, up to some end."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from functools import partial

from tidelog import limits
from tidelog.errors import Corruption, TooOld
from tidelog.ids import Lsn, Ts
from tidelog.journal.frame import CONTINUES, FrameHeader, records_end
from tidelog.journal.record import CONTROL, skim
from tidelog.journal.segment import FilePosition
from tidelog.journal.source import ShardSource


class Places:
    """The frames of a shard that may be read."""

    def __init__(self, source: ShardSource, end: Callable[[], FilePosition | None]) -> None:
        self._source = source
        self._end = end
        self._frame_bytes = source.geometry.frame_bytes

    def of_lsn(self, lsn: Lsn) -> FilePosition | None:
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
        return FilePosition(segment, max(found, 0) * self._frame_bytes)

    def of_record(self, lsn: Lsn) -> FilePosition | None:
        """Where a record begins; None: it cannot be found. It walks a frame."""
        found = self._find(lsn)
        return None if found is None else found[0]

    def ts_of(self, lsn: Lsn) -> Ts | None:
        """The ts of a record; None: the journal does not have it, or no more. It walks a frame."""
        segments = self._source.segments()
        if not segments or segments[0] > lsn:
            return None
        found = self._find(lsn)
        return None if found is None else found[1]

    def _find(self, lsn: Lsn) -> tuple[FilePosition, Ts] | None:
        place = self.of_lsn(Lsn(lsn + 1))
        if place is None:
            return None
        head = self._source.frame_header(*place)
        data = self._source.read(place.segment, place.at, place.at + records_end(head.flags, self._frame_bytes))
        next_lsn = head.lsn - bool(head.flags & CONTINUES)
        ts = head.ts
        for opcode, _, ts_relative, _, start, _, _, _ in skim(data, head.size, len(data)):
            if opcode < CONTROL:
                if ts_relative >= 0:
                    ts = Ts(head.ts + ts_relative)
                if next_lsn == lsn and lsn >= head.lsn:
                    return FilePosition(place.segment, place.at + start), ts
                next_lsn += 1
        return None

    def of_ts(self, ts: Ts) -> FilePosition | None:
        """The newest frame that begins at or before `ts`, or the first; None: there are no frames."""
        segments = [segment for segment in self._source.segments() if self._frame_count(segment)]
        if not segments:
            return None
        index = max(bisect_right(segments, ts, key=lambda first: self._header(first, 0).ts) - 1, 0)
        segment = segments[index]
        frames = range(self._frame_count(segment))
        found = bisect_right(frames, ts, key=lambda frame: self._header(segment, frame).ts) - 1
        return FilePosition(segment, max(found, 0) * self._frame_bytes)

    def ts_after(self, ts: Ts, records: int) -> Ts | None:
        """A ts with about so many records between `ts` and it, a frame's more or less; None: there are not as many.

        There are fewer between them if records are large: what is read of them is bounded, too. A record may have the
        changes of many commands that came together.
        """
        place = self.of_ts(ts)
        if place is None:
            return None
        first = place.at // self._frame_bytes
        lsn = self._lsn(place.segment, first) + records
        left = max(limits.FEED_PLACE_FRAMES_MIN, records * limits.FEED_PLACE_RECORD_BYTES // self._frame_bytes)
        segments = self._source.segments()
        for segment in segments[bisect_left(segments, place.segment) :]:
            frames = range(self._frame_count(segment))
            begin = bisect_left(frames, lsn, key=partial(self._lsn, segment))
            for frame in frames[max(first, min(begin, first + left)) :]:
                found = Ts(self._header(segment, frame).ts - 1)  # before what the frame begins with
                if found > ts:
                    return found
            left -= min(left, len(frames) - first)
            first = 0
        return None

    def first_ts(self) -> Ts | None:
        """At or below that of every record there is; None: there are no frames."""
        place = self.of_ts(Ts(0))
        return None if place is None else self._source.frame_header(*place).ts

    def lsn_after(self, ts: Ts, end_lsn: Lsn, end_ts: Ts) -> Lsn:
        """Of the first record after `ts`, where the last that may be read ends at these.

        Exact, however unevenly records came: the one frame that it lies in is walked up to there.
        """
        place = self.of_ts(ts)
        if place is None or ts >= end_ts:
            return end_lsn
        head = self._source.frame_header(place.segment, place.at)
        if head.ts > ts:
            return head.lsn  # the journal begins after it
        before = self._count_up_to(ts, place, head)
        return self._lsn_behind(place, end_lsn) if before is None else Lsn(head.lsn + before)

    def _lsn_behind(self, place: FilePosition, end_lsn: Lsn) -> Lsn:
        """Of the first record behind a frame."""
        frame = place.at // self._frame_bytes + 1
        if frame < self._frame_count(place.segment):
            return self._lsn(place.segment, frame)
        segments = self._source.segments()
        for segment in segments[bisect_right(segments, place.segment) :]:
            if self._frame_count(segment):
                return self._lsn(segment, 0)
        return end_lsn

    def _count_up_to(self, ts: Ts, place: FilePosition, head: FrameHeader) -> int | None:
        """How many records of a frame come before the first after `ts`; None: none of them does."""
        from tidelog.journal.record_runs import count_up_to  # it needs numpy, which takes long to import

        end, stop = self._end(), records_end(head.flags, self._frame_bytes)
        if end is not None and end.segment == place.segment:
            stop = min(stop, end.at - place.at)
        data = self._source.read(place.segment, place.at, place.at + stop)
        try:
            at = head.size
            if head.flags & CONTINUES:  # it began in the frame before, and counts there
                at = next(skim(data, at, len(data)))[-1]
            return count_up_to(data, at, len(data), ts - head.ts)
        except Corruption as error:
            raise self._source.located(error, place.segment, place.at) from None

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
