"""What is kept of each group, so that changes alone decide what becomes of it.

    component   kept in the group's row                   kept beside it
    Count       how many rows, or values, there are
    Sum         an exact sum (`sums`)
    Distinct    how many values there are                 each value with how often it is there
    Extreme     the first or last value                   all values, sorted (`runs.multisets`)

The aggregates of a view share components: an average is a sum and a count. A component reduces contributions, each of
which comes (+1) or goes (-1), to one row for each group (`reduced`), brings the row of a group up to date by that
(`applied`), and tells what the aggregate comes to (`result`). A sum that values left is exact, so nothing drifts; an
extreme that is gone is found in the sorted values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.spark.runs.multisets import multiset_schema, value_name
from tidelog.spark.views.dataflow.pairs import paired
from tidelog.spark.views.dataflow.sums import (
    DoubleSum,
    packed_int,
    sum_decimals,
    sum_doubles,
    unpacked_int,
)
from tidelog.spark.views.dataflow.values import from_kept, kept_type, one_chunk, to_kept
from tidelog.spark.views.sql.plan import Aggregate, ViewPlan

SIGN: Final = "sign"
ORDER: Final = "order"
"""Columns of contributions beside those of the plan: +1 or -1, and which row was changed last."""


class Grouped:
    """Contributions and the group of each, as a number."""

    def __init__(self, rows: pa.Table, codes: Any, count: int) -> None:
        self.rows = rows
        self.codes = codes
        self.count = count
        self.signs = one_chunk(rows[SIGN]).to_numpy().astype(np.int64)

    def column(self, name: str) -> Any:
        return one_chunk(self.rows[name])

    def added(self, numbers: Any, where: Any = None) -> Any:
        """For each group the sum of whole numbers, which may wrap around."""
        found = np.zeros(self.count, np.int64)
        codes = self.codes if where is None else self.codes[where]
        np.add.at(found, codes, numbers)
        return found


@dataclass(frozen=True)
class Component(ABC):
    """One of the things that are kept; all are values, so that equal ones are shared."""

    argument: str
    """The column of the plan's projection; "" for none."""
    kind: Any
    """Its type."""

    @abstractmethod
    def field(self) -> pa.Field:
        """Its column in the row of a group. Its name is unique."""

    @abstractmethod
    def reduced(self, grouped: Grouped) -> Any:
        """What contributions do to each group, as a column of the same type."""

    @abstractmethod
    def applied(self, old: Any, more: Any) -> Any:
        """The column after a change; `old` is null for a group that is new."""

    def combined(self, column: Any, codes: Any, count: int) -> Any:
        """Several changes of a group as one."""
        found = np.zeros(count, np.int64)
        np.add.at(found, codes, pc.fill_null(column, 0).to_numpy())
        return pa.array(found)


class Count(Component):
    """How many rows there are, or how many values that are not null."""

    def field(self) -> pa.Field:
        return pa.field(f"count_{self.argument}", pa.int64())

    def reduced(self, grouped: Grouped) -> Any:
        if not self.argument:
            return pa.array(grouped.added(grouped.signs))
        is_there = _is_there(grouped.column(self.argument))
        return pa.array(grouped.added(grouped.signs[is_there], is_there))

    def applied(self, old: Any, more: Any) -> Any:
        return pc.add(pc.fill_null(old, 0), pc.fill_null(more, 0))


class WholeSum(Component):
    """The sum of whole numbers, in 64 bits."""

    def field(self) -> pa.Field:
        return pa.field(f"sum_{self.argument}", pa.int64())

    def reduced(self, grouped: Grouped) -> Any:
        values = grouped.column(self.argument)
        is_there = _is_there(values)
        numbers = pc.fill_null(values, 0).cast(pa.int64()).to_numpy()
        return pa.array(grouped.added((numbers * grouped.signs)[is_there], is_there))

    def applied(self, old: Any, more: Any) -> Any:
        return pc.add(pc.fill_null(old, 0), pc.fill_null(more, 0))

    def values(self, column: Any) -> Any:
        return column


class DecimalSum(Component):
    """The sum of decimals."""

    def field(self) -> pa.Field:
        return pa.field(f"sum_{self.argument}", pa.binary())

    def reduced(self, grouped: Grouped) -> Any:
        values = grouped.column(self.argument)
        is_there = _is_there(values)
        some = values.filter(pa.array(is_there))
        sums = sum_decimals(grouped.codes[is_there], some, grouped.signs[is_there], grouped.count)
        return pa.array([packed_int(each) for each in sums], pa.binary())

    def applied(self, old: Any, more: Any) -> Any:
        both = zip(old.to_pylist(), more.to_pylist(), strict=True)
        return pa.array([packed_int(unpacked_int(one) + unpacked_int(other)) for one, other in both], pa.binary())

    def combined(self, column: Any, codes: Any, count: int) -> Any:
        found = [0] * count
        for code, each in zip(codes.tolist(), column.to_pylist(), strict=True):
            found[code] += unpacked_int(each)
        return pa.array(list(map(packed_int, found)), pa.binary())

    def values(self, column: Any) -> Any:
        """The sums, as numbers of Python's."""
        scale = self.kind.scale
        with localcontext(prec=100):
            return [Decimal(unpacked_int(each)).scaleb(-scale) for each in column.to_pylist()]


class FractionSum(Component):
    """The sum of doubles, or of whole numbers as doubles: an average does not wrap around."""

    def field(self) -> pa.Field:
        return pa.field(f"fractions_{self.argument}", pa.binary())

    def reduced(self, grouped: Grouped) -> Any:
        values = grouped.column(self.argument)
        is_there = _is_there(values)
        numbers = values.filter(pa.array(is_there)).cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        sums = sum_doubles(grouped.codes[is_there], numbers, grouped.signs[is_there], grouped.count)
        return pa.array([each.packed() for each in sums], pa.binary())

    def applied(self, old: Any, more: Any) -> Any:
        both = zip(old.to_pylist(), more.to_pylist(), strict=True)
        made = [DoubleSum.unpacked(one).plus(DoubleSum.unpacked(other)).packed() for one, other in both]
        return pa.array(made, pa.binary())

    def combined(self, column: Any, codes: Any, count: int) -> Any:
        found = [DoubleSum()] * count
        for code, each in zip(codes.tolist(), column.to_pylist(), strict=True):
            found[code] = found[code].plus(DoubleSum.unpacked(each))
        return pa.array([each.packed() for each in found], pa.binary())

    def values(self, column: Any) -> Any:
        return pa.array([DoubleSum.unpacked(each).value() for each in column.to_pylist()], pa.float64())


Sum = WholeSum | DecimalSum | FractionSum


class Distinct(Component):
    """How many different values there are. It is kept with the help of `values`, a table of state."""

    def field(self) -> pa.Field:
        return pa.field(f"distinct_{self.argument}", pa.int64())

    @property
    def table(self) -> str:
        return f"distinct-{self.argument}"

    def reduced(self, grouped: Grouped) -> Any:
        return pa.nulls(grouped.count, pa.int64())

    def applied(self, old: Any, more: Any) -> Any:
        return pc.add(pc.fill_null(old, 0), pc.fill_null(more, 0))

    def entries(self, grouped: Grouped, groups: Any) -> pa.Table:
        """How much more often each value is there: `key` of group and value, `group`, `weight`."""
        values = to_kept(grouped.column(self.argument))
        is_there = _is_there(values)
        names = groups.take(pa.array(grouped.codes[is_there]))
        texts = values.filter(pa.array(is_there)).cast(pa.string()).cast(pa.binary())
        keys = paired(names, texts).dictionary_encode()
        codes = keys.indices.to_numpy()
        weights = np.zeros(len(keys.dictionary), np.int64)
        np.add.at(weights, codes, grouped.signs[is_there])
        first = np.zeros(len(keys.dictionary), np.int64)
        first[codes] = np.arange(len(codes))
        return pa.table(
            [keys.dictionary, names.take(pa.array(first)), pa.array(weights)], schema=DISTINCT_ENTRIES
        ).filter(pa.array(weights != 0))


DISTINCT_ENTRIES: Final = pa.schema([("key", pa.binary()), ("group", pa.binary()), ("weight", pa.int64())])
DISTINCT_STATE: Final = pa.schema([("key", pa.binary()), ("gone", pa.bool_()), ("weight", pa.int64())])


@dataclass(frozen=True)
class Extreme(Component):
    """The first or last of the values: of `argument`, or of whatever `by` is the first or last."""

    by: str = ""
    """The column that decides; "": the argument itself. `ORDER`: the order of changes."""
    by_kind: Any = None
    is_last: bool = True

    def field(self) -> pa.Field:
        kinds = [pa.field(value_name(number), kind) for number, kind in enumerate(self._kinds())]
        return pa.field(f"{'last' if self.is_last else 'first'}_{self.by}_{self.argument}", pa.struct(kinds))

    def _kinds(self) -> list[Any]:
        kinds = [kept_type(self.kind)]
        return kinds if not self.by else [kept_type(self.by_kind), *kinds]

    @property
    def table(self) -> str:
        """Its sorted values. The first and the last of the same are in one table."""
        return f"sorted-{self.by}-{self.argument}"

    @property
    def schema(self) -> pa.Schema:
        return multiset_schema(self._kinds())

    def entries(self, grouped: Grouped, groups: Any) -> pa.Table:
        """The values that come and go, not added up."""
        columns = [to_kept(grouped.column(name)) for name in ([self.by] if self.by else []) + [self.argument]]
        is_there = _is_there(columns[0])
        names = groups.take(pa.array(grouped.codes))
        table = pa.table([names, *columns, pa.array(grouped.signs)], schema=self.schema)
        return table if is_there.all() else table.filter(pa.array(is_there))

    def reduced(self, grouped: Grouped) -> Any:
        return pa.nulls(grouped.count, self.field().type)

    def applied(self, old: Any, more: Any) -> Any:
        raise NotImplementedError("the sorted values decide")

    def combined(self, column: Any, codes: Any, count: int) -> Any:  # noqa: ARG002
        return pa.nulls(count, self.field().type)

    def values(self, column: Any) -> Any:
        column = one_chunk(column)
        found = pc.struct_field(column, [len(self._kinds()) - 1])
        return from_kept(pc.if_else(pc.is_valid(column), found, pa.scalar(None, found.type)), self.kind)


def _is_there(values: Any) -> Any:
    return pc.is_valid(values).to_numpy(zero_copy_only=False)


# --- the components of a plan -----------------------------------------------------------------------------------------


class KeptParts:
    """Everything that is kept of the groups of a plan."""

    def __init__(self, plan: ViewPlan, contributed: pa.Schema) -> None:
        self._plan = plan
        self._contributed = contributed
        self.rows = Count("", pa.null())
        """How many contributions a group has. Without any it does not exist."""
        found: dict[Component, None] = {self.rows: None}
        for aggregate in plan.aggregates:
            found.update(dict.fromkeys(self._parts_of(aggregate)))
        self.components = list(found)

    @property
    def has_order(self) -> bool:
        """Whether the order of changes counts."""
        return any(isinstance(each, Extreme) and each.by == ORDER for each in self.components)

    def distincts(self) -> list[Distinct]:
        return [each for each in self.components if isinstance(each, Distinct)]

    def extremes(self) -> list[Extreme]:
        return [each for each in self.components if isinstance(each, Extreme)]

    def fields(self) -> list[pa.Field]:
        return [each.field() for each in self.components]

    def _kind(self, name: str) -> Any:
        return self._contributed.field(name).type

    def _parts_of(self, aggregate: Aggregate) -> Sequence[Component]:
        function, arguments = aggregate.function, aggregate.arguments
        if function == "count":
            if not arguments:
                return [self.rows]
            count = Distinct if aggregate.is_distinct else Count
            return [count(arguments[0], self._kind(arguments[0]))]
        if function in ("sum", "avg"):
            return [self._sum(function, arguments[0]), Count(arguments[0], self._kind(arguments[0]))]
        return [self._extreme(aggregate)]

    def _sum(self, function: str, name: str) -> Sum:
        kind = self._kind(name)
        if pa.types.is_decimal(kind):
            return DecimalSum(name, kind)
        return WholeSum(name, kind) if pa.types.is_integer(kind) and function == "sum" else FractionSum(name, kind)

    def _extreme(self, aggregate: Aggregate) -> Extreme:
        function, arguments = aggregate.function, aggregate.arguments
        kind = self._kind(arguments[0])
        if function == "latest":
            return Extreme(arguments[0], kind, ORDER, pa.binary(), True)
        is_last = function in ("max", "max_by")
        if len(arguments) == 1:
            return Extreme(arguments[0], kind, "", None, is_last)
        return Extreme(arguments[0], kind, arguments[1], self._kind(arguments[1]), is_last)

    # --- what the aggregates come to ------------------------------------------------------------------------------

    def results(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        """r0 ... of some groups, from the columns of their components by name."""
        found = {}
        for number, aggregate in enumerate(self._plan.aggregates):
            parts = self._parts_of(aggregate)
            given = [one_chunk(columns[part.field().name]) for part in parts]
            found[f"r{number}"] = self._result(aggregate, parts, given)
        return found

    def _result(self, aggregate: Aggregate, parts: Sequence[Component], given: Sequence[Any]) -> Any:
        part = parts[0]
        if isinstance(part, Extreme):
            return part.values(given[0])
        if isinstance(part, WholeSum | DecimalSum | FractionSum):
            return _of_sum(aggregate, part, part.values(given[0]), given[1])
        return given[0]


def _of_sum(aggregate: Aggregate, part: Sum, sums: Any, counts: Any) -> Any:
    """A sum or an average; null without any value."""
    is_empty = pc.equal(counts, 0)
    if isinstance(part, DecimalSum):
        made = [None if not count else (total, count) for total, count in zip(sums, counts.to_pylist(), strict=True)]
        if aggregate.function == "sum":
            kind = pa.decimal128(38, part.kind.scale)
            return pa.array([None if each is None else _fitting(each[0], kind) for each in made], kind)
        return _average(made, part.kind)
    if aggregate.function == "avg":
        sums = pc.divide(sums.cast(pa.float64()), pc.if_else(is_empty, 1, counts).cast(pa.float64()))
    return pc.if_else(is_empty, pa.scalar(None, sums.type), sums)


def _average(sums: Sequence[tuple[Decimal, int] | None], kind: Any) -> Any:
    """As in Spark, with four digits more than the values have."""
    precision, scale = min(38, kind.precision + 4), min(38, kind.scale + 4)
    made = pa.decimal128(precision, scale)
    unit = Decimal(1).scaleb(-scale)
    with localcontext(prec=2 * 38 + 20):  # more digits than are kept, so that the last one is rounded correctly
        found = [None if each is None else (each[0] / each[1]).quantize(unit, ROUND_HALF_UP) for each in sums]
    return pa.array([None if each is None else _fitting(each, made) for each in found], made)


def _fitting(value: Decimal, kind: Any) -> Decimal | None:
    """A value that the type can hold; None, as in Spark, for one that is too large."""
    with localcontext(prec=100):
        return value if abs(value) < Decimal(10) ** (kind.precision - kind.scale) else None
