"""Tables, rows and lines without a terminal; with one they are seen in the tests of the commands."""

from __future__ import annotations

import json

import pytest

from tidelog.cli.output.stdout import Column, Output

COLUMNS = (Column("name", 6), Column("size", 5, right=True))


def test_a_table_is_aligned_and_has_no_trailing_blanks(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=False).table(COLUMNS, [("a", 1), ("longer name", 1234567), (None, None)], total=True)
    assert capsys.readouterr().out == (
        "name            size\n"
        "a                  1\n"
        "longer name  1234567\n"
        "-                  -\n"
    )  # fmt: skip


def test_rows_that_come_one_by_one(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(as_json=False)
    output.header(COLUMNS)
    output.row(COLUMNS, ["a", 12])
    output.row(COLUMNS, ["longer than its column", None])
    assert capsys.readouterr().out == "name     size\na          12\nlonger than its column      -\n"


def test_nothing_that_a_terminal_obeys_gets_out(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(as_json=False)
    output.line("a\x1b[31mb\nc")
    output.table(COLUMNS, [("\x07", 1)])
    output.row(COLUMNS, ["\r", 1])
    assert "\x1b" not in (out := capsys.readouterr().out)
    assert "\x07" not in out
    assert "\r" not in out


def test_objects_are_lines_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(as_json=True)
    output.object("thing", {"text": "a\nü", "number": 2**63, "nothing": None})
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert out.isascii()
    assert json.loads(out) == {"kind": "thing", "text": "a\nü", "number": 2**63, "nothing": None}
