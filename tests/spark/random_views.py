"""Views at random, each as SQL and as plain Python over rows: neither Spark nor the engine has a part in the latter.

Numbers are quarters, so that sums are the same in whatever order they are added up.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final, NamedTuple

from tests.spark.hash_names import hash_name
from tests.spark.view_world import Row
from tidelog.spark.views.sql.definition import View, ViewSource

Rows = Sequence[Row]
Texts = dict[str, str]
"""The columns of a row of a view that are not null, as text."""


class Scalar(NamedTuple):
    """An expression over a row."""

    sql: str
    of: Callable[[Row], Any]


class Aggregate(NamedTuple):
    """An expression over the rows of a group, which are in order."""

    sql: str
    of: Callable[[Rows], Any]


def _number(name: str) -> Callable[[Row], float | None]:
    def of(row: Row) -> float | None:
        try:
            return float(row.get(name) or "")
        except ValueError:
            return None

    return of


def _whole(row: Row) -> int | None:
    try:
        return int(row.get("n") or "")
    except ValueError:
        return None


def _hour(row: Row) -> datetime | None:
    at = row.get("at")
    if at is None:
        return None
    return datetime.fromisoformat(at).replace(minute=0, second=0, tzinfo=UTC)


def _column(name: str) -> Scalar:
    return Scalar(f"source.{name}", lambda row: row.get(name))


def _is_above(limit: float) -> Callable[[Row], bool | None]:
    def of(row: Row) -> bool | None:
        amount = _amount(row)
        return None if amount is None else amount > limit

    return of


def _remainder(row: Row) -> int | None:
    whole = _whole(row)
    return None if whole is None else int(math.fmod(whole, 3))  # the sign is that of the number, as in Java


_amount: Final = _number("amount")

GROUPS: Final = {
    "state": _column("state"),
    "first": Scalar(
        "substring(source.state, 1, 1)", lambda row: None if row.get("state") is None else (row["state"] or "")[:1]
    ),
    "kind": Scalar("coalesce(source.state, 'none')", lambda row: "none" if row.get("state") is None else row["state"]),
    "rest": Scalar("cast(source.n as int) % 3", _remainder),
    "much": Scalar("cast(source.amount as double) > 20", _is_above(20)),
}
HOUR: Final = Scalar("window(cast(source.at as timestamp), '1 hour').start", _hour)
OWN_GROUPS: Final = {"prefix": "key", "stream": "tag", "days": "day"}

DOUBLE: Final = "cast(source.amount as double)"
WHOLE: Final = "cast(source.n as int)"


def _there(rows: Rows, of: Callable[[Row], Any]) -> list[Any]:
    return [value for value in map(of, rows) if value is not None]


def _or_none(function: Callable[[list[Any]], Any], of: Callable[[Row], Any]) -> Callable[[Rows], Any]:
    def result(rows: Rows) -> Any:
        values = _there(rows, of)
        return function(values) if values else None

    return result


def _by(rows: Rows, of: Callable[[Row], Any], by: Callable[[Row], Any], choose: Any) -> Any:
    pairs = [(by(row), of(row) is not None, of(row) or "", of(row)) for row in rows if by(row) is not None]
    return choose(pairs, key=lambda pair: pair[:3])[3] if pairs else None


def _share(rows: Rows) -> float | None:
    numbers = _there(rows, _whole)
    return len(rows) / len(numbers) if numbers else None


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _spread(values: list[float]) -> float:
    return max(values) - min(values)


def _cents(values: list[float]) -> Decimal:
    return sum((Decimal(value).quantize(Decimal("0.01")) for value in values), Decimal("0.00"))


def _state(row: Row) -> str | None:
    return row.get("state")


AGGREGATES: Final = {
    "number": Aggregate("count(*)", len),
    "amounts": Aggregate("count(source.amount)", lambda rows: len(_there(rows, lambda row: row.get("amount")))),
    "total": Aggregate(f"sum({DOUBLE})", _or_none(sum, _amount)),
    "total_of_text": Aggregate("sum(source.amount)", _or_none(sum, _amount)),
    "cents": Aggregate("sum(cast(source.amount as decimal(10, 2)))", _or_none(_cents, _amount)),
    "least": Aggregate(f"min({DOUBLE})", _or_none(min, _amount)),
    "most": Aggregate(f"max({DOUBLE})", _or_none(max, _amount)),
    "mean": Aggregate(f"avg({DOUBLE})", _or_none(_mean, _amount)),
    "spread": Aggregate(f"max({DOUBLE}) - min({DOUBLE})", _or_none(_spread, _amount)),
    "whole": Aggregate(f"sum({WHOLE})", _or_none(sum, _whole)),
    "states": Aggregate("count(distinct source.state)", lambda rows: len(set(_there(rows, _state)))),
    "last_state": Aggregate("max(source.state)", _or_none(max, _state)),
    "richest": Aggregate(f"max_by(source.state, {DOUBLE})", lambda rows: _by(rows, _state, _amount, max)),
    "poorest": Aggregate(f"min_by(source.state, {WHOLE})", lambda rows: _by(rows, _state, _whole, min)),
    "ups": Aggregate(f"count_if({WHOLE} > 0)", lambda rows: sum(each > 0 for each in _there(rows, _whole))),
    "paid": Aggregate(
        f"sum({DOUBLE}) filter (where source.state = 'paid')",
        lambda rows: _or_none(sum, _amount)([row for row in rows if _state(row) == "paid"]),
    ),
    "share": Aggregate("count(*) / count(cast(source.n as int))", _share),
    "hours": Aggregate("max(cast(source.at as timestamp))", lambda rows: _or_none(max, _time)(rows)),
    "is_rich": Aggregate(f"max({DOUBLE} > 90)", _or_none(max, _is_above(90))),
}
LATEST: Final = Aggregate("latest(source.state)", lambda rows: _state(rows[-1]))


def _time(row: Row) -> datetime | None:
    at = row.get("at")
    return None if at is None else datetime.fromisoformat(at).replace(tzinfo=UTC)


CONDITIONS: Final = [
    Scalar(f"{WHOLE} > 0", lambda row: (_whole(row) or 0) > 0),
    Scalar("source.state is not null", lambda row: _state(row) is not None),
    Scalar("source.state in ('new', 'paid', '')", lambda row: _state(row) in ("new", "paid", "")),
    Scalar(f"not {DOUBLE} > 50", lambda row: _is_above(50)(row) is False),
]


class RandomView(NamedTuple):
    """One view, declared and computed."""

    view: View
    groups: Mapping[str, Scalar]
    outputs: Mapping[str, Aggregate]
    where: Scalar | None
    join: str
    """ "", "join" or "left join"."""
    least: int
    """How many rows a group needs at least to be shown."""

    def computed(self, rows: Rows, cities: Rows) -> dict[str, dict[str, str | None]]:
        """The rows that the view has, by the name of their hash."""
        groups: dict[tuple[Any, ...], list[Row]] = {} if self.groups else {(): []}
        for row in self._joined(rows, cities):
            if self.where is not None and not self.where.of(row):
                continue
            if "hour" in self.groups and _hour(row) is None:
                continue  # what has no time is in no window
            groups.setdefault(tuple(each.of(row) for each in self.groups.values()), []).append(row)
        found = {}
        for group, members in groups.items():
            if len(members) >= self.least:
                values = dict(zip(self.groups, group, strict=True))
                values |= {name: each.of(members) for name, each in self.outputs.items()}
                texts = {name: text_of(value) for name, value in values.items()}
                found[hash_name(self.view.name, [texts[name] for name in self.view.key])] = texts
        return found

    def _joined(self, rows: Rows, cities: Rows) -> list[Row]:
        if not self.join:
            return list(rows)
        by_key = {city["key"]: city for city in cities}
        joined = []
        for row in rows:
            city = by_key.get(row.get("city"))
            if city is not None or self.join == "left join":
                joined.append({**row, "cities.name": None if city is None else city.get("name")})
        return joined


def text_of(value: Any) -> str | None:
    """A value as a hash has it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    return str(value)


def random_view(chance: random.Random, name: str, kind: str) -> RandomView:
    source = ViewSource(kind, {"prefix": "order:", "stream": "ticks", "days": "shop/web"}[kind])  # type: ignore[arg-type]
    join = chance.choice(["", "", "join", "left join"])
    choices = {**GROUPS, "hour": HOUR, OWN_GROUPS[kind]: _column(OWN_GROUPS[kind])}
    if join:
        choices["city"] = Scalar("cities.name", lambda row: row.get("cities.name"))
    names = chance.sample(sorted(choices), chance.choice([0, 1, 1, 1, 2, 2]))
    groups = {each: choices[each] for each in names}
    chosen = chance.sample(sorted(AGGREGATES), chance.randrange(1, 7))
    outputs = {each: AGGREGATES[each] for each in chosen}
    if kind != "prefix" and chance.random() < 0.5:
        outputs["newest"] = LATEST
    is_latest = (
        bool(groups) and "hour" not in groups and (kind != "prefix" or "key" in groups) and chance.random() < 0.3
    )
    if is_latest:  # no aggregates: the row of a key is the newest
        outputs = {
            "it": Aggregate("source.state", lambda rows: _state(rows[-1])),
            "its": Aggregate(WHOLE, lambda rows: _whole(rows[-1])),
        }
    elif kind != "prefix" and not groups:
        outputs = {each: made for each, made in outputs.items() if each != "newest"} or {"number": AGGREGATES["number"]}
    where = chance.choice([None, *CONDITIONS])
    least = chance.choice([0, 0, 2]) if groups and not is_latest else 0
    items = [f"{each.sql} as {label}" for label, each in groups.items()]
    items += [f"{each.sql} as {label}" for label, each in outputs.items()]
    sql = f"select {', '.join(items)} from source"
    if join:
        sql += f" {join} cities on cities.key = source.city"
    if where is not None:
        sql += f" where {where.sql}"
    if groups and not is_latest:
        sql += f" group by {', '.join(str(number + 1) for number in range(len(groups)))}"
    if least:
        sql += f" having count(*) >= {least}"
    lookups = {"cities": ViewSource("prefix", "city:")} if join else {}
    return RandomView(View(name, source, sql, tuple(groups), lookups), groups, outputs, where, join, least)
