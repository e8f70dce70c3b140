"""The groups of one bucket, kept from batch to batch as a driver keeps them, without Spark and without a server.

Contributions take the whole way: reduced by some tasks, packed, applied by another, and written as a result.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.spark.sorted_runs import Gathered, files_in
from tidelog.spark.runs.merging import merge
from tidelog.spark.runs.run_files import RunName
from tidelog.spark.views.dataflow import group_task, result_task
from tidelog.spark.views.dataflow.components import DISTINCT_ENTRIES, Distinct, KeptParts
from tidelog.spark.views.dataflow.group_task import TABLE, GroupTask
from tidelog.spark.views.dataflow.hashes import Fields, Hashes
from tidelog.spark.views.dataflow.packing import packed_row
from tidelog.spark.views.dataflow.reduce_task import EntryTables, ReduceTask, groups_schema
from tidelog.spark.views.dataflow.result_task import ResultTask
from tidelog.spark.views.dataflow.row_task import ROW_FIELDS
from tidelog.spark.views.dataflow.shown_rows import ShownRows
from tidelog.spark.views.dataflow.told import number_of, runs_of
from tidelog.spark.views.sql.plan import Aggregate, ViewPlan

Contribution = Mapping[str, Any]
"""`sign`, `order`, g0 ..., a0 ..."""


class FirstPartition:
    """What a task learns of Spark."""

    @staticmethod
    def get() -> FirstPartition:
        return FirstPartition()

    def partitionId(self) -> int:
        return 0


@pytest.fixture
def in_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (group_task, result_task):
        monkeypatch.setattr(module, "TaskContext", FirstPartition)


@dataclass(frozen=True)
class NotedHashes(Hashes):
    """Hashes in a dict."""

    there: dict[bytes, Fields] = field(default_factory=dict)
    told: list[bytes] = field(default_factory=list)
    """Which were written or removed in the last batch."""

    def write(self, changed: Mapping[bytes, Fields], gone: Iterable[bytes]) -> None:
        gone = list(gone)
        self.told[:] = [*changed, *gone]
        self.there.update(changed)
        for each in gone:
            del self.there[each]


Finish = Callable[[pa.Table], pa.Table]
"""Runs the SQL that is left to do over changed groups."""


class KeptGroups:
    """`result`: the columns of the view."""

    def __init__(
        self, folder: Path, plan: ViewPlan, contributed: pa.Schema, result: pa.Schema, finish: Finish | None = None
    ) -> None:
        self.plan = plan
        self.contributed = contributed
        self.result = result
        self._finish = finish
        self.files = files_in(folder)
        self.hashes = NotedHashes(None, "v", tuple(result.names))  # type: ignore[arg-type]
        tables = EntryTables(KeptParts(plan, contributed)).names()
        self.runs: dict[str, list[RunName]] = {name: [] for name in (TABLE, *tables)}
        self.number = 0
        self.rows = 0
        """Rows of the view, as tasks count them."""

    def contributions(self, rows: Iterable[Contribution]) -> pa.Table:
        made = [{"_row": {"sign": row["sign"], "order": row["order"], "id": b""}, **row} for row in rows]
        return pa.Table.from_pylist(made, self.contributed)

    def apply(self, *tables: Sequence[Contribution], is_killed: bool = False) -> int:
        """A batch of contributions, each table from another task; if it is killed, nobody takes what was told.

        Returns how many rows of the view changed.
        """
        return self.apply_tables(*map(self.contributions, tables), is_killed=is_killed)

    def apply_tables(self, *tables: pa.Table, is_killed: bool = False) -> int:
        reduce = ReduceTask(self.plan, self.contributed, 1)
        packed = [row for table in tables for row in reduce.run(table.to_batches())]
        return self._take(packed, is_killed=is_killed)

    def begin(self) -> int:
        """A view without GROUP BY begins with its only group, before there is any row."""
        groups = pa.Table.from_pylist([{"key": b""}], groups_schema(self.plan, self.contributed))
        parts = EntryTables(KeptParts(self.plan, self.contributed)).parts
        entries = [(DISTINCT_ENTRIES if isinstance(each, Distinct) else each.schema).empty_table() for each in parts]
        return self._take([packed_row(0, [groups, *entries])])

    def _take(self, packed: Sequence[pa.RecordBatch], *, is_killed: bool = False) -> int:
        self.hashes.told.clear()
        told: Any = Gathered()
        prefix = f"batch-{self.number:04d}"
        tables = {name: (tuple(runs),) for name, runs in self.runs.items()}
        groups = GroupTask(self.plan, self.contributed, self.result, self.files, tables, prefix, told)
        task = ResultTask(self.plan, self.contributed, self.result, self.files, self.hashes, prefix, told)
        if self._finish is None:
            [done] = task.of_groups(groups, packed)
        else:
            changed = list(groups.run(packed))
            [done] = task.of_sql(self._finish(pa.Table.from_batches(changed)).to_batches() if changed else [])
        found = told.take()
        self.number += 1
        if not is_killed:
            for table, bucket, run in runs_of(found):
                assert bucket == 0
                self.runs[table].append(run)
            self.rows += number_of(found, "view_rows")
        [changed] = done.column(0).to_pylist()
        assert changed == number_of(found, "changed")
        return int(changed)

    def merge_some(self, chance: random.Random) -> None:
        for table, runs in self.runs.items():
            if runs and chance.random() < 0.5:
                begin = chance.randrange(len(runs))
                end = chance.randrange(begin, len(runs)) + 1
                name = f"merged-{table}-{self.number}"
                made = merge(self.files, runs[begin:end], name, is_oldest=begin == 0)
                runs[begin:end] = [] if made is None else [made]

    def shown(self) -> dict[bytes, dict[str, Any]]:
        """The rows of the view, by group."""
        read = ShownRows(self.plan, self.contributed, self.result, self.files, (tuple(self.runs[TABLE]),)).read(0)
        found: dict[bytes, dict[str, Any]] = {}
        for keys, rows in read:
            found |= dict(zip(keys.to_pylist(), rows.to_pylist(), strict=True))
        return found


def groups_of(
    folder: Path, groups: Mapping[str, Any], arguments: Sequence[Any], aggregates: Sequence[Aggregate]
) -> KeptGroups:
    """Groups that need no SQL. `groups`: the types of key columns; `arguments`: those of a0 ..."""
    plan = _plan_of(groups, aggregates)
    places = [pa.field(f"g{number}", kind) for number, kind in enumerate(groups.values())]
    places += [pa.field(f"a{number}", kind) for number, kind in enumerate(arguments)]
    contributed = pa.schema([pa.field("_row", ROW_FIELDS), *places])
    kept = KeptParts(plan, contributed)
    nothing = {each.name: pa.array([], each.type) for each in kept.fields()}
    types = {name: column.type for name, column in kept.results(nothing).items()}
    types |= {place.name: place.type for place in places}
    return KeptGroups(folder, plan, contributed, pa.schema([(name, types[place]) for name, place in plan.outputs]))


def _plan_of(groups: Mapping[str, Any], aggregates: Sequence[Aggregate]) -> ViewPlan:
    """A plan with these key columns, which needs no SQL."""
    places = [(name, f"g{number}") for number, name in enumerate(groups)]
    places += [(f"r{number}", f"r{number}") for number in range(len(aggregates))]
    return ViewPlan(
        columns=(),
        lookups={},
        joins=None,
        projection="",
        groups=tuple(f"g{number}" for number in range(len(groups))),
        aggregates=tuple(aggregates),
        final=None,
        outputs=tuple(places),
        key=tuple(groups),
        is_global=not groups,
        recompute="",
    )
