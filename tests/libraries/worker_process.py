"""Worker processes of a library: started, watched, killed and stopped by their ids.

A worker leads a session of its own, so that the children it forks are ended with it and nothing else is. A group would
not do: RQ gives each child a group.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.integration.server_process import environment
from tests.libraries.backing_server import BackingServer, url_of
from tests.libraries.job_log import LOG_VARIABLE, JobLog

CHECKOUT: Final = Path(__file__).resolve().parent.parent.parent
URL_VARIABLE: Final = "LIBRARY_SERVER_URL"
"""The variable that tells worker processes where the server is."""
WAIT_S_MAX: Final = 60.0
LOOK_S: Final = 0.02
STOP_S_MAX: Final = 15.0


def wait_until(condition: Callable[[], object], what: str, seconds: float = WAIT_S_MAX) -> None:
    """Look again and again until it holds; `what` names it if it never does."""
    deadline_s = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline_s:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        time.sleep(LOOK_S)


class WorkerProcess:
    """One worker, in a session of its own."""

    def __init__(self, words: Sequence[str], log: Path, variables: dict[str, str]) -> None:
        self._words = list(words)
        self._log = log
        self._variables = variables
        self._process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as output:
            return subprocess.Popen(
                self._words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment(**self._variables),
                cwd=self._log.parent,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def output(self) -> str:
        return self._log.read_text(errors="replace")

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def start_again(self) -> None:
        self.kill()  # its children may be left
        self._process = self._started()

    def kill(self) -> None:
        """End it and its children at once, with whatever they had in their hands."""
        for pid in [self._process.pid, *_pids_of_session(self._process.pid)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(STOP_S_MAX)

    def stop(self) -> None:
        """End it in order, and kill it and its children if that takes too long."""
        if not self.has_ended():
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_S_MAX)
        self.kill()


def _pids_of_session(leader: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            # The name of the program, in parentheses, may have spaces in it.
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[3]) == leader:
                found.append(int(path.parent.name))
    return found


class Workers:
    """Starts the workers of one test, and ends those that are left after it."""

    def __init__(self, server: BackingServer, jobs: JobLog, folder: Path) -> None:
        self._server = server
        self._jobs = jobs
        self._folder = folder
        self._started: list[WorkerProcess] = []

    def start(self, *words: str, **variables: str) -> WorkerProcess:
        """`python WORDS`, with the checkout on its path: `start("-m", "rq.cli", "worker")`."""
        known = {URL_VARIABLE: url_of(self._server), LOG_VARIABLE: str(self._jobs.path), "PYTHONPATH": str(CHECKOUT)}
        log = self._folder / f"worker-{len(self._started)}.log"
        worker = WorkerProcess([sys.executable, *words], log, {**known, **variables})
        self._started.append(worker)
        return worker

    def start_again_ended(self) -> None:
        """What a supervisor does for workers that give up when their server is away."""
        for worker in self._started:
            if worker.has_ended():
                worker.start_again()

    def output(self) -> str:
        """What all of them printed."""
        return "\n".join(f"--- worker {number}\n{each.output}" for number, each in enumerate(self._started))

    def close(self) -> None:
        for worker in self._started:
            worker.kill()
