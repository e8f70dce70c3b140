"""The benchmark of streams still runs, at a tiny size."""

from __future__ import annotations

import json
import shutil

import pytest

from benchmarks import streams

pytestmark = pytest.mark.skipif(shutil.which("redis-benchmark") is None, reason="needs redis-benchmark")


def test_prints_a_ratio_for_each_test(capsys: pytest.CaptureFixture[str]) -> None:
    tests = "append,batch,read,flight,group,wake"
    streams.main(["--events", "2000", "--sizes", "100", "--rounds", "1", "--tests", tests, "--json"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == 3 + 2 + 2 + 1 + 1 + 2
    # Of so few events a ratio may be 0.00: a read by Flight is one connection more than anything else.
    assert all(row["tidelog"] > 0 and row["redis"] > 0 and row["ratio"] >= 0 for row in rows), rows
