"""Values of groups with how often each is there, sorted, so that the first and the last of a group are found at once.

    key binary            the group
    v0, v1 ...            a value; rows are sorted by key, v0, v1 ..., with null first
    weight int64          how much more, or less, often the value is there; never 0

Runs lie over each other and their weights are added up, so a change is written without looking for anything. A value is
there if its sum is positive. The first value of a group is found by looking at some rows at the beginning of the group
in each run: rows are complete up to the smallest last row that was looked at, and if no value that is there lies so
far, more rows are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.spark.runs.run_files import Batches
from tidelog.spark.runs.sorted_rows import KEY

WEIGHT: Final = "weight"
_MORE: Final = "(more)"
_FIRST_ROWS: Final = 16
_GROWTH: Final = 16


def value_name(number: int) -> str:
    return f"v{number}"


def multiset_schema(kinds: Sequence[Any]) -> pa.Schema:
    """The schema of a multiset whose values have these types."""
    values = [pa.field(value_name(number), kind) for number, kind in enumerate(kinds)]
    return pa.schema([pa.field(KEY, pa.binary()), *values, pa.field(WEIGHT, pa.int64())])


def added_up(rows: pa.Table) -> pa.Table:
    """Rows in order, each value once, without those whose weights cancel out."""
    if not len(rows):
        return rows
    rows, starts = _in_order(rows)
    weights = np.add.reduceat(rows[WEIGHT].to_numpy(), starts)
    found = rows.take(pa.array(starts))
    found = found.set_column(found.schema.get_field_index(WEIGHT), WEIGHT, pa.array(weights))
    return found.filter(pa.array(weights != 0))


def _in_order(rows: pa.Table) -> tuple[pa.Table, Any]:
    """The rows sorted, and where each value begins."""
    names = _value_names(rows.schema)
    order = pc.sort_indices(rows, sort_keys=[(name, "ascending", "at_start") for name in names])
    rows = rows.take(order).combine_chunks()
    is_first = np.ones(len(rows), bool)
    is_first[1:] = ~_like_the_one_before(rows, names)
    return rows, np.flatnonzero(is_first)


def _value_names(schema: pa.Schema) -> list[str]:
    return [name for name in schema.names if name not in (WEIGHT, _MORE)]


def _like_the_one_before(rows: pa.Table, names: Sequence[str]) -> Any:
    found = np.ones(max(0, len(rows) - 1), bool)
    for name in names:
        column = rows[name].combine_chunks() if isinstance(rows[name], pa.ChunkedArray) else rows[name]
        one, other = column.slice(1), column.slice(0, max(0, len(column) - 1))
        same = pc.or_(pc.fill_null(pc.equal(one, other), False), pc.and_(pc.is_null(one), pc.is_null(other)))
        found &= same.to_numpy(zero_copy_only=False)
    return found


class Multiset:
    """Some runs of a multiset."""

    def __init__(self, runs: Sequence[Batches], schema: pa.Schema) -> None:
        self._runs = runs
        self._schema = schema

    def ends(self, keys: Any, *, is_last: bool) -> pa.Table:
        """The first or last value of each of some groups (sorted, each once) that has any, by key."""
        found = [self._schema.empty_table()]
        count = _FIRST_ROWS
        while len(keys):
            some, keys = self._some_ends(keys, count, is_last=is_last)
            found.append(some)
            count *= _GROWTH
        return pa.concat_tables(found)

    def _some_ends(self, keys: Any, count: int, *, is_last: bool) -> tuple[pa.Table, Any]:
        """Look at `count` rows of each group in each run. Returns what was found, and groups for which that is not
        enough."""
        looked = [each for run in self._runs for batch in run if (each := _looked_at(batch, keys, count, is_last))]
        if not looked:
            return self._schema.empty_table(), keys.slice(0, 0)
        rows = pa.concat_tables(looked)
        rows, starts = _in_order(rows)
        weights = np.add.reduceat(rows[WEIGHT].to_numpy(), starts)
        has_more = np.logical_or.reduceat(rows[_MORE].to_numpy(zero_copy_only=False), starts)
        rows = rows.take(pa.array(starts)).drop_columns([_MORE])
        if is_last:
            backwards = pa.array(np.arange(len(rows) - 1, -1, -1))
            rows, weights, has_more = rows.take(backwards), weights[::-1], has_more[::-1]
        codes = rows[KEY].combine_chunks().dictionary_encode()
        groups, at = codes.indices.to_numpy(), np.arange(len(rows))
        nothing = len(rows)
        first = np.full(len(codes.dictionary), nothing)
        np.minimum.at(first, groups[weights > 0], at[weights > 0])
        bound = np.full(len(codes.dictionary), nothing)
        np.minimum.at(bound, groups[has_more], at[has_more])
        is_found = (first < nothing) & (first <= bound)
        is_open = ~is_found & (bound < nothing)
        again = codes.dictionary.filter(pa.array(is_open))
        return rows.take(pa.array(first[is_found])), again.take(pc.sort_indices(again))

    def windows(self, rows_max: int = 1 << 18) -> Iterator[pa.Table]:
        """All values in order, some at a time, added up."""
        runs = [pa.Table.from_batches(run, self._schema) for run in self._runs]
        at = [0] * len(runs)
        step = max(1, rows_max // max(1, len(runs)))
        while any(place < len(run) for place, run in zip(at, runs, strict=True)):
            parts = []
            for number, (place, run) in enumerate(zip(at, runs, strict=True)):
                part = run.slice(place, step)
                is_bound = np.zeros(len(part), bool)
                if len(part) and place + len(part) < len(run):
                    is_bound[-1] = True
                part = part.append_column(_MORE, pa.array(is_bound))
                parts.append(part.append_column("(run)", pa.repeat(number, len(part))))
            rows = pa.concat_tables(parts)
            names = _value_names(self._schema)
            order = pc.sort_indices(rows, sort_keys=[(name, "ascending", "at_start") for name in names])
            rows = rows.take(order)
            bounds = np.flatnonzero(rows[_MORE].to_numpy())
            # Equal values of other runs are behind the bound or before it: all of them are read already.
            ready = len(rows) if not len(bounds) else _last_equal(rows, names, int(bounds[0])) + 1
            taken = np.bincount(rows["(run)"].slice(0, ready).to_numpy(), minlength=len(runs))
            at = [place + int(more) for place, more in zip(at, taken, strict=True)]
            made = added_up(rows.slice(0, ready).select(self._schema.names))
            if len(made):
                yield made


def _last_equal(rows: pa.Table, names: Sequence[str], at: int) -> int:
    """The last row that has the same value as the one at this place."""
    like = _like_the_one_before(rows.slice(at), names)
    return at + (int(np.argmin(like)) if not like.all() else len(like))


def _looked_at(batch: pa.RecordBatch, keys: Any, count: int, is_last: bool) -> pa.Table | None:
    """The first or last rows of each group; `_MORE` marks a row behind which there are more of its group."""
    column = batch.column(KEY)
    low = pc.search_sorted(column, keys).to_numpy().astype(np.int64)
    high = pc.search_sorted(column, keys, side="right").to_numpy().astype(np.int64)
    sizes = np.minimum(high - low, count)
    if not sizes.any():
        return None
    begins = high - sizes if is_last else low
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    at = np.arange(offsets[-1]) - np.repeat(offsets[:-1] - begins, sizes)
    is_bound = np.zeros(len(at), bool)
    cut = (high - low) > sizes
    is_bound[(offsets[:-1] if is_last else offsets[1:] - 1)[cut]] = True
    return pa.Table.from_batches([batch.take(pa.array(at))]).append_column(_MORE, pa.array(is_bound))
