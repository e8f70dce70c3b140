"""Functions in a view's SELECT: which are refused, and what is kept for those that aggregate.

An aggregate becomes a column `r<n>` of the groups, and each of its arguments a column `a<n>` of the projection. Equal
ones are shared. FILTER becomes a condition around the argument, which is null for rows that do not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sqlglot import exp

from tidelog.spark.views.sql.functions import (
    GENERATORS,
    MAINTAINED,
    RANKING,
    UNREPEATABLE,
    UNREPEATABLE_WITHOUT_ARGUMENTS,
    is_aggregate,
)
from tidelog.spark.views.sql.grammar import Refusal, written
from tidelog.spark.views.sql.plan import Aggregate
from tidelog.spark.views.sql.tables import SOURCE, WINDOW

GROUPS: Final = "groups"

_ARGUMENTS: Final = {"max_by": 2, "min_by": 2}


def is_call(node: object) -> bool:
    """Whether it is a supported aggregate; FILTER is a node around it."""
    return isinstance(node, exp.Anonymous) and node.name in MAINTAINED


def has_aggregates(tree: exp.Expr) -> bool:
    return any(map(is_call, tree.walk()))


def refuse_functions(tree: exp.Expr, refusal: Refusal, *, place: str = "") -> None:
    """Refuse unsupported functions; in a clause (`place`) such as WHERE, aggregates and windows too."""
    for node in tree.walk():
        if isinstance(node, exp.Anonymous):
            _refuse_function(node, refusal)
            if place and is_call(node):
                advice = ": write the condition in HAVING" if place == "WHERE" else ""
                raise refusal(
                    f"{node.name} in {place} is not possible, because it aggregates the rows of a group{advice}"
                )
            if place in ("WHERE", "ON") and node.name == WINDOW:
                raise refusal(f"window(...) in {place} is not possible: compare the time itself")
        elif isinstance(node, exp.Any | exp.All) and not isinstance(node.parent, exp.Binary):
            raise refusal(f"{written(node)} is not supported: use {_maintained()}")
        elif isinstance(node, exp.Dot) and isinstance(node.expression, exp.Anonymous):
            raise refusal(f"{written(node)}: write the function by its name alone")
        elif isinstance(node, exp.Filter) and not is_call(node.this):
            raise refusal(f"FILTER needs an aggregate, and {written(node.this)} is none")
        elif isinstance(node, exp.Distinct) and not is_call(node.parent):
            raise refusal("DISTINCT is only supported in count(distinct x)")
        elif isinstance(node, exp.Star) and not _is_counted(node):
            raise refusal("* is not supported: a view does not know all columns; name the ones you want")


def _is_counted(star: exp.Star) -> bool:
    """Whether it is the one of `count(*)`."""
    call = star.parent
    return call is not None and is_call(call) and call.name == "count" and not any(star.args.values())


def _refuse_function(call: exp.Anonymous, refusal: Refusal) -> None:
    name = call.name
    if name in UNREPEATABLE or (name in UNREPEATABLE_WITHOUT_ARGUMENTS and not call.expressions):
        raise refusal(f"{name}() is not repeatable: store the value in the data")
    if name == "identifier":
        raise refusal("identifier() is not possible: write the name itself")
    if name in GENERATORS:
        raise refusal(f"{name}() makes several rows of one: store each part under its own key")
    if name in RANKING:
        raise refusal(f"{name}() is not supported: one change would alter many rows; use GROUP BY")
    if name == "session_window":
        raise refusal("session_window is not supported, because its bounds move: use window(time, '1 minute')")
    if name == "window_time":
        raise refusal("window_time() is not supported: use window.start or window.end")
    if is_aggregate(name) and name not in MAINTAINED:
        raise refusal(f"{name}() is not supported: use {_maintained()}")
    if name == WINDOW:
        arguments = call.expressions
        if len(arguments) not in (2, 3, 4):
            raise refusal("window() takes a time and a length, such as window(cast(at as timestamp), '1 minute')")
        if len(arguments) > 2 and arguments[1] != arguments[2]:
            raise refusal("sliding windows are not supported, because they overlap: remove the slide")


def _maintained() -> str:
    return "count, count(distinct), count_if, sum, min, max, avg, latest, max_by or min_by"


class Aggregates:
    """Collects the aggregates of a SELECT."""

    def __init__(self, refusal: Refusal, *, can_multiply: bool) -> None:
        self._refusal = refusal
        self._can_multiply = can_multiply
        self._arguments: list[exp.Expr] = []
        self._found: list[Aggregate] = []

    @property
    def found(self) -> tuple[Aggregate, ...]:
        return tuple(self._found)

    def arguments(self) -> Iterator[tuple[str, exp.Expr]]:
        """Columns of the projection, and their expressions."""
        for number, tree in enumerate(self._arguments):
            yield f"a{number}", tree

    def latest(self, tree: exp.Expr) -> exp.Column:
        """The column with the value of the row that was changed last."""
        if self._can_multiply:
            raise self._refusal(
                "latest needs one row, but this join can turn one row into several: join lookups by their key, as in "
                "ON lookup.key = source.column"
            )
        return self._result("latest", [tree])

    def result(self, node: exp.Expr) -> exp.Column:
        """The column with the result of an aggregate."""
        condition: exp.Expr | None = None
        call = node
        if isinstance(node, exp.Filter):
            call, condition = node.this, node.expression.this
        inner = [*call.expressions, *([condition] if condition is not None else [])]
        if any(map(has_aggregates, inner)):
            raise self._refusal(
                f"{call.name} over an aggregate is not possible: declare a second view that reads this one"
            )
        arguments, is_distinct = self._given(call)
        function = MAINTAINED[call.name]
        if condition is not None:
            if function == "latest":
                raise self._refusal(f"{call.name} with FILTER is not supported: put the condition into WHERE")
            kept = arguments or [exp.Literal.number(1)]
            arguments = [*kept[:-1], _where(condition, kept[-1])]
        if function == "latest":
            return self.latest(arguments[0])
        return self._result(function, arguments, is_distinct=is_distinct)

    def _given(self, call: exp.Expr) -> tuple[list[exp.Expr], bool]:
        """The arguments, and whether each value counts once."""
        name, arguments, is_distinct = call.name, call.expressions, False
        if len(arguments) == 1 and isinstance(arguments[0], exp.Distinct):
            arguments = arguments[0].expressions
            is_distinct = name not in ("min", "max")
            if is_distinct and name != "count":
                raise self._refusal(f"{name}(distinct ...) is not supported: only count(distinct x) is")
            if is_distinct and len(arguments) > 1:
                raise self._refusal(
                    "count(distinct ...) of several columns is not supported: write count(distinct "
                    f"to_json(array({', '.join(map(written, arguments))})))"
                )
        if name == "count" and not is_distinct and arguments:
            if all(isinstance(each, exp.Star | exp.Literal | exp.Boolean) for each in arguments):
                return [], False
            if len(arguments) > 1:
                return [_where(exp.and_(*map(_is_there, arguments)), exp.Literal.number(1))], False
        if len(arguments) != _ARGUMENTS.get(name, 1):
            advice = "; exclude nulls with WHERE" if MAINTAINED[name] == "latest" and len(arguments) == 2 else ""
            raise self._refusal(
                f"{name}() takes {_ARGUMENTS.get(name, 'one')} argument(s), not {len(arguments)}{advice}"
            )
        if name == "count_if":
            return [_where(arguments[0], exp.Literal.number(1))], False
        return arguments, is_distinct

    def _result(self, function: str, trees: list[exp.Expr], *, is_distinct: bool = False) -> exp.Column:
        names = []
        for tree in (each.unnest() for each in trees):
            if tree not in self._arguments:
                self._arguments.append(tree)
            names.append(f"a{self._arguments.index(tree)}")
        aggregate = Aggregate(function, tuple(names), is_distinct)
        if aggregate not in self._found:
            self._found.append(aggregate)
        return column_of_groups(f"r{self._found.index(aggregate)}")


def column_of_groups(name: str) -> exp.Column:
    return exp.column(name, table=GROUPS, quoted=True)


def with_order(tree: exp.Expr) -> exp.Expr:
    """A copy that Spark can compute from scratch: `latest(x)` is replaced, and ties in `max_by(x, y)` are decided."""

    def ordered(node: exp.Expr) -> exp.Expr:
        function = MAINTAINED.get(node.name, "") if is_call(node) else ""
        if function == "latest":
            return latest_of(node.expressions[0])
        if function in _ARGUMENTS:
            value, by = node.expressions
            both = exp.Anonymous(this="struct", expressions=[by.copy(), value.copy()])
            return exp.Anonymous(this=function, expressions=[value.copy(), _where(_is_there(by), both)])
        return node

    return tree.copy().transform(ordered)


def latest_of(tree: exp.Expr) -> exp.Expr:
    """The value of the row that was changed last, as Spark computes it from scratch."""
    order = exp.column("_order", table=SOURCE, quoted=True)
    return exp.Anonymous(this="max_by", expressions=[tree.copy(), order])


def _is_there(tree: exp.Expr) -> exp.Expr:
    return exp.Not(this=exp.Is(this=exp.Paren(this=tree.copy()), expression=exp.Null()))


def _where(condition: exp.Expr, value: exp.Expr) -> exp.Expr:
    """The value where the condition holds, otherwise null."""
    return exp.Case(ifs=[exp.If(this=condition.copy(), true=value.copy())])
