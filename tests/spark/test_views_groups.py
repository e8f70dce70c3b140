"""Groups that are maintained come to what Spark makes of all rows at once."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.hash_names import hash_name
from tests.spark.kept_groups import KeptGroups, in_a_task
from tidelog.errors import BadView
from tidelog.spark.views.dataflow.evaluation import Evaluation
from tidelog.spark.views.dataflow.group_names import as_text, group_texts
from tidelog.spark.views.dataflow.row_task import ROW_FIELDS
from tidelog.spark.views.sql.definition import View, ViewSource
from tidelog.spark.views.sql.query import plan_view

__all__ = ["in_a_task"]
pytestmark = pytest.mark.xdist_group("spark")

Row = dict[str, str | None]

TEXTS = (None, "", "a", "B", "ü", "%", "a:b", "1")
NUMBERS = (None, "x", "1", "-2.5", "NaN", "Infinity", "-0.0", "0", "1e300", "12345678901234567890.12", str(2**62))
TIMES = (None, "2026-03-01 10:00:00.5", "2026-03-01 10:59:59.999999", "1969-12-31 23:59:59", "0001-01-01 00:00:00", "?")
FLAGS = (None, "true", "false", "maybe")

QUERIES = {
    "by text": (
        "select t, count(*) as n, count(x) as nx, sum(cast(x as double)) as s, min(cast(x as double)) as lo, "
        "max(cast(x as double)) as hi, avg(cast(x as double)) as mean, count(distinct cast(x as double)) as d, "
        "max_by(t, cast(x as double)) as by_x, min_by(x, w) as by_w, max_by(x, cast(f as boolean)) as by_f, "
        "max(cast(x as double) > 0) as any_up, sum(x) as of_text, latest(x) as newest "
        "from source group by t",
        ["t"],
    ),
    "by time": (
        "select cast(w as timestamp) as at, cast(f as boolean) as flag, min(t) as lo, max(t) as hi, "
        "min(cast(w as date)) as first, max(cast(w as timestamp)) as last, count_if(x = '1') as ones, "
        "count(*) filter (where t is not null) as named, min(cast(f as boolean)) as all_true "
        "from source group by 1, 2",
        ["at", "flag"],
    ),
    "by number": (
        "select cast(x as int) as i, cast(x as decimal(30, 4)) as d, sum(cast(x as int)) as si, "
        "sum(cast(x as decimal(30, 4))) as sd, avg(cast(x as decimal(30, 4))) as ad, avg(cast(x as bigint)) as ai, "
        "min(cast(x as decimal(30, 4))) as lo, max(cast(x as float)) as hi, "
        "count(*) / count(distinct t) as share, round(avg(cast(x as decimal(5, 2))), 1) as r "
        "from source group by 1, 2",
        ["i", "d"],
    ),
    "of all": (
        "select count(*) as n, sum(cast(x as int)) as s, min(t) as lo, avg(cast(x as decimal(30, 4))) as mean, "
        "count(distinct t) as d, max_by(t, x) as m, concat('n=', count(*)) as text from source",
        [],
    ),
    "few": (
        "select date(w) as day, count(*) as n, max(t) as t from source where t <> 'a' group by date(w) "
        "having count(*) > 1 and max(t) is not null",
        ["day"],
    ),
    "newest": ("select t, x, upper(f) as f from source where x is not null", ["t"]),
}
COLUMNS = ("f", "t", "w", "x")


def view(sql: str, key: Sequence[str]) -> View:
    return View("v", ViewSource("stream", "s"), sql, tuple(key))


def random_rows(chance: random.Random, columns: Sequence[str], ids: Iterable[int]) -> dict[int, Row]:
    choices = {"f": FLAGS, "t": TEXTS, "w": TIMES, "x": NUMBERS}
    return {number: {name: chance.choice(choices[name]) for name in columns} for number in ids}


def place_of(number: int) -> bytes:
    """Which row was changed last: the one with the largest number."""
    return number.to_bytes(8)


def is_same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-12) or (math.isnan(one) and math.isnan(other))
    return bool(one == other)


class KeptQuery:
    """A view whose SQL Spark runs; all else is done here."""

    def __init__(self, spark: SparkSession, folder: Path, sql: str, key: Sequence[str]) -> None:
        declared = view(sql, key)
        self.evaluation = Evaluation(spark, declared, plan_view(declared))
        self.plan = self.evaluation.plan
        finish = None if self.plan.final is None else self._finished
        evaluation = self.evaluation
        self.groups = KeptGroups(folder, self.plan, evaluation.contributed, evaluation.result, finish)

    def _frame(self, table: pa.Table) -> DataFrame:
        session: Any = self.evaluation.session
        made: DataFrame = session.createDataFrame(table)
        return made

    def _finished(self, changed: pa.Table) -> pa.Table:
        return self.evaluation.finished(self._frame(changed)).toArrow()

    def apply(self, before: Mapping[int, Row], after: Mapping[int, Row]) -> None:
        """Take in rows as they were, and as they are."""
        said = [(-1, each) for each in before.items()] + [(1, each) for each in after.items()]
        fields = pa.schema([("_row", ROW_FIELDS), *((name, pa.string()) for name in self.plan.columns)])
        rows = [
            {"_row": {"sign": sign, "order": place_of(number), "id": place_of(number)}, **row}
            for sign, (number, row) in said
        ]
        self.groups.apply_tables(
            self.evaluation.contributions(self._frame(pa.Table.from_pylist(rows, fields)), {}).toArrow()
        )

    def expected(self, rows: Mapping[int, Row]) -> dict[bytes, dict[str, Any]]:
        """What Spark makes of all rows at once, by group."""
        fields = pa.schema([("_order", pa.binary()), *((name, pa.string()) for name in self.plan.columns)])
        made = [{"_order": place_of(number), **row} for number, row in rows.items()]
        found = self.evaluation.recomputed(self._frame(pa.Table.from_pylist(made, fields)), {}).toArrow()
        texts = group_texts([found[name] for name in self.plan.key], len(found)).cast(pa.binary()).to_pylist()
        assert len(set(texts)) == len(found)
        return dict(zip(texts, found.to_pylist(), strict=True))


@pytest.mark.usefixtures("in_a_task")
@pytest.mark.parametrize("name", QUERIES)
def test_groups_come_to_what_spark_makes_of_all_rows(spark: SparkSession, tmp_path: Path, name: str) -> None:
    sql, key = QUERIES[name]
    kept = KeptQuery(spark, tmp_path, sql, key)
    if kept.plan.is_global:
        kept.groups.begin()
    chance, rows = random.Random(name), dict[int, Row]()
    for changed in (range(0), range(30), range(20, 40), range(10), range(40)):
        is_end = len(changed) == 40
        new = random_rows(chance, kept.plan.columns, [each for each in changed if not is_end and chance.random() < 0.8])
        old = {number: rows.pop(number) for number in changed if number in rows}
        rows |= new
        if old or new:
            kept.apply(old, new)
        expected, shown = kept.expected(rows), kept.groups.shown()
        assert shown.keys() == expected.keys()
        for group, row in shown.items():
            assert row.keys() == expected[group].keys()
            assert all(map(is_same, row.values(), expected[group].values())), (group, row, expected[group])
        assert kept.groups.rows == len(shown)
        assert kept.groups.hashes.there.keys() == {each for each, row in shown.items() if set(row.values()) != {None}}
        kept.groups.merge_some(chance)


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("select t, max(struct(x, t)).x as m from source group by t", "max of struct"),
        ("select t, count(distinct split(x, ',')) as m from source group by t", "count of list"),
        ("select t, max(unhex(x)) as m from source group by t", "max of binary"),
        ("select t, split(latest(x), ',') as m from source group by t", "the output m is list"),
        ("select t, null as m, count(*) as n from source group by t", "the output m is null"),
        (
            "select t, max(cast(w as timestamp)) - min(cast(w as timestamp)) as m from source group by t",
            "output m is dur",
        ),
        ("select cast(t as double) as t, count(*) as n from source group by 1", "cannot name a row"),
        ("select t, no_such_function(count(*)) as n from source group by t", "NO_SUCH_FUNCTION"),
        ("select t, sum(cast(t as boolean)) as n from source group by t", "sum"),
    ],
)
def test_what_has_no_text_or_no_order_is_refused(spark: SparkSession, sql: str, reason: str) -> None:
    declared = view(sql, ["t"])
    with pytest.raises(BadView, match=reason):
        Evaluation(spark, declared, plan_view(declared))


# --- groups as text ---------------------------------------------------------------------------------------------------


def test_groups_are_named_like_hashes() -> None:
    texts = [None, "", "a", "%", "a:b", "%3A", "%25", "ü:%"]
    one = group_texts([pa.array(texts)], len(texts)).to_pylist()
    assert [f"view:v:{text}" for text in one] == [hash_name("v", [text]) for text in texts]
    pairs = [(a, b) for a in texts for b in texts]
    two = group_texts([pa.array(column) for column in zip(*pairs, strict=True)], len(pairs)).to_pylist()
    assert [f"view:v:{text}" for text in two] == [hash_name("v", pair) for pair in pairs]
    assert len(set(two)) == len(pairs)
    assert group_texts([], 2).to_pylist() == ["", ""]


def test_values_are_text_as_spark_casts_them(spark: SparkSession) -> None:
    """Decimals with many zeros behind the point aside, which Spark writes with an exponent or not by its settings."""
    expressions = [
        "timestamp'2026-03-01 10:00:00'",
        "timestamp'2026-03-01 10:00:00.120'",
        "timestamp'0001-01-01 00:00:00.000001'",
        "timestamp'9999-12-31 23:59:59.999999'",
        "date'0001-01-01'",
        "true",
        "cast(-128 as tinyint)",
        "9223372036854775807L",
        "cast('-0.50' as decimal(10, 2))",
        "'a'",
        "cast(null as date)",
        "timestamp_ntz'1969-12-31 23:59:59.5'",
    ]
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    columns = ", ".join(f"{each} as v{n}, cast({each} as string) as t{n}" for n, each in enumerate(expressions))
    found = session.sql(f"select {columns}").toArrow()
    for number, each in enumerate(expressions):
        assert as_text(found[f"v{number}"]).to_pylist() == found[f"t{number}"].to_pylist(), each
