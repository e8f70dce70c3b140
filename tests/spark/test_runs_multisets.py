"""Weights that are added up run by run give what a naive count of values gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.spark.sorted_runs import KEYS, batches_of
from tidelog.spark.runs import multisets
from tidelog.spark.runs.multisets import Multiset, added_up, multiset_schema, value_name

Entry = tuple[bytes, tuple[Any, ...], int]
"""A group, a value of it, and how much more often it is there."""

KINDS: dict[str, tuple[Sequence[Any], Any]] = {
    "numbers": ([pa.int64()], st.tuples(st.integers(-3, 3))),
    "texts": ([pa.string()], st.tuples(st.sampled_from(["", "a", "a\0", "ab", "ü"]))),
    "flags": ([pa.bool_()], st.tuples(st.booleans())),
    "pairs": ([pa.int64(), pa.string()], st.tuples(st.integers(0, 2), st.none() | st.sampled_from(["", "a", "b"]))),
}
some_groups = st.sampled_from(KEYS[:6])


def entries_of(values: Any) -> Any:
    return st.lists(st.tuples(some_groups, values, st.sampled_from([-2, -1, -1, 1, 1, 1, 3])), max_size=25)


def table_of(entries: Iterable[Entry], kinds: Sequence[Any]) -> pa.Table:
    """As they are written into a run."""
    rows = [
        {"key": key, **{value_name(n): each for n, each in enumerate(values)}, "weight": weight}
        for key, values, weight in entries
    ]
    return added_up(pa.Table.from_pylist(rows, multiset_schema(kinds)))


def multiset(runs: Sequence[Sequence[Entry]], kinds: Sequence[Any], rows_max: int) -> Multiset:
    tables = [table_of(run, kinds) for run in runs]
    return Multiset([batches_of(table, rows_max) for table in tables if len(table)], multiset_schema(kinds))


def counted(entries: Iterable[Entry]) -> Counter[tuple[bytes, tuple[Any, ...]]]:
    found: Counter[tuple[bytes, tuple[Any, ...]]] = Counter()
    for key, values, weight in entries:
        found[key, values] += weight
    return found


def place_of(values: tuple[Any, ...]) -> Any:
    """Where values are in the order: null is first."""
    return [(value is not None, value) for value in values]


def read(rows: pa.Table) -> list[Entry]:
    names = [name for name in rows.schema.names if name not in ("key", "weight")]
    return [(row["key"], tuple(row[name] for name in names), row["weight"]) for row in rows.to_pylist()]


def in_order(entries: Iterable[Entry]) -> list[Entry]:
    return sorted(entries, key=lambda entry: (entry[0], place_of(entry[1])))


@pytest.mark.parametrize("name", KINDS)
@given(data=st.data(), rows_max=st.integers(1, 4), first_rows=st.integers(1, 4), window_rows=st.integers(1, 12))
def test_values_are_those_whose_weights_are_left(
    name: str, data: st.DataObject, rows_max: int, first_rows: int, window_rows: int
) -> None:
    kinds, values = KINDS[name]
    runs = data.draw(st.lists(entries_of(values), max_size=6))
    made = multiset(runs, kinds, rows_max)
    weights = counted(entry for run in runs for entry in run)
    windows = list(made.windows(window_rows))
    left = in_order((key, each, weight) for (key, each), weight in weights.items() if weight)
    assert [entry for window in windows for entry in read(window)] == left
    assert all(len(window) for window in windows)
    wanted = sorted(data.draw(st.sets(st.sampled_from(KEYS))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multisets, "_FIRST_ROWS", first_rows)
        patch.setattr(multisets, "_GROWTH", 2)
        for is_last in (False, True):
            found = made.ends(pa.array(wanted, pa.binary()), is_last=is_last)
            choose = max if is_last else min
            groups = {
                key: [each for (group, each), weight in weights.items() if group == key and weight > 0]
                for key in wanted
            }
            expected = {key: choose(some, key=place_of) for key, some in groups.items() if some}
            assert {key: each for key, each, _ in read(found)} == expected
            assert len(found) == len(expected)


@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize("number", [1, 3, 40])
def test_the_end_is_found_behind_many_values_that_are_gone(is_last: bool, number: int) -> None:
    """More than is looked at the first time, and the second, and divided over many runs."""
    values = range(5000)
    gone = values[:-1] if not is_last else values[1:]
    runs: list[list[Entry]] = [[] for _ in range(number)]
    for value in values:
        runs[value % number].append((b"g", (value,), 1))
        runs[value % number].append((b"h", (-value,), 1))
    runs.append([(b"g", (value,), -1) for value in gone])
    made = multiset(runs, [pa.int64()], 512)
    [(_, (left,), _), *others] = read(made.ends(pa.array([b"g", b"never"], pa.binary()), is_last=is_last))
    assert (left, others) == (0 if is_last else 4999, [])
    both = made.ends(pa.array([b"g", b"h"], pa.binary()), is_last=is_last)
    assert {key: value for key, (value,), _ in read(both)} == {b"g": left, b"h": 0 if is_last else -4999}
    runs.append([(b"g", (left,), -1)])
    assert len(multiset(runs, [pa.int64()], 512).ends(pa.array([b"g"], pa.binary()), is_last=is_last)) == 0


def test_a_value_that_is_there_in_many_runs_is_one_row() -> None:
    runs: list[list[Entry]] = [[(b"g", (1,), 1), (b"g", (2,), -1 if number % 2 else 1)] for number in range(20)]
    made = multiset(runs, [pa.int64()], 1)
    for window_rows in (1, 2, 5, 1000):
        found = [entry for window in made.windows(window_rows) for entry in read(window)]
        assert found == [(b"g", (1,), 20)]
    assert read(made.ends(pa.array([b"g"], pa.binary()), is_last=True))[0][1] == (1,)


def test_windows_are_not_larger_than_they_may_be() -> None:
    runs: list[list[Entry]] = [[(b"g", (value,), 1) for value in range(n, 3000, 3)] for n in range(3)]
    sizes = [len(window) for window in multiset(runs, [pa.int64()], 64).windows(90)]
    assert sum(sizes) == 3000
    assert max(sizes) <= 90


def test_weights_that_cancel_out_leave_no_row() -> None:
    entries = [(b"g", (None,), 1), (b"a", ("x",), 2), (b"g", (None,), -1), (b"a", ("x",), -1), (b"a", (None,), 1)]
    assert read(table_of(entries, [pa.string()])) == [(b"a", (None,), 1), (b"a", ("x",), 1)]
    assert len(table_of([], [pa.string()])) == 0


def test_nothing_has_no_ends() -> None:
    made = Multiset([], multiset_schema([pa.int64()]))
    for is_last in (False, True):
        assert len(made.ends(pa.array([b"a"], pa.binary()), is_last=is_last)) == 0
        assert len(made.ends(pa.array([], pa.binary()), is_last=is_last)) == 0
    assert list(made.windows()) == []
