"""The benchmark of day streams still runs, at a tiny size, and a job set shrinks as much as it should."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.skipif(shutil.which("redis-server") is None, reason="needs a redis-server to compare with"),
]


@pytest.mark.long
def test_a_job_set_shrinks_and_readers_get_the_same(tmp_path: Path) -> None:
    checkout = Path(__file__).parent.parent.parent
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "benchmarks.days",
            "--events",
            "20000",
            "--days",
            "2",
            "--masters",
            "local[1]",
            "--json",
        ],
        capture_output=True,
        text=True,
        timeout=110,
        cwd=checkout,
        env=environment,
        check=False,
    )
    rows = {row["benchmark"]: row for row in map(json.loads, done.stdout.splitlines())}
    assert rows.keys() == {"zstd", "compress", "memory"}, done.stderr
    assert rows["memory"]["is_same"]
    assert rows["memory"]["events"] == 20000
    assert rows["memory"]["ratio"] >= 8
