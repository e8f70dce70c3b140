"""The SQL of a plan, run by Spark: what a row contributes, what a group comes to, and the view from scratch.

Each view has a Spark session of its own: its tables have names such as `source`, and text that is not a number becomes
null instead of an error. Types are known before there are any rows, because an empty table has them too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from tidelog.spark.views.keeping.changes import column
from tidelog.spark.views.sql.definition import View
from tidelog.spark.views.sql.plan import ViewPlan

_NUMBERS: Final = ("sum", "avg")


class Evaluation:
    """Runs a plan. Making one refuses SQL that Spark does not accept."""

    def __init__(self, spark: SparkSession, view: View, plan: ViewPlan) -> None:
        self._spark = spark.newSession()
        self._spark.conf.set("spark.sql.ansi.enabled", "false")
        self._spark.conf.set("spark.sql.session.timeZone", "UTC")
        self._view = view
        self._put("source", _named(plan.columns, None, _row=pa.array([], pa.int64())))
        for name, columns in plan.lookups.items():
            self._put(name, _named(columns, None))
        self.plan = self._with_numbers(plan)
        """The plan, completed with what the types tell."""
        self.contributed: pa.Schema = self._schema(self.plan.projection)
        """What a row contributes: `_row`, g0 ..., a0 ..."""
        self._check_groups()
        self._check_arguments()
        self._put("source", _named(plan.columns, None, _order=pa.array([], pa.int64())))
        self.result: pa.Schema = self._schema(plan.recompute)
        """The columns of the view."""
        self._check_outputs()

    def _schema(self, sql: str) -> pa.Schema:
        try:
            return to_arrow_schema(self._spark.sql(sql).schema, timezone="UTC")
        except AnalysisException as error:
            raise self._view.refusal(_first_line(error)) from None
        except PySparkException as error:  # a type that Arrow does not know
            raise self._view.refusal(_first_line(error)) from None

    def _with_numbers(self, plan: ViewPlan) -> ViewPlan:
        """Sum and average text as numbers, as Spark does; other aggregates still get the text."""
        types = {field.name: field.type for field in self._schema(plan.projection)}
        summed = {each: each.arguments[0] for each in plan.aggregates if each.function in _NUMBERS}
        texts = {each: name for each, name in summed.items() if pa.types.is_string(types[name])}
        if not texts:
            return plan
        columns = [f"`{name}`" for name in types]
        columns += [f"cast(`{name}` as double) as `{name}_number`" for name in dict.fromkeys(texts.values())]
        aggregates = tuple(
            replace(each, arguments=(f"{texts[each]}_number",)) if each in texts else each for each in plan.aggregates
        )
        return replace(plan, projection=f"select {', '.join(columns)} from ({plan.projection})", aggregates=aggregates)

    def _check_groups(self) -> None:
        for field in self.contributed:
            if field.name.startswith("g") and not _names_a_row(field.type):
                [output] = [name for name, place in self.plan.outputs if place == field.name] or [field.name]
                raise self._view.refusal(
                    f"the key column {output} is {field.type}, which cannot name a row: make it text, a whole number, "
                    f"a decimal, a date, a time or a boolean, for example cast({output} as string)"
                )

    def _check_arguments(self) -> None:
        for each in self.plan.aggregates:
            for kind in (self.contributed.field(name).type for name in each.arguments):
                if not _is_plain(kind) and (each.function != "count" or each.is_distinct):
                    raise self._view.refusal(
                        f"{each.function} of {kind} is not supported: make it text, a number, a date, a time or a "
                        "boolean, for example to_json(...) or cast(... as string)"
                    )

    def _check_outputs(self) -> None:
        for field in self.result:
            if not _is_plain(field.type):
                raise self._view.refusal(
                    f"the output {field.name} is {field.type}, which a hash cannot hold: make it text, a "
                    "number, a date, a time or a boolean, for example to_json(...) or cast(... as string)"
                )

    # --- running it -----------------------------------------------------------------------------------------------

    def contributions(self, rows: pa.Table, lookups: Mapping[str, pa.Table]) -> pa.Table:
        """What these rows contribute: `id`, g0 ..., a0 ..."""
        numbers = pa.array(np.arange(len(rows)))
        self._put("source", _named(self.plan.columns, rows, _row=numbers))
        for name, columns in self.plan.lookups.items():
            self._put(name, _named(columns, lookups[name]))
        found = self._run(self.plan.projection, self.contributed)
        ids = rows["id"].take(found["_row"])
        return found.set_column(0, "id", ids)

    def finished(self, groups: pa.Table) -> pa.Table:
        """The rows of the view that groups (g0 ..., r0 ...) come to."""
        if self.plan.final is None:
            columns = [groups[place] for _, place in self.plan.outputs]
            casts = [each.cast(field.type) for each, field in zip(columns, self.result, strict=True)]
            return pa.table(casts, schema=self.result)
        self._put("groups", groups)
        return self._run(self.plan.final, self.result)

    def recomputed(self, rows: pa.Table, lookups: Mapping[str, pa.Table]) -> pa.Table:
        """The whole view, from all rows of its source."""
        order = pc.rank(rows["id"], tiebreaker="first").cast(pa.int64())
        self._put("source", _named(self.plan.columns, rows, _order=order))
        for name, columns in self.plan.lookups.items():
            self._put(name, _named(columns, lookups[name]))
        return self._run(self.plan.recompute, self.result)

    def _put(self, name: str, table: pa.Table) -> None:
        # Spark takes an empty batch for the end of the table.
        batches = [batch for batch in table.to_batches() if len(batch)]
        frame: Any = self._spark.createDataFrame(pa.Table.from_batches(batches, table.schema))
        frame.createOrReplaceTempView(name)

    def _run(self, sql: str, schema: pa.Schema) -> pa.Table:
        found = self._spark.sql(sql).toArrow()
        return pa.table(
            [each.cast(field.type) for each, field in zip(found.columns, schema, strict=True)], schema=schema
        )


def _named(columns: tuple[str, ...], rows: pa.Table | None, **more: Any) -> pa.Table:
    """Rows with the column names of the SQL; `rows` None: an empty table."""
    names = [*columns, *more]
    if rows is None:
        arrays = [*(pa.array([], pa.string()) for _ in columns), *more.values()]
    else:
        arrays = [*(rows[column(number)] for number in range(len(columns))), *more.values()]
    if not names:  # a table without columns has no rows
        names, arrays = ["_row"], [pa.array([], pa.int64())]
    return pa.table(arrays, names=names)


def _names_a_row(kind: Any) -> bool:
    types = pa.types
    return bool(
        types.is_string(kind)
        or types.is_integer(kind)
        or types.is_decimal(kind)
        or types.is_date(kind)
        or types.is_timestamp(kind)
        or types.is_boolean(kind)
    )


def _is_plain(kind: Any) -> bool:
    return _names_a_row(kind) or bool(pa.types.is_floating(kind))


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].partition(" SQLSTATE")[0]
