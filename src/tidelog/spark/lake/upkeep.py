"""What keeps tables quick and small: small files are put together, and files that no table has are removed.

Every batch adds files, and every pass over `current` rewrites some. Readers that opened a table before go on reading
the files of its old version until vacuum removes them.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa

from tidelog import limits
from tidelog.spark.lake.layout import CURRENT, DAY, DIVIDED
from tidelog.spark.lake.tables import LakeTable, faults_of


def compact(table: LakeTable, *, small_files_max: int = limits.LAKE_SMALL_FILES_MAX) -> int:
    """Put the files of each day together that has more small ones than that; how many went."""
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
    """How many there are of each day."""
    files = pa.table(table.delta.get_add_actions(flatten=True))
    days = files.column(f"partition.{DAY}") if table.name in DIVIDED and files.num_rows else [None] * files.num_rows
    sizes = files.column("size_bytes").to_pylist()
    found = (None if day is None else str(day) for day in days)
    return Counter(day for day, size in zip(found, sizes, strict=True) if size < limits.LAKE_FILE_BYTES // 2)


def vacuum(table: LakeTable, hours: int | None) -> int:
    """Remove files that the table has not had for so long, also those that tasks left behind; how many."""
    if hours is None and table.name != CURRENT:  # which has a time of its own
        hours = limits.LAKE_VACUUM_HOURS
    with faults_of(table):
        gone = table.delta.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)
        table.delta.update_incremental()
    return len(gone)
