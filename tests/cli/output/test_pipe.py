"""What the reader of a pipe has taken, as the one who prints sees it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.cli.command_line import ENVIRONMENT, SECONDS_MAX

PROGRAM = """
import os, sys
from tidelog.cli.output.pipe import StdoutPipe

pipe = StdoutPipe()
for line in ("first", "second"):
    sys.stdout.write(line + "\\n")
    pipe.printed_bytes += len(line) + 1
    pipe.mark(line)
if sys.argv[1:] == ["full"]:
    sys.stdout.flush()
    os.set_blocking(1, False)
    try:
        while True: os.write(1, b"x")
    except BlockingIOError:
        os.set_blocking(1, True)
    sys.stdout.write("third\\n")
for command in sys.stdin:
    try:
        match command.strip():
            case "look": pipe.look()
            case "finish": pipe.finish(waits=True)
            case "stop": pipe.finish(waits=False)
            case "check": pipe.check_reader()
        print(pipe.taken, file=sys.stderr, flush=True)
    except BrokenPipeError:
        print("gone", file=sys.stderr, flush=True)
sys.stderr.close()
"""


def started(stdout: int, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words],
        env={name: value for name, value in ENVIRONMENT.items() if name != "PYTHONUNBUFFERED"},
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=subprocess.PIPE,
    )


def told(process: subprocess.Popen[bytes], command: str) -> str:
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.write(f"{command}\n".encode())
    process.stdin.flush()
    return process.stderr.readline().decode().strip()


def test_what_stands_in_the_pipe_was_not_taken() -> None:
    with started(subprocess.PIPE) as process:
        assert process.stdout is not None
        assert told(process, "look") == "None"
        assert os.read(process.stdout.fileno(), 6) == b"first\n"
        assert told(process, "look") == "first"
        assert os.read(process.stdout.fileno(), 3) == b"sec"
        assert told(process, "check") == "first"
        process.stdout.close()
        assert told(process, "look") == "first"
        assert told(process, "check") == "gone"
        assert told(process, "finish") == "first"
        process.kill()
        process.wait(SECONDS_MAX)


def test_what_is_no_pipe_has_taken_all_that_was_flushed(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as file, started(file.fileno()) as process:
        assert told(process, "check") == "None"
        assert told(process, "look") == "second"
        process.kill()
        process.wait(SECONDS_MAX)


def test_a_full_pipe_is_not_waited_for_and_what_is_left_is_dropped() -> None:
    with started(subprocess.PIPE, "full") as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert told(process, "stop") == "None"  # nothing that was printed was flushed by `look`
        process.stdin.close()
        assert process.wait(SECONDS_MAX) == 0
        output = process.stdout.read()
        assert output.startswith(b"first\nsecond\nxxx")
        assert b"third" not in output
