"""Rows that are sorted by their first column, `key` (binary), and have each key once.

Everything works on whole columns, and a lookup costs a binary search: none of it depends on how many rows there are.
A row with `gone` says that the key has no row: it hides older ones.

    key binary, gone bool, and any other columns
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.spark.runs.run_files import Batches

KEY: Final = "key"
GONE: Final = "gone"


def sorted_by_key(rows: pa.Table) -> pa.Table:
    """Rows in the order of their keys, each of which there is once."""
    return rows.take(pc.sort_indices(rows[KEY]))


def overlaid(older: pa.Table, newer: pa.Table) -> pa.Table:
    """Both together; of a key that both have, the newer row counts."""
    if not len(older) or not len(newer):
        return older if len(older) else newer
    older, newer = older.combine_chunks(), newer.combine_chunks()
    at = pc.search_sorted(older[KEY], newer[KEY]).to_numpy()
    is_kept = np.ones(len(older), bool)
    inside = np.flatnonzero(at < len(older))
    is_same = pc.equal(older[KEY].take(pa.array(at[inside])), newer[KEY].take(pa.array(inside)))
    is_kept[at[inside[is_same.to_numpy(zero_copy_only=False)]]] = False
    before = np.concatenate(([0], np.cumsum(is_kept)))  # kept rows before each place
    places = before[at] + np.arange(len(newer))
    kept = np.flatnonzero(is_kept)
    order = np.empty(len(kept) + len(newer), np.int64)
    is_new = np.zeros(len(order), bool)
    is_new[places] = True
    order[places] = len(older) + np.arange(len(newer))
    order[~is_new] = kept
    return pa.concat_tables([older, newer]).take(pa.array(order))


class Overlay:
    """Several runs over each other, the oldest first; of a key, the newest row counts."""

    def __init__(self, runs: Sequence[Batches], schema: pa.Schema) -> None:
        self._runs = runs
        self._schema = schema

    def newest(self, keys: Any) -> tuple[Any, pa.Table]:
        """Which of some keys (sorted, each once) have a row, as a numpy array of their places, and these rows."""
        left = np.arange(len(keys))
        places: list[Any] = []
        rows: list[pa.Table] = []
        for run in reversed(self._runs):
            for batch in run:
                if not len(left):
                    break
                hits, at = _hits(batch.column(KEY), keys.take(pa.array(left)))
                if len(hits):
                    rows.append(pa.Table.from_batches([batch.take(pa.array(at))]))
                    places.append(left[hits])
                    left = np.delete(left, hits)
        if not rows:
            return np.empty(0, np.int64), self._schema.empty_table()
        found, at = pa.concat_tables(rows), np.concatenate(places)
        is_there = ~found[GONE].to_numpy(zero_copy_only=False)
        order = np.flatnonzero(is_there)
        order = order[np.argsort(at[order], kind="stable")]
        return at[order], found.take(pa.array(order))

    def keys_between(self, start: bytes, end: bytes | None) -> Any:
        """The keys of all rows from `start` up to but not including `end` (None: no end), sorted."""
        found = [pa.array([], pa.binary())]
        for part in self.windows(start, end):
            found += part[KEY].chunks
        return pa.concat_arrays(found)

    def windows(
        self, start: bytes = b"", end: bytes | None = None, *, rows_max: int = 1 << 18, with_gone: bool = False
    ) -> Iterator[pa.Table]:
        """All rows of a range of keys, in order, some at a time; `with_gone`: rows that hide others, too."""
        bounds = [start, *self._bounds(start, end, rows_max), end]
        for low, high in pairwise(bounds):
            assert low is not None
            made = self._schema.empty_table()
            for run in self._runs:
                part = [_between(batch, low, high) for batch in run]
                made = overlaid(made, pa.Table.from_batches(part, self._schema))
            if not with_gone:
                made = made.filter(pc.invert(made[GONE]))
            if len(made):
                yield made

    def _bounds(self, start: bytes, end: bytes | None, rows_max: int) -> list[bytes]:
        """Keys that divide a range into windows, none of which has more than about twice `rows_max` rows."""
        step = max(1, rows_max // max(1, len(self._runs)))
        found = set[bytes]()
        for run in self._runs:
            before = 0  # rows of the run in earlier batches, each of which may have fewer than a step
            for batch in run:
                part = _between(batch, start, end).column(KEY)
                found.update(part[at].as_py() for at in range(-before % step, len(part), step) if before + at)
                before += len(part)
        # As many bounds as there are runs lie within `rows_max` rows.
        return sorted(found)[len(self._runs) - 1 :: max(1, len(self._runs))]


def _hits(column: Any, keys: Any) -> tuple[Any, Any]:
    """Which of some keys a column has, and where."""
    low = pc.search_sorted(keys, pa.scalar(column[0].as_py(), pa.binary())).as_py()
    high = pc.search_sorted(keys, pa.scalar(column[len(column) - 1].as_py(), pa.binary()), side="right").as_py()
    if low >= high:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    some = keys.slice(low, high - low)
    at = pc.search_sorted(column, some).to_numpy()
    is_same = pc.equal(column.take(pa.array(at)), some).to_numpy(zero_copy_only=False)
    hits = np.flatnonzero(is_same)
    return hits + low, at[hits]


def _between(batch: pa.RecordBatch, start: bytes, end: bytes | None) -> pa.RecordBatch:
    column = batch.column(KEY)
    low = pc.search_sorted(column, pa.scalar(start, pa.binary())).as_py() if start else 0
    high = len(column) if end is None else pc.search_sorted(column, pa.scalar(end, pa.binary())).as_py()
    return batch.slice(low, max(0, high - low))
