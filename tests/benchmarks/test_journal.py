"""The journal's benchmark still runs, at a tiny size."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import journal


def test_prints_a_ratio_for_each_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    journal.main(["--records", "30000", "--rounds", "1", "--folder", str(tmp_path), "--json"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["benchmark"] for row in rows] == [
        f"{what} {size} B" for size in (100, 10_000) for what in ("append", "scan headers", "full decode")
    ]
    assert all(row["records_per_s"] > 0 and row["ratio"] > 0 for row in rows)
    assert list(tmp_path.iterdir()) == [], "what it wrote is removed"
