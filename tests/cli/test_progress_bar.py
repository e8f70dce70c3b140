"""A progress bar is for the terminal: what goes to stdout is left alone."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

from tests.cli.command_line import ENVIRONMENT

PROGRAM = """
from tidelog.cli.progress_bar import progress_bar

with progress_bar(is_wanted=True) as moved:
    moved("reading", 1, 2)
    print('{"kind": "stream"}')
"""


def test_output_to_a_file_stays_there_while_stderr_is_a_terminal(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    output = tmp_path / "output"
    with output.open("wb") as stdout:
        process = subprocess.Popen([sys.executable, "-c", PROGRAM], env=ENVIRONMENT, stdout=stdout, stderr=theirs)
    os.close(theirs)
    seen = b""
    try:
        while data := os.read(ours, 65536):
            seen += data
    except OSError:  # how Linux says that the other side is closed
        pass
    os.close(ours)
    assert process.wait(20) == 0
    assert b"reading" in seen
    assert output.read_text() == '{"kind": "stream"}\n'
