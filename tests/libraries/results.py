"""A line for each test of a library: what was tried, with which versions, against which server, and how it went.

The lines are JSON, appended to the file that `--library-results` names. The page about libraries is made from them.

    {"library": "rq", "versions": {"rq": "2.12.0", "redis": "8.1.0"}, "against": "tidelog",
     "tried": "A killed work horse leaves a failed job.", "promise": "...", "outcome": "passed", "seconds": 1.9}

A test file says what it is about with `pytestmark = pytest.mark.library("rq")`; further names are packages that belong
to it. The first line of a test's docstring is what was tried, and `PROMISE` of its file, if it has one, says what the
library promises about jobs. What a test gives to the fixture `record` is in its line too, such as its counts.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

Record = Callable[[str, object], None]
"""Adds a name and a value to the line of a test: the fixture `record`."""


def result_line(item: pytest.Function, report: pytest.TestReport, against: str) -> dict[str, Any] | None:
    """The line for a finished phase of a test; nothing if it is not the one that counts."""
    marker = item.get_closest_marker("library")
    if marker is None or (report.when != "call" and report.outcome == "passed"):
        return None
    if report.when == "teardown" and report.outcome == "skipped":
        return None
    lines = (item.function.__doc__ or item.name).strip().splitlines()
    return {
        "library": marker.args[0],
        "versions": {name: version(name) for name in (*marker.args, "redis")},
        "against": against,
        "test": item.nodeid,
        "tried": lines[0],
        "promise": getattr(item.module, "PROMISE", ""),
        "outcome": report.outcome,
        "seconds": round(report.duration, 1),
        **dict(report.user_properties),
    }


def append_line(path: Path, line: dict[str, Any]) -> None:
    """One write in append mode: the processes of a test run share the file."""
    with path.open("ab", buffering=0) as file:
        file.write(json.dumps(line).encode() + b"\n")
