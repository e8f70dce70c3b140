"""Plans of views run by Spark: what they give, taken part by part, is what the SELECT gives.

The part between the projection and `final`, which the engine does change by change, is done here in the plainest way.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import StructField, StructType

from tidelog.spark.views.sql import functions
from tidelog.spark.views.sql.definition import View, ViewSource
from tidelog.spark.views.sql.query import Aggregate, ViewPlan, plan_view

pytestmark = pytest.mark.xdist_group("spark")

Rows = Sequence[dict[str, str | None]]

COLUMNS = ("key", "k", "s", "x", "y", "at", "c")
LOOKUP_COLUMNS = ("key", "name")
"""All columns that the views here name; the tables have them whether a view does or not."""

ORDERS: Rows = [
    {"key": "o:1", "k": "a", "s": "New", "x": "1", "y": "3", "at": "2024-01-01 00:00:10", "c": "1"},
    {"key": "o:2", "k": "a", "s": "new", "x": "2", "y": "3", "at": "2024-01-01 00:00:50", "c": "2"},
    {"key": "o:3", "k": "b", "s": None, "x": None, "y": "1", "at": "2024-01-01 00:01:10", "c": "1"},
    {"key": "o:4", "k": None, "s": "old", "x": "-4", "y": None, "at": None, "c": None},
    {"key": "o:5", "k": "b", "s": "Old", "x": "7", "y": "1", "at": "2024-01-02 00:00:00", "c": "3"},
    {"key": "o:6", "k": "a", "s": "new", "x": None, "y": "9", "at": "2024-01-01 00:00:20", "c": "1"},
]
CUSTOMERS: Rows = [{"key": "c:1", "name": "Ann"}, {"key": "c:2", "name": None}, {"key": "c:9", "name": "Zoe"}]


def provide(spark: SparkSession, orders: Rows, customers: Rows) -> None:
    """Make the tables that plans are over."""
    for table, columns, rows in (("source", COLUMNS, orders), ("customers", LOOKUP_COLUMNS, customers)):
        numbered = [(*(literal(row.get(name)) for name in columns), f"{n}L", f"{n}L") for n, row in enumerate(rows)]
        # One more, which is left out, so that there is always something to name the columns of.
        values = ", ".join(f"({', '.join(each)})" for each in [*numbered, (*("''" for _ in columns), "-1L", "-1L")])
        names = ", ".join([*columns, "_row", "_order"])
        spark.sql(f"select * from values {values} as t({names}) where _row >= 0").createOrReplaceTempView(table)


def literal(text: str | None) -> str:
    return "cast(null as string)" if text is None else f"'{text}'"


def reduced(aggregate: Aggregate, rows: Sequence[Row]) -> Any:
    """The result of an aggregate over the contributions of a group, in order of change."""
    if not aggregate.arguments:
        return len(rows)
    first, last = aggregate.arguments[0], aggregate.arguments[-1]
    if aggregate.function == "latest":
        return max(rows, key=lambda row: row["_row"])[first] if rows else None
    there = [row[first] for row in rows if row[last] is not None]
    if aggregate.function == "count":
        return len(set(there)) if aggregate.is_distinct else len(there)
    if not there:
        return None
    if aggregate.function in ("max_by", "min_by"):
        pairs = [((row[last], row[first] is not None, row[first]), row[first]) for row in rows if row[last] is not None]
        return (max if aggregate.function == "max_by" else min)(pairs, key=lambda pair: pair[0])[1]
    if aggregate.function == "avg":
        return sum(there) / len(there)
    plain: dict[str, Callable[[list[Any]], Any]] = {"sum": sum, "min": min, "max": max}
    return plain[aggregate.function](there)


def by_parts(spark: SparkSession, made: ViewPlan) -> list[str]:
    """The view by way of the plan's parts."""
    contributions = defaultdict[tuple[Any, ...], list[Row]](list)
    if made.is_global:
        contributions[()] = []
    projection = spark.sql(made.projection)
    for row in projection.collect():
        contributions[tuple(row[name] for name in made.groups)].append(row)
    results = [f"r{number}" for number in range(len(made.aggregates))]
    rows = [(*group, *(reduced(each, rows) for each in made.aggregates)) for group, rows in contributions.items()]
    if made.final is None:
        places = [[*made.groups, *results].index(column) for _, column in made.outputs]
        return shown([[row[place] for place in places] for row in rows])
    types = {field.name: field.dataType for field in projection.schema}
    given = [StructField(name, types[name]) for name in made.groups] + result_types(spark, made)
    spark.createDataFrame(rows, StructType(given)).createOrReplaceTempView("groups")
    finished = spark.sql(f"select {made.final} from `groups`")
    return shown(finished.where("_shown").drop("_shown").collect())


def result_types(spark: SparkSession, made: ViewPlan) -> list[StructField]:
    """What Spark makes the results of the aggregates: asked, not computed."""
    calls = [
        f"{each.function.replace('latest', 'any_value')}({', '.join(each.arguments) or '*'}) as r{number}"
        for number, each in enumerate(made.aggregates)
    ]
    return list(spark.sql(f"select {', '.join(calls)} from ({made.projection})").schema) if calls else []


def shown(rows: Sequence[Sequence[Any]]) -> list[str]:
    """Rows as text, in an order, floats as they are up to the order in which they were added."""
    return sorted(json.dumps([round(v, 6) if isinstance(v, float) else v for v in row], default=str) for row in rows)


def checked(spark: SparkSession, sql: str, *key: str, is_plain: bool = True) -> list[str]:
    """The view's rows, which are the same by parts, at once, and, where Spark has all of it, as it is written."""
    lookups = {"customers": ViewSource("prefix", "c:")} if "customers" in sql else {}
    made = plan_view(View("v", ViewSource("stream", "o"), sql, key, lookups))
    at_once: DataFrame = spark.sql(made.recompute)
    assert at_once.columns == [name for name, _ in made.outputs]
    rows = shown(at_once.collect())
    assert by_parts(spark, made) == rows, made
    if is_plain:
        assert shown(spark.sql(sql).collect()) == rows
    return rows


@pytest.fixture(autouse=True)
def tables(spark: SparkSession) -> None:
    provide(spark, ORDERS, CUSTOMERS)


@pytest.mark.parametrize(
    ("key", "outputs", "rest"),
    [
        ("k", "select k, count(*) as n, sum(cast(x as double)) as total", "from source group by k"),
        ("u", "select upper(s) as u, count(x) as n, avg(cast(x as int)) as m", "from source where y > 0 group by u"),
        (
            "k",
            "select k, round(sum(cast(x as int)) / count(*), 2) as m, 'v' as v",
            "from source group by 1 having count(*) > 1",
        ),
        (
            "k",
            "select k, min(x) as lo, max(cast(x as int)) as hi",
            "from source group by k having hi > 1 or lo is null",
        ),
        (
            "k",
            "select k, count(*) filter (where x > 1) as n, count_if(x > 1) as m, count(x, y) as b",
            "from source group by k",
        ),
        (
            "k",
            "select k, sum(cast(x as int)) filter (where s = 'new') as n, count(distinct lower(s)) as d",
            "from source group by k",
        ),
        (
            "t",
            "select window.start as t, window.end, count(*) as n",
            "from source group by window(to_timestamp(at), '1 minute')",
        ),
        ("t", "select window(to_timestamp(at), '1 minute').end as t, max(x) as m", "from source group by all"),
        ("day", "select date_trunc('day', to_timestamp(at)) as day, count(*) as n", "from source group by day"),
        (
            "day",
            "select date_format(to_timestamp(at), 'yyyy-MM-dd EEE') as day, count(*) as n",
            "from source group by day",
        ),
        (
            "d",
            "select datediff(DAY, to_timestamp(at), timestamp '2024-02-01') as d, count(*) as n",
            "from source group by d",
        ),
        (
            "c",
            "select case when x > 1 then 'many' when x is null then s else 'few' end as c, count(*) n",
            "from source group by 1",
        ),
        (
            "yr",
            "select split(at, '-')[0] as yr, count(*) as n, max(length(s)) + min(cast(x as int)) as l",
            "from source group by yr",
        ),
        ("k", "select k", "from source group by k"),
        ("k2", "select transform(array(k), a -> a || 'b')[0] as k2, count(*) as n", "from source group by k2"),
        (
            "name",
            "select c.name, count(*) as n",
            "from source left join customers c on c.key = concat('c:', source.c) group by c.name",
        ),
        (
            "name",
            "select c.name, sum(cast(s.x as int)) as n",
            "from source s join customers c on c.key > concat('c:', s.c) group by c.name",
        ),
    ],
)
def test_grouped_views_run(spark: SparkSession, key: str, outputs: str, rest: str) -> None:
    assert checked(spark, f"{outputs} {rest}", key)


def test_a_view_of_one_row_has_one_even_of_nothing(spark: SparkSession) -> None:
    sql = "select count(*) as n, sum(cast(x as int)) + 1 as s, latest(k) as l from source where k = "
    assert checked(spark, sql + "'a'", is_plain=False) == ['[3, 4, "a"]']
    assert checked(spark, sql + "'none'", is_plain=False) == ["[0, null, null]"]


def test_the_latest_is_of_the_row_that_was_changed_last(spark: SparkSession) -> None:
    assert checked(spark, "select k, latest(x) as x, count(*) as n from source group by k", "k", is_plain=False) == [
        '["a", null, 3]',
        '["b", "7", 2]',
        '[null, "-4", 1]',
    ]
    assert checked(spark, "select k, x, y || 'z' as y from source where x is not null", "k", is_plain=False) == [
        '["a", "2", "3z"]',
        '["b", "7", "1z"]',
        '[null, "-4", null]',
    ]


def test_ties_of_max_by_are_decided(spark: SparkSession) -> None:
    outputs = "k, max_by(x, y) as hi, min_by(x, y) as lo, max_by(x, y) filter (where y < 9) as f"
    assert checked(spark, f"select {outputs} from source group by k", "k", is_plain=False) == [
        '["a", null, "1", "2"]',
        '["b", "7", null, "7"]',
        "[null, null, null, null]",
    ]


def test_all_functions_of_spark_are_known(spark: SparkSession) -> None:
    """An aggregate that nobody told us of would be taken for a function of one row."""
    session: Any = spark
    registry = session._jsparkSession.sessionState().functionRegistry()
    listed = registry.listFunction()
    groups = defaultdict[str, set[str]](set)
    for number in range(listed.size()):
        name = listed.apply(number)
        groups[registry.lookupFunction(name).get().getGroup()].add(name.funcName())
    assert len(groups["agg_funcs"]) > 50
    assert {name for name in groups["agg_funcs"] if not functions.is_aggregate(name)} == set()
    assert groups["generator_funcs"] <= functions.GENERATORS
    assert groups["window_funcs"] <= functions.RANKING
    assert {
        name for name in groups["datetime_funcs"] if name.startswith(("cur", "local", "now"))
    } <= functions.UNREPEATABLE
    misc = {name for name in groups["misc_funcs"] if name.startswith(("current_", "input_", "session_", "spark_"))}
    assert len(misc) > 5
    assert misc <= functions.UNREPEATABLE


# --- random views over random rows ------------------------------------------------------------------------------

texts = st.sampled_from(["a", "b", "A", "", None])
numbers = st.sampled_from(["0", "1", "2", "-3", "10", None])
times = st.sampled_from(["2024-01-01 00:00:10", "2024-01-01 00:00:50", "2024-01-01 00:01:00", None])
orders = st.fixed_dictionaries({"k": texts, "s": texts, "x": numbers, "y": numbers, "at": times, "c": numbers})

KEYS = ["k", "upper(s)", "cast(x as int) % 2", "coalesce(k, s)", "window(to_timestamp(at), '1 minute').start"]
VALUES = ["cast(x as int)", "cast(y as int) + 1", "length(s)", "case when k = 'a' then cast(y as int) end"]
CONDITIONS = ["x > 0", "k is not null", "s in ('a', 'b') or y < 2", "not x <=> y"]
FUNCTIONS = ["count", "sum", "min", "max", "avg", "count(distinct", "latest", "max_by", "min_by", "last"]


@st.composite
def aggregates(draw: st.DrawFn) -> str:
    function, value = draw(st.sampled_from(FUNCTIONS)), draw(st.sampled_from(VALUES))
    if function == "count(distinct":
        call = f"count(distinct {value})"
    elif function.endswith("_by"):
        call = f"{function}({value}, {draw(st.sampled_from(VALUES))})"
    else:
        call = f"{function}({value})"
    if function not in ("latest", "last") and draw(st.booleans()):
        call += f" filter (where {draw(st.sampled_from(CONDITIONS))})"
    wrapped = ["{}", "{} + count(*)", "coalesce({}, 0)", "abs({})"]
    return draw(st.sampled_from(wrapped)).format(call)


@st.composite
def views(draw: st.DrawFn) -> tuple[str, list[str]]:
    """The SQL of a view, and its key."""
    groups = draw(st.lists(st.sampled_from(KEYS), max_size=2, unique=True))
    is_latest = bool(groups) and draw(st.booleans())
    trees = st.sampled_from(VALUES) if is_latest else aggregates()
    values = draw(st.lists(trees, min_size=0 if groups else 1, max_size=3))
    named = [
        *(f"{tree} as g_{n}" for n, tree in enumerate(groups)),
        *(f"{tree} as v_{n}" for n, tree in enumerate(values)),
    ]
    sql = f"select {', '.join(draw(st.permutations(named)))} from source"
    if draw(st.booleans()):
        sql += f" where {draw(st.sampled_from(CONDITIONS))}"
    keys = [f"g_{n}" for n in range(len(groups))]
    if groups and not is_latest:
        sql += f" group by {', '.join(draw(st.sampled_from([groups, keys])))}"
        if draw(st.booleans()):
            sql += f" having {draw(st.sampled_from(['count(*) > 1', 'count(x) < 3', f'{keys[0]} is not null']))}"
    return sql, keys


@settings(
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    # A smaller example would take minutes to find.
    phases=[Phase.explicit, Phase.generate],
)
@given(st.lists(orders, max_size=8), views())
def test_random_views_run(spark: SparkSession, rows: Rows, made: tuple[str, list[str]]) -> None:
    provide(spark, rows, CUSTOMERS)
    sql, key = made
    is_plain = bool(key) and "group by" in sql and not any(word in sql for word in ("latest", "last", "_by("))
    checked(spark, sql, *key, is_plain=is_plain)
