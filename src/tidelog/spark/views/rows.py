"""The rows of a source as they are, in memory: what changes are applied to.

    id binary       which row
    rest            list<binary>: names of all that it has; without any it is gone (see `changes`)
    c0, c1 ...      string: its columns

Applying changes costs a pass over the ids, in C, whatever has changed; everything else depends on what has changed.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.spark.views.changes import CLEAR, GONE, column, in_range

_CHUNKS_MAX: Final = 16
"""Beyond it, what changes one after the other have left behind is put together."""


def rows_schema(columns: int) -> pa.Schema:
    fixed = [pa.field("id", pa.binary()), pa.field("rest", pa.list_(pa.binary()))]
    return pa.schema([*fixed, *(pa.field(column(number), pa.string()) for number in range(columns))])


class Applied(NamedTuple):
    """What changes have done."""

    ids: Any
    """Of all rows that are not what they were: changed, new or gone."""
    rows: pa.Table
    """Those that are there, as they are now."""


class Rows:
    """The rows of one source."""

    def __init__(self, columns: int, table: pa.Table | None = None, *, key: int | None = None) -> None:
        """`key`: the column that only says the id once more, and keeps no row alive."""
        self.table = rows_schema(columns).empty_table() if table is None else table
        self._columns = columns
        self._key = key

    def __len__(self) -> int:
        return len(self.table)

    def apply(self, changes: pa.Table) -> Applied:
        """Take in changes that have each row once, CLEARs first."""
        is_clear = pc.equal(changes["op"], CLEAR)
        cleared = self._clear(changes.filter(is_clear))
        changes = changes.filter(pc.invert(is_clear)).combine_chunks()
        ids = _one_chunk(changes["id"])
        places = pc.index_in(self.table["id"], ids)
        is_hit = pc.is_valid(places)
        before = self.table.filter(is_hit)
        # For each change the place of its row among those before; -1: it is new.
        olds = np.full(len(changes), -1, np.int64)
        olds[_one_chunk(places.filter(is_hit)).to_numpy()] = np.arange(len(before))
        rows = self._changed(changes, before, olds)
        self.table = pa.concat_tables([self.table.filter(pc.invert(is_hit)), rows])
        if self.table["id"].num_chunks > _CHUNKS_MAX:
            self.table = self.table.combine_chunks()
        return Applied(pa.concat_arrays([cleared, ids]) if len(cleared) else ids, rows)

    def _clear(self, clears: pa.Table) -> Any:
        """Remove what is cleared; its ids."""
        gone = [pa.array([], pa.binary())]
        for each in clears.select(["id", "end"]).to_pylist():
            is_meant = in_range(self.table["id"], each["id"], each["end"])
            gone.append(_one_chunk(self.table["id"].filter(is_meant)))
            self.table = self.table.filter(pc.invert(is_meant))
        return pa.concat_arrays(gone)

    def _changed(self, changes: pa.Table, before: pa.Table, olds: Any) -> pa.Table:
        """The rows that changes speak of, as they are now."""
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
    """What keeps each row alive: what it had, less what is gone, and more."""
    more, less = _one_chunk(changes["more"]), changes["less"]
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


def _one_chunk(array: Any) -> Any:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
