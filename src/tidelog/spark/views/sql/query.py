"""A view's SELECT, taken apart into steps that can be kept up to date change by change. Other SELECTs are refused.

    select upper(state) as s, round(sum(x) / count(*), 2) as mean from source where x > 0 group by 1

    projection    source._row, upper(state) as g0, x as a0  from source where x > 0
    aggregates    r0 = sum(a0), r1 = count()
    final         g0 as s, round(r0 / r1, 2) as mean, true as _shown

`projection`, `aggregates` and `final`, one after the other, give what `recompute` gives at once. A SELECT that neither
groups nor aggregates is "latest by key": the row of a key is the one that was changed last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from sqlglot import exp

from tidelog import limits
from tidelog.spark.views.sql.aggregates import (
    GROUPS,
    Aggregates,
    column_of_groups,
    has_aggregates,
    is_call,
    latest_of,
    refuse_functions,
    with_order,
)
from tidelog.spark.views.sql.definition import View
from tidelog.spark.views.sql.functions import MAINTAINED
from tidelog.spark.views.sql.grammar import select_of, written
from tidelog.spark.views.sql.plan import Aggregate, ViewPlan
from tidelog.spark.views.sql.tables import SOURCE, WINDOW, Tables, is_window_part

__all__: Final = ["Aggregate", "ViewPlan", "plan_view"]

_NOT_IN_NAMES: Final = frozenset(" ,;{}()\n\t=`")
"""Characters that Delta refuses in the name of a column."""


def plan_view(view: View) -> ViewPlan:
    """How a view is kept up to date. `BadView` if it cannot be."""
    try:
        return _Planning(view).plan()
    except RecursionError:
        raise view.refusal("sql is nested too deeply: make it flatter") from None


class _Output(NamedTuple):
    name: str
    tree: exp.Expr


class _Planning:
    """Takes one SELECT apart. Trees are resolved (every column names its table), unless they are called raw."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._refusal = view.refusal
        self._select = select_of(view.sql, view.refusal)
        self._tables = Tables(self._select, view.lookups, view.refusal)
        self._raw = self._raw_outputs()
        self._by_alias = {output.name.lower(): output for output in self._raw}
        own = [(each.name.lower(), {column.name.lower() for column in _unqualified(each.tree)}) for each in self._raw]
        self._tables.settle(frozenset(name for name, named in own if name not in named))
        self._window: exp.Expr | None = None
        self._where = self._condition("where")
        self._groups = list(self._found_groups())
        self._outputs = [_Output(name, self._resolved(tree, "an output")) for name, tree in self._raw]
        self._having = self._resolved_having()
        self._split_window()
        self._aggregates = Aggregates(view.refusal, can_multiply=self._tables.can_multiply())

    def plan(self) -> ViewPlan:
        is_aggregated = any(has_aggregates(output.tree) for output in self._outputs)
        if self._select.args.get("group") is not None:
            self._check_key()
            return self._grouped()
        if self._having is not None:
            raise self._refusal("HAVING without GROUP BY is not supported: write WHERE, or add GROUP BY")
        if is_aggregated:
            if self._view.key:
                raise self._refusal("without GROUP BY there is always exactly one row: write key = [], or add GROUP BY")
            return self._grouped()
        return self._latest_by_key()

    # --- the SELECT as it is written --------------------------------------------------------------------------

    def _raw_outputs(self) -> list[_Output]:
        outputs = []
        for number, tree in enumerate(self._select.expressions, start=1):
            if tree.is_star and not isinstance(tree, exp.Alias):
                raise self._refusal("* is not supported: a view does not know all columns; name the ones you want")
            if not isinstance(tree, exp.Alias | exp.Column):
                raise self._refusal(f"output {number} has no name: write {written(tree)} as NAME")
            outputs.append(_Output(tree.alias_or_name, _bare(tree.unalias())))
        if len(outputs) > limits.VIEW_OUTPUTS_MAX:
            raise self._refusal(f"there are {len(outputs)} outputs, more than {limits.VIEW_OUTPUTS_MAX}")
        seen = dict[str, str]()
        for name, _ in outputs:
            if name.lower() in seen:
                raise self._refusal(f"outputs {seen[name.lower()]} and {name} have the same name: write other names")
            seen[name.lower()] = name
            if name.startswith("_") or not _NOT_IN_NAMES.isdisjoint(name):
                raise self._refusal(f"output {name!r}: a name must not begin with _ or contain ,;{{}}()=` or blanks")
            if len(name) > limits.VIEW_OUTPUT_CHARS_MAX:
                raise self._refusal(
                    f"output {name[:20]}...: its name has more than {limits.VIEW_OUTPUT_CHARS_MAX} characters"
                )
        return outputs

    def _condition(self, clause: str) -> exp.Expr | None:
        for join in self._tables.conditions():
            refuse_functions(join, self._refusal, place="ON")
        found = self._select.args.get(clause)
        return None if found is None else self._resolved(found.this, "WHERE", place="WHERE")

    def _resolved(self, raw: exp.Expr, what: str, *, place: str = "") -> exp.Expr:
        tree = self._tables.resolved(raw)
        refuse_functions(tree, self._refusal, place=place)

        def settled(node: exp.Expr) -> exp.Expr:
            if isinstance(node, exp.Dot) and _is_window(node.this):
                return _window_part(self._only(node.this), node.name)
            if is_window_part(node):
                if self._window is None:
                    raise self._refusal(f"{written(node)} in {what} needs GROUP BY window(time, '1 minute')")
                return _window_part(self._window, node.name)
            return node

        return _bare(tree.transform(settled))

    def _only(self, window: exp.Expr) -> exp.Expr:
        """The only time window of the SELECT. Spark refuses two, because they would multiply rows."""
        if self._window is None:
            self._window = window.copy()
        elif self._window != window:
            raise self._refusal(f"there are two windows, {written(self._window)} and {written(window)}: use one")
        return self._window

    # --- GROUP BY and HAVING ----------------------------------------------------------------------------------

    def _found_groups(self) -> Iterator[exp.Expr]:
        group = self._select.args.get("group")
        if group is None:
            return
        raws = list(group.expressions)
        is_plain = not any(value for argument, value in group.args.items() if argument not in ("expressions", "all"))
        if not is_plain or any(isinstance(raw, exp.Cube | exp.Rollup | exp.GroupingSets) for raw in raws):
            raise self._refusal("GROUPING SETS, ROLLUP and CUBE are not supported: declare a view for each grouping")
        if group.args.get("all"):
            raws = [tree for _, tree in self._raw if not _is_constant(tree) and not _aggregates_raw(tree)]
        for raw in raws:
            tree = self._resolved(self._meant(raw), "GROUP BY", place="GROUP BY")
            if _is_window(tree):
                self._only(tree)
            elif _is_constant(tree):
                raise self._refusal(f"{written(tree)} in GROUP BY is a constant and groups nothing: remove it")
            yield tree
        if not raws:
            raise self._refusal("GROUP BY names no column: remove it")

    def _meant(self, raw: exp.Expr) -> exp.Expr:
        """What an item of GROUP BY means: an output by its number, an output by its name, or itself."""
        raw = _bare(raw)
        if isinstance(raw, exp.Literal) and raw.is_int:
            number = int(raw.name)
            if not 1 <= number <= len(self._raw):
                raise self._refusal(f"GROUP BY {number}: there are outputs 1 to {len(self._raw)}")
            return self._raw[number - 1].tree
        if isinstance(raw, exp.Column) and not raw.table:
            output = self._by_alias.get(raw.name.lower())
            # As in Spark, a column wins over an output of its name. The output's expression shows whether there is one.
            if output is not None and all(
                column.name.lower() != raw.name.lower() for column in _unqualified(output.tree)
            ):
                return output.tree
        return raw

    def _resolved_having(self) -> exp.Expr | None:
        found = self._select.args.get("having")
        if found is None:
            return None
        raw = found.copy()
        for column in list(_unqualified(raw.this)):
            output = self._by_alias.get(column.name.lower())
            if output is None or any(map(_is_raw_call, _parents(column))):
                continue
            resolved = self._resolved(output.tree, "HAVING")
            columns = [group for group in self._groups if isinstance(group, exp.Column) and group.table == SOURCE]
            if any(group.name.lower() == column.name.lower() and group != resolved for group in columns):
                raise self._refusal(f"{column.name} in HAVING is an output and a column: write source.{column.name}")
            column.replace(exp.Paren(this=output.tree.copy()))
        return self._resolved(raw.this, "HAVING")

    def _split_window(self) -> None:
        """Replace the window in GROUP BY by those of its bounds that are used: each bound identifies the window."""
        trees = [output.tree for output in self._outputs] + ([self._having] if self._having is not None else [])
        groups: list[exp.Expr] = []
        for group in self._groups:
            if _is_window(group):
                bounds = [_window_part(group, part) for part in ("start", "end")]
                used = [bound for bound in bounds if any(bound in list(tree.find_all(exp.Dot)) for tree in trees)]
                groups += used or bounds[:1]
            else:
                groups.append(group)
        self._groups = [group for number, group in enumerate(groups) if group not in groups[:number]]
        if any(_is_window(node) and not isinstance(node.parent, exp.Dot) for tree in trees for node in tree.walk()):
            raise self._refusal("a window has two bounds: write window.start or window.end")

    def _check_key(self) -> None:
        """Refuse a key that does not identify a row: two rows of the view would share a hash."""
        outputs = dict(self._outputs)
        grouped = ", ".join(map(written, self._groups))
        covered: list[exp.Expr] = []
        for name in self._view.key:
            self._refuse_missing(name)
            if outputs[name] not in self._groups:
                raise self._refusal(
                    f"key names {name}, which is {written(outputs[name])}, but GROUP BY has {grouped}: key must name "
                    "the outputs that are grouped by"
                )
            covered.append(outputs[name])
        for group in self._groups:
            is_named = group in covered
            if _is_bound(group):
                is_named = any(_is_bound(each) for each in covered)
            if not is_named:
                raise self._refusal(
                    f"GROUP BY has {written(group)}, which key does not name, so two rows would share a hash: "
                    "make it an output, and name it in key"
                )

    def _refuse_missing(self, name: str) -> None:
        if name not in dict(self._outputs):
            raise self._refusal(
                f"key names {name}, which is not an output: the outputs are {', '.join(dict(self._outputs))}"
            )

    # --- plans ------------------------------------------------------------------------------------------------

    def _grouped(self) -> ViewPlan:
        reduced = [_Output(name, self._reduced(tree, f"output {name}")) for name, tree in self._outputs]
        having = None if self._having is None else self._reduced(self._having, "HAVING")
        recomputed = [(name, with_order(tree)) for name, tree in self._outputs]
        return self._plan(reduced, having, self._sql(recomputed, with_order(self._having) if self._having else None))

    def _latest_by_key(self) -> ViewPlan:
        if not self._view.key:
            raise self._refusal("key is empty, and there is neither GROUP BY nor an aggregate: name columns in key")
        outputs = dict(self._outputs)
        for name in self._view.key:
            self._refuse_missing(name)
            if _is_constant(outputs[name]):
                raise self._refusal(f"key names {name}, which is a constant: name a column that tells rows apart")
            if outputs[name] not in self._groups:
                self._groups.append(outputs[name])
        reduced, recomputed = [], []
        for name, tree in self._outputs:
            is_key = tree in self._groups
            reduced.append(_Output(name, self._reduced(tree, name) if is_key else self._aggregates.latest(tree)))
            recomputed.append((name, tree if is_key else latest_of(tree)))
        return self._plan(reduced, None, self._sql(recomputed, None))

    def _reduced(self, tree: exp.Expr, what: str) -> exp.Expr:
        """A copy that uses the columns of `groups`."""

        def reduced(node: exp.Expr) -> exp.Expr:
            if node in self._groups:
                return column_of_groups(f"g{self._groups.index(node)}")
            if is_call(node) or isinstance(node, exp.Filter):
                return self._aggregates.result(node)
            if isinstance(node, exp.Column):
                raise self._refusal(
                    f"{what} uses column {node.name}, which is neither in GROUP BY nor inside an aggregate: group by "
                    f"it, or write latest({node.name})"
                )
            return node

        return tree.copy().transform(reduced)

    def _plan(self, reduced: list[_Output], having: exp.Expr | None, recompute: str) -> ViewPlan:
        outputs = tuple((name, tree.name if _is_of_groups(tree) else "") for name, tree in reduced)
        final = None
        if having is not None or not all(column for _, column in outputs):
            shown = "true" if having is None else written(having)
            final = f"{_items(reduced)}, {shown} AS `_shown`"
        groups = tuple(f"g{number}" for number in range(len(self._groups)))
        row = ("_row", exp.column("_row", table=SOURCE, quoted=True))
        projected = [row, *zip(groups, self._groups, strict=True), *self._aggregates.arguments()]
        return ViewPlan(
            columns=self._tables.columns,
            lookups=self._tables.lookups,
            joins=self._tables.by_value(),
            projection=_select(projected, self._tables.from_clause(), self._where),
            groups=groups,
            aggregates=self._aggregates.found,
            final=final,
            outputs=outputs,
            key=self._view.key,
            is_global=not groups,
            recompute=recompute,
        )

    def _sql(self, outputs: Iterable[tuple[str, exp.Expr]], having: exp.Expr | None) -> str:
        named = list(outputs)
        # A column instead of HAVING, because Spark does not find the bounds of a window there.
        inner = named if having is None else [*named, ("_having", having)]
        sql = _select(inner, self._tables.from_clause(), self._where)
        if self._groups:
            sql += f" GROUP BY {', '.join(map(written, self._groups))}"
        if having is None:
            return sql
        return f"SELECT {', '.join(f'`{name}`' for name, _ in named)} FROM ({sql}) WHERE `_having`"


def _select(outputs: Iterable[tuple[str, exp.Expr]], tables: str, where: exp.Expr | None) -> str:
    return f"SELECT {_items(outputs)} {tables}" + ("" if where is None else f" WHERE {written(where)}")


def _items(outputs: Iterable[tuple[str, exp.Expr]]) -> str:
    return ", ".join(f"{written(tree)} AS `{name}`" for name, tree in outputs)


def _bare(tree: exp.Expr) -> exp.Expr:
    """The tree without parentheses around it."""
    return tree.unnest()


def _is_raw_call(node: exp.Expr) -> bool:
    """Whether it is an aggregate, in whatever case it is written."""
    return isinstance(node, exp.Anonymous) and node.name.lower() in MAINTAINED


def _aggregates_raw(tree: exp.Expr) -> bool:
    return any(map(_is_raw_call, tree.walk()))


def _parents(node: exp.Expr) -> Iterator[exp.Expr]:
    while node.parent is not None:
        node = node.parent
        yield node


def _unqualified(tree: exp.Expr) -> Iterator[exp.Column]:
    return (column for column in tree.find_all(exp.Column) if not column.table)


def _is_constant(tree: exp.Expr) -> bool:
    return tree.find(exp.Column) is None


def _is_of_groups(tree: exp.Expr) -> bool:
    return isinstance(tree, exp.Column) and tree.table == GROUPS


def _is_window(node: object) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() == WINDOW


def _is_bound(tree: exp.Expr) -> bool:
    return isinstance(tree, exp.Dot) and _is_window(tree.this)


def _window_part(window: exp.Expr, part: str) -> exp.Expr:
    return exp.Dot(this=window.copy(), expression=exp.to_identifier(part.lower(), quoted=True))
