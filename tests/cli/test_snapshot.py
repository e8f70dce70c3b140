"""`tidelog snapshot` without a server; with one it is tested in tests/integration/test_server_snapshots.py."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from tests.cli.command_line import invoke, run, run_on_terminal
from tests.store.changes import change, open_store, state
from tidelog.system.disk import SystemDisk


@pytest.fixture
def data(tmp_path: Path) -> Path:
    store = open_store(SystemDisk(), 2, str(tmp_path / "data"))
    rng = random.Random(4)
    for _ in range(200):
        change(store, rng)
    (tmp_path / "keys").write_text(str(len(state(store))))
    store.journal.close()
    return tmp_path / "data"


def test_a_backup_is_made_and_told_of(data: Path, tmp_path: Path) -> None:
    outcome = invoke("snapshot", "--data", data, "--to", tmp_path / "backup", "--json")
    assert outcome.status == 0, outcome.stderr
    [told] = outcome.of_kind("backup")
    assert told["path"] == str(tmp_path / "backup")
    assert (told["shards"], told["keys"]) == (2, int((tmp_path / "keys").read_text()))
    meta = json.loads((tmp_path / "backup" / "meta.json").read_text())
    assert meta["point"]["ts"] == told["ts"]
    assert told["bytes"] == sum(path.stat().st_size for path in (tmp_path / "backup").rglob("*") if path.is_file())
    assert invoke("journal", "verify", tmp_path / "backup").status == 0


def test_text_for_people(data: Path, tmp_path: Path) -> None:
    outcome = run("snapshot", "--data", data, "--to", tmp_path / "plain")
    head, row = outcome.stdout.splitlines()
    assert head.split() == ["backup", "time", "ts", "shards", "keys", "bytes"]
    assert row.startswith(str(tmp_path / "plain"))
    shown = run_on_terminal("snapshot", "--data", data, "--to", tmp_path / "shown")
    assert shown.status == 0
    assert "shards" in shown.stdout


def test_what_cannot_be_is_one_line_and_2(data: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    for to, folder, reason in (
        (tmp_path / "there", data, "exists already"),
        (tmp_path / "no" / "where", data, "does not exist"),
        (tmp_path / "backup", tmp_path / "there", "not a data directory"),
        (tmp_path / "backup", tmp_path / "nowhere", "not a data directory"),
    ):
        outcome = invoke("snapshot", "--data", folder, "--to", to)
        assert (outcome.status, outcome.stdout, outcome.stderr.count("\n")) == (2, "", 1)
        assert reason in outcome.stderr
    assert not (tmp_path / "nowhere").exists(), "nothing is made of a wrong name"


def test_a_snapshot_is_no_data_directory(data: Path, tmp_path: Path) -> None:
    assert invoke("snapshot", "--data", data, "--to", tmp_path / "one").status == 0
    outcome = invoke("snapshot", "--data", tmp_path / "one", "--to", tmp_path / "two")
    assert outcome.status == 2
    assert "is a snapshot" in outcome.stderr


def test_help_has_examples() -> None:
    for name in ("snapshot", "restore"):
        text = invoke(name, "--help").stdout
        assert f"tidelog {name}" in text
        assert "Exit status:" in text
        assert "JSON: kind" in text
