"""The benchmark of memory still runs, at a tiny size."""

from __future__ import annotations

import json
import shutil

import pytest

from benchmarks import memory

pytestmark = pytest.mark.skipif(shutil.which("redis-server") is None, reason="needs a redis-server to compare with")


def test_prints_bytes_for_each_kind(capsys: pytest.CaptureFixture[str]) -> None:
    memory.main(["--keys", "5000", "--kinds", "string,set", "--json"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["benchmark"] for row in rows] == ["string", "set"]
    assert all(row["tidelog_bytes"] > 0 and row["redis_bytes"] > 0 for row in rows)


def test_prints_bytes_for_what_belongs_to_streams(capsys: pytest.CaptureFixture[str]) -> None:
    memory.main(["--keys", "3000", "--kinds", "group,pending,producer", "--json"])
    rows = {row["benchmark"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert list(rows) == ["group", "pending", "producer"]
    assert rows["group"]["tidelog_bytes"] > 0
    assert rows["producer"]["redis_bytes"] == 0, "it has none"
