"""Streams without end, by ids, of a plain Redis: the position of a query is the id of the last entry that was read.

Redis cannot count a range of ids, nor say how many bytes it has, without reading it. So the driver reads a batch once
to find its end if the batch is bounded, and the tasks read it again. Nor does Redis tell what was trimmed: a loss goes
unnoticed.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql.datasource import InputPartition

from tidelog import limits
from tidelog.spark.endpoint import call, call_all
from tidelog.spark.source.batch_bounds import BatchBounds
from tidelog.spark.source.entry_range import NUMBER_MAX, id_text, parse_id, split_ids
from tidelog.spark.source.lag import NONE_WAITS, SourceLag
from tidelog.spark.source.stream.micro_batches import StreamMicroBatches, refuse_other, waiting_ms
from tidelog.spark.source.stream.planning import StreamPart

_NONE_READ: Final = "0-0"


class IdMicroBatches(StreamMicroBatches):
    """Reads a server that does not number its entries."""

    _counted: tuple[Any, Any, bool] = None, None, False
    """After which position, and up to where, was counted whether there is enough, and whether there was."""

    # --- where it is ----------------------------------------------------------------------------------------------

    def _earlier(self, newest: dict[str, Any], start: str) -> dict[str, Any]:
        before = 0 if start == "earliest" else max(parse_id("start", start, 0) - 1, 0)
        return dict.fromkeys(newest, id_text(before))

    def _is_anything_between(self, start: dict[str, Any], end: dict[str, Any]) -> bool:
        return any(_number(start[stream]) < _number(end[stream]) for stream in start)

    def _check_positions(self, positions: dict[str, Any]) -> None:
        refuse_other(positions, str)

    def _ask(self, client: Any) -> dict[str, str]:
        replies = call_all(client, [("XREVRANGE", stream, "+", "-", "COUNT", 1) for stream in self._streams])
        found = zip(self._streams, replies, strict=True)
        return {stream: reply[0][0].decode() for stream, reply in found if reply}

    # --- how much it takes ----------------------------------------------------------------------------------------

    def _end(self, start: dict[str, Any], bounds: BatchBounds) -> dict[str, Any]:
        newest = self._ahead(start, self._find_newest())
        end = {**start, **newest}
        rows, size_bytes = bounds.rows_max, bounds.bytes_max
        if rows is None and size_bytes is None:
            return end
        changed = [stream for stream in newest if newest[stream] != start.get(stream)]
        with self._server.connect() as client:
            for index, stream in enumerate(changed):
                left = len(changed) - index
                since = start.get(stream, _NONE_READ)
                rows_share = None if rows is None else -(-max(rows, 0) // left)
                bytes_share = None if size_bytes is None else -(-max(size_bytes, 0) // left)
                if rows_share == 0 or bytes_share == 0:
                    end[stream] = since  # its turn comes with another batch
                    continue
                end[stream], count, size = _reach(client, stream, since, newest[stream], rows_share, bytes_share)
                rows = None if rows is None else rows - count
                size_bytes = None if size_bytes is None else size_bytes - size
        return end

    def _ahead(self, start: dict[str, Any], newest: dict[str, Any]) -> dict[str, Any]:
        """Never backwards: a query may begin at a future id, and the last entry may be deleted."""
        return {stream: max(last, start.get(stream, last), key=_number) for stream, last in newest.items()}

    def _has_rows(self, position: Any, count: int) -> bool:
        newest = self._ahead(position, self._find_newest())
        if self._counted[:2] != (position, newest):
            found = 0
            with self._server.connect() as client:
                for stream, last in newest.items():
                    if found < count and last != position.get(stream):
                        since = position.get(stream, _NONE_READ)
                        found += _reach(client, stream, since, last, count - found, None)[1]
            self._counted = position, newest, found >= count
        return self._counted[2]

    def _lag_behind(self, reached: dict[str, Any], newest: dict[str, Any]) -> SourceLag:
        """How many rows wait cannot be told, but for how long."""
        behind = [stream for stream, last in newest.items() if _number(last) > _number(reached.get(stream, _NONE_READ))]
        if not behind:
            return NONE_WAITS
        behind = behind[: limits.SPARK_LAG_STREAMS_MAX]
        with self._server.connect() as client:
            commands = [("XRANGE", each, f"({reached.get(each, _NONE_READ)}", "+", "COUNT", 1) for each in behind]
            times = [_number(reply[0][0].decode()) >> 64 for reply in call_all(client, commands) if reply]
            return SourceLag(None, waiting_ms(client, min(times, default=None)))

    # --- what is read ---------------------------------------------------------------------------------------------

    def _parts(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        changed = [stream for stream in end if end[stream] != start.get(stream)]
        pieces = -(-(self._how.pieces_min or 1) // max(len(changed), 1))
        parts: list[InputPartition] = []
        for stream in changed:
            first = min(_number(start.get(stream, _NONE_READ)) + 1, NUMBER_MAX)
            last = _number(end[stream])
            if pieces > 1:
                parts += [StreamPart(stream, *cut, by_offset=False) for cut in split_ids(first, last, pieces)]
            else:
                parts.append(StreamPart(stream, first, last, by_offset=False))
        return parts


def _reach(
    client: Any, stream: str, since: str, until: str, rows_max: int | None, bytes_max: int | None
) -> tuple[str, int, int]:
    """The last id of a batch after an id, how many rows it has, and how many bytes."""
    rows = size = 0
    reached = since
    while True:
        page = limits.SPARK_PAGE_ROWS if rows_max is None else min(limits.SPARK_PAGE_ROWS, rows_max - rows)
        found = call(client, "XRANGE", stream, f"({reached}", until, "COUNT", page)
        for name, fields in found:
            its = sum(map(len, fields))
            if bytes_max is not None and rows and size + its > bytes_max:
                return reached, rows, size
            reached, rows, size = name.decode(), rows + 1, size + its
        if len(found) < page:
            return until, rows, size  # what is deleted at its end is passed over, too
        if rows == rows_max:
            return reached, rows, size


def _number(position: str) -> int:
    return parse_id("id", position, 0)
