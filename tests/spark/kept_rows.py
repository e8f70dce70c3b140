"""The rows of one bucket, kept from batch to batch as a driver keeps them, without Spark."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.spark.sorted_runs import Gathered, files_in
from tidelog.spark.runs.merging import merge
from tidelog.spark.runs.run_files import RunName
from tidelog.spark.views.dataflow.row_task import BucketRows, RowTask, rows_table
from tidelog.spark.views.dataflow.told import number_of, runs_of

TABLE = rows_table("source")


class KeptRows:
    """What a batch has told is taken at its end."""

    def __init__(self, folder: Path, columns: Iterable[str], *, has_times: bool = False) -> None:
        self.files = files_in(folder)
        self.told = Gathered()
        self.runs: list[RunName] = []
        self.number = 0
        self.grown = 0
        self._columns = tuple(columns)
        self._has_times = has_times

    def task(self) -> RowTask:
        """The task of the next batch."""
        told: Any = self.told
        return RowTask(
            files=self.files,
            table=TABLE,
            runs=(tuple(self.runs),),
            columns=self._columns,
            has_times=self._has_times,
            prefix=f"batch-{self.number:04d}",
            told=told,
        )

    def apply(self, changes: pa.Table) -> list[tuple[pa.Table, pa.Table]]:
        """A whole batch: rows as they were, and as they are."""
        rows = BucketRows(self.task(), 0)
        found = list(rows.apply(changes))
        rows.finish()
        self.take()
        return found

    def take(self) -> None:
        """Take what a task has told."""
        told = self.told.take()
        self.runs += [run for _, _, run in runs_of(told)]
        self.grown += number_of(told, TABLE)
        self.number += 1

    def merge(self, begin: int, end: int) -> None:
        made = merge(self.files, self.runs[begin:end], f"merged-{self.number}", is_oldest=begin == 0)
        self.runs[begin:end] = [] if made is None else [made]

    def everything(self, sign: int = 1) -> list[dict[str, Any]]:
        """All rows, as they are handed to Spark."""
        batches = self.task().everything([pa.record_batch([[0]], names=["id"])], sign=sign)
        return [row for batch in batches for row in batch.to_pylist()]
