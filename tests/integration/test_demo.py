"""`bin/demo`, once, at its smallest: it ends well, says so, and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command_line import ENVIRONMENT

COMMAND = [sys.executable, "-P", "-m", "tidelog.cli.demo"]


@pytest.mark.timeout(110)
def test_everything_it_shows_is_true(tmp_path: Path) -> None:
    environment = {**ENVIRONMENT, "TMPDIR": str(tmp_path)}
    command = [*COMMAND, "--transfers", "12000", "--keep"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert "✗" not in done.stdout
    assert done.stdout.count("✓") >= 11
    assert [line for line in done.stdout.splitlines() if line[:1].isdigit()] == [
        "1. Write 12,000 transfers between 300 accounts on 3 shards",
        "2. Read back from a moment on",
        "3. Kill a process in the middle of writing, with SIGKILL",
        "4. Take a snapshot, erase the history that it covers, start from it",
        "5. Flip one bit in the middle of the journal",
        "6. Repair: back to the newest point that is whole; what is cut is set aside",
        "7. What to try next",
    ]
    # What it says to try next works.
    [base] = tmp_path.iterdir()
    for line in done.stdout.splitlines():
        if line.strip().startswith("bin/tidelog "):
            arguments = line.split()[1:]
            assert str(base / "data") in arguments
            tried = subprocess.run(
                [sys.executable, "-P", "-m", "tidelog.cli", *arguments],
                env=ENVIRONMENT,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert (tried.returncode, tried.stderr) == (0, "")
            assert tried.stdout


def test_it_cleans_up_when_it_is_stopped(tmp_path: Path) -> None:
    environment = {**ENVIRONMENT, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(COMMAND, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert b"Tidelog" in process.stdout.readline()
        os.kill(process.pid, 2)
        process.stdout.read()
        assert process.stderr.read() == b""
        assert process.wait(60) == 130
    assert list(tmp_path.iterdir()) == []
