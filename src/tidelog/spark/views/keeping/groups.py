"""What the rows of a source contribute to a view, and what the groups of these contributions come to.

    id binary       the row that contributes
    group string    its group, as text: the name of the view's hash without its prefix (see `naming`)
    g0, a0 ...      as the plan's projection computed them

When rows change, their contributions are replaced, and the groups of the old and the new ones are reduced again from
all their contributions. So a sum never drifts, and a minimum stays right when its row is deleted.
"""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.spark.views.keeping.arrow_tables import one_chunk, with_rows
from tidelog.spark.views.sql.plan import Aggregate, ViewPlan


class Groups:
    """The contributions of all rows."""

    def __init__(self, plan: ViewPlan, contributed: pa.Schema) -> None:
        self._plan = plan
        fields = [field for field in contributed if field.name != "_row"]
        self._schema = pa.schema([pa.field("id", pa.binary()), pa.field("group", pa.string()), *fields])
        self._table = self._schema.empty_table()
        places = dict(plan.outputs)
        self._key = [places[name] for name in plan.key]

    def __len__(self) -> int:
        return len(self._table)

    def replace(self, ids: Any, contributions: pa.Table) -> Any:
        """Replace what these rows contributed by what they contribute now. Returns the groups that are affected."""
        new = self._grouped(contributions)
        is_old = pc.is_in(self._table["id"], ids)
        old = self._table["group"].filter(is_old)
        self._table = with_rows(self._table.filter(pc.invert(is_old)), new)
        return pa.chunked_array([*old.chunks, *new["group"].chunks], pa.string()).unique()

    def replace_all(self, contributions: pa.Table) -> Any:
        """Replace everything. Returns all groups, old and new."""
        old = self._table["group"]
        self._table = self._grouped(contributions)
        return pa.chunked_array([*old.chunks, *self._table["group"].chunks], pa.string()).unique()

    def _grouped(self, contributions: pa.Table) -> pa.Table:
        group = group_texts([contributions[name] for name in self._key], len(contributions))
        return pa.table([contributions["id"], group, *contributions.columns[1:]], schema=self._schema)

    def reduced(self, wanted: Any | None = None) -> pa.Table:
        """What groups come to: `group`, g0 ..., r0 ...; `wanted` None: all groups. A group without contributions does
        not exist, except the only group of a view without GROUP BY."""
        if self._plan.is_global and not len(self._table):
            return self._nothing()
        rows = self._table if wanted is None else self._table.filter(pc.is_in(self._table["group"], wanted))
        reduction = Reduction(rows)
        columns = {"group": reduction.groups}
        columns |= {name: reduction.any_of(name) for name in self._plan.groups}
        columns |= {f"r{number}": reduction.run(each) for number, each in enumerate(self._plan.aggregates)}
        return pa.table(columns)

    def _nothing(self) -> pa.Table:
        """The one row of a view whose source is empty."""
        columns = {"group": pa.array([""])}
        for number, each in enumerate(self._plan.aggregates):
            is_count = each.function == "count"
            kind = pa.int64() if is_count else self._schema.field(each.arguments[0]).type
            columns[f"r{number}"] = pa.array([0 if is_count else None], kind)
        return pa.table(columns)


class Reduction:
    """Reduces contributions, each group to one row."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        encoded = one_chunk(rows["group"]).dictionary_encode()
        self.groups = encoded.dictionary
        self._codes = encoded.indices.to_numpy()

    def any_of(self, name: str) -> Any:
        """A column that has one value for all of a group."""
        places = np.empty(len(self.groups), np.int64)
        places[self._codes] = np.arange(len(self._codes))
        return self._rows[name].take(pa.array(places))

    def run(self, aggregate: Aggregate) -> Any:
        """The result of an aggregate for each group."""
        function, arguments = aggregate.function, aggregate.arguments
        if function == "count" and not arguments:
            return pa.array(np.bincount(self._codes, minlength=len(self.groups)))
        if function == "latest":
            return self._rows[arguments[0]].take(self._extreme(["id"], is_max=True))
        if function in ("max_by", "min_by"):
            places = self._extreme([arguments[1], arguments[0]], is_max=function == "max_by")
            return self._rows[arguments[0]].take(places)
        values = one_chunk(self._rows[arguments[0]])
        if function == "count" and aggregate.is_distinct:
            return self._by_arrow(_with_one_zero(values), "count_distinct")
        if function == "avg":
            return self._average(values)
        if function in ("min", "max") and pa.types.is_floating(values.type):
            return self._float_extreme(values, function)
        return self._by_arrow(values, function)

    def _by_arrow(self, values: Any, function: str) -> Any:
        table = pa.table({"code": self._codes, "value": values})
        found = table.group_by("code").aggregate([("value", function)]).sort_by("code")
        return found[f"value_{function}"]

    def _average(self, values: Any) -> Any:
        if not pa.types.is_decimal(values.type):
            return self._by_arrow(values, "mean")
        # Arrow keeps the scale, where Spark has four digits more.
        precision, scale = min(38, values.type.precision + 4), min(38, values.type.scale + 4)
        sums, counts = self._by_arrow(values, "sum"), self._by_arrow(values, "count")
        unit = Decimal(1).scaleb(-scale)
        with localcontext(prec=2 * precision):  # more digits than are kept, so that the last one is rounded correctly
            found = [
                None if total is None else (total / count).quantize(unit, ROUND_HALF_UP)
                for total, count in zip(sums.to_pylist(), counts.to_pylist(), strict=True)
            ]
        return pa.array(found, pa.decimal128(precision, scale))

    def _float_extreme(self, values: Any, function: str) -> Any:
        """As in Spark, NaN is larger than any number. Arrow ignores it."""
        is_nan = pc.fill_null(pc.is_nan(values), False)
        found = self._by_arrow(values, function)
        if not pc.any(is_nan).as_py():
            return found
        numbers = pc.if_else(is_nan, pa.scalar(None, values.type), values)
        found = self._by_arrow(numbers, function)
        counts, count = self._by_arrow(values, "count"), self._by_arrow(numbers, "count")
        becomes_nan = (
            pc.less(count, counts) if function == "max" else pc.and_(pc.equal(count, 0), pc.greater(counts, 0))
        )
        return pc.if_else(becomes_nan, pa.scalar(float("nan"), values.type), found)

    def _extreme(self, names: list[str], *, is_max: bool) -> Any:
        """The largest or smallest row of each group by these columns; null: the first column is null in all rows."""
        ranks = [_ranks(one_chunk(self._rows[name])) for name in names]
        at = np.flatnonzero(ranks[0] > 0)
        at = at[np.lexsort([rank[at] for rank in reversed(ranks)])]
        places = np.full(len(self.groups), -1, np.int64)
        at = at if is_max else at[::-1]
        places[self._codes[at]] = at  # the last one stays
        return pa.array(places, mask=places < 0)


def _ranks(values: Any) -> Any:
    """Numbers in the order of the values, equal ones for equal ones; 0: null. NaN is larger than any number."""
    ranks = pc.rank(_with_one_zero(values), tiebreaker="dense").to_numpy().astype(np.int64)
    return np.where(pc.is_valid(values).to_numpy(zero_copy_only=False), ranks, 0)


def _with_one_zero(values: Any) -> Any:
    """As Spark compares them: 0.0 and -0.0 are equal."""
    return pc.add(values, pa.scalar(0.0, values.type)) if pa.types.is_floating(values.type) else values


# --- groups as text ---------------------------------------------------------------------------------------------------


def group_texts(columns: list[Any], count: int) -> Any:
    """The values of key columns as one text for each row: the names of their hashes without the prefix (`naming`)."""
    if not columns:
        return pa.repeat("", count)
    parts = [_part(each, is_joined=len(columns) > 1) for each in columns]
    return pc.binary_join_element_wise(*parts, ":") if len(parts) > 1 else parts[0]


def _part(values: Any, *, is_joined: bool) -> Any:
    texts = pc.replace_substring(as_text(values), "%", "%25")
    if is_joined:
        texts = pc.replace_substring(texts, ":", "%3A")
    return pc.fill_null(texts, "%")


def as_text(values: Any) -> Any:
    """Values as Spark casts them to text."""
    if pa.types.is_timestamp(values.type):
        texts = pc.strftime(values.cast(pa.timestamp("us")), format="%Y-%m-%d %H:%M:%S")
        texts = pc.replace_substring_regex(texts, r"(\.\d*[1-9])0+$", r"\1")
        return pc.replace_substring_regex(texts, r"\.0+$", "")
    return values.cast(pa.string())
