"""A feed without end, for `readStream`.

Spark keeps where it is in its checkpoint, as a dict of ours: for each shard the ts up to which it was read, and the
history that this ts is a place of, so that a server that came back with another one says so.

    {"0": {"ts": 1731700000000000, "epoch": 3, "seen": 1731700000000000}, "1": {...}}

All shards have the same ts, so that a transaction is in one batch. It moves only when something was written: a query
on a server where nothing happens makes no batches.

**The first batch** is special. Spark writes down where a batch ends, and takes where the first one begins from us, anew
after each restart: by then `latest` is another moment. So the end of the first batch has its beginning in it (`after`),
which counts if the batch is done again.

**start=initial** makes the first batch the values of now. Its end is a ts T from before they are read; each value is as
it was at the `ts` in its row, which is T or later; the next batch has what changed after T. What holds for a key and
field is the row with the highest `(ts, seq)`, and from the batch on whose end lies behind the values, that is exactly
what the server had there. It is not the same rows if the first batch is done again, for the values are newer then; what
holds for a key and field is, even for who has kept rows of the first attempt: whatever changed since T follows.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from tidelog import limits
from tidelog.errors import ClientError
from tidelog.feeds.span import Span
from tidelog.spark.endpoint import Endpoint, take_endpoint
from tidelog.spark.events import EventColumns
from tidelog.spark.feed_places import Position, ask_oldest, ask_position, explored_feed_server, spans_of
from tidelog.spark.feed_reading import FeedPart, read_feed
from tidelog.spark.following import rows_allowed
from tidelog.spark.options import BadOption, Options, moment_us

Offset = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class FeedOptions:
    """How a feed is followed."""

    start: str | int | dict[str, int]
    """earliest, latest, initial, a ts, or a place: where a query begins that has no checkpoint yet."""
    records_per_trigger: int | None


def make_follower(target: str, options: Options, schema: StructType) -> FeedFollower:
    server, spans, how = take_followed(target, options)
    columns = EventColumns(schema)
    return FeedFollower(explored_feed_server(server), spans, how, columns)


def take_followed(target: str, options: Options) -> tuple[Endpoint, tuple[Span, ...], FeedOptions]:
    """What is followed, and how; all options are known to be right."""
    spans = spans_of(target)
    how = FeedOptions(_start_of(options.text("start") or "earliest"), options.number("max_records_per_trigger", 1))
    server = take_endpoint(options)
    options.end("a feed that is followed")
    return server, spans, how


def _start_of(text: str) -> str | int | dict[str, int]:
    if text in ("earliest", "latest", "initial"):
        return text
    if not text.startswith("{"):
        return moment_us("start", text)
    try:
        place = json.loads(text)
        return {"ts": int(place["ts"]), "epoch": int(place["epoch"]), "seen": int(place.get("seen", place["ts"]))}
    except (ValueError, TypeError, KeyError):
        raise BadOption(f'start={text!r}: a place is {{"ts": 1731700000000000, "epoch": 3}}') from None


class PlaceFollower(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Knows where a feed is, over all shards, and which parts of it make a batch."""

    def __init__(self, server: Endpoint, spans: tuple[Span, ...], how: FeedOptions) -> None:
        self._server = server
        self._spans = spans
        self._how = how
        self._until: int | None = None
        """With the trigger `availableNow`, where it all ends."""
        self._asked: tuple[int, int | None] = (-1, None)
        """After which ts the position was asked for, and how many records ..."""
        self._asked_at = float("-inf")
        self._position = Position([], 0, 0, 0)
        """... and what it was."""

    # --- where it is ----------------------------------------------------------------------------------------------

    def initialOffset(self) -> Offset:
        start = self._how.start
        position = self._ask(0, None)
        place: dict[str, Any] = {"is_first": True}
        if start == "initial":
            place |= {"is_initial": True}
        elif start == "latest":
            place |= _place(position, position.visible)
        elif isinstance(start, dict):
            place |= start
        else:
            # Nobody has seen anything yet: whatever history the server has is the right one.
            place |= {"ts": start if isinstance(start, int) else ask_oldest(self._server, self._spans[0])}
        return {str(shard): dict(place) for shard in position.shards}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        is_initial, since = _is_initial(start), _ts(start)
        position = self._ask(since, None if is_initial else rows_allowed(limit))
        if position.shards != sorted(map(int, start)):
            raise ClientError(
                f"the checkpoint has {len(start)} shards, and {self._server.url} has {len(position.shards)}: it is "
                "another server, or was restored. Begin with a new checkpoint"
            )
        ts = position.place if self._until is None else min(position.place, self._until)
        if ts <= since:
            return start
        end = _offset(position, ts)
        for shard, place in end.items():
            if start[shard].get("is_first"):
                place["after"] = start[shard]
        return end

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._how.records_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        self._until = self._ask(0, None).visible

    def reportLatestOffset(self) -> Offset | None:
        position = self._ask(0, None)
        return _offset(position, position.visible)

    def _ask(self, since: int, records: int | None) -> Position:
        """Where the server stands, which is believed for a while: Spark asks every 10 ms."""
        now = time.monotonic()
        if self._asked != (since, records) or now - self._asked_at >= limits.SPARK_POLL_S:
            with self._server.connect() as client:
                self._position = ask_position(client, since, records)
            self._asked, self._asked_at = (since, records), now
        return self._position

    # --- what is read ---------------------------------------------------------------------------------------------

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        parts: list[InputPartition] = []
        for shard, place in end.items():
            first = start[shard]
            if first.get("is_first"):
                first = place.get("after", first)
            if first.get("is_initial"):
                parts.append(FeedPart(int(shard), 0, place["ts"], is_initial=True, until_epoch=place["epoch"]))
            elif first["ts"] < place["ts"]:
                part = FeedPart(int(shard), first["ts"], place["ts"], until_epoch=place["epoch"])
                part.epoch, part.seen = first.get("epoch"), first.get("seen")
                parts.append(part)
        return parts


class FeedFollower(PlaceFollower):
    """Follows what happens there."""

    def __init__(self, server: Endpoint, spans: tuple[Span, ...], how: FeedOptions, columns: EventColumns) -> None:
        super().__init__(server, spans, how)
        self._columns = columns

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, FeedPart)
        return read_feed(self._server, partition, self._spans, self._columns)


def _offset(position: Position, ts: int) -> Offset:
    return {str(shard): _place(position, ts) for shard in position.shards}


def _place(position: Position, ts: int) -> dict[str, Any]:
    return {"ts": ts, "epoch": position.epoch, "seen": ts}


def _ts(offset: Offset) -> int:
    """-1: before everything."""
    return min(int(place.get("ts", -1)) for place in offset.values())


def _is_initial(offset: Offset) -> bool:
    return any(place.get("is_initial") for place in offset.values())
