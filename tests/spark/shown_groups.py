"""The groups of a view as they lie in buckets, written by hand: for what reads the rows of a view from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from tests.spark.kept_groups import groups_of
from tidelog.spark.runs.run_files import RunName
from tidelog.spark.views.dataflow.components import KeptParts
from tidelog.spark.views.dataflow.group_task import state_schema
from tidelog.spark.views.dataflow.shown_rows import ShownRows
from tidelog.spark.views.sql.definition import View, ViewSource
from tidelog.spark.views.sql.plan import Aggregate

VIEW: Final = View(
    "v", ViewSource("stream", "s"), "select a, b, count(*) as n, max(x) as hi from source group by a, b", ("a", "b")
)
SCHEMA: Final = pa.schema([("a", pa.string()), ("b", pa.int32()), ("n", pa.int64()), ("hi", pa.string())])

Rows = Mapping[str, Sequence[Any] | None]
"""By group: the values of the columns; None: the group is not shown."""


class ShownGroups:
    """So many buckets of groups. What is put into one lies over what was there."""

    def __init__(self, folder: Path, buckets: int, schema: pa.Schema = SCHEMA) -> None:
        groups = groups_of(folder, {"a": pa.string(), "b": pa.int32()}, [], [Aggregate("count", ())])
        self.schema = schema
        self._files = groups.files
        self._plan, self._contributed = groups.plan, groups.contributed
        self._state = state_schema(KeptParts(self._plan, self._contributed), schema)
        self._runs: list[list[RunName]] = [[] for _ in range(buckets)]
        self._number = 0

    def put(self, bucket: int, rows: Rows) -> None:
        made = []
        for group in sorted(rows, key=str.encode):
            values = rows[group] or [None] * len(self.schema)
            row: dict[str, Any] = {f"o{number}": value for number, value in enumerate(values)}
            made.append({"key": group.encode(), "gone": False, "count_": 1, "shown": rows[group] is not None, **row})
        run = self._files.write(f"run-{self._number}", [pa.Table.from_pylist(made, self._state)])
        assert run is not None
        self._runs[bucket].append(run)
        self._number += 1

    def rows(self) -> ShownRows:
        return ShownRows(self._plan, self._contributed, self.schema, self._files, tuple(map(tuple, self._runs)))
