"""The kind `days`: the events of job sets, hot and compressed days alike.

    days:QUEUE/JOBSET          one job set; the first slash separates
    days:*/*                   all whose names match the patterns, as Python's `fnmatch` has them (`*`, `?`, `[a-z]`)

    queue, jobset string       whose it is
    day date                   the UTC day that it belongs to
    id string                  `ms-seq`; ms and seq bigint are its halves, null if they do not fit
    timestamp                  the time of the event
    event string               its text; if it is no UTF-8, {"base64": "..."} stands in its place, as `tidelog events
                               tail` shows it. As `binary`, it is what was written
    is_compressed boolean      how it lay there when it was read

    url, database, password_file                  as for streams; any Redis will do
    from_day, to_day                              days such as 2025-11-15, both included
    from_id, to_id                                ids such as 1731700000000-0, or their time alone
    partition_rows                                rows of one task of a hot day, 250000 unless given
    fail_on_loss                                  true: an error if a day is removed before it was read
    pushdown                                      as for streams; of queue, jobset, day, timestamp, ms and id

A task is a day, or some of its ids if it is hot and large. What it reads is settled when it is planned: events that
come later are not in it. How it stays right while days are compressed: see `day_reading`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from fnmatch import fnmatchcase
from typing import Any, ClassVar

from pyspark.sql.datasource import (
    DataSourceReader,
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
from tidelog.days.exchange import ask, stream_state
from tidelog.days.index import read_index
from tidelog.days.jobset import JobSet, jobset_of_index
from tidelog.spark.day_columns import SCHEMA, DayColumns
from tidelog.spark.day_reading import DayPart, read_day
from tidelog.spark.endpoint import call, take_endpoint
from tidelog.spark.kind import Kind
from tidelog.spark.options import BadOption, Options, moment_us
from tidelog.spark.ranges import Range, StreamNames, is_pattern, name_of, parse_id, range_of_filters, split_ids
from tidelog.streams.rows import SEQ_MAX, pack_id


class DaysKind(Kind):
    """Day streams."""

    name: ClassVar[str] = "days"

    def schema(self) -> StructType:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        is_pushing = self.options.flag("pushdown", True)
        made = PushdownReader if is_pushing else DaysReader
        return made(self.target, self.options, schema)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which events are read. All bounds hold, both ends are included."""

    ids: Range
    first_day: date
    last_day: date
    queues: StreamNames
    jobsets: StreamNames


class DaysReader(DataSourceReader):
    """Reads what job sets have now."""

    def __init__(self, target: str, options: Options, schema: StructType) -> None:
        self._queue, slash, self._jobset = target.partition("/")
        if not slash or not self._queue or not self._jobset:
            raise BadOption(f"days={target!r}: it is QUEUE/JOBSET, or patterns such as */*")
        self._wanted = _take_wanted(options)
        self._rows = options.number("partition_rows", 1) or limits.SPARK_PARTITION_ROWS
        self._fail_on_loss = options.flag("fail_on_loss", True)
        self._server = take_endpoint(options)
        options.end("a days that is read")
        self._columns = DayColumns(schema)

    def partitions(self) -> list[InputPartition]:
        parts: list[InputPartition] = []
        if self._wanted.ids.is_empty:
            return parts
        with self._server.connect() as client:
            for jobset in self._find(client):
                parts += self._plan(client, jobset)
        return parts

    def _find(self, client: Any) -> list[JobSet]:
        if not is_pattern(self._queue + self._jobset):
            found = [JobSet(self._queue, self._jobset)]
        else:
            keys: set[bytes] = set()
            cursor: bytes = b"0"
            while True:
                cursor, page = call(client, "SCAN", cursor, "MATCH", "{*_*}_streams", "COUNT", 1000, "TYPE", "set")
                keys.update(page)
                if cursor == b"0":
                    break
            every = [jobset for jobset in map(jobset_of_index, sorted(keys)) if jobset is not None]
            found = [each for each in every if fnmatchcase(each.queue, self._queue)]
            found = [each for each in found if fnmatchcase(each.jobset, self._jobset)]
            for each in found:
                name_of(f"{each.queue}/{each.jobset}".encode("utf-8", "surrogateescape"))  # refuses what is no text
        wanted = self._wanted
        return [each for each in found if wanted.queues.has(each.queue) and wanted.jobsets.has(each.jobset)]

    def _plan(self, client: Any, jobset: JobSet) -> Iterator[DayPart]:
        """The tasks of a job set, by day."""
        wanted = self._wanted
        index = read_index(client, jobset)
        days = {each.day for each in index.streams if wanted.first_day <= each.day <= wanted.last_day}
        for day in sorted(days):
            part = DayPart(jobset.queue, jobset.jobset, day, wanted.ids.first_number, wanted.ids.last_number)
            if day in index.compressed:
                yield part
                continue
            key = jobset.hot(day).key
            state_reply, first = ask(client, [("XINFO", "STREAM", key), ("XRANGE", key, "-", "+", "COUNT", 1)])
            state = stream_state(state_reply)
            if isinstance(first, Exception):
                raise first
            if state.last is None:
                yield part  # the index has it, and it is not there: compressed since, or lost
            elif first:
                lowest = max(wanted.ids.first_number, parse_id("id", first[0][0].decode(), 0))
                highest = min(wanted.ids.last_number, pack_id(*state.last))
                for cut in split_ids("", lowest, highest, -(-state.length // self._rows)):
                    yield part.between(cut.first, cut.last)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not isinstance(partition, DayPart):  # Spark asks once also where there is nothing to read
            return iter(())
        return read_day(self._server, partition, self._columns, fail_on_loss=self._fail_on_loss)


class PushdownReader(DaysReader):
    """The same, with filters. Spark refuses a reader that has this method where it is set to push nothing down."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        of_ids = [each for each in filters if getattr(each, "attribute", ()) in (("ms",), ("id",))]
        ids, _ = range_of_filters(of_ids)
        self._wanted = replace(self._wanted, ids=self._wanted.ids.narrowed(ids))
        for each in filters:
            self._wanted = _narrowed(self._wanted, each)
        return filters


# --- what options and filters say -------------------------------------------------------------------------------------


def _take_wanted(options: Options) -> Wanted:
    first_id, last_id = options.text("from_id"), options.text("to_id")
    ids = Range()
    if first_id is not None:
        ids = replace(ids, first_number=parse_id("from_id", first_id, 0))
    if last_id is not None:
        ids = replace(ids, last_number=parse_id("to_id", last_id, SEQ_MAX))
    first_day, last_day = _take_day(options, "from_day"), _take_day(options, "to_day")
    return Wanted(ids, first_day or date.min, last_day or date.max, StreamNames(), StreamNames())


def _take_day(options: Options, name: str) -> date | None:
    text = options.text(name)
    try:
        return None if text is None else date.fromisoformat(text)
    except ValueError:
        raise BadOption(f"{name}={text!r}: it is a day such as 2025-11-15") from None


def _narrowed(wanted: Wanted, condition: Filter) -> Wanted:
    """What a filter leaves; Spark evaluates it again, so that less would be a mistake and more is not."""
    attribute, value = getattr(condition, "attribute", ()), getattr(condition, "value", None)
    if attribute == ("queue",):
        return replace(wanted, queues=wanted.queues.narrowed(condition))
    if attribute == ("jobset",):
        return replace(wanted, jobsets=wanted.jobsets.narrowed(condition))
    if attribute == ("timestamp",) and hasattr(value, "tzinfo"):
        day = date.fromordinal(date(1970, 1, 1).toordinal() + moment_us("timestamp", value) // 86_400_000_000)
    elif attribute == ("day",) and type(value) is date:
        day = value
    else:
        return wanted
    if isinstance(condition, EqualTo | GreaterThan | GreaterThanOrEqual):
        wanted = replace(wanted, first_day=max(wanted.first_day, day))
    if isinstance(condition, EqualTo | LessThan | LessThanOrEqual):
        wanted = replace(wanted, last_day=min(wanted.last_day, day))
    return wanted
