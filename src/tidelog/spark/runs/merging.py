"""Merging runs, so that a lookup never has many of them to look into.

Every change adds a run, and runs of about the same size are merged into one, as in any log-structured tree: so each row
is written again only some times, and the number of runs grows with the logarithm of the number of rows. Only runs that
follow each other are merged, because of two rows with one key the newer counts. A merge that begins with the oldest run
also drops what only hides other rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from tidelog import limits
from tidelog.spark.runs.multisets import Multiset
from tidelog.spark.runs.run_files import RunFiles, RunName
from tidelog.spark.runs.sorted_rows import GONE, Overlay


def to_merge(runs: Sequence[RunName]) -> Sequence[RunName]:
    """Which runs of a bucket, the oldest first, are worth merging now; none if it is in order."""
    total, begin = 0, len(runs)
    for number in range(len(runs) - 1, -1, -1):
        if total and runs[number].rows > max(limits.RUN_MERGE_RATIO * total, limits.RUN_SMALL_ROWS):
            break
        total += runs[number].rows
        begin = number
    found = runs[begin:]
    return found if len(found) >= limits.RUNS_MERGED_MIN else ()


def merge(files: RunFiles, runs: Sequence[RunName], name: str, *, is_oldest: bool) -> RunName | None:
    """Write one run in the place of some; None: nothing is left of them."""
    opened = [files.open(run) for run in runs]
    schema = opened[0][0].schema
    parts: Iterator[pa.Table]
    if GONE in schema.names:
        parts = Overlay(opened, schema).windows(with_gone=not is_oldest)
    else:
        parts = Multiset(opened, schema).windows()
    return files.write(name, parts)
