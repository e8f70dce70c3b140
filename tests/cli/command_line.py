"""Running the command line: as a process of its own, or quickly inside this one."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final, NamedTuple

from typer.testing import CliRunner

import tidelog
from tidelog.cli.app import app

SOURCES: Final = str(Path(tidelog.__file__).parent.parent)
ENVIRONMENT: Final = {
    **{name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "NO_COLOR")},
    "PYTHONPATH": SOURCES,
    "TERM": "xterm-256color",
    "COLUMNS": "200",
}
COMMAND: Final = [sys.executable, "-P", "-m", "tidelog.cli"]
SECONDS_MAX: Final = 60


class Outcome(NamedTuple):
    """What a command did."""

    status: int
    stdout: str
    stderr: str

    @property
    def objects(self) -> list[dict[str, Any]]:
        """Stdout as JSON lines."""
        return [json.loads(line) for line in self.stdout.splitlines()]

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [each for each in self.objects if each["kind"] == kind]


def run(*arguments: str | Path, cwd: Path | None = None, stdin: str = "") -> Outcome:
    """In a process of its own, with pipes."""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        env=ENVIRONMENT,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        cwd=cwd,
        check=False,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def run_on_terminal(*arguments: str | Path) -> Outcome:
    """In a process of its own, whose stdout and stderr are a terminal; all of it is in `stdout`."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, *map(str, arguments)], env=ENVIRONMENT, stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        shown = _read_terminal(ours)
        return Outcome(process.wait(SECONDS_MAX), shown, "")


def run_program_on_terminal(program: str, *arguments: str) -> Outcome:
    """A program of Python whose stderr is a terminal; its stdout is none."""
    ours, theirs = pty.openpty()
    with (
        tempfile.TemporaryFile() as output,
        subprocess.Popen(
            [sys.executable, "-c", program, *arguments], env=ENVIRONMENT, stdout=output, stderr=theirs
        ) as process,
    ):
        os.close(theirs)
        shown = _read_terminal(ours)
        status = process.wait(SECONDS_MAX)
        output.seek(0)
        return Outcome(status, output.read().decode(), shown)


def _read_terminal(ours: int) -> str:
    """All that comes, until the other side is closed."""
    parts = []
    try:
        while data := os.read(ours, 65536):
            parts.append(data)
    except OSError:  # how Linux says that it is
        pass
    os.close(ours)
    return b"".join(parts).decode()


def invoke(*arguments: str | Path, stdin: str = "") -> Outcome:
    """In this process: quick, and without a terminal."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)
    finally:
        signal.signal(signal.SIGTERM, before)  # commands that end in order have their own
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Outcome(result.exit_code, result.stdout, result.stderr)
