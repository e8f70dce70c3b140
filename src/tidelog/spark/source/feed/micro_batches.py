"""Feeds without end, for `readStream`.

Spark keeps its position in its checkpoint, as a dict that this module makes: for each shard the ts up to which it was
read, and the history that this ts belongs to. So a server that came back with another history notices it.

    {"0": {"ts": 1731700000000000, "epoch": 3, "seen": 1731700000000000}, "1": {...}}

All shards have the same ts, so a transaction is always in one batch. The ts moves only when something was written: on
an idle server, a query makes no batches.

**The first batch** is special. Spark writes down where a batch ends, but asks this module again after each restart
where the first one begins, and by then `latest` is another moment. So the end of the first batch records its beginning
(`after`), which counts if the batch is repeated.

**start=initial** makes the first batch the values of now. Its end is a ts T from before they are read. Each value is as
it was at the `ts` in its row, which is T or later; the next batch has the changes after T. The current state of a key
and field is the row with the highest `(ts, seq)`. Once a batch ends after the newest of the values, this is exactly
what the server had there. If the first batch is repeated, its rows are newer ones. The current state still comes out
right, even for a reader that kept rows of the first attempt, because all changes since T follow.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from tidelog.errors import ClientError
from tidelog.feeds.span import Span
from tidelog.spark.options import BadOption, Options, moment_us
from tidelog.spark.source.feed.columns import EventColumns
from tidelog.spark.source.feed.origin import FeedOrigin, take_origin
from tidelog.spark.source.feed.position import FeedPosition
from tidelog.spark.source.feed.reading import FeedPart
from tidelog.spark.source.feed.spans import spans_of
from tidelog.spark.source.micro_batches import MicroBatchReader, rows_allowed

FeedOffset = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class FeedOptions:
    """How a feed is read without end."""

    start: str | int | dict[str, int]
    """Where a query without a checkpoint begins: earliest, latest, initial, a ts, or a point of some history."""
    records_per_trigger: int | None


def feed_micro_batches(target: str, options: Options, schema: StructType) -> EventMicroBatches:
    origin, spans, how = take_feed(target, options)
    columns = EventColumns(schema)
    return EventMicroBatches(origin.explored(), spans, how, columns)


def take_feed(target: str, options: Options) -> tuple[FeedOrigin, tuple[Span, ...], FeedOptions]:
    """The server or the copy, the keys, and how they are read; all options have been checked."""
    spans = spans_of(target)
    how = FeedOptions(_start_of(options.text("start") or "earliest"), options.number("max_records_per_trigger", 1))
    origin = take_origin(options)
    options.end("a feed that is read without end")
    return origin, spans, how


def _start_of(text: str) -> str | int | dict[str, int]:
    if text in ("earliest", "latest", "initial"):
        return text
    if not text.startswith("{"):
        return moment_us("start", text)
    try:
        place = json.loads(text)
        return {"ts": int(place["ts"]), "epoch": int(place["epoch"]), "seen": int(place.get("seen", place["ts"]))}
    except (ValueError, TypeError, KeyError):
        raise BadOption(f'start={text!r}: give a ts, an ISO time, or {{"ts": 1731700000000000, "epoch": 3}}') from None


class FeedMicroBatches(MicroBatchReader):
    """Decides where batches begin and end, over all shards, and which parts make a batch."""

    def __init__(self, origin: FeedOrigin, spans: tuple[Span, ...], how: FeedOptions) -> None:
        super().__init__(how.records_per_trigger)
        self._origin = origin
        self._spans = spans
        self._how = how
        self._until: int | None = None
        """With the trigger `availableNow`, where the last batch ends."""
        self._asked: tuple[int, int | None] = (-1, None)
        """After which ts the position was asked for, and how many records ..."""
        self._asked_at = float("-inf")
        self._position = FeedPosition([], 0, 0, 0)
        """... and what it was."""

    # --- where it is ----------------------------------------------------------------------------------------------

    def initialOffset(self) -> FeedOffset:
        start = self._how.start
        position = self._ask(0, None)
        place: dict[str, Any] = {"is_first": True}
        begin = start["ts"] if isinstance(start, dict) else start
        if isinstance(begin, int):
            self._origin.refuse_future("start", begin)
        if start == "initial":
            place |= {"is_initial": True}
        elif start == "latest":
            place |= _place(position, position.visible)
        elif isinstance(start, dict):
            place |= start
        else:
            # Nothing was read yet, so any history that the server has is the right one.
            place |= {"ts": start if isinstance(start, int) else self._origin.oldest(self._spans[0])}
        return {str(shard): dict(place) for shard in position.shards}

    def latestOffset(self, start: FeedOffset, limit: ReadLimit) -> FeedOffset:
        is_initial, since = _is_initial(start), _ts(start)
        position = self._ask(since, None if is_initial else rows_allowed(limit))
        if position.shards != sorted(map(int, start)):
            raise ClientError(
                f"the checkpoint has {len(start)} shards, and {self._origin.url} has {len(position.shards)}: it is "
                "another server, or was restored. Begin with a new checkpoint"
            )
        ts = position.until if self._until is None else min(position.until, self._until)
        if ts <= since:
            return start
        end = _offset(position, ts)
        for shard, place in end.items():
            if start[shard].get("is_first"):
                place["after"] = start[shard]
        return end

    def prepareForTriggerAvailableNow(self) -> None:
        self._until = self._ask(0, None).visible

    def reportLatestOffset(self) -> FeedOffset | None:
        position = self._ask(0, None)
        return _offset(position, position.visible)

    def _ask(self, since: int, records: int | None) -> FeedPosition:
        """Where the server stands. The answer is kept for a while, because Spark asks every 10 ms."""
        now = time.monotonic()
        if self._asked != (since, records) or now - self._asked_at >= self._origin.poll_s:
            self._position = self._origin.position(since, records)
            self._asked, self._asked_at = (since, records), now
        return self._position

    # --- what is read ---------------------------------------------------------------------------------------------

    def partitions(self, start: FeedOffset, end: FeedOffset) -> list[InputPartition]:
        parts: list[FeedPart] = []
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
        if parts:
            manifest = self._origin.manifest_up_to(_ts(end))
            for part in parts:
                part.manifest = manifest
        return list(parts)


class EventMicroBatches(FeedMicroBatches):
    """Reads what changed."""

    def __init__(self, origin: FeedOrigin, spans: tuple[Span, ...], how: FeedOptions, columns: EventColumns) -> None:
        super().__init__(origin, spans, how)
        self._columns = columns

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, FeedPart)
        return self._origin.of_part(partition).read(partition, self._spans, self._columns)


def _offset(position: FeedPosition, ts: int) -> FeedOffset:
    return {str(shard): _place(position, ts) for shard in position.shards}


def _place(position: FeedPosition, ts: int) -> dict[str, Any]:
    return {"ts": ts, "epoch": position.epoch, "seen": ts}


def _ts(offset: FeedOffset) -> int:
    """-1: before everything."""
    return min(int(place.get("ts", -1)) for place in offset.values())


def _is_initial(offset: FeedOffset) -> bool:
    return any(place.get("is_initial") for place in offset.values())
