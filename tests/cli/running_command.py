"""A command as a process that goes on: its lines as they come, what it tells, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import time
from typing import Any, Self

from tests.cli.command_line import COMMAND, ENVIRONMENT, SECONDS_MAX
from tests.integration.server_process import is_readable


class RunningCommand:
    """Leaving the block ends it."""

    def __init__(self, *arguments: str, stdin: int | None = None, stdout: int = subprocess.PIPE) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, *arguments],
            env={name: value for name, value in ENVIRONMENT.items() if name != "PYTHONUNBUFFERED"},
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
        )
        self._rests = {"stdout": b"", "stderr": b""}
        """What was read of either and not asked for yet."""

    def line(self) -> Any:
        """The next line of its output, as JSON."""
        return json.loads(self._next("stdout"))

    def told(self) -> str:
        """The next line of its messages."""
        return self._next("stderr").decode()

    def _next(self, name: str) -> bytes:
        pipe = getattr(self.process, name)
        deadline = time.monotonic() + SECONDS_MAX
        while b"\n" not in self._rests[name]:
            assert is_readable(pipe.fileno(), deadline - time.monotonic()), f"nothing came to {name}"
            data = os.read(pipe.fileno(), 65536)
            assert data, (name, self.process.stderr and self.process.stderr.read())
            self._rests[name] += data
        line, end, self._rests[name] = self._rests[name].partition(b"\n")
        return line + end

    def write(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def end(self, number: int | None = None) -> tuple[int, str]:
        """Its status, and what it told that nobody has asked for."""
        if number is not None:
            self.process.send_signal(number)
        status = self.process.wait(SECONDS_MAX)
        assert self.process.stderr is not None
        return status, (self._rests["stderr"] + self.process.stderr.read()).decode()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(SECONDS_MAX)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()
