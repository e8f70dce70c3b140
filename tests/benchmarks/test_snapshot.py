"""The benchmark of latency during a snapshot still runs, at a tiny size."""

from __future__ import annotations

import json
import shutil

import pytest

from benchmarks import snapshot

pytestmark = pytest.mark.skipif(shutil.which("redis-server") is None, reason="needs a redis-server to compare with")


def test_prints_latencies_of_both_and_says_if_there_was_no_snapshot(capsys: pytest.CaptureFixture[str]) -> None:
    snapshot.main(["--keys", "2000", "--seconds", "0.2", "--clients", "5", "--json"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["server"] for row in rows] == ["tidelog", "redis"]
    for row in rows:
        assert 0 < row["p50_ms"] <= row["p99_ms"]
        if row["snapshots"]:
            assert row["snapshot_p99_ms"] > 0
        else:
            assert row["note"].startswith("BGSAVE was refused: -")
