"""What a process with several jobs reports: the hash `run`, and `run:<job>` for each job, on every server it works on.

Each job also has the hash that it has when it runs alone. `run:<job>` says what that cannot: that the job waits for its
time, or failed before it got as far as its own report.

A server that does not answer is tried again: the report is not a reason to end anything.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

import redis

from tidelog import limits
from tidelog.address import ServerAddress
from tidelog.errors import TidelogError
from tidelog.keys import PIPELINE_PREFIX
from tidelog.redis_client import connect
from tidelog.spark.jobs.report import Report
from tidelog.spark.jobs.several import JobState

NAME: Final = "run"


class SeveralReport:
    """Reports to one server while its block runs, and reads what the jobs say of themselves."""

    def __init__(self, address: ServerAddress, states: Sequence[JobState]) -> None:
        self._address = address
        self._states = states
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="report of several jobs", daemon=True)
        self.told: Mapping[str, Mapping[str, str]] = {}
        """The newest figures of the jobs, by their names. It is replaced as a whole."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """The last report is written now, if the server takes it."""
        self._ends.set()
        self._thread.join(limits.PIPELINE_STOP_S_MAX)

    def read(self, job: str) -> Mapping[str, str]:
        """What a job says of itself now; if the server does not answer, what it said last."""
        try:
            with connect(self._address, waits=False) as client:
                return _texts(client.hgetall(PIPELINE_PREFIX + job))
        except (redis.RedisError, TidelogError, OSError):
            return self.told.get(job, {})

    def _keep(self) -> None:
        while True:
            try:
                with connect(self._address, waits=False) as client:
                    self._report(client)
                return
            except (redis.RedisError, TidelogError, OSError):
                if self._ends.wait(limits.PIPELINE_REPORT_S):
                    return

    def _report(self, client: Any) -> None:
        # One report for each hash: a cluster takes no transaction over several keys.
        whole = Report(client, NAME, 0, self._sums)
        parts = [(state, Report(client, f"{NAME}:{state.name}", 0, state.figures)) for state in self._states]
        is_last = False
        while True:
            for state, part in parts:
                part.write(state.state, state.last_error)
            whole.write("done" if is_last else "running")
            self.told = {state.name: _texts(client.hgetall(PIPELINE_PREFIX + state.name)) for state in self._states}
            if is_last:
                return
            is_last = self._ends.wait(limits.PIPELINE_REPORT_S)

    def _sums(self) -> dict[str, int]:
        return {
            "jobs": len(self._states),
            "failing": sum(not state.is_well for state in self._states),
            "runs": sum(state.runs for state in self._states),
            "failures": sum(state.failures for state in self._states),
        }


def _texts(found: Mapping[bytes, bytes]) -> dict[str, str]:
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, value in found.items()}
