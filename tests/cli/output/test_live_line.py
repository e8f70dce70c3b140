"""The line that says how far a job is."""

from __future__ import annotations

import threading

import pytest

from tests.cli.command_line import run_program_on_terminal
from tidelog.cli.output.job_figures import JobFigures
from tidelog.cli.output.live_line import line_parts, live_line

NOW_MS = 1_700_000_000_000
TOLD = {
    "state": "running",
    "updated_ms": NOW_MS - 400,
    "lag_seconds": 0.41,
    "lag_records": 8123,
    "rows": 1204000,
    "rows_per_second": 20310.4,
    "batch_seconds": 0.382,
    "last_error": "",
}


def text(**more: object) -> str:
    return "  ".join(part for part, _ in line_parts(JobFigures("lake", {**TOLD, **more}), NOW_MS))


def test_what_it_says() -> None:
    assert text() == "lake  running  lag 0.41 s, 8,123 records  1,204,000 rows, 20,310/s  batch 0.38 s"
    assert text(last_error="one\n\x1b[2Jtwo").endswith(r"last error: one\n\x1b[2Jtwo")
    assert text(lag_seconds=None, rows=None, batch_seconds=None) == "lake  running"
    assert text(updated_ms=NOW_MS - 11_000).startswith("lake  silent")
    assert "lag 1:01:05, 8,123 records" in text(lag_seconds="3665")
    assert [part for part, _ in line_parts(JobFigures("lake", {}), NOW_MS)] == ["lake", "-"]


def test_nothing_is_shown_or_asked_where_nobody_would_see_it(capfd: pytest.CaptureFixture[str]) -> None:
    asked = threading.Event()

    def figures() -> dict[str, object]:
        asked.set()
        return TOLD

    with live_line("lake", figures):
        pass
    assert not asked.is_set()
    assert capfd.readouterr() == ("", "")


PROGRAM = """
import sys, time
from tidelog.cli.output.live_line import live_line

shown = [0]
def figures():
    shown[0] += 1
    return {"state": "running", "updated_ms": time.time() * 1000, "rows": shown[0]}

with live_line("lake", figures, is_wanted=sys.argv[1] == "yes"):
    deadline = time.monotonic() + 20
    while sys.argv[1] == "yes" and shown[0] < 4 and time.monotonic() < deadline:
        time.sleep(0.05)
    print('{"kind": "summary"}')
"""


@pytest.mark.parametrize("is_wanted", ["yes", "no"])
def test_it_is_redrawn_on_a_terminal_and_leaves_stdout_alone(is_wanted: str) -> None:
    status, output, seen = run_program_on_terminal(PROGRAM, is_wanted)
    assert (status, output) == (0, '{"kind": "summary"}\n')
    assert ("2 rows" in seen and "3 rows" in seen) is (is_wanted == "yes")
    assert bool(seen) is (is_wanted == "yes")
