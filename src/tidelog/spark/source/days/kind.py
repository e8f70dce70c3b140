"""The kind `days`: the events of job sets, from hot and compressed days alike.

    days:QUEUE/JOBSET          one job set; the first slash separates
    days:*/*                   all job sets whose names match, as Python's `fnmatch` has it (`*`, `?`, `[a-z]`)

    queue, jobset string       the names
    day date                   the UTC day that the event belongs to
    id string                  `ms-seq`; ms and seq bigint are its halves, null if they do not fit
    timestamp                  the time of the event
    event string               its text; {"base64": "..."} if it is not UTF-8, as `tidelog events tail` shows it. As
                               `binary`, the bytes that were written
    is_compressed boolean      whether it was read from a compressed day

    url, database, password_file                  as for streams; a plain Redis will do
    from_day, to_day                              days such as 2025-11-15, both included
    from_id, to_id                                ids such as 1731700000000-0, or their milliseconds alone
    startingTimestamp                             events whose ids are of this moment or later; instead of from_id
    partition_rows                                about how many rows a task has, 250000 unless given
    minPartitions                                 at least so many tasks, for which hot days are divided
    failOnDataLoss                                true (default): an error if a day is removed before it was read
    pushdown                                      as for streams; filters on queue, jobset, day, timestamp, ms and id

A task reads a day, or a range of its ids if the day is hot and large, or several days if they are small. What it
reads is decided when it is planned: events that come later are not part of it. `reading` says how it stays right while
days are compressed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from fnmatch import fnmatchcase
from typing import Any, ClassVar, NamedTuple

from pyspark.sql.datasource import Filter, InputPartition
from pyspark.sql.types import StructType

from tidelog import limits
from tidelog.days.exchange import ask, is_wrong_type, stream_state
from tidelog.days.index import read_index
from tidelog.days.jobset import JobSet, jobset_of_index
from tidelog.days.saving import memory_bytes
from tidelog.spark.endpoint import take_endpoint
from tidelog.spark.options import BadOption, Options
from tidelog.spark.source.batch_reader import BatchReader, comparison
from tidelog.spark.source.days.columns import SCHEMA, DayColumns
from tidelog.spark.source.days.reading import DayPart, DayTask, read_days
from tidelog.spark.source.entry_range import EntryRange, number_at_us, parse_id, range_of_filters, split_ids
from tidelog.spark.source.key_names import NameFilter, is_pattern, name_of, scan_keys
from tidelog.spark.source.kind import Kind
from tidelog.spark.source.loss import take_fail_on_loss
from tidelog.spark.source.pieces import cut_evenly, take_pieces_min
from tidelog.streams.rows import SEQ_MAX, pack_id


class DaysKind(Kind):
    """Day streams."""

    name: ClassVar[str] = "days"

    def schema(self) -> StructType:
        return SCHEMA

    def batch_reader(self, schema: StructType) -> BatchReader[DayTask]:
        return DaysReader(self.target, self.options, schema)


@dataclass(frozen=True, slots=True)
class DaySelection:
    """Which events are read. All bounds hold; both ends are included."""

    ids: EntryRange
    first_day: date
    last_day: date
    queues: NameFilter
    jobsets: NameFilter


class PlannedPart(NamedTuple):
    """What is to be read of a day, and about how many rows that is."""

    part: DayPart
    rows: int
    is_hot: bool = True


class DaysReader(BatchReader[DayTask]):
    """Reads the events that job sets have now."""

    def __init__(self, target: str, options: Options, schema: StructType) -> None:
        self._queue, slash, self._jobset = target.partition("/")
        if not slash or not self._queue or not self._jobset:
            raise BadOption(f"days={target!r}: give QUEUE/JOBSET, or patterns such as */*")
        self._wanted = _take_wanted(options)
        self._rows = options.number("partition_rows", 1) or limits.SPARK_PARTITION_ROWS
        self._pieces_min = take_pieces_min(options)
        self._fail_on_loss = take_fail_on_loss(options)
        self._server = take_endpoint(options)
        options.end("the kind days")
        self._columns = DayColumns(schema)

    def partitions(self) -> list[InputPartition]:
        if self._wanted.ids.is_empty:
            return []
        with self._server.connect() as client:
            jobsets = self._find(client)
            planned = [each for jobset in jobsets for each in self._plan(client, jobset, self._rows)]
            tasks = _gathered(planned, self._rows)
            wanted = self._pieces_min or 1
            if len(tasks) < wanted and len(planned) < wanted:
                whole = sum(not each.is_hot for each in planned)  # a compressed day is not divided
                hot_rows = sum(each.rows for each in planned if each.is_hot)
                rows = max(1, hot_rows // max(1, wanted - whole))
                planned = [each for jobset in jobsets for each in self._plan(client, jobset, rows)]
        if len(tasks) < wanted:
            cuts = cut_evenly(0, len(planned) - 1, min(wanted, len(planned)))
            tasks = [DayTask([each.part for each in planned[first : last + 1]]) for first, last in cuts]
        return [*tasks]

    def _find(self, client: Any) -> list[JobSet]:
        if not is_pattern(self._queue + self._jobset):
            found = [JobSet(self._queue, self._jobset)]
        else:
            keys = {key for page in scan_keys(client, "{*_*}_streams", "set") for key in page}
            every = [jobset for jobset in map(jobset_of_index, sorted(keys)) if jobset is not None]
            found = [each for each in every if fnmatchcase(each.queue, self._queue)]
            found = [each for each in found if fnmatchcase(each.jobset, self._jobset)]
            for each in found:
                name_of(f"{each.queue}/{each.jobset}".encode("utf-8", "surrogateescape"))  # refuses other text
        wanted = self._wanted
        return [each for each in found if wanted.queues.has(each.queue) and wanted.jobsets.has(each.jobset)]

    def _plan(self, client: Any, jobset: JobSet, rows_max: int) -> Iterator[PlannedPart]:
        """The parts of a job set, by day, and about how many rows each has: at most so many, if its day is hot."""
        wanted = self._wanted
        index = read_index(client, jobset)
        days = sorted({each.day for each in index.streams if wanted.first_day <= each.day <= wanted.last_day})
        compressed = [day for day in days if day in index.compressed]
        sizes = memory_bytes(client, [jobset.compressed(day).key for day in compressed])
        rows = {day: self._rows_in(size) for day, size in zip(compressed, sizes, strict=True)}
        for day in days:
            part = DayPart(jobset.queue, jobset.jobset, day, wanted.ids.first_number, wanted.ids.last_number)
            if day in rows:
                yield PlannedPart(part, rows[day], is_hot=False)
            else:
                yield from self._plan_hot(client, part, jobset.hot(day).key, rows_max)

    def _rows_in(self, packed_bytes: int | None) -> int:
        """About how many rows a compressed stream of this size has. Without a size, it is a task of its own."""
        return self._rows if packed_bytes is None else packed_bytes // limits.SPARK_PACKED_EVENT_BYTES

    def _plan_hot(self, client: Any, part: DayPart, key: bytes, rows_max: int) -> Iterator[PlannedPart]:
        state_reply, first = ask(client, [("XINFO", "STREAM", key), ("XRANGE", key, "-", "+", "COUNT", 1)])
        if is_wrong_type(state_reply):
            yield PlannedPart(part, 0)  # it cannot be read, which its task tells
            return
        state = stream_state(state_reply)
        if isinstance(first, Exception):
            raise first
        if state.last is None:
            yield PlannedPart(part, 0)  # the index names a stream that is not there: compressed since, or lost
        elif first:
            lowest = max(part.first, parse_id("id", first[0][0].decode(), 0))
            highest = min(part.last, pack_id(*state.last))
            cuts = list(split_ids(lowest, highest, -(-state.length // rows_max)))
            for cut in cuts:
                yield PlannedPart(part.between(*cut), state.length // len(cuts))

    def read_part(self, part: DayTask) -> Iterator[Any]:
        return read_days(self._server, part, self._columns, fail_on_loss=self._fail_on_loss)

    def narrow(self, filters: Sequence[Filter]) -> None:
        # Not by timestamp: the time of an event is not always that of its id.
        ids = range_of_filters([each for each in filters if comparison(each).column in ("ms", "id")])
        self._wanted = replace(self._wanted, ids=self._wanted.ids.narrowed(ids))
        for each in filters:
            self._wanted = _narrowed(self._wanted, each)


def _gathered(planned: Sequence[PlannedPart], rows_max: int) -> list[DayTask]:
    """Parts as tasks of about so many rows: one part, or several small ones."""
    tasks: list[DayTask] = []
    room = 0
    for part, rows, _ in planned:
        if rows > room or not tasks:
            tasks.append(DayTask([]))
            room = rows_max
        tasks[-1].parts.append(part)
        room -= max(rows, limits.SPARK_DAY_ROWS_MIN)
    return tasks


# --- what options and filters say -------------------------------------------------------------------------------------


def _take_wanted(options: Options) -> DaySelection:
    options.one_of("from_id", "startingTimestamp")
    first_id, last_id, starting_us = options.text("from_id"), options.text("to_id"), options.starting_us()
    ids = EntryRange() if starting_us is None else EntryRange(first_number=number_at_us(starting_us))
    if first_id is not None:
        ids = replace(ids, first_number=parse_id("from_id", first_id, 0))
    if last_id is not None:
        ids = replace(ids, last_number=parse_id("to_id", last_id, SEQ_MAX))
    first_day, last_day = _take_day(options, "from_day"), _take_day(options, "to_day")
    return DaySelection(ids, first_day or date.min, last_day or date.max, NameFilter(), NameFilter())


def _take_day(options: Options, name: str) -> date | None:
    text = options.text(name)
    try:
        return None if text is None else date.fromisoformat(text)
    except ValueError:
        raise BadOption(f"{name}={text!r}: give a day such as 2025-11-15") from None


def _narrowed(wanted: DaySelection, condition: Filter) -> DaySelection:
    """What a filter on names or days leaves."""
    column, value, is_lower, is_upper = comparison(condition)
    if column == "queue":
        return replace(wanted, queues=wanted.queues.narrowed(condition))
    if column == "jobset":
        return replace(wanted, jobsets=wanted.jobsets.narrowed(condition))
    if column == "timestamp" and value is not None:
        day = date.fromordinal(date(1970, 1, 1).toordinal() + value // 86_400_000_000)
    elif column == "day" and type(value) is date:
        day = value
    else:
        return wanted
    if is_lower:
        wanted = replace(wanted, first_day=max(wanted.first_day, day))
    if is_upper:
        wanted = replace(wanted, last_day=min(wanted.last_day, day))
    return wanted
