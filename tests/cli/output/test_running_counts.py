"""Counts that grow, and are printed however a command ends."""

from __future__ import annotations

import pytest

from tests.cli.command_line import run_program_on_terminal
from tidelog.cli.output.running_counts import RunningCounts
from tidelog.cli.output.stdout import Output


def count(*, as_json: bool) -> None:
    with RunningCounts(Output(as_json=as_json), ("written", "late")) as counts:
        counts.add(1200, 1)
        counts.add(34, 0)
        raise KeyboardInterrupt


def test_they_are_printed_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        count(as_json=False)
    assert capsys.readouterr() == ("1234 written, 1 late\n", "")
    with pytest.raises(KeyboardInterrupt):
        count(as_json=True)
    assert capsys.readouterr() == ('{"kind":"summary","written":1234,"late":1}\n', "")


PROGRAM = """
import sys, time
from tidelog.cli.output.running_counts import RunningCounts
from tidelog.cli.output.stdout import Output

with RunningCounts(Output(as_json=True), ("written",), is_shown=sys.argv[1] == "yes") as counts:
    for _ in range(3):
        counts.add(1000)
        time.sleep(0.25)
"""


def test_they_are_shown_on_a_terminal_as_they_grow() -> None:
    outcome = run_program_on_terminal(PROGRAM, "yes")
    assert outcome.stdout == '{"kind":"summary","written":3000}\n'
    for text in ("1,000 written", "2,000 written", "3,000 written"):
        assert text in outcome.stderr
    assert run_program_on_terminal(PROGRAM, "no").stderr == ""
