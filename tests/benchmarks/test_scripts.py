"""The benchmark of scripts still runs, at a tiny size."""

from __future__ import annotations

import json
import shutil

import pytest

from benchmarks import scripts

pytestmark = pytest.mark.skipif(shutil.which("redis-benchmark") is None, reason="needs redis-benchmark")


def test_prints_a_ratio_for_each_test(capsys: pytest.CaptureFixture[str]) -> None:
    scripts.main(["--requests", "400", "--pipelines", "1,16", "--rounds", "1", "--json"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["benchmark"] for row in rows] == [
        "empty script, pipeline 1",
        "empty script, pipeline 16",
        "rate limiter, pipeline 1",
        "rate limiter, pipeline 16",
        "10 commands, pipeline 1",
        "10 commands, pipeline 16",
        "EVAL of new scripts",
    ]
    assert all(row["tidelog"] > 0 and row["redis"] > 0 and row["ratio"] > 0 for row in rows)
