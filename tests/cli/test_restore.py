"""`tidelog restore` as a command; what it restores is tested in tests/store/test_restore.py."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.command_line import COMMAND, ENVIRONMENT, SECONDS_MAX, invoke, run, run_on_terminal
from tests.store.changes import change, open_store, state
from tidelog.journal.layout import RESTORING
from tidelog.system.disk import SystemDisk


class Filled:
    """A data directory with a snapshot, and journal after it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "data"
        store = open_store(SystemDisk(), 3, str(self.path))
        rng = random.Random(5)
        for number in range(200):
            change(store, rng)
            if number == 100:
                store.journal.writer.write()
                self.middle_ts, self.middle = store.journal.writer.written_ts, state(store)
                store.save()
        self.last = state(store)
        store.journal.close()


@pytest.fixture
def filled(tmp_path: Path) -> Filled:
    return Filled(tmp_path)


def found(folder: Path) -> dict[object, object]:
    store = open_store(SystemDisk(), 1, str(folder))
    try:
        return dict(state(store))
    finally:
        store.journal.close()


def test_a_directory_is_restored_and_told_of(filled: Filled, tmp_path: Path) -> None:
    outcome = invoke("restore", filled.path, "--data", tmp_path / "new", "--shards", "2", "--json")
    assert outcome.status == 0, outcome.stderr
    [told] = outcome.of_kind("restored")
    assert (told["shards"], told["keys"], told["snapshot_ts"]) == (2, len(filled.last), filled.middle_ts)
    assert told["transactions"] > 0
    assert found(tmp_path / "new") == filled.last
    assert run_on_terminal("restore", filled.path, "--data", tmp_path / "other").status == 0


@pytest.mark.parametrize("is_iso", [False, True])
def test_until_a_moment(filled: Filled, tmp_path: Path, is_iso: bool) -> None:
    from tidelog.cli.output.values import time_of

    until = time_of(filled.middle_ts) if is_iso else str(filled.middle_ts)
    assert until is not None
    assert invoke("restore", filled.path, "--data", tmp_path / "new", "--until", until).status == 0
    assert found(tmp_path / "new") == filled.middle


def test_bad_input_is_one_line_or_usage(filled: Filled, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    target = ("--data", str(tmp_path / "new"))
    for arguments, reason in (
        ((str(tmp_path / "nowhere"), *target), "not a data directory"),
        ((str(filled.path), "--data", str(tmp_path / "full")), "not empty"),
        ((str(filled.path), "--data", str(filled.path)), "not empty"),
        ((str(filled.path), *target, "--until", "5"), "nothing as old"),
        ((str(filled.path), *target, "--until", "soon"), "neither a number"),
        ((str(filled.path), *target, "--shards", "0"), "--shards"),
        ((str(filled.path), *target, "--shards", "many"), "--shards"),
        ((str(filled.path),), "--data"),
    ):
        outcome = invoke("restore", *arguments)
        assert outcome.status == 2, arguments
        assert reason in outcome.stderr
        assert "Traceback" not in outcome.stderr
        assert not (tmp_path / "new").exists()


def test_damage_is_1_and_leaves_nothing(filled: Filled, tmp_path: Path) -> None:
    [snapshot] = (filled.path / "snapshots").iterdir()
    shutil.copytree(snapshot, tmp_path / "backup")
    file = tmp_path / "backup" / "shard-1" / "journal-0000000000000000.dj0"
    content = bytearray(file.read_bytes())
    content[200] ^= 4
    file.write_bytes(content)
    outcome = invoke("restore", tmp_path / "backup", "--data", tmp_path / "new")
    assert (outcome.status, outcome.stderr.count("\n")) == (1, 1)
    assert not (tmp_path / "new").exists()


def test_one_that_did_not_finish_is_refused_and_begun_anew(filled: Filled, tmp_path: Path) -> None:
    new = tmp_path / "new"
    assert invoke("restore", filled.path, "--data", new).status == 0
    (new / RESTORING).touch()
    (new / "meta.json").unlink()
    refused = run(
        "serve", "--data", new, "--port", "0", "--unix-socket", tmp_path / "s", "--http-port", "0", "--flight-port", "0"
    )
    assert refused.status == 2
    assert "restore that did not finish" in refused.stderr
    assert invoke("restore", new, "--data", tmp_path / "other").status == 2
    assert invoke("restore", filled.path, "--data", new, "--shards", "4").status == 0
    assert found(new) == filled.last


def test_a_killed_restore_never_leaves_half_of_the_data(
    filled: Filled, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    began = time.monotonic()
    assert run("restore", filled.path, "--data", tmp_path / "whole").status == 0
    took_s = time.monotonic() - began
    for part in range(1, 7, 1 if pytestconfig.getoption("--long") else 2):
        new = tmp_path / f"new-{part}"
        with subprocess.Popen(
            [*COMMAND, "restore", str(filled.path), "--data", str(new)], env=ENVIRONMENT, stdout=subprocess.DEVNULL
        ) as process:
            time.sleep(took_s * part / 7)
            process.send_signal(signal.SIGKILL)
            process.wait(SECONDS_MAX)
        if (new / RESTORING).exists() or not new.exists():
            assert invoke("restore", filled.path, "--data", new).status == 0
        elif not (new / "meta.json").exists():  # not begun
            continue
        assert found(new) == filled.last
