"""The kind `feed`: what changed, read from the journal by CHANGEFEED. Columns: see `columns`.

    feed:*                                       every key
    feed:prefix:order:                           keys with this prefix
    feed:key:config                              one key
    feed:[{"prefix": "order:"}, {"key": "config"}, {"span": ["a", "c"]}]
                                                 several of these; a span goes from one key up to but not including
                                                 another, and "" as the second means no end

option                      batch  stream
url, database                 x      x      as for streams
password_file                 x      x
from_followers                x      x
from                          x      x      a copy in an object store, which is read in place of a server: instead of
                                            `url`, `password_file`, `from_followers`
database_id, ship_key_file    x      x      of a copy: which database, and the key that it is encrypted with
storage.*                     x      x      options for what opens the URL of a copy
since                         x             changes after this moment, a ts or an ISO time; unless given, all. It must
                                            not lie in the future
until                         x             changes up to and including this moment; at most up to now
initial                       x             true: the values of now instead of changes
partition_records             x             about how many records of a shard's journal one task reads, 250000 unless
                                            given
start                                x      earliest (default), latest, initial, or a moment after which to begin: a ts,
                                            an ISO time, or a point of some history `{"ts": ..., "epoch": ...}`
startingTimestamp             x      x      instead of `since` and `start`: changes at or after a moment
maxRowsPerBatch                      x      about how many records of each shard a batch has at most ...
maxBytesPerTrigger                   x      ... and about how many bytes of the journal
minRowsPerBatch                      x      wait for so many records, over all shards ...
maxTriggerDelay                      x      ... but at most so long: 15m unless given
minPartitions                 x      x      at least so many tasks
failOnDataLoss                x      x      true (default): an error if what is to be read is gone, or what was read
pushdown                      x             as for streams

One task reads one shard, or a stretch of its history, and all tasks end at the same ts, so a transaction is never cut.
Only a Tidelog has feeds; a plain Redis has none. A copy gives the same rows as the server that ships it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Final

from pyspark.sql.datasource import DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.types import StructType

from tidelog import limits
from tidelog.errors import TooOld
from tidelog.spark.options import BadOption, Options
from tidelog.spark.source.batch_reader import BatchReader, comparison
from tidelog.spark.source.feed.columns import SCHEMA, EventColumns
from tidelog.spark.source.feed.cuts import cut_history
from tidelog.spark.source.feed.micro_batches import feed_micro_batches
from tidelog.spark.source.feed.origin import take_origin
from tidelog.spark.source.feed.reading import FeedPart, erased
from tidelog.spark.source.feed.spans import spans_of
from tidelog.spark.source.kind import Kind
from tidelog.spark.source.loss import raise_or_log, take_fail_on_loss
from tidelog.spark.source.pieces import take_pieces_min

_TS_MAX: Final = 2**63 - 1


class FeedKind(Kind):
    """Change feeds."""

    name: ClassVar[str] = "feed"

    def schema(self) -> StructType:
        return SCHEMA

    def batch_reader(self, schema: StructType) -> BatchReader[FeedPart]:
        return FeedReader(self.target, self.options, schema)

    def stream_reader(self, schema: StructType) -> DataSourceStreamReader:
        return feed_micro_batches(self.target, self.options, schema)


# --- batches ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Times:
    """After `since`, up to and with `until`."""

    since: int | None
    until: int


class FeedReader(BatchReader[FeedPart]):
    """Reads what has changed, or the values of now."""

    def __init__(self, target: str, options: Options, schema: StructType) -> None:
        self._spans = spans_of(target)
        self._option = options.one_of("since", "startingTimestamp") or "since"
        since, until, starting = options.moment_us("since"), options.moment_us("until"), options.starting_us()
        since = max(starting - 1, 0) if starting is not None else since
        self._times = _Times(since, _TS_MAX if until is None else until)
        self._given_since = since
        self._is_initial = options.flag("initial", False)
        self._records = options.number("partition_records", 1) or limits.SPARK_PARTITION_RECORDS
        if self._is_initial and (since is not None or until is not None):
            raise BadOption(
                "initial contradicts since and until, and startingTimestamp as well: it reads the values of now"
            )
        self._pieces_min = take_pieces_min(options)
        self._fail_on_loss = take_fail_on_loss(options)
        origin = take_origin(options)
        options.end("a feed that is read as a batch")
        self._columns = EventColumns(schema)
        self._origin = origin.explored()

    def partitions(self) -> list[InputPartition]:
        origin = self._origin
        position = origin.position()
        if self._given_since is not None:
            origin.refuse_future(self._option, self._given_since)
        if self._is_initial:
            cuts = [0, position.visible]
        else:
            since, until = self._since(), min(self._times.until, position.visible)
            pieces = -(-(self._pieces_min or 1) // len(position.shards))
            cuts = [since, *cut_history(origin, since, until, self._records, pieces), until] if since < until else []
        manifest = origin.manifest_up_to(cuts[-1]) if len(cuts) > 1 else None
        return [
            FeedPart(
                shard,
                first,
                last,
                is_initial=self._is_initial,
                manifest=manifest,
                fail_on_loss=self._fail_on_loss,
            )
            for first, last in pairwise(cuts)
            for shard in position.shards
        ]

    def _since(self) -> int:
        oldest = self._origin.oldest(self._spans[0])
        since = self._times.since
        if since is None or (since < oldest and self._given_since is None):
            return oldest  # a filter only narrows what there is
        if since < oldest:
            raise_or_log(erased(since, TooOld("", oldest=oldest)), fail_on_loss=self._fail_on_loss)
            return oldest
        return since

    def read_part(self, part: FeedPart) -> Iterator[Any]:
        return self._origin.of_part(part).read(part, self._spans, self._columns)

    def narrow(self, filters: Sequence[Filter]) -> None:
        if not self._is_initial:
            for each in filters:
                self._times = _narrowed(self._times, each)


def _narrowed(times: _Times, condition: Filter) -> _Times:
    """What a filter on `ts` or `timestamp` leaves."""
    column, value, is_lower, is_upper = comparison(condition)
    if column not in ("ts", "timestamp") or not isinstance(value, int):
        return times
    since = max(times.since or 0, value - 1) if is_lower else times.since
    return _Times(since, min(times.until, value) if is_upper else times.until)
