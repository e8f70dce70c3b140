"""The benchmark of views over many rows works, at a tiny size."""

from __future__ import annotations

import json

import pytest

from benchmarks.view_scale import main

pytestmark = [pytest.mark.long, pytest.mark.timeout(300), pytest.mark.xdist_group("spark")]


def test_bursts_of_changes_reach_the_views(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--source", "stream", "--rows", "2000", "--bursts", "2", "--changes", "100", "--json"])
    [row] = map(json.loads, capsys.readouterr().out.splitlines())
    assert (row["source"], row["rows"], row["changes"], row["ratio"]) == ("stream", 2000, 100, 1.0)
    assert row["burst_s"] > 0
    assert row["state_mb"] >= 0
