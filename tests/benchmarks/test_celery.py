"""The benchmark of Celery still runs, at a tiny size."""

from __future__ import annotations

import json
import shutil

import pytest

from benchmarks import celery

pytestmark = pytest.mark.skipif(shutil.which("redis-server") is None, reason="needs redis-server")


@pytest.mark.long
def test_prints_a_ratio_for_each_test(capsys: pytest.CaptureFixture[str]) -> None:
    tests = ["send", "keep"]  # a worker takes seconds to start
    celery.main(["--tasks", "20", "--rounds", "1", "--tests", ",".join(tests), "--json"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["benchmark"] for row in rows] == tests
    assert all(row["tidelog_per_s"] > 0 and row["redis_per_s"] > 0 and row["ratio"] > 0 for row in rows)
