"""Which table and column a name means.

Nothing declares the columns of `source` and of the lookups: a column exists because the SQL names it. So each name must
be clear by itself. With a join, it must say its table; if an output has the same name, it must say which of the two it
means. Names are those of the data and keep their case. Spark ignores case, so two names that differ only in case are
refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from sqlglot import exp

from tidelog.spark.views.sql import functions
from tidelog.spark.views.sql.grammar import Refusal, refuse_unknown, written
from tidelog.spark.views.sql.plan import Join

SOURCE: Final = "source"
RESERVED: Final = frozenset(["_row", "_order"])
WINDOW: Final = "window"
"""The name of the time window of GROUP BY in the SELECT."""

_JOIN_ADVICE: Final = "write [LEFT] JOIN lookup ON lookup.key = source.column"
_REFUSED_JOINS: Final = {
    "RIGHT": "RIGHT JOIN is not supported: put source first, and " + _JOIN_ADVICE,
    "FULL": "FULL JOIN is not supported: " + _JOIN_ADVICE,
    "CROSS": "CROSS JOIN, or a comma, is not supported: " + _JOIN_ADVICE,
    "SEMI": "SEMI JOIN is not supported: use an inner JOIN by the lookup's key",
    "ANTI": "ANTI JOIN is not supported: use LEFT JOIN and WHERE lookup.key IS NULL",
}


class Tables:
    """The tables of a SELECT, and the columns that it names."""

    def __init__(self, select: exp.Select, lookups: Mapping[str, object], refusal: Refusal) -> None:
        self._lookups = {name.lower(): name for name in lookups}
        self._refusal = refusal
        self._tables: dict[str, str] = {}
        """By alias, in lower case: `source`, or the name of a lookup."""
        self._columns: dict[str, dict[str, str]] = {}
        """By table: the names of columns, each by its lower case."""
        self._ambiguous: frozenset[str] = frozenset()
        table = select.args["from_"].this
        if self._name(table) != SOURCE:
            raise refusal("FROM must name source: write from source, and join lookups to it")
        self._add(table)
        self._joins = [self._join(join) for join in select.args.get("joins") or []]
        for name in lookups:
            if name not in self._tables.values():
                raise refusal(f"lookup {name} is not joined: {_JOIN_ADVICE.replace('lookup', name)}, or remove it")

    @property
    def columns(self) -> tuple[str, ...]:
        return self._named(SOURCE)

    @property
    def lookups(self) -> dict[str, tuple[str, ...]]:
        return {name: self._named(name) for name in self._tables.values() if name != SOURCE}

    def settle(self, aliases: frozenset[str]) -> None:
        """Note the outputs whose names are not those of columns, and resolve the conditions of the joins."""
        self._ambiguous = aliases
        for join in self._joins:
            join.set("on", self.resolved(join.args["on"]))

    def conditions(self) -> Iterator[exp.Expr]:
        """The conditions of the joins."""
        return (join.args["on"] for join in self._joins)

    def from_clause(self) -> str:
        """The tables and joins, with every name resolved."""
        return " ".join([f"FROM `{SOURCE}`", *(written(join) for join in self._joins)])

    def resolved(self, tree: exp.Expr) -> exp.Expr:
        """A copy in which every column names its table, and functions are in lower case."""
        refuse_unknown(tree, self._refusal)

        def settled(node: exp.Expr) -> exp.Expr:
            if isinstance(node, exp.Column) and not is_window_part(node):
                return self._column(node)
            return node

        return _with_plain_calls(tree).transform(settled)

    def can_multiply(self) -> bool:
        """Whether one row of source can become several, because a lookup is not joined by its key."""
        return not all(any(_is_by_key(each, join) for each in _conditions(join)) for join in self._joins)

    def by_value(self) -> tuple[Join, ...] | None:
        """For each join a value of the source and a column of the lookup that have to be equal; None: not each has
        one."""
        found = [self._by_value(join) for join in self._joins]
        return None if None in found else tuple(each for each in found if each is not None)

    def _by_value(self, join: exp.Join) -> Join | None:
        alias = join.this.alias
        for condition in _conditions(join):
            if not isinstance(condition, exp.EQ):
                continue
            for one, other in ((condition.this, condition.expression), (condition.expression, condition.this)):
                if not isinstance(one, exp.Column) or one.table != alias:
                    continue
                tables = {column.table for column in other.find_all(exp.Column)}
                if tables == {SOURCE}:
                    return Join(alias, self._tables[alias], one.name, written(other))
        return None

    def _named(self, table: str) -> tuple[str, ...]:
        return tuple(sorted(self._columns.get(table, {}).values()))

    def _name(self, table: exp.Expr) -> str:
        """`source`, or the name of a lookup."""
        if isinstance(table, exp.Subquery | exp.Values):
            raise self._refusal("a subquery in FROM is not supported: read from source, or from a second view")
        if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier) or table.args.get("db"):
            raise self._refusal(f"a view can only read {', '.join(self._there())}, not {table.sql()}")
        for argument, value in table.args.items():
            if value and argument not in ("this", "alias"):
                raise self._refusal(f"{argument.upper()} at table {table.name} is not supported: remove it")
        alias = table.args.get("alias")
        if alias is not None and alias.args.get("columns"):
            raise self._refusal(f"the columns of table {table.name} keep their names: rename them in the SELECT")
        name = table.name.lower()
        if name != SOURCE and name not in self._lookups:
            raise self._refusal(
                f"there is no table {table.name}: use {', '.join(self._there())}; "
                f'declare another as lookups.{table.name} = "prefix:..."'
            )
        return self._lookups.get(name, SOURCE)

    def _there(self) -> Iterator[str]:
        yield SOURCE
        yield from self._lookups.values()

    def _add(self, table: exp.Table) -> None:
        alias = table.alias_or_name.lower()
        if alias == WINDOW:
            raise self._refusal("window is the time window of GROUP BY: give the table another name with AS")
        if alias in self._tables or (self._tables and alias == SOURCE):
            raise self._refusal(f"two tables are called {alias}: give one of them another name with AS")
        self._tables[alias] = self._name(table)

    def _join(self, join: exp.Join) -> exp.Join:
        for word in (join.side, join.kind, join.method):
            if word in _REFUSED_JOINS:
                raise self._refusal(_REFUSED_JOINS[word])
        if isinstance(join.this, exp.Lateral):
            raise self._refusal("LATERAL is not supported: a row of source stays one row; " + _JOIN_ADVICE)
        for argument, value in join.args.items():
            if value and argument not in ("this", "on", "side", "kind"):
                shown = join.method or argument.upper()
                raise self._refusal(f"{shown} in a join is not supported: {_JOIN_ADVICE}")
        if self._name(join.this) == SOURCE:
            raise self._refusal("source joined with itself is not supported: join a lookup of the same prefix")
        condition = join.args.get("on")
        if condition is None or condition.find(exp.Column) is None:
            raise self._refusal(f"a join without ON is not supported: {_JOIN_ADVICE}")
        self._add(join.this)
        made = exp.to_table(f"`{self._name(join.this)}`", dialect="spark")
        made.set("alias", exp.TableAlias(this=exp.to_identifier(join.this.alias_or_name.lower(), quoted=True)))
        return exp.Join(this=made, side=join.side or None, kind=join.kind or None, on=join.args["on"])

    def _column(self, column: exp.Column) -> exp.Column:
        name, alias = column.name, column.table.lower()
        if isinstance(column.this, exp.Star):
            raise self._refusal("* is not supported: a view does not know all columns; name the ones you want")
        if not alias:
            self._refuse_unclear(column)
            alias = next(each for each, table in self._tables.items() if table == SOURCE)
        elif column.args.get("db") or (alias not in self._tables and alias != SOURCE):
            first, *others = [part.name for part in column.parts]
            if first.lower() in self._tables:
                first, *others = others
            raise self._refusal(
                f"there is no table {first}, and a column is text without fields: write "
                f"get_json_object({first}, '$.{'.'.join(others)}') for a member of JSON text"
            )
        table = self._tables.get(alias, SOURCE)
        if name.lower() in RESERVED:
            raise self._refusal(f"column {name} is reserved: rename it in the data")
        known = self._columns.setdefault(table, {}).setdefault(name.lower(), name)
        if known != name:
            raise self._refusal(f"columns {known} and {name} differ only in case: use the name that the data has")
        return exp.column(name, table=SOURCE if table == SOURCE else alias, quoted=True)

    def _refuse_unclear(self, column: exp.Column) -> None:
        name = column.name
        if name.lower() in functions.BARE and not column.this.quoted:
            raise self._refusal(
                f"{name} is not repeatable: store the value in the data, or write `{name}` for a column"
            )
        if len(self._tables) > 1:
            others = [each for each, table in self._tables.items() if table != SOURCE]
            raise self._refusal(f"column {name} could belong to any table: write source.{name} or {others[0]}.{name}")
        if name.lower() in self._ambiguous:
            raise self._refusal(
                f"{name} names an output, and only GROUP BY and HAVING may use outputs: repeat its expression, or "
                f"write source.{name} if you mean a column"
            )


def is_window_part(node: exp.Expr) -> bool:
    """Whether it is `window.start` or `window.end`."""
    return isinstance(node, exp.Column) and node.table.lower() == WINDOW and node.name.lower() in ("start", "end")


def _with_plain_calls(tree: exp.Expr) -> exp.Expr:
    """A copy with functions in lower case, in which the DAY of `datediff(DAY, a, b)` is a word, not a column."""
    made = tree.copy()
    for call in made.find_all(exp.Anonymous):
        call.set("this", call.name.lower())
        first, *others = call.expressions or [None]
        if call.name in functions.WITH_UNIT and len(others) == 2 and isinstance(first, exp.Column):
            first.replace(exp.Var(this=first.name))
    return made


def _conditions(join: exp.Join) -> Iterator[exp.Expr]:
    """The conditions of a join, all of which have to hold."""
    condition = join.args["on"].unnest()
    yield from condition.flatten() if isinstance(condition, exp.And) else [condition]


def _is_by_key(condition: exp.Expr, join: exp.Join) -> bool:
    """Whether a condition selects the row of one key."""
    alias = join.this.alias
    if not isinstance(condition, exp.EQ):
        return False
    for one, other in ((condition.this, condition.expression), (condition.expression, condition.this)):
        is_key = isinstance(one, exp.Column) and (one.table, one.name) == (alias, "key")
        if is_key and all(column.table != alias for column in other.find_all(exp.Column)):
            return True
    return False
