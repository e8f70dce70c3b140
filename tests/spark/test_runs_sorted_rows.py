"""Runs over each other give what a dict gives that one run after the other was put into."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.spark.sorted_runs import KEYS, SCHEMA, Rows, batches_of, overlay_of, rows_of, table_of
from tidelog.spark.runs.sorted_rows import KEY, Overlay, overlaid, sorted_by_key

some_keys = st.sampled_from(KEYS) | st.binary(max_size=2)
some_runs = st.lists(st.dictionaries(some_keys, st.none() | st.integers(0, 99), max_size=12), max_size=6)
batch_rows = st.integers(1, 5)


def overlay(runs: Sequence[Rows], rows_max: int) -> Overlay:
    return Overlay([batches_of(table_of(run), rows_max) for run in runs if run], SCHEMA)


def keys_of(keys: Any) -> Any:
    return pa.array(sorted(keys), pa.binary())


@given(some_runs, st.sets(some_keys, max_size=20), batch_rows)
def test_of_each_key_the_newest_row_is_found(runs: list[Rows], wanted: set[bytes], rows_max: int) -> None:
    keys = keys_of(wanted)
    places, rows = overlay(runs, rows_max).newest(keys)
    expected = overlay_of(runs)
    there = [key for key in keys.to_pylist() if expected.get(key) is not None]
    assert rows_of([rows]) == [(key, expected[key]) for key in there]
    assert keys.take(pa.array(places)).to_pylist() == there
    assert rows.schema == SCHEMA


@given(some_runs, some_keys, st.none() | some_keys, batch_rows, st.integers(1, 20), st.booleans())
def test_windows_are_all_rows_of_a_range_in_order(
    runs: list[Rows], start: bytes, end: bytes | None, rows_max: int, window_rows: int, with_gone: bool
) -> None:
    made = overlay(runs, rows_max)
    found = list(made.windows(start, end, rows_max=window_rows, with_gone=with_gone))
    expected = [
        (key, value)
        for key, value in sorted(overlay_of(runs).items())
        if key >= start and (end is None or key < end) and (with_gone or value is not None)
    ]
    assert rows_of(found) == expected
    assert all(len(window) for window in found)
    there = [key for key, value in expected if value is not None]
    assert made.keys_between(start, end).to_pylist() == there


@given(st.lists(st.dictionaries(some_keys, st.none() | st.integers(0, 99)), min_size=2, max_size=2))
def test_of_two_tables_the_newer_counts(tables: list[Rows]) -> None:
    older, newer = map(table_of, tables)
    assert rows_of([overlaid(older, newer)]) == sorted(overlay_of(tables).items())


@pytest.mark.parametrize("batch", [7, 50, 10_000])
@pytest.mark.parametrize("number", [1, 5])
def test_a_window_is_not_larger_than_it_may_be(batch: int, number: int) -> None:
    """However the rows are divided into runs and batches: rows that are wide come in small batches."""
    chance = random.Random(batch)
    runs: list[dict[bytes, int | None]] = [{} for _ in range(number)]
    for key in range(5000):
        chance.choice(runs)[b"%05d" % key] = key
    sizes = [len(window) for window in overlay(runs, batch).windows(rows_max=100)]
    assert sum(sizes) == 5000
    assert max(sizes) <= 200
    assert len(sizes) <= 200, "nor much smaller"


def test_columns_of_any_type_come_along() -> None:
    kinds = {"text": pa.string(), "names": pa.list_(pa.binary()), "pair": pa.struct([("a", pa.int64())])}
    schema = pa.schema([("key", pa.binary()), ("gone", pa.bool_()), *kinds.items()])
    rows: list[dict[str, Any]] = [
        {"key": b"%d" % number, "gone": False, "text": "ü", "names": [b"x"], "pair": {"a": None}} for number in range(5)
    ]
    older = pa.Table.from_pylist(rows, schema)
    gone = pa.Table.from_pylist([{"key": b"3", "gone": True}], schema)
    newer = pa.Table.from_pylist([{**rows[1], "names": None, "pair": {"a": 7}, "text": None}], schema)
    made = Overlay([batches_of(each, 2) for each in (older, gone, newer)], schema)
    expected = [rows[0], newer.to_pylist()[0], rows[2], rows[4]]
    assert [row for window in made.windows(rows_max=1) for row in window.to_pylist()] == expected
    places, found = made.newest(pa.array([b"1", b"3", b"4"], pa.binary()))
    assert (places.tolist(), found.to_pylist()) == ([0, 2], [expected[1], rows[4]])


def test_rows_are_sorted_by_the_bytes_of_their_keys() -> None:
    keys = [*KEYS]
    random.Random(1).shuffle(keys)
    rows = pa.table([pa.array(keys, pa.binary()), pc.is_null(pa.array(keys)), pa.nulls(len(keys), pa.int64())], SCHEMA)
    assert sorted_by_key(rows)[KEY].to_pylist() == list(KEYS)


def test_nothing_is_found_in_nothing() -> None:
    made = Overlay([], SCHEMA)
    places, rows = made.newest(pa.array([b"a"], pa.binary()))
    assert (len(places), len(rows), rows.schema) == (0, 0, SCHEMA)
    assert list(made.windows()) == []
    assert made.keys_between(b"", None).to_pylist() == []
