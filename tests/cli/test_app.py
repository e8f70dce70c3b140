"""The command line as a whole: help, versions, exit statuses, pipes, signals, and how quickly it starts."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import tidelog
from tests.cli.command_line import COMMAND, ENVIRONMENT, SECONDS_MAX, invoke, run
from tests.cli.conftest import Made
from tidelog.cli.app import app

JOURNAL_COMMANDS = ("ls", "show", "verify", "repair")


def walk_commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from walk_commands(inner, (*path, name))


COMMANDS = dict(walk_commands(typer.main.get_command(app)))


def test_the_tree_is_what_is_promised() -> None:
    assert set(COMMANDS) == {
        (),
        ("serve",),
        ("snapshot",),
        ("restore",),
        ("feed",),
        ("ship",),
        ("ship", "status"),
        ("backups",),
        ("backups", "ls"),
        ("journal",),
        *(("journal", name) for name in JOURNAL_COMMANDS),
        ("stream",),
        *(("stream", name) for name in ("ls", "tail", "info")),
        ("events",),
        *(("events", name) for name in ("put", "tail", "ls")),
        ("channel",),
        *(("channel", name) for name in ("pub", "sub", "rm", "ls")),
        ("channels",),
        ("channels", "serve"),
        ("pipeline",),
        *(("pipeline", name) for name in ("compress", "expire", "lake", "optimize", "run", "status", "verify", "view")),
        ("view",),
        *(("view", name) for name in ("ls", "show", "check", "drop")),
    }


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_and_option_is_documented(path: tuple[str, ...]) -> None:
    command = COMMANDS[path]
    assert command.help
    help_text = invoke(*path, "--help").stdout
    for parameter in command.params:
        assert parameter.help, f"{' '.join(path)} {parameter.name}"
        name = parameter.opts[0] if parameter.param_type_name == "option" else parameter.metavar
        assert name in help_text


@pytest.mark.parametrize("name", JOURNAL_COMMANDS)
def test_help_has_examples_statuses_and_the_json_form(name: str) -> None:
    outcome = invoke("journal", name, "--help")
    assert outcome.status == 0
    assert f"tidelog journal {name} data" in outcome.stdout
    assert "Exit status:" in outcome.stdout
    assert "JSON: kind" in outcome.stdout


@pytest.mark.parametrize("name", ["compress", "expire", "optimize", "verify"])
def test_help_of_jobs_has_examples_and_statuses(name: str) -> None:
    outcome = invoke("pipeline", name, "--help")
    assert f"  tidelog pipeline {name} " in outcome.stdout
    assert "Exit status:" in outcome.stdout
    assert "JSON" in outcome.stdout


def test_help_says_how_bytes_are_written() -> None:
    assert '{"base64": "..."}' in " ".join(invoke("journal", "show", "--help").stdout.split())


def test_version() -> None:
    assert run("--version") == (0, f"tidelog {tidelog.__version__}\n", "")


@pytest.mark.parametrize("arguments", [(), ("journal",), ("nonsense",), ("journal", "ls"), ("journal", "ls", "a", "b")])
def test_a_wrong_call_ends_with_2_and_usage(arguments: tuple[str, ...]) -> None:
    outcome = run(*arguments)
    assert outcome.status == 2
    assert "Usage: tidelog" in outcome.stdout + outcome.stderr
    assert "Traceback" not in outcome.stderr


# --- directories that cannot be read ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", JOURNAL_COMMANDS)
def test_no_directory_of_ours_is_one_line_and_2(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path, reason in (("nowhere", "does not exist"), ("", "not a data directory"), ("file", "not a data directory")):
        outcome = invoke("journal", name, tmp_path / path)
        assert (outcome.status, outcome.stdout) == (2, "")
        assert outcome.stderr.startswith("tidelog: ")
        assert reason in outcome.stderr
        assert outcome.stderr.count("\n") == 1


@pytest.mark.parametrize("name", JOURNAL_COMMANDS)
def test_a_name_cannot_break_the_line(name: str, tmp_path: Path) -> None:
    outcome = invoke("journal", name, tmp_path / "a\nb\x1b[31mc")
    assert outcome.status == 2
    assert outcome.stderr.count("\n") == 1
    assert "\x1b" not in outcome.stderr


@pytest.mark.parametrize("name", JOURNAL_COMMANDS)
def test_a_damaged_meta_file_is_damage(name: str, copied: Made) -> None:
    (copied.path / "meta.json").write_text("{}")
    outcome = invoke("journal", name, copied.path)
    assert outcome.status == 1
    assert "meta.json" in outcome.stderr
    assert outcome.stderr.count("\n") == 1


@pytest.mark.parametrize("name", JOURNAL_COMMANDS)
def test_an_error_of_the_machine_is_one_line(name: str, copied: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> list[str]:
        raise PermissionError(13, "Permission denied", "/data/shard-0")

    monkeypatch.setattr("tidelog.system.disk.SystemDisk.list", fail)
    outcome = invoke("journal", name, copied.path)
    assert outcome.status == 2
    assert outcome.stderr == "tidelog: /data/shard-0: Permission denied\n"


# --- pipes and signals ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments", [("ls", "--frames"), ("show",), ("show", "--json", "--payload"), ("verify",), ("verify", "--json")]
)
def test_a_pipe_that_closes_early_is_quiet(arguments: tuple[str, ...], made: Made) -> None:
    command = [*COMMAND, "journal", arguments[0], str(made.path), *arguments[1:]]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(SECONDS_MAX) == 0


def test_head_gets_its_lines(made: Made) -> None:
    script = f"set -o pipefail; {' '.join(COMMAND)} journal show {made.path} --json --payload | head -n 3"
    done = subprocess.run(["bash", "-c", script], env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.count("\n"), done.stderr) == (0, 3, "")


def test_a_disk_that_is_full_is_one_line_and_2(made: Made) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, "journal", "show", str(made.path)],
            env={name: value for name, value in ENVIRONMENT.items() if name != "PYTHONUNBUFFERED"},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (2, "tidelog: [Errno 28] No space left on device\n")


def test_ctrl_c_is_quiet_and_130(made: Made) -> None:
    # Nobody reads the pipe: once it is full, the command waits in a write, and is certainly in the middle of its work.
    command = [*COMMAND, "journal", "show", str(made.path), "--json", "--payload"]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(1) == b"{"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        # What is left in Python's buffer is written when it exits: make room.
        process.stdout.read()
        assert process.stderr.read() == b""
        assert process.wait(SECONDS_MAX) == 130


# --- starting up ------------------------------------------------------------------------------------------------------


def modules_after(*arguments: str) -> set[str]:
    """Which of the slow modules a command has imported when it is done."""
    script = f"""
import sys
from tidelog.cli import main
sys.argv = ["tidelog", *{list(arguments)!r}]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
slow = ("numpy", "rich", "asyncio", "tidelog.journal.reader")
print(*[name for name in slow if name in sys.modules], file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", script], env=ENVIRONMENT, capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_nothing_slow_is_imported_before_it_is_needed(made: Made) -> None:
    path = str(made.path)
    assert modules_after("--help") == set()
    assert modules_after("journal", "ls", path, "--frames") == set()
    assert modules_after("journal", "show", path, "--payload") == set()
    assert "numpy" in modules_after("journal", "show", path, "--key", "key:1")  # which has sidecars
    assert "rich" not in modules_after("journal", "verify", path)


def test_help_is_quick() -> None:
    took = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert run("--help").status == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(took) < 0.4  # seconds of the processor: what others do on this machine is not our fault
