"""Streams without end, by offsets: the position of a query is the offset of the next entry of each stream.

Offsets are dense, so how many rows there are between two positions is arithmetic. How many bytes there are is asked of
the server, which knows what each of its nodes takes.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pyspark.sql.datasource import InputPartition

from tidelog import limits
from tidelog.spark.endpoint import call_all
from tidelog.spark.source.batch_bounds import BatchBounds
from tidelog.spark.source.entry_range import parse_id
from tidelog.spark.source.lag import NONE_WAITS, SourceLag
from tidelog.spark.source.loss import raise_or_log
from tidelog.spark.source.stream.micro_batches import StreamMicroBatches, refuse_other, shares, waiting_ms
from tidelog.spark.source.stream.planning import OffsetRange, OffsetReach, offset_of_id, split_ranges
from tidelog.spark.source.stream.reading import find_loss, loss_question, read_offsets


class OffsetMicroBatches(StreamMicroBatches):
    """Reads a server that numbers its entries."""

    # --- where it is ----------------------------------------------------------------------------------------------

    def _earlier(self, newest: dict[str, Any], start: str) -> dict[str, Any]:
        if start.isdecimal():
            return dict.fromkeys(newest, max(int(start), 1))
        if start != "earliest":
            number = parse_id("start", start, 0)
            return {stream: offset_of_id(self._server, stream, number) for stream in newest}
        return self._first_offsets(newest)

    def _is_anything_between(self, start: dict[str, Any], end: dict[str, Any]) -> bool:
        return any(start[stream] < end[stream] for stream in start)

    def _check_positions(self, positions: dict[str, Any]) -> None:
        refuse_other(positions, int)

    def _first_offsets(self, streams: Collection[str]) -> dict[str, Any]:
        with self._server.connect() as client:
            replies = call_all(client, [("TREAD", stream, 1, 0, "WITHINFO") for stream in streams])
        return {stream: reply[0][0] for stream, reply in zip(streams, replies, strict=True)}

    def _ask(self, client: Any) -> dict[str, int]:
        replies = call_all(client, [("TREAD", stream, 1, 0, "WITHINFO") for stream in self._streams])
        ends = {stream: reply[0][1] + 1 for stream, reply in zip(self._streams, replies, strict=True)}
        # A stream without entries does not exist yet, and counts as new once it does.
        return {stream: end for stream, end in ends.items() if end > 1}

    # --- how much it takes ----------------------------------------------------------------------------------------

    def _end(self, start: dict[str, Any], bounds: BatchBounds) -> dict[str, Any]:
        newest = self._find_newest()
        begin = {stream: start.get(stream, 1) for stream in newest}
        end = {**start, **newest}
        if bounds.rows_max is None and bounds.bytes_max is None:
            return end
        available = self._available(begin, newest)
        if bounds.rows_max is not None and sum(available.values()) > bounds.rows_max:
            begin |= self._first_offsets([stream for stream in available if stream not in start])
            available = self._available(begin, newest)
            available = shares(available, bounds.rows_max)
            end |= {stream: begin[stream] + count for stream, count in available.items()}
        if bounds.bytes_max is not None:
            end |= self._within_bytes(begin, available, bounds.bytes_max)
        return end

    def _within_bytes(self, begin: dict[str, int], available: dict[str, int], size_bytes: int) -> dict[str, int]:
        """Where about so many bytes end, divided evenly among the streams that have something to read."""
        found: dict[str, int] = {}
        wanted = [stream for stream, count in sorted(available.items(), key=lambda item: item[1]) if count > 0]
        with OffsetReach(self._server) as reach:
            for index, stream in enumerate(wanted):
                share = max(-(-size_bytes // (len(wanted) - index)), 0)
                if not share and found:
                    found[stream] = begin[stream]  # its turn comes with another batch
                    continue
                last, taken = reach.of(stream, begin[stream], begin[stream] + available[stream] - 1, max(share, 1))
                found[stream] = last + 1
                size_bytes -= taken
        return found

    def _available(self, begin: dict[str, int], end: dict[str, int]) -> dict[str, int]:
        """How many entries each stream has between its offsets, of those that have any."""
        return {stream: end[stream] - begin[stream] for stream in begin if end[stream] > begin[stream]}

    def _has_rows(self, position: Any, count: int) -> bool:
        newest = self._find_newest()
        begin = {stream: position.get(stream, 1) for stream in newest}
        return sum(self._available(begin, newest).values()) >= count

    def _lag_behind(self, reached: dict[str, Any], newest: dict[str, Any]) -> SourceLag:
        rows = self._available({stream: reached.get(stream, 1) for stream in newest}, newest)
        if not rows:
            return NONE_WAITS
        most = sorted(rows, key=lambda stream: rows[stream], reverse=True)[: limits.SPARK_LAG_STREAMS_MAX]
        times = [self._ms_at(stream, newest[stream] - rows[stream]) for stream in most]
        with self._server.connect() as client:
            ms = waiting_ms(client, min((each for each in times if each is not None), default=None))
        return SourceLag(sum(rows.values()), ms)

    def _ms_at(self, stream: str, offset: int) -> int | None:
        """The time in the id of an entry; None: it is gone."""
        for entries in read_offsets(self._server, stream.encode(), offset, offset):
            if len(entries):
                ms: int = entries.ms[0].as_py()
                return ms
        return None

    # --- what is read ---------------------------------------------------------------------------------------------

    def _parts(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        changed = [stream for stream in end if end[stream] != start.get(stream, 1)]
        with self._server.connect() as client:
            replies = call_all(client, [loss_question(stream, start.get(stream, 1)) for stream in changed])
        ranges: list[OffsetRange] = []
        for stream, reply in zip(changed, replies, strict=True):
            first, last = start.get(stream, 1), end[stream] - 1
            loss = find_loss(stream, first, max(first - 1, last), reply) if stream in start else None
            if loss is not None:
                raise_or_log(loss, fail_on_loss=self._how.fail_on_loss)
            if loss is not None or stream not in start:
                first = max(first, reply[0][0]) if first <= last else reply[0][0]
            ranges.append(OffsetRange(stream, first, last))
        return [*split_ranges(ranges, self._how.partition_rows, self._how.pieces_min)]
