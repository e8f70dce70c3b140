"""A view's SELECT taken apart: the plan, and a reason for everything that cannot be maintained. No Spark is needed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tidelog.errors import BadView
from tidelog.spark.views.sql.definition import View, ViewSource
from tidelog.spark.views.sql.plan import Aggregate, Join, ViewPlan
from tidelog.spark.views.sql.query import plan_view


def view(sql: str, *key: str, **lookups: str) -> View:
    tables = {name: ViewSource("prefix", prefix) for name, prefix in lookups.items()}
    return View("v", ViewSource("stream", "orders"), sql, key, tables)


def planned(sql: str, *key: str, **lookups: str) -> ViewPlan:
    return plan_view(view(sql, *key, **lookups))


def test_a_grouped_view() -> None:
    made = planned(
        "select state, count(*) as n, sum(cast(amount as double)) as total from source where amount > 0 group by state",
        "state",
    )
    assert made == ViewPlan(
        columns=("amount", "state"),
        lookups={},
        joins=(),
        projection="SELECT `source`.`_row` AS `_row`, `source`.`state` AS `g0`, CAST(`source`.`amount` AS DOUBLE) AS "
        "`a0` FROM `source` WHERE `source`.`amount` > 0",
        groups=("g0",),
        aggregates=(Aggregate("count", ()), Aggregate("sum", ("a0",))),
        final=None,
        outputs=(("state", "g0"), ("n", "r0"), ("total", "r1")),
        key=("state",),
        is_global=False,
        recompute="SELECT `source`.`state` AS `state`, COUNT(*) AS `n`, SUM(CAST(`source`.`amount` AS DOUBLE)) AS "
        "`total` FROM `source` WHERE `source`.`amount` > 0 GROUP BY `source`.`state`",
    )


def test_composites_and_having_go_through_final() -> None:
    made = planned(
        "select k, 1 as one, round(sum(x) / count(*), 2) as m from source group by k having m > 2 and sum(x) < 9", "k"
    )
    assert made.aggregates == (Aggregate("sum", ("a0",)), Aggregate("count", ()))
    assert made.outputs == (("k", "g0"), ("one", ""), ("m", ""))
    assert made.final == (
        "`groups`.`g0` AS `k`, 1 AS `one`, ROUND(`groups`.`r0` / `groups`.`r1`, 2) AS `m`, "
        "(ROUND(`groups`.`r0` / `groups`.`r1`, 2)) > 2 AND `groups`.`r0` < 9 AS `_shown`"
    )


def test_a_view_of_one_row() -> None:
    made = planned("select count(distinct a) as n, max_by(a, b) as m, avg(b) as mean from source")
    assert made.is_global
    assert (made.groups, made.key) == ((), ())
    assert made.aggregates == (
        Aggregate("count", ("a0",), is_distinct=True),
        Aggregate("max_by", ("a0", "a1")),
        Aggregate("avg", ("a1",)),
    )


def test_latest_by_key() -> None:
    made = planned("select key, x, upper(y) as y, 1 as one from source where x is not null", "key")
    assert made.groups == ("g0",)
    assert made.aggregates == tuple(Aggregate("latest", (f"a{number}",)) for number in range(3))
    assert made.final is None
    assert made.recompute == (
        "SELECT `source`.`key` AS `key`, MAX_BY(`source`.`x`, `source`.`_order`) AS `x`, "
        "MAX_BY(UPPER(`source`.`y`), `source`.`_order`) AS `y`, MAX_BY(1, `source`.`_order`) AS `one` "
        "FROM `source` WHERE NOT `source`.`x` IS NULL GROUP BY `source`.`key`"
    )


def test_lookups_keep_their_aliases() -> None:
    made = planned(
        "select c.name, count(*) as n, latest(s.x) as x from Source s left join Customers c "
        "on c.key = concat('customer:', s.customer) and c.name <> '' group by c.name",
        "name",
        customers="customer:",
    )
    assert made.columns == ("customer", "x")
    assert made.lookups == {"customers": ("key", "name")}
    assert " FROM `source` LEFT JOIN `customers` AS `c` ON `c`.`key` = CONCAT(" in made.projection


def test_a_lookup_can_be_joined_twice() -> None:
    made = planned(
        "select a.name, b.name as other, count(*) as n from source join c a on a.key = source.x "
        "join c as b on b.key = source.y group by 1, 2",
        "name",
        "other",
        c="c:",
    )
    assert made.lookups == {"c": ("key", "name")}


@pytest.mark.parametrize(
    ("group", "key"),
    [
        ("upper(k)", "u"),
        ("u", "u"),
        ("U", "u"),
        ("1", "u"),
        ("all", "u"),
        ("(upper(k))", "u"),
        ("UPPER( source.k )", "u"),
        ("1, u, upper(k)", "u"),
    ],
)
def test_ways_to_write_group_by(group: str, key: str) -> None:
    made = planned(f"select upper(k) as u, count(*) as n from source group by {group}", key)
    assert made.outputs == (("u", "g0"), ("n", "r0"))
    assert made.columns == ("k",)


@pytest.mark.parametrize("key", [["start"], ["end"], ["start", "end"]])
def test_a_window_is_named_by_either_bound(key: list[str]) -> None:
    made = planned(
        "select window.start, window(at, '1 minute').end as end, count(*) as n from source group by "
        "window(at, '1 minute')",
        *key,
    )
    assert made.groups == ("g0", "g1")
    assert made.columns == ("at",)
    assert "WINDOW(`source`.`at`, '1 minute').`start` AS `g0`" in made.projection


def test_columns_keep_their_case_and_may_have_any_name() -> None:
    made = planned(
        "select `Ä b` as b, max(`a.b`) as m, count(user) as u, min(CamelCase) as c from source group by 1", "b"
    )
    assert made.columns == ("CamelCase", "a.b", "user", "Ä b")


def test_equal_aggregates_and_arguments_are_shared() -> None:
    made = planned(
        "select COUNT(*) as a, count(1) as b, Sum(x) as c, sum( (x) ) + min(x) as d, mean(x) as e from source"
    )
    assert made.aggregates == (
        Aggregate("count", ()),
        Aggregate("sum", ("a0",)),
        Aggregate("min", ("a0",)),
        Aggregate("avg", ("a0",)),
    )


def test_filters_become_conditions() -> None:
    made = planned(
        "select count(*) filter (where a > 1) as n, sum(x) filter (where a > 1) as s, count_if(a > 1) as m, "
        "max_by(x, y) filter (where a > 1) as b, count(x, y) as both from source"
    )
    assert made.aggregates == (
        Aggregate("count", ("a0",)),
        Aggregate("sum", ("a1",)),
        Aggregate("max_by", ("a2", "a3")),
        Aggregate("count", ("a4",)),
    )
    assert "CASE WHEN `source`.`a` > 1 THEN 1 END AS `a0`" in made.projection
    assert "CASE WHEN `source`.`a` > 1 THEN `source`.`y` END AS `a3`" in made.projection


def test_functions_are_left_as_they_are_written() -> None:
    made = planned(
        r"select date_format(at, 'yyyy-MM-dd\'T\'HH:mm:ss.SSS EEEE') as d, datediff(DAY, a, b) as days, a div 2 as h, "
        "transform(split(a, ','), x -> x || b)[0] as t, my_udf(a) as u, key from source",
        "key",
    )
    assert made.columns == ("a", "at", "b", "key")
    for text in (
        r"DATE_FORMAT(`source`.`at`, 'yyyy-MM-dd\'T\'HH:mm:ss.SSS EEEE')",
        "DATEDIFF(DAY, `source`.`a`, `source`.`b`)",
        "`source`.`a` DIV 2",
        "TRANSFORM(SPLIT(`source`.`a`, ','), `x` -> `x` || `source`.`b`)[0]",
        "MY_UDF(`source`.`a`)",
    ):
        assert text in made.projection


REFUSED = [
    # What is no SELECT of the right shape.
    ("select", "there is no FROM"),
    ("selec a from source", "sql"),
    ("select a from source where", "sql cannot be read: "),
    ("insert into a select 1", "sql is not a SELECT"),
    ("table source", "sql is not a SELECT"),
    ("select key from source; select key from source", "sql has 2 statements: write one SELECT"),
    ("select key from source union select key from source", "UNION, INTERSECT and EXCEPT are not supported"),
    ("with a as (select 1) select key from source", "WITH is not supported"),
    ("select distinct key from source", "DISTINCT is not supported: write GROUP BY"),
    ("select key from source order by key", "ORDER BY has no meaning"),
    ("select key from source limit 1", "LIMIT is not supported"),
    ("select key from source offset 1", "OFFSET is not supported"),
    ("select key from source lateral view explode(a) t as b", "LATERAL VIEW is not supported"),
    ("select /*+ broadcast(a) */ key from source", "hints are not supported"),
    ("select key from source tablesample (1 percent)", "is not"),
    ("select " + "(" * 26 + "key" + ")" * 26 + " as key from source", "nests more than 25 brackets"),
    ("select " + "- " * 1500 + "1 as key from source", "sql is nested too deeply"),
    ("select " + "+".join("a" * 2100) + " as key from source", "words, more than 4000"),
    # Tables.
    ("select key from orders", "there is no table orders: use source, c; declare another as lookups.orders"),
    ("select key from c", "FROM must name source"),
    ("select key from (select 1) as source", "a subquery in FROM is not supported"),
    ("select key from range(3)", "a view can only read"),
    ("select key from other.source", "a view can only read"),
    ("select key from source as s(a, b)", "the columns of table source keep their names"),
    ("select key from source", "lookup c is not joined: write [LEFT] JOIN c ON c.key = source.column, or remove it"),
    ("select source.key from source right join c on c.key = source.a", "RIGHT JOIN is not supported"),
    ("select source.key from source full join c on c.key = source.a", "FULL JOIN is not supported"),
    ("select source.key from source cross join c", "CROSS JOIN, or a comma, is not supported"),
    ("select source.key from source, c", "CROSS JOIN, or a comma, is not supported"),
    ("select source.key from source left semi join c on c.key = source.a", "SEMI JOIN is not supported"),
    ("select source.key from source left anti join c on c.key = source.a", "ANTI JOIN is not supported"),
    ("select source.key from source natural join c", "NATURAL in a join is not supported"),
    ("select source.key from source join c using (key)", "USING in a join is not supported"),
    ("select source.key from source join c", "a join without ON is not supported"),
    ("select source.key from source join c on true", "a join without ON is not supported"),
    ("select source.key from source join source as b on b.key = source.a", "source joined with itself"),
    ("select source.key from source join c on c.key = source.a join c on c.key = source.b", "two tables are called c"),
    ("select source.key from source s join c source on c.key = s.a", "two tables are called source"),
    ("select source.key from source join c window on c.key = source.a", "window is the time window of GROUP BY"),
    ("select source.key from source join c on rand() > source.a", "rand() is not repeatable"),
    ("select source.key from source join c on max(c.key) = source.a", "max in ON is not possible"),
    ("select source.key from source join lateral (select 1) on true", "is not supported"),
    # Columns.
    (
        "select key from source join c on c.key = source.a",
        "column key could belong to any table: write source.key or c.key",
    ),
    ("select source.key, c.b from source join c on c.x = source.a", "this join can turn one row into several"),
    (
        "select source.key, c.b from source join c on c.key = source.a or c.x = 1",
        "this join can turn one row into several",
    ),
    ("select source.key, c.b from source join c on c.key = c.x", "this join can turn one row into several"),
]

REFUSED_ALONE = [
    ("select * from source", "* is not supported: a view does not know all columns"),
    ("select source.* from source", "* is not supported"),
    ("select key, count(source.*) as n from source group by key", "* is not supported"),
    ("select a.b as key from source", "write get_json_object(a, '$.b')"),
    ("select source.a.b.c as key from source", "write get_json_object(a, '$.b.c')"),
    ("select s.a as key from source", "there is no table s"),
    ("select key, _row as r from source", "column _row is reserved"),
    ("select key, `_Order` as o from source", "column _Order is reserved"),
    ("select key, a, A as b from source", "columns a and A differ only in case"),
    ("select upper(a) as key, concat(key, 'b') as b from source", "key names an output, and only"),
    ("select upper(a) as key, b from source where key = 'b'", "write source.key if you mean a column"),
    # Outputs.
    ("select " + ",".join(f"a{n}" for n in range(201)) + " from source", "201 outputs, more than 200"),
    ("select key, upper(a) from source", "output 2 has no name: write UPPER(`a`) as NAME"),
    ("select key, a, b as A from source", "outputs a and A have the same name"),
    ("select key, a as _a from source", "output '_a': a name must not begin with _"),
    ("select key, a as `a b` from source", "output 'a b'"),
    (f"select key, a as {'a' * 129} from source", "its name has more than 128 characters"),
    # Functions.
    ("select key, sum(a) over (partition by b) as s from source", "OVER (...) is not supported"),
    ("select key, row_number() as s from source", "row_number() is not supported"),
    ("select key, (select 1) as s from source", "a subquery is not supported"),
    ("select key from source where a in (select 1)", "a subquery is not supported"),
    ("select key from source where exists (select 1)", "a subquery is not supported"),
    ("select key, explode(a) as e from source", "explode() makes several rows of one"),
    ("select key, rand() as r from source", "rand() is not repeatable: store the value in the data"),
    ("select key, UUID() as r from source", "uuid() is not repeatable"),
    ("select key, unix_timestamp() as r from source", "unix_timestamp() is not repeatable"),
    ("select key from source where at < now()", "now() is not repeatable"),
    ("select key from source where at < current_timestamp", "is not repeatable"),
    ("select key from source where at < current_date()", "is not repeatable"),
    ("select key from source where at < localtimestamp", "localtimestamp is not repeatable"),
    ("select key from source where at < timestamp 'now'", "'now' as a time is not repeatable"),
    ("select key from source where a = :b", "is a parameter, and a view has no parameters"),
    ("select key, collect_list(a) as l from source group by key", "collect_list() is not supported: use count,"),
    ("select key, approx_unheard_of(a) as l from source group by key", "approx_unheard_of() is not supported"),
    ("select key, first(a) as f from source group by key", "first() is not supported"),
    ("select key, any(a) as f from source group by key", "is not supported: use count"),
    ("select key, builtin.sum(a) as f from source group by key", "write the function by its name alone"),
    ("select key, identifier('a') as f from source", "identifier() is not possible"),
    ("select key, count(* except (a)) as f from source group by key", "* is not supported"),
    ("select key, stddev(a) as f from source group by key", "stddev() is not supported"),
    ("select key, last(a) ignore nulls as f from source group by key", "IGNORE NULLS is not supported"),
    ("select key, last(a, true) as f from source group by key", "not 2; exclude nulls with WHERE"),
    ("select key, percentile_cont(0.5) within group (order by a) as p from source group by key", "is not supported"),
    ("select key, sum(distinct a) as f from source group by key", "only count(distinct x) is"),
    ("select key, count(distinct a, b) as f from source group by key", "write count(distinct to_json(array("),
    ("select key, upper(distinct a) as f from source", "DISTINCT is only supported in count(distinct x)"),
    ("select key, upper(a) filter (where b) as f from source", "FILTER needs an aggregate"),
    ("select key, latest(a) filter (where b) as f from source group by key", "put the condition into WHERE"),
    ("select key, sum(max(a)) as f from source group by key", "sum over an aggregate is not possible"),
    ("select key, sum(a) filter (where max(b) > 1) as f from source group by key", "over an aggregate"),
    ("select key, max_by(a) as f from source group by key", "max_by() takes 2 argument(s), not 1"),
    ("select key, count() as f from source group by key", "count() takes one argument(s), not 0"),
    ("select key, count(*) as n from source where count(*) > 1 group by key", "count in WHERE is not possible"),
    ("select key from source where window(at, '1 minute').start > a", "window(...) in WHERE is not possible"),
    # Groups.
    ("select key, count(*) as n from source group by key, max(a)", "max in GROUP BY is not possible"),
    ("select key, count(*) as n from source group by 2", "count in GROUP BY is not possible"),
    ("select key, count(*) as n from source group by 3", "GROUP BY 3: there are outputs 1 to 2"),
    ("select key, count(*) as n from source group by 'a'", "is a constant and groups nothing"),
    ("select 'a' as key, count(*) as n from source group by all", "GROUP BY names no column"),
    ("select key, count(*) as n from source group by rollup(key)", "GROUPING SETS, ROLLUP and CUBE are not"),
    ("select key, count(*) as n from source group by key with cube", "GROUPING SETS, ROLLUP and CUBE are not"),
    ("select key, count(*) as n from source group by grouping sets ((key))", "GROUPING SETS, ROLLUP and CUBE are"),
    ("select key, a, count(*) as n from source group by key", "output a uses column a, which is neither in GROUP BY"),
    ("select key, count(*) as n from source", "without GROUP BY there is always exactly one row: write key = []"),
    ("select key, count(*) as n from source group by key having a > 1", "HAVING uses column a, which is neither"),
    ("select key from source having key > 1", "HAVING without GROUP BY"),
    ("select upper(key) as key, count(*) as n from source group by key", "key names key, which is UPPER("),
    ("select count(*) as n from source group by key", "key names key, which is not an output: the outputs are n"),
    ("select upper(a) as key, count(*) as n from source group by a, key", "GROUP BY has `source`.`a`, which key does"),
    ("select a as key, b, count(*) as n from source group by a, b", "two rows would share a hash"),
    ("select count(*) as key from source group by a", "which is COUNT(*), but GROUP BY has `source`.`a`"),
    (
        "select key, upper(a) as a, count(*) as n from source group by key, a having a = 'A'",
        "a in HAVING is an output and a column: write source.a",
    ),
    ("select 1 as key, a from source", "key names key, which is a constant"),
    # Windows.
    ("select window.start as key, count(*) as n from source group by a", "needs GROUP BY window(time"),
    ("select window(at, '1 minute') as key, count(*) as n from source group by 1", "write window.start or window.end"),
    ("select a as key, count(*) as n from source group by a, window(at, '1 minute')", "which key does not name"),
    (
        "select window.start as key, count(*) as n from source group by window(at, '1 hour', '1 minute')",
        "sliding windows are not supported",
    ),
    (
        "select window(a, '1 hour').start as key, max(window(b, '1 hour').start) as m from source group by 1",
        "there are two windows",
    ),
    ("select window(at).start as key, count(*) as n from source group by 1", "window() takes a time and a length"),
    ("select key, count(*) as n from source group by session_window(at, '1 minute'), key", "session_window is not"),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "reason"), REFUSED, ids=range(len(REFUSED)))
def test_a_shape_that_cannot_be_maintained_is_refused(sql: str, reason: str) -> None:
    with pytest.raises(BadView) as error:
        planned(sql, "key", c="c:")
    assert str(error.value).startswith("view v: ")
    assert reason in str(error.value)


@pytest.mark.parametrize(("sql", "reason"), REFUSED_ALONE, ids=range(len(REFUSED_ALONE)))
def test_what_cannot_be_maintained_is_refused(sql: str, reason: str) -> None:
    with pytest.raises(BadView) as error:
        planned(sql, "key")
    assert str(error.value).startswith("view v: ")
    assert reason in str(error.value)


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("select k, count(*) as n from source group by k", "GROUP BY has `source`.`k`, which key does not name"),
        ("select k from source", "key is empty, and there is neither GROUP BY nor an aggregate"),
    ],
)
def test_an_empty_key_is_for_one_row(sql: str, reason: str) -> None:
    with pytest.raises(BadView, match=reason):
        planned(sql)


def test_refusing_needs_no_spark_session() -> None:
    """Nothing of the modules imports PySpark, whatever the package above them does."""
    code = (
        "import sys, types\n"
        "package = types.ModuleType('tidelog.spark')\n"
        "import tidelog\n"
        "package.__path__ = [tidelog.__path__[0] + '/spark']\n"
        "sys.modules['tidelog.spark'] = package\n"
        "from tidelog.spark.views.sql import definition, query\n"
        "assert 'pyspark' not in sys.modules, 'pyspark was imported'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_view_may_have_the_latest_of_several_keys() -> None:
    for sql in (
        "select customer, state from source",
        "select customer, latest(state) as s from source group by customer",
    ):
        made = plan_view(View("v", ViewSource("prefix", "order:"), sql, ("customer",)))
        assert [each.function for each in made.aggregates] == ["latest"]


def test_joins_by_a_value_are_known() -> None:
    made = planned(
        "select c.name, count(*) as n from source left join cities c on c.key = concat('city:', source.city) and "
        "c.kind = 'large' group by 1",
        "name",
        cities="city:",
    )
    assert made.joins == (Join("c", "cities", "key", "CONCAT('city:', `source`.`city`)"),)


@pytest.mark.parametrize("condition", ["c.key > source.city", "c.key = 'here'", "c.key = source.city or c.x = '1'"])
def test_joins_that_have_to_look_at_all_rows_are_known_too(condition: str) -> None:
    made = planned(
        f"select source.city as city, count(*) as n from source join cities c on {condition} group by 1",
        "city",
        cities="city:",
    )
    assert made.joins is None
