"""The benchmark of shipping still runs, at a tiny size, and computes what it says."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest

from benchmarks import shipping
from benchmarks.shipping import LINE, kind_of, lags_s

needs_redis = pytest.mark.skipif(shutil.which("redis-benchmark") is None, reason="needs redis-benchmark for the load")


def rows_of(capsys: pytest.CaptureFixture[str], case: str, place: str, *options: object) -> dict[str, dict[str, Any]]:
    shipping.main(["--case", case, "--place", place, *map(str, options), "--json"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for row in rows:
        assert (row["benchmark"], row["place"]) == (case, place)
        assert LINE.format(**row)
    return {row["what"]: row for row in rows}


@needs_redis
def test_throughput(capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of(capsys, "throughput", "folder", "--requests", 4000, "--rounds", 1)
    assert rows["SET, pipeline 16, with"]["figure"] > 0
    assert rows["TWRITE, pipeline 16, part that is left"]["figure"] > 0


def test_lag_and_restore(capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of(capsys, "lag", "folder", "--rate", 100, "--seconds", 4)
    assert all(0 < row["figure"] < 60 for row in rows.values())
    assert len(rows_of(capsys, "restore", "folder", "--restore-mb", 2)) == 3


def test_costs_on_s3(capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of(capsys, "costs", "s3", "--seconds", 3)
    assert rows["10 writes/s, manifests put"]["figure"] > 1000
    assert rows["1000 writes/s, bytes put"]["figure"] > rows["10 writes/s, bytes put"]["figure"]
    assert rows["idle, DELETE"]["figure"] == 0


def test_a_write_is_in_the_first_manifest_that_reaches_it() -> None:
    assert lags_s([(0, 5), (20_000, 1_020_000), (20_000, 9_000_000), (30_000, 2_030_000)]) == pytest.approx(
        [1.009999, 1.019999, 2.009999]
    )


def test_kinds_of_objects() -> None:
    assert kind_of("db/manifest-0000000000000001") == "manifests"
    assert kind_of("db/base.3-1") == "bases"
    assert kind_of("db/1.0/shard-0/piece-00.dj0-0.0-5") == "pieces"
    assert kind_of("db/nodes/nodes-0-1") == "other objects"
