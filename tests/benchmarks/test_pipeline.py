"""The benchmark of the lake and the views still runs, at a tiny size."""

from __future__ import annotations

import json
import shutil

import pytest

from benchmarks import pipeline

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("redis-server") is None, reason="needs a redis-server to compare with"),
]


def run(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    pipeline.main([*words, "--json"])
    (row,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert isinstance(row, dict)
    return row


def test_a_backlog_is_taken_up_beside_a_copy_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    row = run(capsys, "--tests", "backlog", "--changes", "5000")
    assert (row["benchmark"], row["changes"]) == ("backlog", 5000)
    assert all(row[name] for name in ("lake", "peer", "ratio"))


def test_a_load_is_followed_to_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    row = run(capsys, "--tests", "follow", "--rates", "500", "--seconds", "3", "--warm", "1")
    assert (row["benchmark"], row["rate"]) == ("follow", 500)
    assert row["lake_behind_s"] is not None
    assert row["view_behind_s"] is not None
    assert row["p50_s"] is not None
