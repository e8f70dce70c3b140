"""How a task reads its parts of days, even while a day is being compressed.

As in `days.reader`, each page is read in one transaction with the index, so both are of the same moment.

    the stream is in the index            the page holds what follows the last id that was read
    it is no longer in the index          the day was compressed, and the compressed stream goes on after that id; or
                                          the day was removed, which is a loss
    the day has both streams              the compressed one is read first, then what the hot one has after it

The last id that was read is all that is carried over. Ids only increase, so no event comes twice and none is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from tidelog import limits
from tidelog.days.batch import packed_of_entry, unpack_columns
from tidelog.days.exchange import fields, is_wrong_type, look
from tidelog.days.index import Index, read_index
from tidelog.days.jobset import DayStream, JobSet
from tidelog.days.message import parse_id, shown
from tidelog.errors import DayGone
from tidelog.spark.endpoint import Endpoint
from tidelog.spark.source.days.columns import DayColumns, DayEvents, hot_columns, ids_between
from tidelog.spark.source.entry_range import id_text
from tidelog.spark.source.loss import raise_or_log
from tidelog.streams.rows import pack_id, unpack_id


class DayPart:
    """Some ids of a day, as numbers; both ends are included."""

    def __init__(self, queue: str, jobset: str, day: date, first: int, last: int) -> None:
        self.queue = queue
        self.jobset = jobset
        self.day = day
        self.first = first
        self.last = last

    def between(self, first: int, last: int) -> DayPart:
        return DayPart(self.queue, self.jobset, self.day, first, last)


class DayTask(InputPartition):
    """What one task reads: one part, or several small ones."""

    def __init__(self, parts: list[DayPart]) -> None:
        self.parts = parts


def read_days(server: Endpoint, task: DayTask, columns: DayColumns, *, fail_on_loss: bool) -> Iterator[pa.RecordBatch]:
    """The batches of a task. On an executor."""
    with server.connect() as client:
        pages = (page for part in task.parts for page in _Pages(client, part, fail_on_loss=fail_on_loss).read())
        yield from joined(columns.batch(page) for page in pages)


def joined(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of the size that Spark handles fastest."""
    gathered: list[pa.RecordBatch] = []
    count = size = 0
    for batch in batches:
        gathered.append(batch)
        count += batch.num_rows
        size += batch.nbytes
        if count >= limits.SPARK_BATCH_ROWS or size >= limits.SPARK_BATCH_BYTES:
            yield pa.concat_batches(gathered)
            gathered, count, size = [], 0, 0
    if gathered:
        yield pa.concat_batches(gathered)


class _Pages:
    """Reads a part page by page, from whichever streams its day has."""

    def __init__(self, client: Any, part: DayPart, *, fail_on_loss: bool) -> None:
        self._client = client
        self._part = part
        self._jobset = JobSet(part.queue, part.jobset)
        self._fail_on_loss = fail_on_loss
        self._next = part.first
        """The lowest id that was not read, as a number."""
        self._page_entries = limits.DAYS_PAGE_ENTRIES_MAX

    def read(self) -> Iterator[DayEvents]:
        index = read_index(self._client, self._jobset)
        is_past_compressed = False
        while self._next <= self._part.last:
            source = self._source(index, is_past_compressed=is_past_compressed)
            if source is None:
                if not is_past_compressed:
                    self._lose(index)
                return
            found, index = self._page(source)
            if source not in index.streams:
                is_past_compressed = False  # it was swapped meanwhile, so what was read of it does not count
                continue
            if found is None:
                if not is_past_compressed:  # otherwise it is a swap that was left half done
                    self._lose(index)
                return
            yield from found
            if not found and source.is_hot:
                return
            is_past_compressed = is_past_compressed or not found

    def _source(self, index: Index, *, is_past_compressed: bool) -> DayStream | None:
        """The compressed stream, if there is one; after it, or without it, the hot one."""
        streams = index.of(self._part.day)
        return next((stream for stream in streams if stream.is_hot or not is_past_compressed), None)

    def _page(self, source: DayStream) -> tuple[list[DayEvents] | None, Index]:
        """The next page of a stream, and the index of the same moment; None: there is no such stream to read."""
        # A batch has its highest id: the batch with the last id that is wanted may lie beyond that id.
        end = id_text(self._part.last) if source.is_hot else "+"
        count = self._page_entries if source.is_hot else 1
        exists, reply, members, expired = look(
            self._client,
            ("EXISTS", source.key),
            ("XRANGE", source.key, id_text(self._next), end, "COUNT", count),
            ("SMEMBERS", self._jobset.index),
            ("GET", self._jobset.expired),
        )
        index = Index(self._jobset, members, expired)
        if source not in index.streams:
            return [], index
        if not exists or is_wrong_type(reply):
            return None, index
        return self._taken(source, reply), index

    def _taken(self, source: DayStream, reply: list[Any]) -> list[DayEvents]:
        """The events of a page that are wanted; empty: the stream has no more of them."""
        if not reply:
            return []
        part = self._part
        if source.is_hot:
            ms, seqs, times, events = hot_columns(source.key, reply)
            self._page_entries = _fitting_entries(len(reply), events.nbytes)
        else:
            identity, flat = reply[0]
            packed = packed_of_entry(source.key, identity, fields(flat))
            batch = unpack_columns(source.key, parse_id(identity), packed)
            chosen = ids_between(batch.column("ms"), batch.column("seq"), unpack_id(self._next), unpack_id(part.last))
            batch = batch.filter(chosen)
            ms, seqs, times, events = batch.columns
        self._next = pack_id(*parse_id(reply[-1][0])) + 1
        return [DayEvents(part.queue, part.jobset, part.day, not source.is_hot, ms, seqs, times, events)]

    def _lose(self, index: Index) -> None:
        key = shown(self._jobset.hot(self._part.day).key)
        oldest = shown(index.streams[0].key) if index.streams else None
        lost = DayGone(
            f"{key} was removed before all of it was read, or is not a stream: read it again, or go on without it by "
            "failOnDataLoss=false",
            key=key,
            oldest=oldest,
        )
        raise_or_log(lost, fail_on_loss=self._fail_on_loss)


def _fitting_entries(count: int, size_bytes: int) -> int:
    """How many entries the next page should have."""
    fitting = limits.DAYS_PAGE_BYTES * count // (size_bytes + 1)
    return max(1, min(fitting, limits.SPARK_PAGE_ROWS))
