"""What was written into day streams, readers that look at all of it throughout, and jobs as processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import redis

from tests.days.days_of_events import DAY_MS, MAY_MS
from tests.integration.server_process import SOURCES
from tidelog.days.jobset import JobSet
from tidelog.days.message import EventId, Message
from tidelog.days.reader import Reader
from tidelog.days.writer import Writer

TODAY: Final = "2024-06-01"
JOB_S_MAX: Final = 180.0
PAUSE_S: Final = 0.1
"""Of a reader between two job sets: the jobs need some of the machine, too."""


class Ledger:
    """Job sets on a server, and what must be in them."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.written: dict[JobSet, list[Message]] = {}
        self.problems: list[str] = []
        self.passes = 0
        """How often readers have read a whole job set."""
        self._ends = threading.Event()
        self._threads: list[threading.Thread] = []

    def client(self) -> Any:
        return redis.Redis(port=self.port, socket_timeout=30)

    def fill(self, name: str, *, jobsets: int, days: int, events: int) -> None:
        with self.client() as client:
            for number in range(jobsets):
                jobset = JobSet("ledger", f"{name} {number}")
                messages = [
                    Message(EventId(ms, n), ms, b'{"jobset": "%s", "number": %d}' % (name.encode(), n) + b" " * 200)
                    for day in range(days)
                    for n in range(events)
                    for ms in [MAY_MS + day * DAY_MS + n]
                ]
                Writer(client, jobset).write(messages)
                self.written[jobset] = messages

    def start_readers(self, count: int = 2) -> None:
        self._threads = [threading.Thread(target=self._read, args=(n, count), daemon=True) for n in range(count)]
        for thread in self._threads:
            thread.start()

    def _read(self, number: int, of: int) -> None:
        with self.client() as client:
            while not self._ends.is_set():
                for jobset in list(self.written)[number::of]:
                    self._check(client, jobset)
                    self._ends.wait(PAUSE_S)
                self._ends.wait(PAUSE_S)

    def _check(self, client: Any, jobset: JobSet) -> None:
        try:
            found = list(Reader(client, jobset).until_now())
        except Exception as error:  # whatever it is, a reader must not meet it
            self.problems.append(f"{jobset!r}: {error!r}")
            return
        if found != self.written[jobset]:
            self.problems.append(f"{jobset!r}: {len(found)} messages instead of {len(self.written[jobset])}")
        self.passes += 1

    def stop_readers(self) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join(30)

    def streams(self) -> tuple[int, int]:
        """How many streams are hot, and how many compressed."""
        with self.client() as client:
            kinds = [s.is_hot for jobset in self.written for s in jobset.streams(client.smembers(jobset.index))]
            return sum(kinds), len(kinds) - sum(kinds)

    def check_end(self) -> None:
        """Everything is compressed, everything is there, and nothing lies about."""
        with self.client() as client:
            for jobset in self.written:
                self._check(client, jobset)
                members = client.smembers(jobset.index)
                assert all(not stream.is_hot for stream in jobset.streams(members))
                prefix = jobset.index.removesuffix(b"_streams")
                lying = {key for key in client.scan_iter(count=1000) if key.startswith(prefix)}
                assert lying - {jobset.fence} == {jobset.index, *members}
        assert not self.problems, self.problems[:3]


class JobProcess:
    """`tidelog pipeline compress --json` in a process group of its own."""

    def __init__(self, port: int, folder: Path, *more: str, job: str = "compress") -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("TIDELOG_", "SPARK_"))}
        environment |= {"PYTHONPATH": SOURCES, "XDG_CACHE_HOME": str(folder), "PYSPARK_PYTHON": sys.executable}
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
        words = ["--url", f"redis://127.0.0.1:{port}", "--older-than-days", "2", "--today", TODAY, "--json"]
        self.errors = folder / "job.stderr"
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "tidelog.cli", "pipeline", job, *words, *more],
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
                start_new_session=True,
            )

    def wait(self) -> tuple[int, str]:
        """Its exit status and what it printed."""
        out, _ = self.process.communicate(timeout=JOB_S_MAX)
        return self.process.returncode, out.decode()

    def kill(self) -> None:
        """The driver and its Java at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate(timeout=JOB_S_MAX)

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill()

    def __enter__(self) -> JobProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def wait_until(what: str, condition: Callable[[], Any], seconds: float = 150.0) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError(f"{what} has not come")
