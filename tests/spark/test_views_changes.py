"""Composed changes do what the steps did that they were composed of."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from tests.spark.changed_rows import COLUMNS, IDS, applied, random_steps, table_of
from tidelog.spark.views.dataflow.changes import CLEAR, changes_schema, chosen, clear, compose, no_changes

BEFORE = {bytes([number]): ({0: "before"}, frozenset([b"a", b"q"])) for number in range(0, IDS, 2)}


@pytest.mark.parametrize("first", range(0, 600, 200))
def test_composed_steps_do_the_same(first: int) -> None:
    for seed in range(first, first + 200):
        steps = random_steps(random.Random(seed))
        table = table_of(steps)
        composed = compose(table)
        expected = applied(BEFORE, steps)
        assert applied(BEFORE, composed.to_pylist()) == expected, seed
        half = len(table) // 2
        twice = compose(pa.concat_tables([compose(table.slice(0, half)), compose(table.slice(half))]))
        for each in (composed, twice, compose(composed)):
            assert applied(BEFORE, each.to_pylist()) == expected, seed
            assert each.schema == changes_schema(COLUMNS)
            ops, ids = each["op"].to_pylist(), each["id"].to_pylist()
            clears = ops.count(CLEAR)
            assert ops[:clears] == [CLEAR] * clears, seed
            assert len(set(ids[clears:])) == len(ids) - clears, seed


@pytest.mark.parametrize("columns", [[0, 1, 2], [2, 0], [1], []])
def test_changes_of_some_columns_do_the_same_to_these(columns: list[int]) -> None:
    """Views of one source share what is read of it, and each takes the columns that it names."""
    for seed in range(50):
        steps = random_steps(random.Random(seed))
        found = chosen(table_of(steps), columns)
        assert found.schema == changes_schema(len(columns))
        missing = {f"c{number}": None for number in range(len(columns), COLUMNS)}
        there = applied({}, [{**step, **missing} for step in found.to_pylist()])
        everything = applied({}, steps)
        assert there == {
            each: ({new: row[old] for new, old in enumerate(columns) if old in row}, names)
            for each, (row, names) in everything.items()
        }, seed


def test_nothing_stays_nothing() -> None:
    assert compose(no_changes(COLUMNS)).equals(no_changes(COLUMNS))


def test_what_is_cleared_last_is_all_that_is_left() -> None:
    steps = table_of(random_steps(random.Random(1)))
    composed = compose(pa.concat_tables([steps, clear(COLUMNS)]))
    assert set(composed["op"].to_pylist()) == {CLEAR}
    assert applied(BEFORE, composed.to_pylist()) == {}


def test_changes_come_in_chunks() -> None:
    tables = [table_of(random_steps(random.Random(seed))) for seed in range(5)]
    chunked = pa.concat_tables(tables)
    assert chunked["id"].num_chunks == len(tables)
    steps = [step for table in tables for step in table.to_pylist()]
    assert applied(BEFORE, compose(chunked).to_pylist()) == applied(BEFORE, steps)
