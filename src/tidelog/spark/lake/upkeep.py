"""What the job itself does so that tables stay fast and small: days with many small files are compacted, and files that
no version needs are removed. `tidelog pipeline optimize` does more (`optimize`).

Every batch adds files, and every pass over `current` replaces some; a pass also puts together the small files of the
buckets that it meets. A reader that opened a table earlier goes on reading the files of its old version until vacuum
removes them.
"""

from __future__ import annotations

from tidelog import limits
from tidelog.spark.lake.compaction import compactions
from tidelog.spark.lake.executors import Executors
from tidelog.spark.lake.layout import CURRENT
from tidelog.spark.lake.rewrite import Rewrite
from tidelog.spark.lake.tables import LakeTable, faults_of


def compact(
    table: LakeTable, folded_ts: int, executors: Executors, *, small_files_max: int = limits.LAKE_SMALL_FILES_MAX
) -> int:
    """Compact each day that has more than `small_files_max` small files. Returns by how many files there are fewer.

    `folded_ts`: how far `current` is.
    """
    if table.name == CURRENT:
        return 0
    made = executors.each(list(compactions(table, folded_ts, small_files_max)), Rewrite.run)
    return sum(len(each.go) - len(each.come) for each in table.replace(made))


def vacuum(table: LakeTable, hours: int | None, *, only_tell: bool = False) -> int:
    """Remove files that the table has not needed for so long, and those that tasks left behind. Returns how many."""
    if hours is None and table.name != CURRENT:  # which has its own setting
        hours = limits.LAKE_VACUUM_HOURS
    with faults_of(table):
        gone = table.delta.vacuum(hours, dry_run=only_tell, enforce_retention_duration=False, full=True)
        table.delta.update_incremental()
    return len(gone)
