"""The benchmark of a long stream still runs, at a tiny size."""

from __future__ import annotations

import json

import pytest

from benchmarks import large_stream


def test_prints_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    large_stream.main(["--entries", "30000", "--redis-entries", "20000", "--seconds", "0.5", "--json"])
    rows = {row["what"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert (rows["entries"]["tidelog"], rows["entries"]["redis"]) == (30_000, 20_000)
    assert rows["ratio of the two"]["tidelog"] > 0
    assert rows["a start"]["redis"] > 0
    assert rows["p99 of writes beside the two, ratio"]["tidelog"] > 0
    assert rows["eviction of half"]["tidelog"] < 5
