"""Keeps tables fast and small: small files are compacted, and files that no version needs are removed.

Every batch adds files, and every pass over `current` rewrites some. A reader that opened a table earlier goes on
reading the files of its old version until vacuum removes them.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa

from tidelog import limits
from tidelog.spark.lake.layout import CURRENT, DAY, DIVIDED
from tidelog.spark.lake.tables import LakeTable, faults_of


def compact(table: LakeTable, *, small_files_max: int = limits.LAKE_SMALL_FILES_MAX) -> int:
    """Compact each day that has more than `small_files_max` small files. Returns by how many files there are fewer."""
    removed = 0
    for day, count in _small_files(table).items():
        if count > small_files_max:
            only: Any = None if day is None else [(DAY, "=", day)]
            with faults_of(table):
                done = table.delta.optimize.compact(partition_filters=only, target_size=limits.LAKE_FILE_BYTES)
                table.delta.update_incremental()
            removed += done["numFilesRemoved"] - done["numFilesAdded"]
    return removed


def _small_files(table: LakeTable) -> Counter[str | None]:
    """The number of small files of each day."""
    files = pa.table(table.delta.get_add_actions(flatten=True))
    days = files.column(f"partition.{DAY}") if table.name in DIVIDED and files.num_rows else [None] * files.num_rows
    sizes = files.column("size_bytes").to_pylist()
    found = (None if day is None else str(day) for day in days)
    return Counter(day for day, size in zip(found, sizes, strict=True) if size < limits.LAKE_FILE_BYTES // 2)


def vacuum(table: LakeTable, hours: int | None) -> int:
    """Remove files that the table has not needed for so long, and those that tasks left behind. Returns how many."""
    if hours is None and table.name != CURRENT:  # which has its own setting
        hours = limits.LAKE_VACUUM_HOURS
    with faults_of(table):
        gone = table.delta.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)
        table.delta.update_incremental()
    return len(gone)
