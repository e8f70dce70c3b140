"""The comparison of two versions still runs, at a tiny size and with one version twice."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import versions
from benchmarks.loads import Link
from benchmarks.servers import running


def test_every_case_runs_on_both(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "CLOSED_AFTER_S", 0.1)
    versions.main(["--before", sys.executable, "--commands", "100", "--rounds", "1", "--json"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["case"] for row in rows] == list(versions.CASES)
    assert all(row["ratio"] > 0 for row in rows)


def test_cases_from_disk_read_nodes_that_are_closed(tmp_path: Path) -> None:
    with running("tidelog", str(tmp_path)) as server, Link(server) as link:
        counted = []
        for name in ("TREAD of 10 old ones", "TREAD of 10 from disk"):
            before = fetched(link)
            assert versions.rate(server, versions.CASES[name], 2000) > 0
            counted.append(fetched(link) - before)
    assert counted[0] == 0 < counted[1]


def fetched(link: Link) -> int:
    lines = link.call(b"INFO", b"streams").decode().splitlines()
    return next(int(line.partition(":")[2]) for line in lines if line.startswith("fetched_nodes:"))
