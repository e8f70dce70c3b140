"""What jobs did, in a file that no server and no library knows of.

A job notes each thing it does with one `write(2)` in append mode, so lines of several processes never mix and a killed
process leaves whole lines. Tests count these lines: they are the truth that the promises of a library are held against.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Final

LOG_VARIABLE: Final = "LIBRARY_JOB_LOG"
"""The variable that names the file to worker processes."""


def note(what: str, job: object) -> None:
    """Called in a job, in a worker process."""
    with open(os.environ[LOG_VARIABLE], "ab", buffering=0) as file:
        file.write(f"{what} {job} {os.getpid()}\n".encode())


class JobLog:
    """The file, as a test reads it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def _lines(self) -> list[list[str]]:
        return [line.split() for line in self.path.read_text().splitlines()]

    def counts(self, what: str) -> Counter[str]:
        """How often each job noted it."""
        return Counter(job for noted, job, _ in self._lines() if noted == what)

    def total(self, what: str) -> int:
        return self.counts(what).total()

    def pid_of(self, what: str, job: object) -> int:
        """The process that noted it first."""
        return next(int(pid) for noted, one, pid in self._lines() if (noted, one) == (what, str(job)))

    def order(self, *whats: str) -> list[str]:
        """What was noted of these, in the order in which it was."""
        return [noted for noted, _, _ in self._lines() if noted in whats]
