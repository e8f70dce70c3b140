"""What the demo compares Spark's answers with."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from demo.query import Answer, answers_of, ask_ledger
from demo.week import Cell, Week

MONDAY, TUESDAY = date(2024, 5, 6), date(2024, 5, 7)


def test_the_ledger_answers_for_each_place_and_for_all() -> None:
    week = Week(MONDAY)
    for day, jobset, runs_ms in ((MONDAY, "a", [100]), (MONDAY, "b", [200, 300]), (TUESDAY, "a", [])):
        figures = week.cells[Cell(day, "q", jobset)]
        figures.events, figures.failed, figures.runs_ms = 10, 1, runs_ms
    assert ask_ledger(week) == {
        (MONDAY, "q", "a"): Answer(10, 1, 1, 100),
        (MONDAY, "q", "b"): Answer(10, 1, 2, 295),
        (TUESDAY, "q", "a"): Answer(10, 1, 0, None),
        (MONDAY, None, None): Answer(20, 2, 3, 290),
        (TUESDAY, None, None): Answer(10, 1, 0, None),
        (None, "q", "a"): Answer(20, 2, 1, 100),
        (None, "q", "b"): Answer(10, 1, 2, 295),
        (None, None, None): Answer(30, 3, 3, 290),
    }


def test_rows_of_spark_become_answers() -> None:
    rows: list[list[Any]] = [
        [None, None, None, False, 30, 3, 3, 290.0],
        ["2024-05-06", None, None, True, 20, 2, 3, 289.5],
        ["2024-05-07", None, None, False, 10, 1, 0, None],
        ["2024-05-07", "q", "a", True, 10, 1, 0, None],
    ]
    answers, compressed = answers_of(rows)
    assert answers == {
        (None, None, None): Answer(30, 3, 3, 290),
        (MONDAY, None, None): Answer(20, 2, 3, 289.5),
        (TUESDAY, None, None): Answer(10, 1, 0, None),
        (TUESDAY, "q", "a"): Answer(10, 1, 0, None),
    }
    assert compressed == {MONDAY}


@pytest.mark.parametrize(
    ("other", "is_same"),
    [
        (Answer(10, 1, 3, 289.5), True),
        (Answer(10, 1, 3, 289.50000001), True),
        (Answer(10, 1, 3, 289.51), False),
        (Answer(10, 1, 3, None), False),
        (Answer(11, 1, 3, 289.5), False),
        (Answer(10, 2, 3, 289.5), False),
        (Answer(10, 1, 4, 289.5), False),
    ],
)
def test_answers_agree_but_for_what_doubles_lose(other: Answer, is_same: bool) -> None:
    answer = Answer(10, 1, 3, 289.5)
    assert answer.agrees(other) is is_same
    assert other.agrees(answer) is is_same
