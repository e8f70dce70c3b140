"""Groups that are maintained come to what Spark makes of all rows at once."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.spark.hash_names import hash_name
from tidelog.errors import BadView
from tidelog.spark.views.keeping.evaluation import Evaluation
from tidelog.spark.views.keeping.groups import Groups, Reduction, as_text, group_texts
from tidelog.spark.views.keeping.results import Results, rows_by_group
from tidelog.spark.views.keeping.source_rows import rows_schema
from tidelog.spark.views.sql.definition import View, ViewSource
from tidelog.spark.views.sql.plan import Aggregate
from tidelog.spark.views.sql.query import plan_view

pytestmark = pytest.mark.xdist_group("spark")

TEXTS = (None, "", "a", "B", "ü", "%", "a:b", "1")
NUMBERS = (None, "x", "1", "-2.5", "NaN", "Infinity", "-0.0", "0", "1e300", "12345678901234567890.12")
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


def random_rows(chance: random.Random, columns: Sequence[str], ids: Sequence[int]) -> pa.Table:
    choices = {"f": FLAGS, "t": TEXTS, "w": TIMES, "x": NUMBERS}
    rows = [
        {"id": number.to_bytes(8), "rest": [b""], **{f"c{n}": chance.choice(choices[c]) for n, c in enumerate(columns)}}
        for number in ids
    ]
    return pa.Table.from_pylist(rows, rows_schema(len(columns)))


def is_same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-12) or (math.isnan(one) and math.isnan(other))
    return bool(one == other)


@pytest.mark.parametrize("name", QUERIES)
def test_groups_come_to_what_spark_makes_of_all_rows(spark: SparkSession, name: str) -> None:
    sql, key = QUERIES[name]
    declared = view(sql, key)
    evaluation = Evaluation(spark, declared, plan_view(declared))
    made = evaluation.plan
    groups, results = Groups(made, evaluation.contributed), Results(made)
    results.update(None, evaluation.finished(groups.reduced().drop_columns(["group"])))
    chance = random.Random(name)
    rows = rows_schema(len(made.columns)).empty_table()
    for changed in (range(0), range(30), range(20, 40), range(10)):
        new = random_rows(chance, made.columns, [number for number in changed if chance.random() < 0.8])
        ids = pa.array([number.to_bytes(8) for number in changed], pa.binary())
        rows = pa.concat_tables([rows.filter(pa.compute.invert(pa.compute.is_in(rows["id"], ids))), new])
        concerned = groups.replace(ids, evaluation.contributions(new, {}))
        if len(concerned):
            found = evaluation.finished(groups.reduced(concerned).drop_columns(["group"]))
            results.update(concerned.to_pylist(), found)
        expected = rows_by_group(made, evaluation.recomputed(rows, {}))
        assert results.rows.keys() == expected.keys()
        for group, row in results.rows.items():
            assert all(map(is_same, row, expected[group])), (group, row, expected[group])
    everything = groups.replace_all(evaluation.contributions(rows.slice(0, 0), {}))
    results.update(everything.to_pylist(), evaluation.finished(groups.reduced(everything).drop_columns(["group"])))
    assert results.rows == rows_by_group(made, evaluation.recomputed(rows.slice(0, 0), {}))


def test_rows_between_which_others_went_are_all_seen(spark: SparkSession) -> None:
    declared = view("select t, count(*) as n from source group by t", ["t"])
    evaluation = Evaluation(spark, declared, plan_view(declared))
    rows = pa.Table.from_pylist([{"id": b"1", "rest": [b""], "c0": "a"}, {"id": b"2", "rest": [b""]}], rows_schema(1))
    parts = pa.concat_tables([rows, rows.slice(0, 0), rows, rows.slice(0, 0), rows])
    assert len(evaluation.contributions(parts, {})) == 6
    assert sorted(evaluation.recomputed(parts, {})["n"].to_pylist()) == [3, 3]


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


# --- without Spark ----------------------------------------------------------------------------------------------------


def reduced(values: Any, function: str, *, is_distinct: bool = False) -> list[Any]:
    """Of group x, which has all values but the last, and of group y."""
    count = len(values)
    ids = pa.array([bytes([number]) for number in range(count)])
    rows = pa.table({"id": ids, "group": ["x"] * (count - 1) + ["y"], "a0": values})
    found: list[Any] = Reduction(rows).run(Aggregate(function, ("a0",), is_distinct)).to_pylist()
    return found


def test_the_average_of_wide_decimals() -> None:
    values = pa.array([Decimal("12345678901234567890.12"), Decimal("0.01"), Decimal("-1.00")], pa.decimal128(38, 2))
    assert reduced(values, "avg") == [Decimal("6172839450617283945.065000"), Decimal("-1.000000")]


def test_nan_is_the_largest_number() -> None:
    values = pa.array([1.0, math.nan, None, math.nan])
    assert [reduced(values, "min")[0], math.isnan(reduced(values, "max")[0])] == [1.0, True]
    assert all(math.isnan(reduced(values, function)[1]) for function in ("min", "max", "sum", "avg"))
    assert reduced(values, "count") == [2, 1]


def test_zero_is_zero_whatever_its_sign() -> None:
    assert reduced(pa.array([0.0, -0.0, 1.0, -0.0]), "count", is_distinct=True) == [2, 1]


def test_nothing_but_nulls() -> None:
    values = pa.array([None, None, 1], pa.int32())
    for function, expected in (("sum", 1), ("min", 1), ("max", 1), ("avg", 1.0), ("latest", 1)):
        assert reduced(values, function) == [None, expected]
    assert reduced(values, "count") == [0, 1]
    assert reduced(values, "count", is_distinct=True) == [0, 1]


def test_the_latest_is_that_of_the_highest_id_null_or_not() -> None:
    assert reduced(pa.array(["a", "b", None, "c"]), "latest") == [None, "c"]


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
