"""A task applies changes to the groups of one bucket.

    groups and entries, packed -> each changed group: `_group` struct<...> (see `changed_schema`), g0 ..., r0 ...

Groups lie in a table of state, `groups`, by their text:

    key binary, gone bool     see `runs.sorted_rows`
    the columns of the components, and the row of the view: o0 ..., and whether it is shown

Beside it are the tables of values of `Distinct` and `Extreme`. All are looked into for the groups that change, and for
no others. The row of the view may take SQL (`plan.final`), so the groups themselves are written by the last task
(`result_task`), which knows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import Accumulator, TaskContext

from tidelog import limits
from tidelog.spark.runs.multisets import WEIGHT, Multiset, added_up, value_name
from tidelog.spark.runs.run_files import Batches, RunFiles
from tidelog.spark.runs.run_lists import RunBuckets
from tidelog.spark.runs.sorted_rows import GONE, KEY, Overlay, sorted_by_key
from tidelog.spark.views.dataflow.components import DISTINCT_STATE, Distinct, Extreme, KeptParts
from tidelog.spark.views.dataflow.packing import portions
from tidelog.spark.views.dataflow.reduce_task import EntryTables
from tidelog.spark.views.dataflow.told import Told
from tidelog.spark.views.dataflow.values import one_chunk
from tidelog.spark.views.sql.plan import ViewPlan

TABLE: Final = "groups"
EXISTS, SHOWN = "exists", "shown"


def output_name(number: int) -> str:
    return f"o{number}"


def state_schema(kept: KeptParts, result: pa.Schema) -> pa.Schema:
    """The table of state `groups`."""
    outputs = [pa.field(output_name(number), field.type) for number, field in enumerate(result)]
    fixed = [pa.field(KEY, pa.binary()), pa.field(GONE, pa.bool_())]
    return pa.schema([*fixed, *kept.fields(), pa.field(SHOWN, pa.bool_()), *outputs])


def changed_schema(kept: KeptParts, result: pa.Schema) -> pa.Schema:
    """What a changed group is: its components now, whether it exists, and the row of the view as it was."""
    state = state_schema(kept, result)
    fields = [state.field(KEY), pa.field(EXISTS, pa.bool_()), *(field for field in list(state)[2:])]
    return pa.schema(fields)


@dataclass(frozen=True)
class GroupTask:
    """Applies changes to groups. It travels to executors."""

    plan: ViewPlan
    contributed: pa.Schema
    result: pa.Schema
    files: RunFiles
    tables: Mapping[str, RunBuckets]
    """The runs of `groups` and of the tables of values."""
    prefix: str
    told: Accumulator[Told]

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Changed groups, for SQL: `_group`, g0 ..., r0 ..."""
        for changed, columns in self.changed(batches):
            group = pa.StructArray.from_arrays(
                [one_chunk(each) for each in changed.columns], fields=list(changed.schema)
            )
            table = pa.table({"_group": group, **columns})
            yield from table.to_batches(max_chunksize=limits.VIEW_PACKED_ROWS)

    def changed(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[pa.Table, dict[str, Any]]]:
        """Changed groups (`changed_schema`), and their g0 ..., r0 ..."""
        context = TaskContext.get()
        assert context is not None
        groups = BucketGroups(self, context.partitionId())
        # A group is applied once, because the row of the view that it had is known only for the first time.
        together: list[list[pa.Table]] = []
        for some in portions(batches, limits.VIEW_PORTION_ROWS):
            together = [groups.together([*together, *some])]
        if together:
            yield groups.apply(together[0])


class BucketGroups:
    """The groups of one bucket while a task changes them."""

    def __init__(self, task: GroupTask, bucket: int) -> None:
        self._task = task
        self._bucket = bucket
        self._kept = KeptParts(task.plan, task.contributed)
        self._parts = EntryTables(self._kept).parts
        self._state = state_schema(self._kept, task.result)
        self._runs = {name: self._opened(name) for name in (TABLE, *(part.table for part in self._parts))}

    def _opened(self, table: str) -> list[Batches]:
        buckets = self._task.tables.get(table)
        return [self._task.files.open(run) for run in buckets[self._bucket]] if buckets else []

    def together(self, some: Sequence[Sequence[pa.Table]]) -> list[pa.Table]:
        """What several tasks, or portions, say of groups and of values, as if one had said it."""
        groups, *entries = (pa.concat_tables(tables) for tables in zip(*some, strict=True))
        found = [self._combined(groups)]
        for part, table in zip(self._parts, entries, strict=True):
            found.append(_summed(table) if isinstance(part, Distinct) else added_up(table))
        return found

    def apply(self, together: Sequence[pa.Table]) -> tuple[pa.Table, dict[str, Any]]:
        """Apply changes. Returns the changed groups, and their g0 ..., r0 ..."""
        more, *entries = together
        keys = one_chunk(more[KEY])
        places, found = Overlay(self._runs[TABLE], self._state).newest(keys)
        olds = np.full(len(keys), -1, np.int64)
        olds[places] = np.arange(len(found))
        before = found.take(pa.array(olds, mask=olds < 0))
        for part, some in zip(self._parts, entries, strict=True):
            if isinstance(part, Distinct):
                more = self._count_distinct(part, some, more)
            else:
                self._write(part.table, some)
        columns = {}
        for each in self._kept.components:
            name = each.field().name
            if isinstance(each, Extreme):
                some = entries[[part.table for part in self._parts].index(each.table)]
                columns[name] = self._extreme(each, one_chunk(before[name]), keys, some)
            else:
                columns[name] = each.applied(one_chunk(before[name]), one_chunk(more[name]))
        exists = pc.greater(columns[self._kept.rows.field().name], 0)
        if self._task.plan.is_global:
            exists = pa.array(np.ones(len(keys), bool))
        shown = pc.fill_null(one_chunk(before[SHOWN]), False)
        outputs = {name: before[name] for name in self._state.names if name.startswith("o") and name[1:].isdigit()}
        made = {KEY: keys, EXISTS: exists, **columns, SHOWN: shown, **outputs}
        schema = changed_schema(self._kept, self._task.result)
        changed = pa.table([made[name] for name in schema.names], schema=schema)
        return changed, {**{name: more[name] for name in self._task.plan.groups}, **self._kept.results(columns)}

    def _combined(self, groups: pa.Table) -> pa.Table:
        """Each group once, sorted."""
        encoded = one_chunk(groups[KEY]).dictionary_encode()
        codes, count = encoded.indices.to_numpy(), len(encoded.dictionary)
        if count == len(groups):
            return sorted_by_key(groups)
        some = np.zeros(count, np.int64)
        some[codes] = np.arange(len(codes))
        columns = {KEY: encoded.dictionary}
        columns |= {name: groups[name].take(pa.array(some)) for name in self._task.plan.groups}
        for each in self._kept.components:
            name = each.field().name
            columns[name] = each.combined(one_chunk(groups[name]), codes, count)
        return sorted_by_key(pa.table(columns))

    def _write(self, table: str, rows: pa.Table) -> None:
        run = self._task.files.write(f"{self._task.prefix}-{table}-{self._bucket:04d}", [rows])
        if run is not None:
            self._task.told.add({(table, self._bucket, run.name): run})
            self._runs[table].append(self._task.files.open(run))

    # --- values beside the groups -----------------------------------------------------------------------------------

    def _count_distinct(self, part: Distinct, entries: pa.Table, more: pa.Table) -> pa.Table:
        """Write how often values are there now, and fill in by how much more values each group has."""
        rows = sorted_by_key(entries).combine_chunks()
        places, found = Overlay(self._runs[part.table], DISTINCT_STATE).newest(one_chunk(rows[KEY]))
        old = np.zeros(len(rows), np.int64)
        old[places] = found[WEIGHT].to_numpy()
        new = old + rows[WEIGHT].to_numpy()
        gone = pa.array(new <= 0)
        self._write(part.table, pa.table([rows[KEY], gone, pa.array(new)], schema=DISTINCT_STATE))
        grown = (new > 0).astype(np.int64) - (old > 0)
        at = pc.index_in(rows["group"], one_chunk(more[KEY]))
        found_more = np.zeros(len(more), np.int64)
        np.add.at(found_more, one_chunk(at).to_numpy(), grown)
        name = part.field().name
        return more.set_column(more.schema.get_field_index(name), name, pa.array(found_more))

    def _extreme(self, part: Extreme, old: Any, keys: Any, entries: pa.Table) -> Any:
        """The first or last value of each group, after these entries came and went."""
        kinds = part.field().type
        names = [value_name(number) for number in range(kinds.num_fields)]
        at = one_chunk(pc.index_in(entries[KEY], keys)).to_numpy() if len(entries) else np.empty(0, np.int64)
        comes = entries[WEIGHT].to_numpy() > 0
        best = _ends_of(at[comes], len(keys), is_last=part.is_last)
        new = _structs(entries.filter(pa.array(comes)), names, kinds).take(pa.array(best, mask=best < 0))
        is_better = _is_beyond(new, old, names, is_last=part.is_last)
        found = _chosen(is_better, new, old)
        # The value that a group had may have gone: then the sorted values tell the next one.
        went = entries.filter(pa.array(~comes))
        lost = np.zeros(len(keys), bool)
        if len(went):
            which = at[~comes]
            lost_values = _structs(went, names, kinds)
            had = old.take(pa.array(which))
            lost[which[_is_equal(lost_values, had, names)]] = True
        again = np.flatnonzero(lost & ~is_better)
        if not len(again):
            return found
        some = keys.take(pa.array(again))
        ends = Multiset(self._runs[part.table], part.schema).ends(some, is_last=part.is_last)
        spots = again[one_chunk(pc.index_in(ends[KEY], some)).to_numpy()] if len(ends) else np.empty(0, np.int64)
        values = pa.concat_arrays([found, _structs(ends, names, kinds)])
        order = np.arange(len(keys))
        order[spots] = len(keys) + np.arange(len(ends))
        is_none = np.zeros(len(keys), bool)
        is_none[again] = True
        is_none[spots] = False
        return values.take(pa.array(order, mask=is_none))


def _summed(entries: pa.Table) -> pa.Table:
    """Values that are counted, each once."""
    encoded = one_chunk(entries[KEY]).dictionary_encode()
    codes, count = encoded.indices.to_numpy(), len(encoded.dictionary)
    weights = np.zeros(count, np.int64)
    np.add.at(weights, codes, entries[WEIGHT].to_numpy())
    some = np.zeros(count, np.int64)
    some[codes] = np.arange(len(codes))
    found = pa.table({KEY: encoded.dictionary, "group": entries["group"].take(pa.array(some)), WEIGHT: weights})
    return found.filter(pa.array(weights != 0))


def _structs(rows: pa.Table, names: Sequence[str], kind: Any) -> Any:
    if not len(rows):
        return pa.array([], kind)
    return pa.StructArray.from_arrays([one_chunk(rows[name]) for name in names], fields=list(kind))


def _ends_of(codes: Any, count: int, *, is_last: bool) -> Any:
    """The first or last place of each code; -1: none. Places are in the order of values."""
    found = np.full(count, -1, np.int64)
    at = np.arange(len(codes))
    if is_last:
        found[codes] = at  # the last one stays
    else:
        found[codes[::-1]] = at[::-1]
    return found


def _ranks(one: Any, other: Any, names: Sequence[str]) -> tuple[Any, Any]:
    """Numbers in the order of values, over both."""
    both = pa.concat_arrays([one, other])
    table = pa.table([pc.struct_field(both, [number]) for number in range(len(names))], names=list(names))
    order = pc.sort_indices(table, sort_keys=[(name, "ascending", "at_start") for name in names])
    table = table.take(order)
    differs = np.zeros(len(table), bool)
    for name in names:
        column = one_chunk(table[name])
        a, b = column.slice(1), column.slice(0, max(0, len(column) - 1))
        same = pc.or_(pc.fill_null(pc.equal(a, b), False), pc.and_(pc.is_null(a), pc.is_null(b)))
        differs[1:] |= ~same.to_numpy(zero_copy_only=False)
    ranks = np.empty(len(table), np.int64)
    ranks[order.to_numpy()] = np.cumsum(differs)
    return ranks[: len(one)], ranks[len(one) :]


def _is_beyond(new: Any, old: Any, names: Sequence[str], *, is_last: bool) -> Any:
    """Where the new value lies beyond the old one; one that is null lies beyond nothing."""
    has_new = pc.is_valid(new).to_numpy(zero_copy_only=False)
    has_old = pc.is_valid(old).to_numpy(zero_copy_only=False)
    ranks, olds = _ranks(new, old, names)
    return has_new & (~has_old | (ranks > olds if is_last else ranks < olds))


def _is_equal(one: Any, other: Any, names: Sequence[str]) -> Any:
    ranks, others = _ranks(one, other, names)
    return (ranks == others) & pc.is_valid(other).to_numpy(zero_copy_only=False)


def _chosen(is_first: Any, one: Any, other: Any) -> Any:
    both = pa.concat_arrays([one, other])
    at = np.arange(len(one)) + np.where(is_first, 0, len(one))
    return both.take(pa.array(at))
