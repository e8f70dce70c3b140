"""The dataflow of a view: how its tasks hang together. Each way through it is one Spark job.

    changes, packed ── RowTask ──> rows as they were and are ── SQL projection ──> contributions
                       state: rows                              (and lookups)          │
      ┌────────────────────────────────────────────────────────────────────────────────┘
      └─ ReduceTask ──> groups, packed ── GroupTask ──> changed groups ── SQL, HAVING ──> ResultTask ──> hashes
                                          state: values                                   state: groups

    ── a shuffle lies before RowTask (by bucket of the row) and before GroupTask (by bucket of the group)

What comes out of a job are runs, which count once the driver has committed them; what it costs depends on the changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark import Accumulator
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from tidelog.spark.runs.run_files import RunFiles
from tidelog.spark.runs.run_lists import RunLists
from tidelog.spark.runs.sorted_rows import KEY
from tidelog.spark.views.dataflow.components import DISTINCT_ENTRIES, Distinct, KeptParts
from tidelog.spark.views.dataflow.evaluation import Evaluation
from tidelog.spark.views.dataflow.group_task import TABLE as GROUPS
from tidelog.spark.views.dataflow.group_task import GroupTask, changed_schema
from tidelog.spark.views.dataflow.hashes import Hashes
from tidelog.spark.views.dataflow.join_tasks import JoinTask
from tidelog.spark.views.dataflow.packing import PACKED, buckets_of, packed_row
from tidelog.spark.views.dataflow.reduce_task import EntryTables, ReduceTask, groups_schema
from tidelog.spark.views.dataflow.result_task import DONE, ResultTask
from tidelog.spark.views.dataflow.row_task import ROW_FIELDS, RowTask, rows_table
from tidelog.spark.views.dataflow.told import Gathering, Told

SOURCE: Final = "source"


@dataclass(frozen=True)
class ViewFlow:
    """The tasks of one batch of a view."""

    evaluation: Evaluation
    files: RunFiles
    hashes: Hashes
    columns: Mapping[str, tuple[str, ...]]
    """The columns of the source and of each lookup."""
    lists: RunLists
    """The runs before the batch."""
    has_times: bool
    """Whether rows of the source keep when they were changed (see `RowTask`)."""
    prefix: str
    """What the names of the batch's runs begin with."""

    @property
    def _buckets(self) -> int:
        return self.lists.buckets

    # --- rows -----------------------------------------------------------------------------------------------------

    def changed_rows(self, name: str, blobs: DataFrame, told: Accumulator[Told]) -> DataFrame:
        """Apply changes to the rows of the source or of a lookup: each changed row as it was and as it is."""
        there = blobs.select("bucket", "rows", "tables").repartitionById(self._buckets, "bucket")
        return there.mapInArrow(self._row_task(name, told).run, self._rows_schema(name))

    def all_rows(self, session: SparkSession, name: str, *, sign: int = 1) -> DataFrame:
        """All rows, as the lists have them."""
        frame = session.range(0, self._buckets, 1, self._buckets)
        task = self._row_task(name, None)
        return frame.mapInArrow(partial(task.everything, sign=sign), self._rows_schema(name))

    def present_rows(self, name: str, blobs: DataFrame) -> DataFrame:
        """The rows that changes lead to, from nothing, without keeping them."""
        there = blobs.select("bucket", "rows", "tables").repartitionById(self._buckets, "bucket")
        return there.mapInArrow(self._row_task(name, None).present, self._rows_schema(name))

    def _row_task(self, name: str, told: Accumulator[Told] | None) -> RowTask:
        table = rows_table(name)
        has_times = name == SOURCE and self.has_times
        return RowTask(self.files, table, self.lists.of(table), self.columns[name], has_times, self.prefix, told)

    def _rows_schema(self, name: str) -> Any:
        fields = [pa.field("_row", ROW_FIELDS), *(pa.field(each, pa.string()) for each in self.columns[name])]
        return from_arrow_schema(pa.schema(fields))

    # --- joins ----------------------------------------------------------------------------------------------------

    def _join_task(self, told: Accumulator[Told] | None, *, is_matching: bool = True) -> JoinTask:
        joins = self.evaluation.plan.joins
        assert joins is not None
        tables = self.lists.tables
        return JoinTask(joins, self.files, tables, self.columns, self._buckets, self.prefix, told, is_matching)

    def matched(self, rows: DataFrame, told: Accumulator[Told] | None) -> tuple[DataFrame, dict[str, DataFrame]]:
        """The rows of lookups that belong to rows of the source. The first is kept until `unpersist()`."""
        task = self._join_task(told)
        values = self.evaluation.join_values(rows).mapInArrow(task.values_of_source, PACKED)
        there = values.repartitionById(self._buckets, "bucket")
        packed = there.mapInArrow(task.rows_of_lookups, PACKED).persist()
        return packed, {name: self._unpacked(packed, task, name) for name in self.columns if name != SOURCE}

    def _unpacked(self, packed: DataFrame, task: JoinTask, lookup: str) -> DataFrame:
        numbers = [number for number, join in enumerate(task.joins) if join.lookup == lookup]
        fields = [pa.field("_id", pa.binary()), *(pa.field(each, pa.string()) for each in self.columns[lookup])]
        some = packed.where(f"bucket in ({', '.join(map(str, numbers))})")
        rows = some.mapInArrow(partial(task.unpacked, lookup), from_arrow_schema(pa.schema(fields)))
        if len(numbers) > 1:  # one row may belong to the source in several ways
            rows = rows.dropDuplicates(["_id"])
        return rows.drop("_id").hint("broadcast")

    def write_pairs_of_source(self, rows: DataFrame, told: Accumulator[Told]) -> None:
        """Keep which rows of the source have which values."""
        task = self._join_task(told, is_matching=False)
        values = self.evaluation.join_values(rows).mapInArrow(task.values_of_source, PACKED)
        values.repartitionById(self._buckets, "bucket").mapInArrow(task.rows_of_lookups, PACKED).foreach(_nothing)

    def write_pairs_of_lookup(self, name: str, rows: DataFrame, told: Accumulator[Told]) -> None:
        """Keep which rows of a lookup have which values."""
        task = self._join_task(told, is_matching=False)
        values = rows.mapInArrow(partial(task.values_of_lookup, name), PACKED)
        values.repartitionById(self._buckets, "bucket").mapInArrow(task.ids_of_source, PACKED).foreach(_nothing)

    def touched_rows(self, name: str, rows: DataFrame, told: Accumulator[Told]) -> DataFrame:
        """Rows of the source that belong to changed rows of a lookup, once to be taken away and once to be added."""
        task = self._join_task(told)
        values = rows.mapInArrow(partial(task.values_of_lookup, name), PACKED)
        ids = values.repartitionById(self._buckets, "bucket").mapInArrow(task.ids_of_source, PACKED)
        there = ids.repartitionById(self._buckets, "bucket")
        return there.mapInArrow(self._row_task(SOURCE, None).touched, self._rows_schema(SOURCE))

    # --- from rows to results -------------------------------------------------------------------------------------

    def write_results(self, contributions: DataFrame, told: Accumulator[Told], *, is_new: bool = False) -> None:
        """Bring groups, hashes and runs up to date. `is_new`: the view is being built."""
        evaluation = self.evaluation
        plan, contributed, result = evaluation.plan, evaluation.contributed, evaluation.result
        reduce = ReduceTask(plan, contributed, self._buckets)
        deltas = contributions.mapInArrow(reduce.run, PACKED)
        if is_new and plan.is_global:
            deltas = deltas.unionAll(self._only_group(contributions.sparkSession))
        tables = {name: self.lists.of(name) for name in (GROUPS, *EntryTables(KeptParts(plan, contributed)).names())}
        groups = GroupTask(plan, contributed, result, self.files, tables, self.prefix, told)
        results = ResultTask(plan, contributed, result, self.files, self.hashes, self.prefix, told)
        there = deltas.repartitionById(self._buckets, "bucket")
        if plan.final is None:
            done = there.mapInArrow(partial(results.of_groups, groups), DONE)
        else:
            changed = evaluation.finished(there.mapInArrow(groups.run, self._changed_schema()))
            done = changed.mapInArrow(results.of_sql, DONE)
        done.collect()

    def _changed_schema(self) -> Any:
        """Of changed groups, for SQL."""
        plan, contributed = self.evaluation.plan, self.evaluation.contributed
        kept = KeptParts(plan, contributed)
        group = pa.struct(list(changed_schema(kept, self.evaluation.result)))
        keys = [contributed.field(name) for name in plan.groups]
        fields = kept.fields()
        nothing = {field.name: pa.array([], field.type) for field in fields}
        results = [pa.field(name, column.type) for name, column in kept.results(nothing).items()]
        return from_arrow_schema(pa.schema([pa.field("_group", group), *keys, *results]))

    def _only_group(self, session: SparkSession) -> DataFrame:
        """The one group of a view without GROUP BY, which is there without any row."""
        plan, contributed = self.evaluation.plan, self.evaluation.contributed
        groups = pa.Table.from_pylist([{KEY: b""}], groups_schema(plan, contributed))
        parts = EntryTables(KeptParts(plan, contributed)).parts
        entries = [(DISTINCT_ENTRIES if isinstance(each, Distinct) else each.schema).empty_table() for each in parts]
        bucket = int(buckets_of(groups[KEY], self._buckets)[0])
        return session.createDataFrame(pa.Table.from_batches([packed_row(bucket, [groups, *entries])]))


def _nothing(_row: object) -> None:
    """For jobs whose tasks have told everything already."""


def gathering(session: SparkSession) -> Accumulator[Told]:
    """Where tasks of a job tell what they did."""
    return session.sparkContext.accumulator({}, Gathering())
