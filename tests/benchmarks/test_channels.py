"""The benchmark of channels still runs, at a tiny size."""

from __future__ import annotations

import json
import shutil

import pytest

from benchmarks import channels

pytestmark = pytest.mark.skipif(shutil.which("redis-server") is None, reason="needs redis-server")


def test_prints_a_row_for_each_test_and_backend(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--channels", "2", "--pollers", "4", "--rate", "20", "--seconds", "0.5", "--rounds", "1", "--json"]
    backends = ["own", "redis"]
    channels.main([*words, "--backends", ",".join(backends)])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    wanted = [(test, backend) for test in channels.TESTS for backend in backends]
    assert [(row["benchmark"], row["backend"]) for row in rows] == wanted
    assert all(row["per_s"] > 0 and row["per_core"] > 0 and row["delivery_p50_ms"] > 0 for row in rows)
