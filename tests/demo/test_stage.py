"""How the demo is told, and that a claim that does not hold is remembered."""

from __future__ import annotations

import json

import pytest

from demo.stage import Stage
from tidelog.cli.output.stdout import Column


def tell(stage: Stage, *, holds: bool) -> None:
    stage.title("A title")
    stage.act("First")
    stage.say("why")
    stage.figure("events", "1,000 in 2 s", 1000)
    stage.claim("it is so", holds)
    stage.table("Rows", [Column("day"), Column("events", right=True)], [["Monday", 7], ["all", 7]], total=True)
    stage.end("/folder")


def test_in_a_pipe_it_is_plain(capsys: pytest.CaptureFixture[str]) -> None:
    stage = Stage(as_json=False)
    tell(stage, holds=True)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:6] == ["A title", "", "1. First", "   why", f"   {'events':<34} 1,000 in 2 s", "   ✓ it is so"]
    assert lines[6:11] == ["", "Rows", "day     events", "Monday       7", "all          7"]
    assert lines[-3].startswith("All 1 claims were checked and held, in ")
    assert lines[-2:] == [
        "To look at: bin/tidelog journal ls /folder/data",
        "To go on:   bin/tidelog serve --data /folder/data",
    ]
    assert stage.broken == []


def test_a_claim_that_does_not_hold_is_told_and_remembered(capsys: pytest.CaptureFixture[str]) -> None:
    stage = Stage(as_json=False)
    tell(stage, holds=False)
    lines = capsys.readouterr().out.splitlines()
    assert "   ✗ it is so" in lines
    assert lines[-4:-2] == ["1 of 1 claims did not hold:", "   ✗ it is so"]
    assert stage.broken == ["it is so"]


def test_machines_get_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    tell(Stage(as_json=True), holds=False)
    *told, summary = map(json.loads, capsys.readouterr().out.splitlines())
    assert told == [
        {"kind": "act", "number": 1, "title": "First"},
        {"kind": "say", "text": "why"},
        {"kind": "figure", "name": "events", "value": 1000},
        {"kind": "claim", "text": "it is so", "holds": False},
        {"kind": "table", "title": "Rows", "rows": [{"day": "Monday", "events": 7}, {"day": "all", "events": 7}]},
    ]
    assert summary["kind"] == "summary"
    assert (summary["claims"], summary["broken"], summary["folder"]) == (1, ["it is so"], "/folder")
    assert list(summary["steps"]) == ["First"]
