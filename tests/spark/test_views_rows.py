"""Rows that changes were applied to are those that the naive way has, and what is said to have changed has."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.spark.changed_rows import COLUMNS, State, applied, living, random_steps, table_of
from tidelog.spark.views.keeping.changes import clear, compose, no_changes
from tidelog.spark.views.keeping.source_rows import SourceRows, rows_schema


def state_of(rows: SourceRows) -> State:
    found: State = {}
    for row in rows.table.to_pylist():
        columns = {number: row[f"c{number}"] for number in range(COLUMNS) if row[f"c{number}"] is not None}
        found[row["id"]] = columns, frozenset(row["rest"])
    assert len(found) == len(rows)
    return found


def by_id(rows: SourceRows) -> dict[bytes, Any]:
    return {row["id"]: row for row in rows.table.to_pylist()}


@pytest.mark.parametrize("first", range(0, 200, 100))
def test_rows_are_what_the_changes_say(first: int) -> None:
    for seed in range(first, first + 100):
        chance = random.Random(seed)
        rows, expected = SourceRows(COLUMNS), State()
        for _ in range(4):
            steps = random_steps(chance)
            before = by_id(rows)
            done = rows.apply(compose(table_of(steps)))
            expected = living(applied(expected, steps))
            after = by_id(rows)
            assert state_of(rows) == expected, seed
            ids = set(done.ids.to_pylist())
            assert {each for each in before.keys() | after.keys() if before.get(each) != after.get(each)} <= ids, seed
            assert {row["id"]: row for row in done.rows.to_pylist()} == {each: after[each] for each in ids & set(after)}
            assert rows.table.schema == rows_schema(COLUMNS)


def test_changes_that_are_applied_again_change_nothing() -> None:
    for seed in range(100):
        chance = random.Random(seed)
        rows = SourceRows(COLUMNS)
        rows.apply(compose(table_of(random_steps(chance))))
        steps = compose(table_of(random_steps(chance)))
        rows.apply(steps)
        expected = state_of(rows)
        rows.apply(steps)
        assert state_of(rows) == expected, seed


def test_many_changes_leave_few_chunks() -> None:
    rows = SourceRows(COLUMNS)
    for seed in range(100):
        rows.apply(compose(table_of(random_steps(random.Random(seed)))))
        assert rows.table["id"].num_chunks <= 17


def test_nothing_is_applied_to_nothing() -> None:
    rows = SourceRows(COLUMNS)
    assert len(rows.apply(no_changes(COLUMNS)).ids) == 0
    assert len(rows.apply(clear(COLUMNS)).ids) == 0
    assert len(rows) == 0
