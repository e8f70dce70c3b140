"""Streams without end, for `readStream`: what reading by offsets (`offset_batches`) and by ids (`id_batches`) share.

Spark keeps its position in its checkpoint, as a dict that this package makes:

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
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from tidelog import limits
from tidelog.errors import ClientError
from tidelog.spark.endpoint import Endpoint, call, explored, take_read_endpoint
from tidelog.spark.options import BadOption, Options
from tidelog.spark.source.batch_bounds import BatchBounds, take_bounds
from tidelog.spark.source.entry_range import id_text, number_at_us, parse_id
from tidelog.spark.source.key_names import is_pattern
from tidelog.spark.source.lag import NOT_KNOWN, SourceLag, report_of
from tidelog.spark.source.loss import take_fail_on_loss
from tidelog.spark.source.micro_batches import MicroBatchReader
from tidelog.spark.source.pieces import take_pieces_min
from tidelog.spark.source.stream.columns import EntryColumns
from tidelog.spark.source.stream.planning import StreamPart, list_streams
from tidelog.spark.source.stream.reading import read_part

FIRST: Final = "\0first"
"""A key of the offset dict: true in the beginning of the first batch, and in its end that beginning."""


@dataclass(frozen=True, slots=True)
class MicroBatchOptions:
    """How a stream is read without end."""

    start: str
    """Where a query without a checkpoint begins: earliest, latest, an offset or an id."""
    start_us: int | None
    """The moment that `start` is the id of."""
    bounds: BatchBounds
    fail_on_loss: bool
    partition_rows: int
    pieces_min: int | None
    """At least so many tasks, if there are as many rows."""


def take_micro_batch_options(options: Options) -> MicroBatchOptions:
    options.one_of("start", "startingTimestamp")
    start_us = options.starting_us()
    start = options.text("start") or "earliest"
    if start_us is not None:
        start = id_text(number_at_us(start_us))
    if start not in ("earliest", "latest") and not start.isdecimal():
        parse_id("start", start, 0)
    return MicroBatchOptions(
        start,
        start_us,
        take_bounds(options, older="max_rows_per_trigger"),
        take_fail_on_loss(options),
        options.number("partition_rows", 1) or limits.SPARK_PARTITION_ROWS,
        take_pieces_min(options),
    )


def stream_micro_batches(target: str, options: Options, schema: StructType) -> DataSourceStreamReader:
    how = take_micro_batch_options(options)
    server = take_read_endpoint(options)
    options.end("a stream that is read without end")
    columns = EntryColumns(schema)
    server = explored(server)
    if server.flight is not None:
        from tidelog.spark.source.stream.offset_batches import OffsetMicroBatches

        return OffsetMicroBatches(server, target, how, columns)
    if how.start.isdecimal():
        raise BadOption(f"start={how.start!r}: {server.url} has no Flight, and without it there are no offsets")
    from tidelog.spark.source.stream.id_batches import IdMicroBatches

    return IdMicroBatches(server, target, how, columns)


class StreamMicroBatches(MicroBatchReader):
    """What reading by offsets and reading by ids share."""

    def __init__(self, server: Endpoint, target: str, how: MicroBatchOptions, columns: EntryColumns) -> None:
        super().__init__(how.bounds)
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
        self._reached: dict[str, Any] | None = None
        """Where the newest batch ends; None: there was none yet."""
        self._lag = NOT_KNOWN
        self._lag_of: dict[str, Any] | None = None
        """Behind which positions the lag was asked for ..."""
        self._lag_asked_at = float("-inf")
        """... and when."""

    def initialOffset(self) -> dict[str, Any]:
        return {**self._beginning(), FIRST: True}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        positions = _streams_of(start)
        self._check_positions(positions)
        bounds = self._bounds.within(limit)
        has_any = self._end(positions, BatchBounds()) != positions
        end = self._end(positions, bounds) if has_any and not self._waits(positions, bounds) else positions
        self._reached = end
        if end == positions:
            return start
        return {**end, FIRST: positions} if start.get(FIRST) is True else end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        began = end.get(FIRST)
        if start.get(FIRST) is True and isinstance(began, dict):
            start = began
        first, last = _streams_of(start), _streams_of(end)
        self._check_positions(first)
        self._check_positions(last)
        return self._parts(first, last)

    def _beginning(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins."""
        newest = self._find_newest()
        found = dict(newest if self._how.start == "latest" else self._earlier(newest, self._how.start))
        if self._how.start_us is not None and not self._is_anything_between(found, newest):
            self._refuse_future(self._how.start_us)
        return found

    def _refuse_future(self, start_us: int) -> None:
        """A moment that is still to come is a mistake: until then, entries would be read that come before it."""
        with self._server.connect() as client:
            seconds, microseconds = map(int, call(client, "TIME"))
        if start_us > 1_000_000 * seconds + microseconds:
            raise BadOption(f"startingTimestamp={start_us} lies ahead of the server's clock: give start=latest")

    def _earlier(self, newest: dict[str, Any], start: str) -> dict[str, Any]:
        """The same for any `start` but `latest`."""
        raise NotImplementedError

    def _is_anything_between(self, start: dict[str, Any], end: dict[str, Any]) -> bool:
        raise NotImplementedError

    def _check_positions(self, positions: dict[str, Any]) -> None:
        """Refuse a checkpoint that counts in the other way."""
        raise NotImplementedError

    def _end(self, start: dict[str, Any], bounds: BatchBounds) -> dict[str, Any]:
        """Where a batch that begins at `start` ends."""
        raise NotImplementedError

    def _parts(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        raise NotImplementedError

    def prepareForTriggerAvailableNow(self) -> None:
        super().prepareForTriggerAvailableNow()
        self._until = self._ask_newest()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        newest, now_s = self._ask_newest(), time.monotonic()
        if self._lag_of != self._reached or now_s - self._lag_asked_at >= limits.SPARK_LAG_S:
            self._lag = NOT_KNOWN if self._reached is None else self._lag_behind(self._reached, newest)
            self._lag_of, self._lag_asked_at = self._reached, now_s
        return report_of(newest, self._lag)

    def _lag_behind(self, reached: dict[str, Any], newest: dict[str, Any]) -> SourceLag:
        """What waits behind these positions."""
        raise NotImplementedError

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, StreamPart)
        return read_part(self._server, partition, self._columns, fail_on_loss=self._how.fail_on_loss)

    def _find_newest(self) -> dict[str, Any]:
        """Where each stream ends, as far as it is to be read."""
        return self._ask_newest() if self._until is None else self._until

    def _ask_newest(self) -> dict[str, Any]:
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


def refuse_other(positions: dict[str, Any], kind: type) -> None:
    """Refuse a checkpoint that counts in the other way."""
    for stream, position in positions.items():
        if type(position) is not kind:
            was, now = ("ids", "offsets") if kind is int else ("offsets", "ids")
            raise ClientError(
                f"the checkpoint has {position!r} for stream {stream!r}: it counts {was}, but the server is now "
                f"read by {now}. Give the option flight, or begin with a new checkpoint"
            )


def waiting_ms(client: Any, oldest_ms: int | None) -> int | None:
    """For how long an entry with this time in its id has been there, by the server's clock."""
    if oldest_ms is None:
        return None
    seconds, microseconds = map(int, call(client, "TIME"))
    return max(1000 * seconds + microseconds // 1000 - oldest_ms, 0)


def shares(available: dict[str, int], most: int) -> dict[str, int]:
    """How many rows of each stream are read: as evenly as possible, and `most` in all if there are that many."""
    found: dict[str, int] = {}
    left = len(available)
    for stream, count in sorted(available.items(), key=lambda item: item[1]):
        found[stream] = min(count, -(-most // left))
        most -= found[stream]
        left -= 1
    return found
