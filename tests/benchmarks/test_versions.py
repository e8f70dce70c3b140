"""The comparison of two versions still runs, at a tiny size and with one version twice."""

from __future__ import annotations

import json
import sys

import pytest

from benchmarks import versions


def test_every_case_runs_on_both(capsys: pytest.CaptureFixture[str]) -> None:
    versions.main(["--before", sys.executable, "--commands", "100", "--rounds", "1", "--json"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["case"] for row in rows] == list(versions.CASES)
    assert all(row["ratio"] > 0 for row in rows)
