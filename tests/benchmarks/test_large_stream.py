"""The benchmark of a long stream still runs, at a tiny size."""

from __future__ import annotations

import json

import pytest

from benchmarks import large_stream


def test_prints_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    large_stream.main(["--entries", "30000", "--json"])
    rows = {row["benchmark"]: row["figure"] for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert rows["entries"] == 30_000
    assert rows["ratio of the two"] > 0
    assert rows["eviction of half"] < 5
