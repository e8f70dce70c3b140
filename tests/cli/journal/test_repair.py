"""`tidelog journal repair`: what it says, does, and refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command_line import invoke, run, run_on_terminal
from tests.cli.conftest import Made
from tests.cli.directories import GEOMETRY, flip_bit, open_journal
from tidelog.errors import Corruption
from tidelog.system.disk import SystemDisk
from tidelog.testing.clock import SimulatedClock


def contents(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


@pytest.fixture
def rotten(copied: Made) -> Made:
    """With a flipped bit behind the snapshot, and synced marks behind that."""
    segment = sorted((copied.path / "shard-0").glob("journal-*"))[-2]
    flip_bit(SystemDisk(), str(segment), 2 * GEOMETRY.frame_bytes + 700)
    return copied


def test_a_sound_directory_needs_none(copied: Made) -> None:
    before = contents(copied.path)
    outcome = run("journal", "repair", copied.path)
    assert (outcome.status, outcome.stdout, outcome.stderr) == (0, f"{copied.path} needs no repair\n", "")
    summary = run("journal", "repair", copied.path, "--json").objects
    assert [(each["kind"], each["needed"], each["set_aside"]) for each in summary] == [("summary", False, None)]
    after = contents(copied.path)
    del before["lock"], after["lock"]  # it says who held it last
    assert after == before


def test_a_dry_run_says_and_changes_nothing(rotten: Made) -> None:
    before = contents(rotten.path)
    outcome = run("journal", "repair", rotten.path, "--dry-run", "--json")
    assert outcome.status == 0
    actions = outcome.of_kind("action")
    assert actions
    summary = outcome.objects[-1]
    assert (summary["kind"], summary["needed"], summary["dry_run"], summary["set_aside"]) == (
        "summary",
        True,
        True,
        None,
    )
    assert summary["last_ts"] < max(record.ts for record in rotten.written)
    after = contents(rotten.path)
    del before["lock"], after["lock"]
    assert after == before
    text = run("journal", "repair", rotten.path, "--dry-run").stdout
    assert "would do:" in text
    assert all(action["text"] in text for action in actions)
    assert f"history would end at {summary['last_time']} (ts {summary['last_ts']})" in text


def test_it_repairs_and_says_where_things_are(rotten: Made) -> None:
    assert invoke("journal", "verify", rotten.path).status == 1
    planned = invoke("journal", "repair", rotten.path, "--dry-run", "--json")
    outcome = run("journal", "repair", rotten.path)
    assert (outcome.status, outcome.stderr) == (0, "")
    lines = outcome.stdout.splitlines()
    assert lines[0] == "done:"
    assert f"set aside in {rotten.path / 'set-aside-1'}" in lines
    assert lines[-1].startswith(f"history ends at {planned.objects[-1]['last_time']}")
    assert (rotten.path / "set-aside-1").is_dir()
    assert invoke("journal", "verify", rotten.path).status == 0
    assert "set-aside-1" in invoke("journal", "ls", rotten.path).stdout
    journal = open_journal(SystemDisk(), str(rotten.path), SimulatedClock())
    assert journal.recovered.last_ts == planned.objects[-1]["last_ts"]
    journal.close()
    assert run("journal", "repair", rotten.path).stdout.endswith("needs no repair\n")


def test_json_and_terminal(rotten: Made, tmp_path: Path) -> None:
    terminal = run_on_terminal("journal", "repair", rotten.path, "--dry-run")
    assert terminal.status == 0
    assert "\x1b[" in terminal.stdout
    outcome = run("journal", "repair", rotten.path, "--json")
    assert outcome.status == 0
    assert outcome.of_kind("action")
    assert outcome.objects[-1]["set_aside"] == str(rotten.path / "set-aside-1")
    assert outcome.objects[-1]["dry_run"] is False


@pytest.mark.parametrize("options", [(), ("--dry-run",)])
def test_a_directory_in_use_is_2(copied: Made, options: tuple[str, ...]) -> None:
    lock = SystemDisk().lock(str(copied.path / "lock"))
    outcome = run("journal", "repair", copied.path, *options)
    lock.release()
    assert (outcome.status, outcome.stdout) == (2, "")
    assert "in use" in outcome.stderr
    assert outcome.stderr.count("\n") == 1


def test_a_snapshot_or_a_shard_is_2(made: Made) -> None:
    for path, reason in ((made.snapshot, "is a snapshot"), (made.path / "shard-0", "one shard")):
        outcome = invoke("journal", "repair", path)
        assert (outcome.status, outcome.stdout) == (2, "")
        assert reason in outcome.stderr


def test_nothing_whole_left_is_1(copied: Made) -> None:
    def give_up(*_: object, **__: object) -> None:
        raise Corruption("nothing whole is left", path="/data")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidelog.journal.repair.repair", give_up)
        outcome = invoke("journal", "repair", copied.path)
    assert (outcome.status, outcome.stderr) == (1, "tidelog: /data: nothing whole is left\n")
