"""Feeds without end, for `readStream`.

Spark keeps its position in its checkpoint, as a dict that this module makes: for each shard the ts up to which it was
read, and the history that this ts belongs to. So a server that came back with another history notices it.

    {"0": {"ts": 1731700000000000, "epoch": 3, "seen": 1731700000000000}, "1": {...}}

All shards have the same ts, so a transaction is always in one batch. The ts moves only when something was written: on
an idle server, a query makes no batches. With `minPartitions`, the end of a batch also says where the batch is cut
(`cuts`): so a batch that is repeated has the same tasks, whatever the journal has by then.

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
from itertools import pairwise
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from tidelog import limits
from tidelog.errors import ClientError
from tidelog.feeds.span import Span
from tidelog.spark.options import BadOption, Options, moment_us
from tidelog.spark.source.batch_bounds import BatchBounds, take_bounds
from tidelog.spark.source.feed.columns import EventColumns
from tidelog.spark.source.feed.cuts import cut_history
from tidelog.spark.source.feed.origin import FeedOrigin, take_origin
from tidelog.spark.source.feed.position import FeedPosition
from tidelog.spark.source.feed.reading import FeedPart
from tidelog.spark.source.feed.spans import spans_of
from tidelog.spark.source.lag import NONE_WAITS, NOT_KNOWN, SourceLag, report_of
from tidelog.spark.source.loss import take_fail_on_loss
from tidelog.spark.source.micro_batches import MicroBatchReader
from tidelog.spark.source.pieces import take_pieces_min

FeedOffset = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class FeedOptions:
    """How a feed is read without end."""

    start: str | int | dict[str, int]
    """Where a query without a checkpoint begins: earliest, latest, initial, a ts, or a point of some history."""
    option: str
    """Which option says so: for messages."""
    bounds: BatchBounds
    """In records of the journal."""
    fail_on_loss: bool
    pieces_min: int | None
    """At least so many tasks, if there is enough to read."""


def feed_micro_batches(target: str, options: Options, schema: StructType) -> EventMicroBatches:
    origin, spans, how = take_feed(target, options)
    columns = EventColumns(schema)
    return EventMicroBatches(origin.explored(), spans, how, columns)


def take_feed(target: str, options: Options) -> tuple[FeedOrigin, tuple[Span, ...], FeedOptions]:
    """The server or the copy, the keys, and how they are read; all options have been checked."""
    spans = spans_of(target)
    option = options.one_of("start", "startingTimestamp") or "start"
    starting, start = options.starting_us(), options.text("start") or "earliest"
    how = FeedOptions(
        _start_of(start) if starting is None else max(starting - 1, 0),
        option,
        take_bounds(options, older="max_records_per_trigger"),
        take_fail_on_loss(options),
        take_pieces_min(options),
    )
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
        super().__init__(how.bounds)
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
        self._counted: tuple[int, int, bool] = (-1, -1, False)
        """After which ts and up to which was counted whether there is enough, and whether there was."""
        self._reached: int | None = None
        """Where the newest batch ends; None: there was none yet."""
        self._level_s: float | None = None
        """When the query was last seen to have everything."""
        self._lag: tuple[int, float, SourceLag] = (-1, 0.0, NOT_KNOWN)
        """Behind which ts the lag was asked for, when, and what it was."""

    # --- where it is ----------------------------------------------------------------------------------------------

    def initialOffset(self) -> FeedOffset:
        start = self._how.start
        position = self._ask(0, None)
        place: dict[str, Any] = {"is_first": True}
        begin = start["ts"] if isinstance(start, dict) else start
        if isinstance(begin, int):
            self._origin.refuse_future(self._how.option, begin)
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
        bounds = self._bounds.within(limit)
        position = self._ask(since, None if is_initial else _records_max(bounds, len(start)))
        if position.shards != sorted(map(int, start)):
            raise ClientError(
                f"the checkpoint has {len(start)} shards, and {self._origin.url} has {len(position.shards)}: it is "
                "another server, or was restored. Begin with a new checkpoint"
            )
        ts = position.until if self._until is None else min(position.until, self._until)
        self._reached = since
        if ts <= since:
            self._level_s = time.monotonic() if position.visible <= since else self._level_s
            return start
        if not is_initial and self._waits(since, bounds):
            return start
        self._reached = ts
        end = _offset(position, ts)
        cuts = [] if is_initial else self._cuts(since, ts, len(end))
        for shard, place in end.items():
            if cuts:
                place["cuts"] = cuts
            if start[shard].get("is_first"):
                place["after"] = start[shard]
        return end

    def _cuts(self, since: int, until: int, shards: int) -> list[int]:
        pieces = -(-(self._how.pieces_min or 1) // shards)
        return cut_history(self._origin, since, until, None, pieces) if pieces > 1 else []

    def _has_rows(self, position: Any, count: int) -> bool:
        visible = self._position.visible
        if self._counted[:2] != (position, visible):
            self._counted = position, visible, self._origin.behind(position).records >= count
        return self._counted[2]

    def prepareForTriggerAvailableNow(self) -> None:
        super().prepareForTriggerAvailableNow()
        self._until = self._ask(0, None).visible

    def reportLatestOffset(self) -> dict[str, Any] | None:
        is_known = bool(self._position.shards) and time.monotonic() - self._asked_at < self._origin.poll_s
        position = self._position if is_known else self._ask(0, None)
        return report_of(_offset(position, position.visible), self._lag_behind(self._reached, position.visible))

    def _lag_behind(self, reached: int | None, visible: int) -> SourceLag:
        """What waits behind a ts."""
        now_s = time.monotonic()
        if reached is None:
            return NOT_KNOWN
        if visible <= reached:
            self._level_s = now_s
            return NONE_WAITS
        asked, asked_s, lag = self._lag
        if asked != reached or now_s - asked_s >= limits.SPARK_LAG_S:
            behind = self._origin.behind(reached)
            waiting_s = behind.seconds
            if self._level_s is not None:  # then nothing waits for longer, however old the last change is
                waiting_s = min(waiting_s, now_s - self._level_s)
            lag = SourceLag(behind.records, int(1000 * waiting_s))
            self._lag = reached, now_s, lag
        return lag

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
                parts += self._changes(int(shard), first, place)
        if parts:
            manifest = self._origin.manifest_up_to(_ts(end))
            for part in parts:
                part.manifest = manifest
        return list(parts)

    def _changes(self, shard: int, first: dict[str, Any], place: dict[str, Any]) -> Iterator[FeedPart]:
        edges = [first["ts"], *(cut for cut in place.get("cuts", ()) if cut > first["ts"]), place["ts"]]
        for since, until in pairwise(edges):
            part = FeedPart(shard, since, until, until_epoch=place["epoch"], fail_on_loss=self._how.fail_on_loss)
            if since == first["ts"]:
                part.epoch, part.seen = first.get("epoch"), first.get("seen")
            elif part.fail_on_loss:
                part.epoch, part.seen = place["epoch"], since  # the history that was there when it was cut
            yield part


def _records_max(bounds: BatchBounds, shards: int) -> int | None:
    """About how many records of each shard a batch takes.

    Whoever asks for n records gets at most n times `FEED_PLACE_RECORD_BYTES` of the journal, too.
    """
    of_bytes = None
    if bounds.bytes_max is not None:
        of_bytes = max(1, bounds.bytes_max // (shards * limits.FEED_PLACE_RECORD_BYTES))
    return min((each for each in (bounds.rows_max, of_bytes) if each is not None), default=None)


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
