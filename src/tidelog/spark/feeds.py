"""The kind `feed`: what changed, from the journal, as CHANGEFEED has it. Columns: see `events`.

    feed:*                                       every key
    feed:prefix:order:                           keys that begin like this
    feed:key:config                              one key
    feed:[{"prefix": "order:"}, {"key": "config"}, {"span": ["a", "c"]}]
                                                 several of these; a span is from a key to before another, "" has no end

option                      batch  stream
url, database                 x      x      as for streams
password_file                 x      x
since                         x             after this moment, a ts or an ISO time; unless given, all that there is
until                         x             up to and with this moment; never more than there is when it is planned
initial                       x             true: the values of now, in place of what changed
partition_records             x             records of a shard's journal that one task reads, about: 250000 unless given
start                                x      earliest (default), latest, initial, or a moment after which it begins: a
                                            ts, an ISO time, a place of some history `{"ts": ..., "epoch": ...}`
max_records_per_trigger              x      of each shard, about
pushdown                      x             as for streams

One task reads one shard (a batch: a part of it), and all of them end at the same ts: a transaction is never cut. Feeds
are Tidelog's own: a plain Redis has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Final

from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructType

from tidelog import limits
from tidelog.errors import TooOld
from tidelog.spark.endpoint import take_endpoint
from tidelog.spark.events import SCHEMA, EventColumns
from tidelog.spark.feed_following import make_follower
from tidelog.spark.feed_places import ask_oldest, ask_position, explored_feed_server, spans_of
from tidelog.spark.feed_reading import FeedPart, erased, read_feed
from tidelog.spark.kind import Kind
from tidelog.spark.options import BadOption, Options, moment_us

_TS_MAX: Final = 2**63 - 1


class FeedKind(Kind):
    """Change feeds."""

    name: ClassVar[str] = "feed"

    def schema(self) -> StructType:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        is_pushing = self.options.flag("pushdown", True)
        made = PushdownReader if is_pushing else FeedReader
        return made(self.target, self.options, schema)

    def stream_reader(self, schema: StructType) -> DataSourceStreamReader:
        return make_follower(self.target, self.options, schema)


# --- batches ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Times:
    """After `since`, up to and with `until`."""

    since: int | None
    until: int


class FeedReader(DataSourceReader):
    """Reads what has changed, or what there is now."""

    def __init__(self, target: str, options: Options, schema: StructType) -> None:
        self._spans = spans_of(target)
        since, until = options.moment_us("since"), options.moment_us("until")
        self._times = _Times(since, _TS_MAX if until is None else until)
        self._is_since_given = since is not None
        self._is_initial = options.flag("initial", False)
        self._records = options.number("partition_records", 1) or limits.SPARK_PARTITION_RECORDS
        if self._is_initial and (since is not None or until is not None):
            raise BadOption("initial contradicts since and until: the values are those of now")
        server = take_endpoint(options)
        options.end("a feed that is read as a batch")
        self._columns = EventColumns(schema)
        self._server = explored_feed_server(server)

    def partitions(self) -> list[InputPartition]:
        with self._server.connect() as client:
            position = ask_position(client)
            if self._is_initial:
                return [FeedPart(shard, 0, position.visible, is_initial=True) for shard in position.shards]
            since, until = self._since(), min(self._times.until, position.visible)
            cuts = [since]
            while cuts[-1] < until:
                # What is read is the same wherever it is cut: between two transactions.
                place = ask_position(client, cuts[-1], self._records).place
                cuts.append(min(until, place) if place > cuts[-1] else until)
        return [FeedPart(shard, first, last) for first, last in pairwise(cuts) for shard in position.shards]

    def _since(self) -> int:
        oldest = ask_oldest(self._server, self._spans[0])
        since = self._times.since
        if since is None or (since < oldest and not self._is_since_given):
            return oldest  # a filter asks for less than all that there is, and never for more
        if since < oldest:
            raise erased(since, TooOld("", oldest=oldest))
        return since

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not isinstance(partition, FeedPart):  # Spark asks once also where there is nothing to read
            return iter(())
        return read_feed(self._server, partition, self._spans, self._columns)


class PushdownReader(FeedReader):
    """The same, with filters on `ts` and `timestamp`."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        if not self._is_initial:
            for each in filters:
                self._times = _narrowed(self._times, each)
        return filters


def _narrowed(times: _Times, condition: Filter) -> _Times:
    """What a filter leaves; Spark evaluates it again, so that less would be a mistake and more is not."""
    attribute, value = getattr(condition, "attribute", ()), getattr(condition, "value", None)
    if attribute == ("timestamp",) and hasattr(value, "tzinfo"):
        value = moment_us("timestamp", value)
    elif attribute != ("ts",) or not isinstance(value, int):
        return times
    since, until = times.since, times.until
    if isinstance(condition, EqualTo | GreaterThan | GreaterThanOrEqual):
        since = max(since or 0, value - 1)
    if isinstance(condition, EqualTo | LessThan | LessThanOrEqual):
        until = min(until, value)
    return _Times(since, until)
