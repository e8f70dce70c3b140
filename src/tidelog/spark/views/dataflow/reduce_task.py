"""A task reduces contributions to what they do to each group, and divides that by the bucket of the group.

    `_row`, g0 ..., a0 ... of rows as they were and as they are -> for each bucket, packed:
      groups      key binary (the group as text, see `groups`), g0 ..., what happens to each component
      entries     for each table of values (`components`): what comes and goes

Contributions that come and go alike cancel out in the sums and in the entries, so a row that changes in a column that
does not count changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tidelog import limits
from tidelog.spark.runs.multisets import added_up
from tidelog.spark.runs.sorted_rows import KEY
from tidelog.spark.views.dataflow.components import ORDER, SIGN, Distinct, Extreme, Grouped, KeptParts
from tidelog.spark.views.dataflow.group_names import group_texts
from tidelog.spark.views.dataflow.packing import divided, packed_row
from tidelog.spark.views.dataflow.values import one_chunk
from tidelog.spark.views.sql.plan import ViewPlan


class EntryTables:
    """The tables of values beside the groups, each once, in a fixed order."""

    def __init__(self, kept: KeptParts) -> None:
        found: dict[str, Distinct | Extreme] = {}
        beside: list[Distinct | Extreme] = [*kept.distincts(), *kept.extremes()]
        for each in beside:
            found.setdefault(each.table, each)
        self.parts = list(found.values())

    def names(self) -> list[str]:
        return [part.table for part in self.parts]


@dataclass(frozen=True)
class ReduceTask:
    """Reduces contributions. It travels to executors."""

    plan: ViewPlan
    contributed: pa.Schema
    """Of the contributions: `_row`, g0 ..., a0 ..."""
    buckets: int

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        some: list[pa.RecordBatch] = []
        count = 0
        for batch in batches:
            some.append(batch)
            count += len(batch)
            if count >= limits.VIEW_PORTION_ROWS:
                yield from self._reduced(some)
                some, count = [], 0
        if some:
            yield from self._reduced(some)

    def _reduced(self, batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = _with_signs(pa.Table.from_batches(batches), self.contributed)
        if not len(rows):
            return
        tables = reduced(self.plan, KeptParts(self.plan, self.contributed), rows)
        for bucket, parts in enumerate(zip(*(divided(each, _by(each), self.buckets) for each in tables), strict=True)):
            if any(map(len, parts)):
                yield packed_row(bucket, parts)


def _by(table: pa.Table) -> str:
    return "group" if "group" in table.schema.names else KEY


def _with_signs(rows: pa.Table, contributed: pa.Schema) -> pa.Table:
    """Contributions with the parts of `_row` as columns, in the types that the plan has."""
    row = one_chunk(rows["_row"])
    columns = {SIGN: row.field("sign"), ORDER: row.field("order")}
    columns |= {name: rows[name].cast(contributed.field(name).type) for name in contributed.names if name != "_row"}
    return pa.table(columns)


def reduced(plan: ViewPlan, kept: KeptParts, rows: pa.Table) -> list[pa.Table]:
    """The groups and the entries of some contributions."""
    places = dict(plan.outputs)
    texts = group_texts([rows[places[name]] for name in plan.key], len(rows))
    encoded = one_chunk(texts).cast(pa.binary()).dictionary_encode()
    groups = encoded.dictionary
    grouped = Grouped(rows, encoded.indices.to_numpy(), len(groups))
    tables = [_groups(plan, kept, grouped, groups)]
    for part in EntryTables(kept).parts:
        entries = part.entries(grouped, groups)
        tables.append(added_up(entries) if isinstance(part, Extreme) else entries)
    return tables


def _groups(plan: ViewPlan, kept: KeptParts, grouped: Grouped, groups: Any) -> pa.Table:
    some = np.zeros(grouped.count, np.int64)
    some[grouped.codes] = np.arange(len(grouped.codes))
    columns = {KEY: groups}
    columns |= {name: grouped.column(name).take(pa.array(some)) for name in plan.groups}
    columns |= {each.field().name: each.reduced(grouped) for each in kept.components}
    return pa.table(columns)


def groups_schema(plan: ViewPlan, contributed: pa.Schema) -> pa.Schema:
    """The columns of the groups that a task hands on."""
    fields = [pa.field(KEY, pa.binary()), *(contributed.field(name) for name in plan.groups)]
    return pa.schema([*fields, *KeptParts(plan, contributed).fields()])
