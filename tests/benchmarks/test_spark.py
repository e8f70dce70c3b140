"""The benchmark of Spark still runs, at a tiny size."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from benchmarks import spark

pytestmark = pytest.mark.skipif(shutil.which("redis-server") is None, reason="needs a redis-server to compare with")


@pytest.mark.long
def test_prints_how_all_three_compare(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    spark.main(["--events", "2000", "--rounds", "1", "--cores", "1", "--tests", "scan", "--warm", "--json"])
    (row,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert row["benchmark"] == "scan"
    assert min(row["tidelog"], row["redis"], row["parquet"], row["ratio"], row["time_ratio"]) > 0


@pytest.mark.long
def test_prints_how_a_copy_compares(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    spark.main(["--events", "2000", "--rounds", "1", "--cores", "1", "--case", "shipped", "--warm", "--json"])
    (row,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert row["benchmark"] == "shipped"
    assert min(row["tidelog"], row["parquet"], row["time_ratio"]) > 0
