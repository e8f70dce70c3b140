"""Runs of a view are merged beside its batches, as a Spark job of its own: a task for each bucket that has too many."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import SparkSession

from tidelog import limits
from tidelog.spark.runs.merging import merge, to_merge
from tidelog.spark.runs.run_files import RunFiles, RunName
from tidelog.spark.runs.run_lists import RunLists

_MADE: Final = "number int, name string, rows bigint, size_bytes bigint"
_ARROW: Final = pa.schema(
    [("number", pa.int32()), ("name", pa.string()), ("rows", pa.int64()), ("size_bytes", pa.int64())]
)


class _Merge(NamedTuple):
    table: str
    bucket: int
    runs: tuple[RunName, ...]
    is_oldest: bool
    name: str


@dataclass(frozen=True)
class _MergeTask:
    """Merges runs. It travels to executors."""

    files: RunFiles
    merges: tuple[_Merge, ...]

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                one = self.merges[number]
                made = merge(self.files, one.runs, one.name, is_oldest=one.is_oldest)
                if made is not None:
                    yield pa.RecordBatch.from_pylist([{"number": number, **made._asdict()}], _ARROW)


class Merges:
    """The merges of one view, one job at a time."""

    def __init__(self, files: RunFiles) -> None:
        self._files = files
        self._thread = ThreadPoolExecutor(1, "merge")
        self._running: Future[list[tuple[_Merge, RunName | None]]] | None = None
        self._merged: list[tuple[float, list[str]]] = []
        """Runs that were merged, and when: a task may still be reading them."""

    def begin(self, session: SparkSession, lists: RunLists) -> None:
        """Begin to merge what is worth it, unless that is going on already."""
        self._remove_merged()
        if self._running is not None:
            return
        found = tuple(
            _Merge(table, bucket, tuple(some), some[0] == runs[0], f"merged-{secrets.token_hex(8)}")
            for table, buckets in lists.tables.items()
            for bucket, runs in enumerate(buckets)
            if (some := to_merge(runs))
        )
        if found:
            self._running = self._thread.submit(self._merge, session, found)

    def _merge(self, session: SparkSession, merges: tuple[_Merge, ...]) -> list[tuple[_Merge, RunName | None]]:
        task = _MergeTask(self._files, merges)
        rows = session.range(0, len(merges), 1, len(merges)).mapInArrow(task.run, _MADE).collect()
        made = {row["number"]: RunName(row["name"], row["rows"], row["size_bytes"]) for row in rows}
        return [(each, made.get(number)) for number, each in enumerate(merges)]

    def taken(self, lists: RunLists) -> RunLists:
        """The lists with what was merged in the meantime. It counts with the next commit."""
        if self._running is None or not self._running.done():
            return lists
        done, self._running = self._running.result(), None
        for each, made in done:
            lists = lists.with_merged(each.table, each.bucket, each.runs, made)
        self._merged.append((time.monotonic(), [run.name for each, _ in done for run in each.runs]))
        return lists

    def _remove_merged(self) -> None:
        while self._merged and time.monotonic() - self._merged[0][0] >= limits.RUNS_MERGED_KEPT_S:
            self._files.remove(self._merged.pop(0)[1])

    def forget(self) -> None:
        """Drop what is going on: the runs that it is about do not count any more."""
        if self._running is not None:
            self._running.cancel()
            self._running = None

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
