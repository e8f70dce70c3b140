"""The benchmark of lists still runs, at a tiny size."""

from __future__ import annotations

import json
import shutil

import pytest

from benchmarks import lists

pytestmark = pytest.mark.skipif(shutil.which("redis-benchmark") is None, reason="needs redis-benchmark")


def test_prints_a_ratio_for_each_test(capsys: pytest.CaptureFixture[str]) -> None:
    lists.main(["--requests", "5000", "--elements", "20000", "--pipelines", "1,16", "--rounds", "1", "--json"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["benchmark"] for row in rows] == [
        "LPUSH, pipeline 1",
        "LPUSH, pipeline 16",
        "RPOP, pipeline 1",
        "RPOP, pipeline 16",
        "LRANGE 100, pipeline 1",
        "LRANGE 100, pipeline 16",
        "BRPOP hand-over, p50",
        "BRPOP hand-over, p99",
        "memory, 20,000 elements",
    ]
    assert all(row["tidelog"] > 0 and row["redis"] > 0 and row["ratio"] > 0 for row in rows)
