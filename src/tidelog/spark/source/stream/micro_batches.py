"""Streams without end, for `readStream`.

Spark keeps its position in its checkpoint, as a dict that this module makes:

    {"orders": 1234, "returns": 17}              the next offset of each stream
    {"orders": "1700000000000-5"}                on a server without Flight: the id of the last entry that was read

Both ends of a batch are written down before it runs, and the entries between them never change. So a batch that is
repeated has the same rows in the same tasks. A stream that is not in the dict is new, and begins with its first entry.

Spark does not write down where the first batch begins. It asks for that again after each restart, and by then `latest`
is another offset. So the end of the first batch records its beginning, under a name that no stream has (`FIRST`); this
counts if the batch is repeated.

Spark asks for the latest offset every 10 ms. For a while it is answered from memory.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from tidelog import limits
from tidelog.errors import ClientError
from tidelog.spark.endpoint import Endpoint, call, call_all, explored, take_read_endpoint
from tidelog.spark.options import BadOption, Options
from tidelog.spark.source.entry_range import NUMBER_MAX, id_text, parse_id
from tidelog.spark.source.key_names import is_pattern
from tidelog.spark.source.micro_batches import MicroBatchReader, rows_allowed
from tidelog.spark.source.stream.columns import EntryColumns
from tidelog.spark.source.stream.planning import StreamPart, list_streams, offset_of_id, split_offsets
from tidelog.spark.source.stream.reading import find_loss, loss_question, read_part

FIRST: Final = "\0first"
"""A key of the offset dict: true in the beginning of the first batch, and in its end that beginning."""


@dataclass(frozen=True, slots=True)
class MicroBatchOptions:
    """How a stream is read without end."""

    start: str
    """Where a query without a checkpoint begins: earliest, latest, an offset or an id."""
    rows_per_trigger: int | None
    fail_on_loss: bool
    partition_rows: int


def _take_options(options: Options) -> MicroBatchOptions:
    start = options.text("start") or "earliest"
    if start not in ("earliest", "latest") and not start.isdecimal():
        parse_id("start", start, 0)
    return MicroBatchOptions(
        start,
        options.number("max_rows_per_trigger", 1),
        options.flag("failOnDataLoss", True, older="fail_on_loss"),
        options.number("partition_rows", 1) or limits.SPARK_PARTITION_ROWS,
    )


def stream_micro_batches(target: str, options: Options, schema: StructType) -> DataSourceStreamReader:
    how = _take_options(options)
    server = take_read_endpoint(options)
    options.end("a stream that is read without end")
    columns = EntryColumns(schema)
    server = explored(server)
    if server.flight is not None:
        return OffsetMicroBatches(server, target, how, columns)
    if how.start.isdecimal():
        raise BadOption(f"start={how.start!r}: {server.url} has no Flight, and without it there are no offsets")
    return IdMicroBatches(server, target, how, columns)


class StreamMicroBatches(MicroBatchReader):
    """What reading by offsets and reading by ids share."""

    def __init__(self, server: Endpoint, target: str, how: MicroBatchOptions, columns: EntryColumns) -> None:
        super().__init__(how.rows_per_trigger)
        self._server = server
        self._target = target
        self._how = how
        self._columns = columns
        self._streams: list[str] = []
        self._listed_at = float("-inf")
        self._newest: dict[str, Any] = {}
        """Where each stream ends, as last asked."""
        self._asked_at = float("-inf")
        self._until: dict[str, Any] | None = None
        """With the trigger `availableNow`, where the last batch ends."""

    def initialOffset(self) -> dict[str, Any]:
        return {**self._beginning(), FIRST: True}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        positions = _streams_of(start)
        end = self._end(positions, limit)
        if end == positions:
            return start
        return {**end, FIRST: positions} if start.get(FIRST) is True else end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        began = end.get(FIRST)
        if start.get(FIRST) is True and isinstance(began, dict):
            start = began
        return self._parts(_streams_of(start), _streams_of(end))

    def _beginning(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins."""
        newest = self._find_newest()
        return dict(newest if self._how.start == "latest" else self._earlier(newest, self._how.start))

    def _earlier(self, newest: dict[str, Any], start: str) -> dict[str, Any]:
        """The same for any `start` but `latest`."""
        raise NotImplementedError

    def _end(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where a batch that begins at `start` ends."""
        raise NotImplementedError

    def _parts(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        raise NotImplementedError

    def prepareForTriggerAvailableNow(self) -> None:
        self._until = self._find_newest()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._find_newest()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, StreamPart)
        return read_part(self._server, partition, self._columns, fail_on_loss=self._how.fail_on_loss)

    def _find_newest(self) -> dict[str, Any]:
        """Where each stream ends."""
        if self._until is not None:
            return self._until
        now = time.monotonic()
        if now - self._asked_at >= limits.SPARK_POLL_S:
            with self._server.connect() as client:
                if now - self._listed_at >= limits.SPARK_SCAN_S or not is_pattern(self._target):
                    self._streams, self._listed_at = list_streams(client, self._target), now
                self._newest = self._ask(client)
            self._asked_at = now
        return self._newest

    def _ask(self, client: Any) -> dict[str, Any]:
        raise NotImplementedError


def _streams_of(offset: dict[str, Any]) -> dict[str, Any]:
    return {stream: position for stream, position in offset.items() if stream != FIRST}


def shares(available: dict[str, int], most: int) -> dict[str, int]:
    """How many rows of each stream are read: as evenly as possible, and `most` in all if there are that many."""
    found: dict[str, int] = {}
    left = len(available)
    for stream, count in sorted(available.items(), key=lambda item: item[1]):
        found[stream] = min(count, -(-most // left))
        most -= found[stream]
        left -= 1
    return found


class OffsetMicroBatches(StreamMicroBatches):
    """By offsets: the position is the offset of the next entry."""

    def _earlier(self, newest: dict[str, Any], start: str) -> dict[str, Any]:
        if start.isdecimal():
            return dict.fromkeys(newest, max(int(start), 1))
        if start != "earliest":
            number = parse_id("start", start, 0)
            return {stream: offset_of_id(self._server, stream, number) for stream in newest}
        return self._first_offsets(newest)

    def _end(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        _check_positions(start, int)
        newest = self._find_newest()
        most = rows_allowed(limit)
        begin = {stream: start.get(stream, 1) for stream in newest}
        end = {**start, **newest}
        if most is not None:
            available = {stream: end[stream] - begin[stream] for stream in newest if end[stream] > begin[stream]}
            if sum(available.values()) > most:
                begin |= self._first_offsets([stream for stream in available if stream not in start])
                available = {stream: max(end[stream] - begin[stream], 0) for stream in available}
                end |= {stream: begin[stream] + count for stream, count in shares(available, most).items()}
        return end

    def _first_offsets(self, streams: Collection[str]) -> dict[str, Any]:
        with self._server.connect() as client:
            replies = call_all(client, [("TREAD", stream, 1, 0, "WITHINFO") for stream in streams])
        return {stream: reply[0][0] for stream, reply in zip(streams, replies, strict=True)}

    def _ask(self, client: Any) -> dict[str, int]:
        replies = call_all(client, [("TREAD", stream, 1, 0, "WITHINFO") for stream in self._streams])
        ends = {stream: reply[0][1] + 1 for stream, reply in zip(self._streams, replies, strict=True)}
        # A stream without entries does not exist yet, and counts as new once it does.
        return {stream: end for stream, end in ends.items() if end > 1}

    def _parts(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        _check_positions(start, int)
        _check_positions(end, int)
        changed = [stream for stream in end if end[stream] != start.get(stream, 1)]
        with self._server.connect() as client:
            replies = call_all(client, [loss_question(stream, start.get(stream, 1)) for stream in changed])
        parts: list[InputPartition] = []
        for stream, reply in zip(changed, replies, strict=True):
            first, last = start.get(stream, 1), end[stream] - 1
            if stream in start and self._how.fail_on_loss:
                loss = find_loss(stream, first, max(first - 1, last), reply)
                if loss is not None:
                    raise loss
            else:
                first = max(first, reply[0][0]) if first <= last else reply[0][0]
            parts += split_offsets(stream, first, last, self._how.partition_rows)
        return parts


class IdMicroBatches(StreamMicroBatches):
    """By ids: the position is the id of the last entry that was read."""

    def _earlier(self, newest: dict[str, Any], start: str) -> dict[str, Any]:
        before = 0 if start == "earliest" else max(parse_id("start", start, 0) - 1, 0)
        return dict.fromkeys(newest, id_text(before))

    def _end(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        _check_positions(start, str)
        # Never backwards: a query may begin at a future id, and the last entry may be deleted.
        newest = {
            stream: max(last, start.get(stream, last), key=_number) for stream, last in self._find_newest().items()
        }
        most = rows_allowed(limit)
        end = {**start, **newest}
        if most is None:
            return end
        changed = [stream for stream in newest if newest[stream] != start.get(stream)]
        with self._server.connect() as client:
            for left, stream in enumerate(changed):
                share = -(-most // (len(changed) - left)) if most > 0 else 0
                since = start.get(stream, "0-0")
                # Redis cannot count a range without reading it.
                words = ("XRANGE", stream, f"({since}", newest[stream], "COUNT", share)
                found = call(client, *words) if share else []
                end[stream] = found[-1][0].decode() if found else since if not share else newest[stream]
                most -= len(found)
        return end

    def _ask(self, client: Any) -> dict[str, str]:
        replies = call_all(client, [("XREVRANGE", stream, "+", "-", "COUNT", 1) for stream in self._streams])
        found = zip(self._streams, replies, strict=True)
        return {stream: reply[0][0].decode() for stream, reply in found if reply}

    def _parts(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        _check_positions(start, str)
        _check_positions(end, str)
        return [
            StreamPart(stream, first, parse_id("id", end[stream], 0), by_offset=False)
            for stream in end
            if end[stream] != start.get(stream)
            and (first := min(parse_id("id", start.get(stream, "0-0"), 0) + 1, NUMBER_MAX)) > 0
        ]


def _check_positions(positions: dict[str, Any], kind: type) -> None:
    """Refuse a checkpoint that counts in the other way."""
    for stream, position in positions.items():
        if type(position) is not kind:
            was, now = ("ids", "offsets") if kind is int else ("offsets", "ids")
            raise ClientError(
                f"the checkpoint has {position!r} for stream {stream!r}: it counts {was}, but the server is now "
                f"read by {now}. Give the option flight, or begin with a new checkpoint"
            )


def _number(position: str) -> int:
    return parse_id("id", position, 0)
