"""Sorted runs for tests: small ones, in batches as small as can be, in memory or in a folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from tidelog.spark.delta.storage import find_storage
from tidelog.spark.runs.run_files import Batches, RunFiles
from tidelog.spark.views.dataflow.told import Told

SCHEMA: Final = pa.schema([("key", pa.binary()), ("gone", pa.bool_()), ("n", pa.int64())])
KEYS: Final = tuple(
    sorted({b"", b"\0", b"a", b"a\0", b"a\0\0", b"a\0\1", b"aa", b"aaa", b"ab", b"b", b"b\xff", b"b\xff\xff", b"\xff"})
)
"""Keys that are the beginnings of others, and that sort like nothing else."""

Rows = Mapping[bytes, int | None]
"""By key; None: the key has no row."""


def table_of(rows: Rows) -> pa.Table:
    made = [{"key": key, "gone": rows[key] is None, "n": rows[key]} for key in sorted(rows)]
    return pa.Table.from_pylist(made, SCHEMA)


def batches_of(table: pa.Table, rows_max: int) -> Batches:
    """A run as it is opened: batches of no more rows than that."""
    found: Batches = table.combine_chunks().to_batches(max_chunksize=rows_max)
    return found


def rows_of(tables: Iterable[pa.Table]) -> list[tuple[bytes, int | None]]:
    """The rows in their order; one that is gone has no value."""
    found = [row for table in tables for row in table.to_pylist()]
    assert all(row["n"] is None for row in found if row["gone"])
    return [(row["key"], row["n"]) for row in found]


def overlay_of(runs: Sequence[Rows]) -> dict[bytes, int | None]:
    """What runs come to, the oldest first: of each key the newest row."""
    found: dict[bytes, int | None] = {}
    for run in runs:
        found |= run
    return found


def files_in(folder: Path) -> RunFiles:
    return RunFiles(find_storage(str(folder)), "state/runs")


class Gathered:
    """What Spark gives tasks to tell something with, in one process."""

    def __init__(self) -> None:
        self.value: Told = {}

    def add(self, term: Told) -> None:
        self.value = {**self.value, **term}

    def take(self) -> Any:
        """All that was told since the last call."""
        found, self.value = self.value, {}
        return found
