"""The benchmark of recovery still runs, at a tiny size."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from benchmarks import recovery

pytestmark = pytest.mark.skipif(shutil.which("redis-server") is None, reason="needs a redis-server to compare with")


def test_prints_a_ratio_for_each_pipeline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recovery.main(["--writes", "3200", "--keys", "500", "--rounds", "1", "--folder", str(tmp_path), "--json"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["pipeline"] for row in rows] == [1, 16]
    assert all(row["tidelog_s"] > 0 and row["redis_s"] > 0 and row["ratio"] > 0 for row in rows)
    assert list(tmp_path.iterdir()) == [], "what it wrote is removed"


def test_both_logs_have_the_same_writes() -> None:
    runs = [list(recovery.commands(160, 100, pipeline)) for pipeline in (1, 16)]
    flat = [[command for run in each for command in run] for each in runs]
    assert flat[0] == flat[1]
    assert {len(key) for _, key, _ in flat[0]} == {16}
