"""The benchmark of the server still runs, at a tiny size."""

from __future__ import annotations

import json
import shutil

import pytest

from benchmarks import server

pytestmark = pytest.mark.skipif(shutil.which("redis-benchmark") is None, reason="needs redis-benchmark")


def test_prints_a_ratio_for_each_test_and_pipeline(capsys: pytest.CaptureFixture[str]) -> None:
    tests = ["SET", "GET", server.MULTI]
    options = ["--requests", "800", "--clients", "4", "--pipelines", "1,16", "--rounds", "1"]
    server.main([*options, "--tests", ",".join(tests), "--json"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["benchmark"], row["pipeline"]) for row in rows] == [(test, size) for test in tests for size in (1, 16)]
    assert all(row["tidelog_per_s"] > 0 and row["redis_per_s"] > 0 and row["ratio"] > 0 for row in rows)
