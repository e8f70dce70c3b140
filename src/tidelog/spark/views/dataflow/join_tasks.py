"""Joins with lookups that select rows by a value: only rows that belong to what has changed are looked at.

    table of state               pairs (`pairs`), by bucket of the value
    <alias>-of-source            a value of the join, and the id of a row of the source that has it
    <alias>-of-lookup            a value of the join, and the id of a row of the lookup that has it

    rows of the source that change ── values ──> pairs of the source are brought up to date
                                            └──> pairs of the lookup ──> rows of the lookup, for the SQL
    rows of a lookup that change ──── values ──> pairs of the lookup are brought up to date
                                            └──> pairs of the source ──> rows of the source, which contribute anew

Rows are fetched by whichever task has their ids: runs can be opened by all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import Accumulator, TaskContext

from tidelog import limits
from tidelog.spark.runs.run_files import RunFiles
from tidelog.spark.runs.run_lists import RunBuckets
from tidelog.spark.runs.sorted_rows import Overlay
from tidelog.spark.views.dataflow.packing import buckets_of, divided, packed_row, portions
from tidelog.spark.views.dataflow.pairs import netted, pairs_of
from tidelog.spark.views.dataflow.row_task import rows_schema, rows_table
from tidelog.spark.views.dataflow.told import Told
from tidelog.spark.views.dataflow.values import one_chunk
from tidelog.spark.views.sql.plan import Join

IDS: Final = pa.schema([("id", pa.binary())])
_VALUES: Final = pa.schema([("value", pa.binary()), ("id", pa.binary()), ("sign", pa.int64())])


def source_pairs(join: Join) -> str:
    return f"{join.alias}-of-source"


def lookup_pairs(join: Join) -> str:
    return f"{join.alias}-of-lookup"


@dataclass(frozen=True)
class JoinTask:
    """What the tasks of joins have in common. It travels to executors."""

    joins: tuple[Join, ...]
    files: RunFiles
    tables: Mapping[str, RunBuckets]
    columns: Mapping[str, tuple[str, ...]]
    """Of each lookup."""
    buckets: int
    prefix: str
    told: Accumulator[Told] | None
    """None: pairs are not brought up to date."""
    is_matching: bool = True
    """Whether rows are looked for."""

    def _runs(self, table: str, bucket: int) -> list[Any]:
        found = self.tables.get(table)
        return [self.files.open(run) for run in found[bucket]] if found else []

    def _bring_up_to_date(self, table: str, bucket: int, values: pa.Table) -> None:
        if self.told is None:
            return
        pairs = netted(one_chunk(values["value"]), one_chunk(values["id"]), values["sign"].to_numpy())
        run = self.files.write(f"{self.prefix}-{table}-{bucket:04d}", [pairs])
        if run is not None:
            self.told.add({(table, bucket, run.name): run})

    def _packed(self, number: int, values: Any, ids: Any, signs: Any) -> Iterator[pa.RecordBatch]:
        """Values of a join with the ids of rows, by bucket of the value. The table before them says which join."""
        is_there = pc.is_valid(values)
        table = pa.table([values.cast(pa.binary()), ids, signs.cast(pa.int64())], schema=_VALUES).filter(is_there)
        for bucket, some in enumerate(divided(table, "value", self.buckets)):
            if len(some):
                yield packed_row(bucket, [pa.table({"join": [number]}), some])

    # --- from the source to a lookup --------------------------------------------------------------------------------

    def values_of_source(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """From `_row`, j0 ..."""
        for batch in batches:
            row = batch.column("_row")
            for number in range(len(self.joins)):
                yield from self._packed(number, batch.column(f"j{number}"), row.field("id"), row.field("sign"))

    def rows_of_lookups(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of lookups that have the values: packed, with the number of the join for the bucket."""
        for number, bucket, values in self._gathered(batches):
            join = self.joins[number]
            self._bring_up_to_date(source_pairs(join), bucket, values)
            if not self.is_matching:
                continue
            found = pairs_of(self._runs(lookup_pairs(join), bucket), one_chunk(values["value"]).unique())
            ids = pa.array(sorted({each for _, each in found}), pa.binary())
            for rows in self._fetched(join, ids):
                yield packed_row(number, [rows])

    def _fetched(self, join: Join, ids: Any) -> Iterator[pa.Table]:
        """Rows of a lookup, whatever bucket they are in."""
        columns = self.columns[join.lookup]
        schema = rows_schema(len(columns))
        where = buckets_of(ids, self.buckets)
        for bucket in np.unique(where).tolist():
            overlay = Overlay(self._runs(rows_table(join.lookup), bucket), schema)
            _, rows = overlay.newest(ids.filter(pa.array(where == bucket)))
            if len(rows):
                yield rows

    def unpacked(self, lookup: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows of a lookup as Spark gets them: `_id`, and the columns that the SELECT names."""
        names = ["key", *(f"c{number}" for number in range(len(self.columns[lookup])))]
        for some in portions(batches, limits.VIEW_PORTION_ROWS):
            for [rows] in some:
                found = rows.select(names).rename_columns(["_id", *self.columns[lookup]])
                yield from found.to_batches(max_chunksize=limits.VIEW_PACKED_ROWS)

    # --- from a lookup to the source --------------------------------------------------------------------------------

    def values_of_lookup(self, lookup: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """From `_row` and the columns of a lookup."""
        for batch in batches:
            row = batch.column("_row")
            for number, join in enumerate(self.joins):
                if join.lookup == lookup:
                    yield from self._packed(number, batch.column(join.column), row.field("id"), row.field("sign"))

    def ids_of_source(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The ids of rows of the source that have the values, by their bucket."""
        for number, bucket, values in self._gathered(batches):
            join = self.joins[number]
            self._bring_up_to_date(lookup_pairs(join), bucket, values)
            if not self.is_matching:
                continue
            found = pairs_of(self._runs(source_pairs(join), bucket), one_chunk(values["value"]).unique())
            ids = pa.table([pa.array(sorted({each for _, each in found}), pa.binary())], schema=IDS)
            for to, some in enumerate(divided(ids, "id", self.buckets)):
                if len(some):
                    yield packed_row(to, [some])

    def _gathered(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, int, pa.Table]]:
        """The values of each join, all of a bucket together."""
        context = TaskContext.get()
        assert context is not None
        found: dict[int, list[pa.Table]] = {}
        for some in portions(batches, limits.VIEW_PORTION_ROWS):
            for number, values in some:
                found.setdefault(number["join"][0].as_py(), []).append(values)
        for each, tables in sorted(found.items()):
            yield each, context.partitionId(), pa.concat_tables(tables)
