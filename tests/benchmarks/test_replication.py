"""The benchmark of replication still runs, at a tiny size, and computes what it says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from benchmarks import replication
from benchmarks.loads import COMPARED_LINE, compared
from benchmarks.paced_writer import Written
from benchmarks.replication_lag import lags_ms

needs_redis = pytest.mark.skipif(shutil.which("redis-server") is None, reason="needs a redis-server to compare with")

Row = dict[str, Any]


def rows_of(capsys: pytest.CaptureFixture[str], case: str, *options: object) -> list[Row]:
    replication.main(["--case", case, *map(str, options), "--json"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["benchmark"] for row in rows} == {case}
    for row in rows:
        assert COMPARED_LINE.format(**row)
    return rows


def by_what(rows: list[Row]) -> dict[str, Row]:
    """By the last words of what a row is about."""
    return {row["what"].rpartition(", ")[2]: row for row in rows}


@needs_redis
def test_writes_with_and_without_a_follower(capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of(capsys, "writes", "--requests", 4000, "--keys", 1000, "--rounds", 1)
    loads = list(dict.fromkeys(row["what"].rpartition(", ")[0].removesuffix(", leader's time") for row in rows))
    assert loads == ["SET, pipeline 1", "SET, pipeline 16", "SET, pipeline 128", "TWRITE/XADD, pipeline 16"]
    for load in loads:
        found = by_what([row for row in rows if row["what"].startswith(f"{load}, ") and "time" not in row["what"]])
        alone, followed, part = found["no follower"], found["one follower"], found["part that is left"]
        for name in ("tidelog", "redis"):
            assert part[name] == pytest.approx(followed[name] / alone[name], abs=0.01)
        assert followed["ratio"] == pytest.approx(followed["tidelog"] / followed["redis"], abs=0.01)


@needs_redis
def test_lag_at_a_steady_pace(capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of(capsys, "lag", "--lag-seconds", 0.5, "--rate", 2000, "--keys", 1000, "--rounds", 1)
    assert [row["what"].rpartition(", ")[2] for row in rows[1:]] == ["p50", "p99", "max"] * 2
    for name in ("tidelog", "redis"):
        assert 1000 < rows[0][name] <= 2100
        for at in (1, 4):
            p50, p99, longest = (row[name] for row in rows[at : at + 3])
            assert 0 < p50 <= p99 <= longest


@needs_redis
def test_full_sync(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of(capsys, "sync", "--sync-mb", 2, "--rounds", 2, "--folder", tmp_path)
    assert [row["what"].rpartition(", ")[2] for row in rows] == ["no snapshot there", "the next ones"]
    assert all(row["tidelog"] > 0 and row["redis"] > 0 and row["ratio"] > 0 for row in rows)
    assert list(tmp_path.iterdir()) == [], "what it wrote is removed"


@needs_redis
def test_memory_of_a_leader_during_a_full_sync(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--memory-mb", 2, "--level-seconds", 0.5, "--patience-seconds", 30, "--folder", tmp_path)
    saved, synced, beyond, seconds, attempts = rows_of(capsys, "memory", *options)
    for name in ("tidelog", "redis"):
        assert beyond[name] == pytest.approx(synced[name] - saved[name], abs=0.01)
        assert attempts[name] >= 1
    assert seconds["tidelog"] > 0
    assert list(tmp_path.iterdir()) == []


@needs_redis
def test_a_follower_behind_a_slow_link(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--rate", 5000, "--keys", 1000, "--level-seconds", 0.6, "--slow-seconds", 1, "--folder", tmp_path)
    grown, disconnects, full_syncs, caught_up = rows_of(capsys, "slow", *options, "--patience-seconds", 30)
    assert "tidelog needs" in grown["note"]
    assert disconnects["tidelog"] == full_syncs["tidelog"] == 0
    assert caught_up["tidelog"] > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
@needs_redis
def test_failover(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    named, written = rows_of(capsys, "failover", "--failovers", 1, "--down-ms", 1000, "--folder", tmp_path)
    for name in ("tidelog", "redis"):
        assert named[name] > 1, "nobody is taken for dead before that"
        assert written[name] > 1
    assert list(tmp_path.iterdir()) == []


def test_a_probe_counts_as_seen_with_the_next_one_that_is() -> None:
    ms = 1_000_000
    written = Written(4, 1.0, [0, 1 * ms, 2 * ms, 3 * ms])
    assert lags_ms(written, [-1, 0, 3], [0, 1 * ms, 10 * ms])[2] == pytest.approx(9), "probe 1, seen with probe 3"
    assert lags_ms(written, [-1, 0, 1, 2, 3], [0, 1 * ms, 2 * ms, 3 * ms, 4 * ms]) == pytest.approx((1, 1, 1))


def test_a_row_without_a_figure_has_no_ratio() -> None:
    assert compared("b", "w", "s", {"tidelog": 3.0, "redis": 2.0})["ratio"] == 1.5
    assert compared("b", "w", "s", {"tidelog": 3.0, "redis": 0.0})["ratio"] == "-"
    row = compared("b", "w", "s", {"tidelog": 12345.6, "redis": None})
    assert (row["tidelog"], row["redis"], row["ratio"]) == (12346, "-", "-")
