"""The job `optimize`: files of a lake are put together and brought into the order of their keys, and old ones removed.

It runs beside the job `lake`, on the same tables, and asks no server anything. Executors write the files anew, and each
wave of them is one commit. If the other job replaced a file meanwhile, what was made of it is left out (`skipped`); if
it committed anything else, the commit is tried again. The other job does the same, so neither fails because of the
other.

A table in which everything is in order is left alone, so running this again costs little.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from deltalake.exceptions import DeltaError
from pyarrow import ArrowException

from tidelog import limits
from tidelog.errors import ClientError, TidelogError
from tidelog.spark.delta.storage import Storage
from tidelog.spark.jobs.job_lease import Stop
from tidelog.spark.lake.compaction import sortings
from tidelog.spark.lake.layout import CURRENT, SCHEMAS
from tidelog.spark.lake.rewrite import Rewrite
from tidelog.spark.lake.tables import LakeTable, Replacement, find_table
from tidelog.spark.lake.upkeep import vacuum

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Rewritten(NamedTuple):
    """The result of a task."""

    size_bytes: int
    """Of the files that were to be written anew."""
    made: Replacement | None
    error: str | None = None


@dataclass
class TableTotals:
    """What was done to one table."""

    table: str
    files_before: int
    size_before_bytes: int
    to_rewrite: int = 0
    """Files that were worth writing anew."""
    files: int = 0
    size_bytes: int = 0
    rewritten: int = 0
    skipped: int = 0
    """Files of which others were made first."""
    failed: int = 0
    vacuumed: int = 0
    seconds: float = 0.0


class OptimizeJob:
    """One run over some tables of a lake."""

    def __init__(self, storage: Storage, names: Sequence[str] = (), keep_hours: int | None = None) -> None:
        """`names`: tables; none: all that there are. `keep_hours`: how long files stay that no version needs."""
        unknown = [name for name in names if name not in SCHEMAS]
        if unknown:
            raise ClientError(f"--table {unknown[0]}: give one of {', '.join(SCHEMAS)}")
        if keep_hours is not None and keep_hours < limits.LAKE_KEEP_HOURS_MIN:
            raise ClientError(
                f"--keep is less than {limits.LAKE_KEEP_HOURS_MIN} hour: a job may just be writing files that no table "
                "has yet. Give more"
            )
        self._storage = storage
        self._names = list(dict.fromkeys(names))
        self._keep_hours = keep_hours
        self.totals: list[TableTotals] = []
        self.last_error: str | None = None

    @property
    def failed(self) -> int:
        return sum(each.failed for each in self.totals)

    def plan(self) -> list[TableTotals]:
        """What a run would do now. Nothing is changed."""
        for table in self._tables():
            totals, wanted = self._begin(table)
            totals.files, totals.size_bytes = totals.files_before, totals.size_before_bytes
            totals.to_rewrite = sum(len(each.files) for each in wanted)
            totals.vacuumed = vacuum(table, self._keep_hours, only_tell=True)
        return self.totals

    def run(
        self,
        make_spark: Callable[[], SparkSession],
        stop: Stop,
        on_progress: Callable[[str, int, int], object] = lambda _table, _done, _total: None,
    ) -> None:
        """`on_progress` gets the name of a table, how many bytes of it were written anew, and how many are to be."""
        for table in self._tables():
            if stop.is_set():
                return
            begun = time.monotonic()
            totals, wanted = self._begin(table)
            if wanted:
                self._rewrite(table, totals, wanted, make_spark, stop, on_progress)
            if not stop.is_set():
                totals.vacuumed = vacuum(table, self._keep_hours)
            left = table.files()
            totals.files, totals.size_bytes = len(left), sum(file.size_bytes for file in left)
            totals.seconds = round(time.monotonic() - begun, 1)

    def _tables(self) -> Iterator[LakeTable]:
        found = 0
        for name in self._names or SCHEMAS:
            table = find_table(self._storage, name)
            if table is not None:
                found += 1
                yield table
            elif self._names:
                raise ClientError(f"{self._storage.uri(name)}: there is no such table")
        if not found:
            raise ClientError(f"{self._storage.root}: there is no lake. `tidelog pipeline lake` makes one")

    def _begin(self, table: LakeTable) -> tuple[TableTotals, list[Rewrite]]:
        files = table.files()
        totals = TableTotals(table.name, len(files), sum(file.size_bytes for file in files))
        self.totals.append(totals)
        current = table if table.name == CURRENT else find_table(self._storage, CURRENT)
        wanted = list(sortings(table, -1 if current is None else current.ts))
        totals.to_rewrite = sum(len(each.files) for each in wanted)
        return totals, wanted

    def _rewrite(
        self,
        table: LakeTable,
        totals: TableTotals,
        wanted: Sequence[Rewrite],
        make_spark: Callable[[], SparkSession],
        stop: Stop,
        on_progress: Callable[[str, int, int], object],
    ) -> None:
        from tidelog.spark.jobs.waves import Waves

        all_bytes, done_bytes = sum(each.size_bytes for each in wanted), 0
        made: list[Replacement] = []

        def take(result: Rewritten) -> None:
            nonlocal done_bytes
            done_bytes += result.size_bytes
            if result.made is not None:
                made.append(result.made)
            else:
                totals.failed += 1
                self.last_error = result.error
            on_progress(table.name, done_bytes, all_bytes)

        on_progress(table.name, 0, all_bytes)
        waves = Waves[Rewrite, Rewritten](make_spark(), stop, on_result=take, failed=_failed)
        step = 2 * waves.parallel
        for start in range(0, len(wanted), step):
            if stop.is_set():
                return
            made.clear()
            waves.run(wanted[start : start + step], _rewritten, lambda each: each.size_bytes)
            table.refresh()
            done = table.replace(made)
            totals.rewritten += _sources(done)
            totals.skipped += _sources(made) - _sources(done)


def _sources(made: Sequence[Replacement]) -> int:
    return sum(len(each.go) for each in made)


def _rewritten(wanted: Rewrite) -> Rewritten:
    """What a task does. Another job may have removed a file that it was to read."""
    try:
        return Rewritten(wanted.size_bytes, wanted.run())
    except (OSError, ArrowException, DeltaError, TidelogError) as error:
        return _failed(wanted, f"{type(error).__name__}: {error}")


def _failed(wanted: Rewrite, why: str) -> Rewritten:
    where = f"{wanted.storage.uri(wanted.files[0].table)}/{wanted.files[0].path}"
    return Rewritten(wanted.size_bytes, None, f"{where} and {len(wanted.files) - 1} more: {why}")
