"""The benchmark of feeds still runs, at a tiny size."""

from __future__ import annotations

import json
import shutil

import pytest

from benchmarks import feeds

pytestmark = pytest.mark.skipif(shutil.which("redis-benchmark") is None, reason="needs redis-benchmark")


@pytest.mark.parametrize("test", ["many", "latency", "everything", "rare"])
def test_prints_figures(test: str, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--events", "2000", "--feeds", "5", "--seconds", "0.5", "--rare-bytes", "8000000", "--rounds", "1"]
    feeds.main(["--tests", test, *sizes, "--json"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows
    assert all(row["test"] == test and row["value"] > 0 for row in rows)
