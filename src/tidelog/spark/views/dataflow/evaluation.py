"""The SQL of a plan, run by Spark: what a row contributes, what a group comes to, and the view from scratch.

Each view has a Spark session of its own: its tables have names such as `source`, and text that is not a number becomes
null instead of an error. Types are known before there are any rows, because an empty table has them too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from tidelog.spark.views.dataflow.row_task import ROW_FIELDS
from tidelog.spark.views.sql.definition import View
from tidelog.spark.views.sql.plan import Join, ViewPlan

_NUMBERS: Final = ("sum", "avg")


class Evaluation:
    """Runs a plan. Making one refuses SQL that Spark does not accept."""

    def __init__(self, spark: SparkSession, view: View, plan: ViewPlan) -> None:
        self._spark = spark.newSession()
        set_up(self._spark)
        self._view = view
        self._put("source", _empty(plan.columns, _row=pa.array([], ROW_FIELDS)))
        for name, columns in plan.lookups.items():
            self._put(name, _empty(columns))
        self.plan = self._with_numbers(self._with_text_joins(plan))
        """The plan, completed with what the types tell."""
        self.contributed: pa.Schema = self._schema(self.plan.projection)
        """What a row contributes: `_row`, g0 ..., a0 ..."""
        self._check_groups()
        self._check_arguments()
        self._put("source", _empty(plan.columns, _order=pa.array([], pa.binary())))
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

    def _with_text_joins(self, plan: ViewPlan) -> ViewPlan:
        """Select rows of lookups by values that are text, as their columns are. Others are compared as numbers are."""
        if not plan.joins:
            return plan
        values = self._schema(_values_of(plan.joins))
        is_text = all(pa.types.is_string(field.type) for field in values)
        return plan if is_text else replace(plan, joins=None)

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

    @property
    def session(self) -> SparkSession:
        """The view's own session."""
        return self._spark

    def contributions(self, rows: DataFrame, lookups: Mapping[str, DataFrame]) -> DataFrame:
        """What rows (`_row` and the columns) contribute: `_row`, g0 ..., a0 ..."""
        return self._run(self.plan.projection, {"source": rows, **lookups})

    def join_values(self, rows: DataFrame) -> DataFrame:
        """The values by which rows select those of lookups: `_row`, j0 ..."""
        assert self.plan.joins
        return self._run(_values_of(self.plan.joins, "`source`.`_row`"), {"source": rows})

    def finished(self, groups: DataFrame) -> DataFrame:
        """The columns of the view and `_shown` of groups (g0 ..., r0 ...), with their `_group`."""
        assert self.plan.final is not None
        return self._run(f"SELECT `_group`, {self.plan.final} FROM `groups`", {"groups": groups})

    def recomputed(self, rows: DataFrame, lookups: Mapping[str, DataFrame]) -> DataFrame:
        """The whole view, from all rows of its source (`_order` and the columns)."""
        return self._run(self.plan.recompute, {"source": rows, **lookups})

    def _run(self, sql: str, tables: Mapping[str, DataFrame]) -> DataFrame:
        """SQL over some tables, in the session to which these belong."""
        session = next(iter(tables.values())).sparkSession
        set_up(session)
        named = []
        for name, frame in tables.items():
            # The session may be that of a query, in which several views run at once.
            own = f"view_{self._view.digest[:16]}_{name}"
            frame.createOrReplaceTempView(own)
            named.append(f"`{name}` AS (SELECT * FROM `{own}`)")
        return session.sql(f"WITH {', '.join(named)} {sql}")

    def _put(self, name: str, table: pa.Table) -> None:
        frame: Any = self._spark.createDataFrame(table)
        frame.createOrReplaceTempView(name)


def _values_of(joins: Sequence[Join], *more: str) -> str:
    values = [*more, *(f"{join.value} AS `j{number}`" for number, join in enumerate(joins))]
    return f"SELECT {', '.join(values)} FROM `source`"


def set_up(session: SparkSession) -> None:
    """Have SQL mean what it means in a view."""
    session.conf.set("spark.sql.ansi.enabled", "false")
    session.conf.set("spark.sql.session.timeZone", "UTC")


def _empty(columns: tuple[str, ...], **more: Any) -> pa.Table:
    """A table without rows, with the column names of the SQL."""
    arrays = [*(pa.array([], pa.string()) for _ in columns), *more.values()]
    return pa.table(arrays or [pa.array([], pa.int64())], names=[*columns, *more] or ["_row"])


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
