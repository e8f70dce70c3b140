"""The rows of a source in memory, to which changes are applied.

    id binary       which row
    rest            list<binary>: names of everything that the row has; a row without any is gone (see `changes`)
    c0, c1 ...      string: its columns

Applying changes costs one pass over all ids, in C; everything else depends only on how much has changed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.spark.views.keeping.arrow_tables import one_chunk, with_rows
from tidelog.spark.views.keeping.changes import CLEAR, GONE, column, in_range


def rows_schema(columns: int) -> pa.Schema:
    fixed = [pa.field("id", pa.binary()), pa.field("rest", pa.list_(pa.binary()))]
    return pa.schema([*fixed, *(pa.field(column(number), pa.string()) for number in range(columns))])


class Applied(NamedTuple):
    """The effect of changes."""

    ids: Any
    """Ids of all rows that were changed, added or removed."""
    rows: pa.Table
    """Those of them that exist, as they are now."""


class SourceRows:
    """The rows of one source."""

    def __init__(self, columns: int, table: pa.Table | None = None) -> None:
        self.table = rows_schema(columns).empty_table() if table is None else table
        self._columns = columns

    def __len__(self) -> int:
        return len(self.table)

    def apply(self, changes: pa.Table) -> Applied:
        """Apply changes, which have each row once and CLEARs first."""
        is_clear = pc.equal(changes["op"], CLEAR)
        cleared = self._clear(changes.filter(is_clear))
        changes = changes.filter(pc.invert(is_clear)).combine_chunks()
        ids = one_chunk(changes["id"])
        places = pc.index_in(self.table["id"], ids)
        is_hit = pc.is_valid(places)
        before = self.table.filter(is_hit)
        # For each change the place of its row among those before; -1: it is new.
        olds = np.full(len(changes), -1, np.int64)
        olds[one_chunk(places.filter(is_hit)).to_numpy()] = np.arange(len(before))
        rows = self._changed(changes, before, olds)
        self.table = with_rows(self.table.filter(pc.invert(is_hit)), rows)
        return Applied(pa.concat_arrays([cleared, ids]) if len(cleared) else ids, rows)

    def _clear(self, clears: pa.Table) -> Any:
        """Remove the rows that are cleared. Returns their ids."""
        gone = [pa.array([], pa.binary())]
        for each in clears.select(["id", "end"]).to_pylist():
            is_meant = in_range(self.table["id"], each["id"], each["end"])
            gone.append(one_chunk(self.table["id"].filter(is_meant)))
            self.table = self.table.filter(pc.invert(is_meant))
        return pa.concat_arrays(gone)

    def _changed(self, changes: pa.Table, before: pa.Table, olds: Any) -> pa.Table:
        """The changed rows, as they are now."""
        is_gone = changes["op"].to_numpy() == GONE
        is_kept = (olds >= 0) & ~pc.fill_null(changes["is_reset"], False).to_numpy()
        kept = pa.array(olds, mask=~is_kept)
        touched = pc.fill_null(changes["touched"], 0).to_numpy()
        made = {"id": changes["id"], "rest": _rests(changes, before["rest"].take(kept))}
        is_alive = pc.greater(pc.list_value_length(made["rest"]), 0).to_numpy(zero_copy_only=False)
        for number in range(self._columns):
            name = column(number)
            is_new = pa.array((touched >> number) & 1 == 1)
            made[name] = pc.if_else(is_new, changes[name], before[name].take(kept))
        table = pa.table(made, schema=self.table.schema)
        return table.filter(pa.array(is_alive & ~is_gone))


def _rests(changes: pa.Table, before: Any) -> Any:
    """The names that keep each row alive: those it had, without `less`, and with `more`."""
    more, less = one_chunk(changes["more"]), changes["less"]
    if not _has_some(less) and not _has_some(before):
        return pc.fill_null(more, pa.scalar([], more.type))
    made = []
    for had, got, lost in zip(before.to_pylist(), more.to_pylist(), less.to_pylist(), strict=True):
        if not had and not lost:
            made.append(got or [])
        else:
            left = set(had or ()).difference(lost or ()).union(got or ())
            made.append(sorted(left))
    return pa.array(made, pa.list_(pa.binary()))


def _has_some(lists: Any) -> bool:
    return bool(pc.any(pc.greater(pc.list_value_length(lists), 0)).as_py())
