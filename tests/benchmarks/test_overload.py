"""The benchmark of what others wait for under overload still runs, at a tiny size."""

from __future__ import annotations

import json
import shutil

import pytest

from benchmarks import overload

pytestmark = pytest.mark.skipif(shutil.which("redis-server") is None, reason="needs a redis-server to compare with")

TINY = ["--connections", "3", "--value-mb", "8", "--sets", "2000", "--half-open", "10", "--readers", "3", "--json"]


@pytest.mark.long
def test_prints_what_others_wait_for_beside_each_attack(capsys: pytest.CaptureFixture[str]) -> None:
    overload.main(["--seconds", "0.2", *TINY])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    cases = list(dict.fromkeys(row["case"] for row in rows))
    assert [case.split(" ")[0] for case in cases] == [
        "idle", "pipeline", "strangers", "large", "long", "half-open", "stalled",
    ]  # fmt: skip
    for case in cases:
        found = [row for row in rows if row["case"] == case]
        assert {row["server"] for row in found} == {"tidelog", "redis"}
        assert {"PING", "GET", "SET"} <= {row["what"] for row in found}
        assert all(0 < row["p50_ms"] <= row["p99_ms"] <= row["max_ms"] for row in found)
        assert all(
            row["ratio"].startswith("ratio ") for row in found if row["server"] == "tidelog" and row["what"] == "PING"
        )
    assert any(row["what"] == "/health" for row in rows)
