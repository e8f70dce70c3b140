"""Groups to which changes alone are applied come to what a naive computation makes of everything that is there."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from tests.spark.kept_groups import Contribution, KeptGroups, groups_of, in_a_task
from tidelog import limits
from tidelog.spark.runs import multisets
from tidelog.spark.views.dataflow.values import to_kept
from tidelog.spark.views.sql.plan import Aggregate

__all__ = ["in_a_task"]
pytestmark = pytest.mark.usefixtures("in_a_task")

# --- what may come ----------------------------------------------------------------------------------------------------

ARGUMENTS: dict[str, tuple[Any, Sequence[Any]]] = {
    "small": (pa.int32(), [None, 0, 1, -1, 7, 2**31 - 1, -(2**31)]),
    "whole": (pa.int64(), [None, 0, 1, -(2**63), 2**63 - 1, 2**62]),
    "double": (pa.float64(), [None, 0.0, -0.0, 1.5, -2.25, 0.1, 1e300, 5e-324, math.nan, math.inf, -math.inf]),
    "number": (pa.float64(), [None, 0.0, -0.0, 1.5, -2.25, 0.1, 1e300, -1e300, 5e-324]),
    "single": (pa.float32(), [None, 0.0, -0.0, 0.5, -1.25, math.nan]),
    "decimal": (pa.decimal128(10, 2), [None, *map(Decimal, ["0.00", "1.25", "-99999999.99", "99999999.99", "0.01"])]),
    "wide": (pa.decimal128(38, 4), [None, *map(Decimal, ["1.0000", "-123456789012345678901234567890.1234"])]),
    "text": (pa.string(), [None, "", "a", "a\0", "ab", "B", "ü"]),
    "flag": (pa.bool_(), [None, False, True]),
    "day": (pa.date32(), [None, date(1, 1, 1), date(2026, 3, 1)]),
    "moment": (pa.timestamp("us", "UTC"), [None, *pa.array([-1, 0, 10**15], pa.timestamp("us", "UTC")).to_pylist()]),
}
NAMES = list(ARGUMENTS)
GROUPS = (None, "", "a", "a:b", "%", "ü")

Naive = Callable[[list[Any], list[Any]], Any]
"""From the values of the arguments of all contributions of a group."""


def there(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if value is not None]


def place_of(value: Any) -> Any:
    """Where a value is in the order of Spark: null, then values, then NaN. There is one zero."""
    if value is None:
        return (0, 0)
    return (2, 0) if isinstance(value, float) and math.isnan(value) else (1, value)


def total(values: Sequence[Any]) -> Any:
    if isinstance(values[0], int):
        return (sum(values) + 2**63) % 2**64 - 2**63  # it wraps around
    if isinstance(values[0], Decimal):
        with localcontext(prec=60):
            return sum(values, Decimal(0))
    strange = [value for value in values if not math.isfinite(value)]
    if strange:
        return sum(strange)
    exact = sum(map(Fraction, values), Fraction())
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def mean(values: Sequence[Any]) -> Any:
    found = total(values)
    if not isinstance(found, Decimal):
        return found / len(values)
    scale = next(kind.scale for kind, some in ARGUMENTS.values() if pa.types.is_decimal(kind) and values[0] in some)
    with localcontext(prec=80):
        return (found / len(values)).quantize(Decimal(1).scaleb(-scale - 4), ROUND_HALF_UP)


class Told(NamedTuple):
    aggregate: Aggregate
    naive: Callable[[list[Contribution]], Any]


def named(name: str) -> str:
    return f"a{NAMES.index(name)}"


def of_values(function: str, name: str, naive: Callable[[list[Any]], Any], *, is_distinct: bool = False) -> Told:
    argument = named(name)
    return Told(Aggregate(function, (argument,), is_distinct), lambda rows: naive(there(row[argument] for row in rows)))


def or_none(naive: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    return lambda values: naive(values) if values else None


def extreme(name: str, *, is_last: bool) -> Told:
    choose = max if is_last else min
    return of_values("max" if is_last else "min", name, or_none(lambda values: choose(values, key=place_of)))


def by(name: str, other: str, *, is_last: bool) -> Told:
    argument, decides = named(name), named(other)
    choose = max if is_last else min

    def naive(rows: list[Contribution]) -> Any:
        some = [row for row in rows if row[decides] is not None]
        best = choose(some, key=lambda row: (place_of(row[decides]), place_of(row[argument])), default=None)
        return None if best is None else best[argument]

    return Told(Aggregate("max_by" if is_last else "min_by", (argument, decides)), naive)


def latest(name: str) -> Told:
    argument = named(name)
    return Told(
        Aggregate("latest", (argument,)),
        lambda rows: max(rows, key=lambda row: (row["order"], place_of(row[argument])), default={argument: None})[
            argument
        ],
    )


def distinct(name: str) -> Told:
    return of_values("count", name, lambda values: len(set(map(place_of, values))), is_distinct=True)


AGGREGATES: dict[str, list[Told]] = {
    "counts": [
        Told(Aggregate("count", ()), len),
        *(of_values("count", name, len) for name in NAMES),
        *(distinct(name) for name in NAMES),
    ],
    "sums": [of_values("sum", name, or_none(total)) for name in ("small", "whole", "double", "decimal", "wide")],
    "averages": [of_values("avg", name, or_none(mean)) for name in ("small", "number", "decimal", "wide")]
    + [of_values("sum", name, or_none(total)) for name in ("small", "number", "decimal")],
    "extremes": [extreme(name, is_last=is_last) for name in NAMES for is_last in (False, True)],
    "one end": [extreme("double", is_last=True), extreme("text", is_last=False)],
    "by another": [
        by(name, other, is_last=is_last)
        for name, other in [("text", "double"), ("double", "text"), ("flag", "day"), ("small", "flag")]
        for is_last in (False, True)
    ],
    "newest": [latest("text"), latest("double"), extreme("text", is_last=True), by("text", "small", is_last=True)],
    "no aggregates": [],
}

# --- the random history -----------------------------------------------------------------------------------------------


class History:
    """Contributions that come and go, and what is there of them."""

    def __init__(self, chance: random.Random, groups: Sequence[Any]) -> None:
        self.chance = chance
        self.groups = groups
        self.there: dict[int, Contribution] = {}
        self._changes = 0

    def change(self) -> list[Contribution]:
        """Some rows of the source change."""
        chance, made = self.chance, list[Contribution]()
        for row in chance.sample(range(40), chance.randrange(1, 25)):
            old, new = self.there.pop(row, None), None
            if chance.random() < 0.6:
                new = self._new(row)
            elif old is not None and chance.random() < 0.2:
                new = old  # it changes where it does not count
            made += [{**old, "sign": -1}] if old is not None else []
            if new is not None:
                self.there[row] = new
                made.append({**new, "sign": 1})
        return made

    def _new(self, row: int) -> Contribution:
        self._changes += 1
        values = {named(name): self.chance.choice(values) for name, (_, values) in ARGUMENTS.items()}
        # Now and then two contributions are equally new: a join may multiply a row.
        order = self.chance.choice([b"%08d" % self._changes, b"%08d" % (self._changes // 4)])
        group = {"g0": self.chance.choice(self.groups)} if self.groups else {}
        return {"row": row, "order": order, **group, **values}

    def clear(self) -> list[Contribution]:
        gone: list[Contribution] = [{**each, "sign": -1} for each in self.there.values()]
        self.there = {}
        return gone


def computed(made: KeptGroups, told: Sequence[Told], rows: Iterable[Contribution]) -> dict[Any, list[Any]]:
    """The rows of the view, by the value of their key column."""
    groups: dict[Any, list[Contribution]] = {None: []} if made.plan.is_global else {}
    for row in rows:
        groups.setdefault(row.get("g0"), []).append(row)
    return {group: [each.naive(some) for each in told] for group, some in groups.items()}


def is_same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    return type(one) is type(other) and bool(one == other)


def check(made: KeptGroups, told: Sequence[Told], history: History, about: object) -> None:
    expected = computed(made, told, history.there.values())
    shown = made.shown()
    found = {row.get("k"): [row[f"r{n}"] for n in range(len(told))] for row in shown.values()}
    assert found.keys() == expected.keys(), about
    for group, values in found.items():
        for each, one, other in zip(told, values, expected[group], strict=True):
            assert is_same(one, other), (about, group, each.aggregate, one, other)
    assert made.rows == len(expected)


def noted(made: KeptGroups) -> dict[bytes, Any]:
    """The hashes that the rows of the view come to."""
    shown = made.shown()
    return made.hashes.fields(list(shown), pa.Table.from_pylist(list(shown.values()), made.result))


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that everything takes several steps."""
    monkeypatch.setattr(limits, "RUN_BATCH_ROWS", 5)
    monkeypatch.setattr(limits, "VIEW_PORTION_ROWS", 7)
    monkeypatch.setattr(multisets, "_FIRST_ROWS", 1)
    monkeypatch.setattr(multisets, "_GROWTH", 2)


def split(chance: random.Random, rows: list[Contribution]) -> list[list[Contribution]]:
    """As several tasks have them, in any order."""
    chance.shuffle(rows)
    cuts = sorted(chance.randrange(len(rows) + 1) for _ in range(chance.randrange(3)))
    return [rows[start:end] for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True)]


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize("name", AGGREGATES)
@pytest.mark.parametrize("seed", range(6))
def test_groups_come_to_what_is_there(tmp_path: Path, name: str, seed: int) -> None:
    told, chance = AGGREGATES[name], random.Random(f"{name} {seed}")
    made = groups_of(
        tmp_path, {"k": pa.string()}, [kind for kind, _ in ARGUMENTS.values()], [each.aggregate for each in told]
    )
    history = History(chance, GROUPS)
    for step in range(10):
        changes = history.clear() if step == 6 else history.change()
        before = dict(made.hashes.there)
        changed = made.apply(*split(chance, changes))
        check(made, told, history, (seed, step))
        assert made.hashes.there == noted(made)
        assert changed == len(made.hashes.told) == len(set(made.hashes.told))
        assert {
            each for each in before.keys() | made.hashes.there if before.get(each) != made.hashes.there.get(each)
        } <= {*made.hashes.told}
        made.merge_some(chance)
    made.apply(history.clear())
    check(made, told, history, "nothing is left")
    assert made.hashes.there == {}


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize("name", AGGREGATES)
def test_a_batch_that_was_killed_leaves_nothing(tmp_path: Path, name: str) -> None:
    """What it wrote lies there, but no list names it. The next one has more changes in it."""
    told, chance = AGGREGATES[name], random.Random(name)
    made = groups_of(
        tmp_path, {"k": pa.string()}, [kind for kind, _ in ARGUMENTS.values()], [each.aggregate for each in told]
    )
    history = History(chance, GROUPS)
    made.apply(history.change())
    for step in range(5):
        changes = history.change()
        made.apply(*split(chance, changes), is_killed=True)
        made.hashes.there.clear()
        made.hashes.there.update(noted(made))  # as a run corrects them when it begins
        changes += history.change()
        made.apply(*split(chance, changes))
        check(made, told, history, step)


@pytest.mark.parametrize("name", [name for name in AGGREGATES if name != "no aggregates"])
def test_a_view_without_groups_is_one_row(tmp_path: Path, name: str) -> None:
    told, chance = AGGREGATES[name], random.Random(name)
    made = groups_of(tmp_path, {}, [kind for kind, _ in ARGUMENTS.values()], [each.aggregate for each in told])
    history = History(chance, ())
    assert made.begin() == 1
    check(made, told, history, "empty")
    for step in range(4):
        made.apply(*split(chance, history.change()))
        check(made, told, history, step)
    made.apply(history.clear())
    check(made, told, history, "empty again")


def test_keys_of_any_type_are_groups(tmp_path: Path) -> None:
    for name in ("small", "whole", "decimal", "text", "flag", "day", "moment"):
        kind, values = ARGUMENTS[name]
        made = groups_of(tmp_path / name, {"k": kind, "other": kind}, [], [Aggregate("count", ())])
        pairs = [(one, other) for one in values for other in values]
        rows = [{"sign": 1, "order": b"", "g0": one, "g1": other} for one, other in pairs]
        assert made.apply(rows[::2], rows) == len(pairs)
        found = {(row["k"], row["other"]): row["r0"] for row in made.shown().values()}
        assert found == {pair: 2 - number % 2 for number, pair in enumerate(pairs)}


def test_a_row_that_comes_out_as_it_was_is_not_written_again(tmp_path: Path) -> None:
    """A client that watches a hash is notified of real changes only."""
    aggregates = [Aggregate("max", ("a0",)), Aggregate("sum", ("a1",))]
    made = groups_of(tmp_path, {"k": pa.string()}, [pa.float64(), pa.float64()], aggregates)

    def row(sign: int, high: float | None, more: float | None) -> Contribution:
        return {"sign": sign, "order": b"", "g0": "a", "a0": high, "a1": more}

    assert made.apply([row(1, 5.0, math.nan)]) == 1
    assert made.apply([row(1, 3.0, 2.5)]) == 0
    assert made.apply([row(1, None, None), row(-1, 3.0, 2.5)]) == 0
    assert made.apply([row(1, 5.0, 0.0), row(-1, 5.0, math.nan)]) == 1
    assert made.apply([row(-1, 5.0, 0.0), row(1, 5.0, 0.0)]) == 0
    assert made.apply([row(-1, 5.0, 0.0), row(-1, None, None)]) == 1
    assert made.hashes.there == {}


def test_a_sum_does_not_drift(tmp_path: Path) -> None:
    made = groups_of(tmp_path, {"k": pa.string()}, [pa.float64()], [Aggregate("sum", ("a0",))])
    values = [0.1, 1e300, 5e-324, 1e17, -0.3]
    rows = [{"sign": 1, "order": b"", "g0": "a", "a0": value} for value in values]
    for _ in range(20):
        made.apply(rows)
        made.apply([{**row, "sign": -1} for row in rows])
    made.apply(rows[:1])
    assert [row["r0"] for row in made.shown().values()] == [0.1]


def test_the_average_of_large_whole_numbers_does_not_wrap_around(tmp_path: Path) -> None:
    """Only their sum does, in Spark as here."""
    aggregates = [Aggregate("avg", ("a0",)), Aggregate("sum", ("a0",))]
    made = groups_of(tmp_path, {"k": pa.string()}, [pa.int64()], aggregates)
    made.apply([{"sign": 1, "order": b"", "g0": "a", "a0": value} for value in (2**62, 2**62, 2**62, 2**53 + 1)])
    [row] = made.shown().values()
    assert (row["r0"], row["r1"]) == ((3 * 2.0**62 + 2.0**53) / 4, 3 * 2**62 + 2**53 + 1 - 2**64)


def test_a_value_that_is_gone_is_looked_for_in_few_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group may have any number of values: the next one is not found by reading all."""
    made = groups_of(tmp_path, {"k": pa.string()}, [pa.int64()], [Aggregate("max", ("a0",))])
    count = 20_000
    made.apply([{"sign": 1, "order": b"", "g0": "a", "a0": value} for value in range(count)])
    looked: list[int] = []
    look = multisets._looked_at

    def noted_look(*arguments: Any) -> pa.Table | None:
        found = look(*arguments)
        looked.append(0 if found is None else len(found))
        return found

    monkeypatch.setattr(multisets, "_looked_at", noted_look)
    for value in range(count - 1, count - 6, -1):
        made.apply([{"sign": -1, "order": b"", "g0": "a", "a0": value}])
        assert [row["r0"] for row in made.shown().values()] == [value - 1]
    assert 5 <= sum(looked) < 1000


def test_there_is_one_zero_and_one_nan() -> None:
    kept = to_kept(pa.array([0.0, -0.0, math.nan, -math.nan])).to_pylist()
    assert (kept[0], kept[2]) == (kept[1], kept[3])
