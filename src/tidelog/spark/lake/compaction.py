"""Which files of a table are worth writing anew. This looks at the list of files only; `rewrite` does the work.

Files are put together only with files of the same day, or of the same bucket of `current`, and to no more than the size
of a file. Files of `changes` that a pass over `current` still has to take are left alone: it picks them by their ts.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from pathlib import PurePosixPath

from tidelog import limits
from tidelog.spark.lake.buckets import bucket_of
from tidelog.spark.lake.layout import CHANGES
from tidelog.spark.lake.part_files import SORTED
from tidelog.spark.lake.rewrite import Rewrite
from tidelog.spark.lake.tables import FileMade, LakeTable


def compactions(table: LakeTable, folded_ts: int, small_files_max: int) -> Iterator[Rewrite]:
    """The small files of each day that has more than so many. `folded_ts`: how far `current` is."""

    def is_small(file: FileMade) -> bool:
        return file.size_bytes < limits.LAKE_FILE_BYTES // 2 and not is_sorted(file)

    for files in _by_folder(table, folded_ts, is_small):
        if len(files) > small_files_max:
            for found in _bins(files):
                if len(found) > 1:
                    yield Rewrite(table.storage, table.schema, found)


def sortings(table: LakeTable, folded_ts: int) -> Iterator[Rewrite]:
    """All files that are not in the order of their keys, and with them small ones that are."""

    def is_wanted(file: FileMade) -> bool:
        return not is_sorted(file) or file.size_bytes < limits.LAKE_FILE_BYTES // 2

    for files in _by_folder(table, folded_ts, is_wanted):
        for found in _bins(files):
            if not all(map(is_sorted, found)):
                yield Rewrite(table.storage, table.schema, found, is_sorted=True)


def divisions(table: LakeTable, files: Iterable[FileMade], count: int) -> list[Rewrite]:
    """Each file of fewer buckets than there should be."""
    coarse = [file for file in files if bucket_of(file.path).of < count]
    return [Rewrite(table.storage, table.schema, (file,), bucket_count=count) for file in coarse]


def is_sorted(file: FileMade) -> bool:
    return PurePosixPath(file.path).name.startswith(f"{SORTED}-")


def _by_folder(table: LakeTable, folded_ts: int, is_wanted: Callable[[FileMade], bool]) -> list[list[FileMade]]:
    """Files of each day or bucket, by their newest ts."""
    found: dict[Hashable, list[FileMade]] = {}
    for file in table.files():
        if is_wanted(file) and (table.name != CHANGES or file.ts_max <= folded_ts):
            found.setdefault(file.day or bucket_of(file.path), []).append(file)
    return list(found.values())


def _bins(files: Sequence[FileMade]) -> Iterator[tuple[FileMade, ...]]:
    """Neighbours that make one file together."""
    waiting: list[FileMade] = []
    for file in files:
        if waiting and sum(each.size_bytes for each in waiting) + file.size_bytes > limits.LAKE_FILE_BYTES:
            yield tuple(waiting)
            waiting = []
        waiting.append(file)
    if waiting:
        yield tuple(waiting)
