"""`tidelog pipeline optimize`: what it prints, and what it refuses. What it does to tables: `tests/spark`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command_line import invoke, run
from tests.integration.server_process import ServerProcess
from tests.spark.lake_check import InProcess, check

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(180)]


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """With three small files in each of two tables."""
    folder = tmp_path / "lake"
    with ServerProcess(tmp_path / "data", "--shards", "1") as server, server.client() as client:
        job = InProcess(server.port, folder)
        for number in range(3):
            client.set(f"k{number}", number)
            job.take()
            job.fold()
        check(server.port, client, folder)
    return folder


def test_a_dry_run_says_what_would_be_done_and_changes_nothing(lake: Path) -> None:
    files = sorted(lake.rglob("*"))
    told = invoke("pipeline", "optimize", "--to", lake, "--dry-run", "--json")
    assert told.status == 0
    assert {each["table"]: each["to_rewrite"] for each in told.of_kind("table")} == {
        "changes": 3,
        "current": 3,
        "entries": 0,
    }
    [summary] = told.of_kind("summary")
    assert (summary["dry_run"], summary["to_rewrite"], summary["rewritten"]) == (True, 6, 0)
    shown = invoke("pipeline", "optimize", "--to", lake, "--table", "changes", "--dry-run")
    assert "nothing was changed" in shown.stdout
    assert "current" not in shown.stdout
    assert sorted(lake.rglob("*")) == files


def test_it_runs(lake: Path) -> None:
    done = run("pipeline", "optimize", "--to", lake, "--table", "changes", "--keep", "7d", "--no-progress", "--json")
    assert done.status == 0, done.stderr
    [table] = done.of_kind("table")
    assert (table["files_before"], table["files"], table["rewritten"], table["skipped"]) == (3, 1, 3, 0)
    assert done.of_kind("summary")[0]["stopped"] is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--keep", "soon"), "give whole hours or days"),
        (("--keep", "30m"), "give whole hours or days"),
        (("--table", "currant"), "give one of changes"),
        (("--storage", "key=1"), "is for object stores"),
        ((), "there is no lake"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    told = invoke("pipeline", "optimize", "--to", tmp_path, "--dry-run", *words)
    assert told.status == 2
    assert message in told.stderr
    assert told.stderr.count("\n") == 1
