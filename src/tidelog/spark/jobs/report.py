"""What a running job reports: hashes on the server, which `tidelog pipeline status` and /metrics show.

    tidelog:pipeline:<job>     state        running, done, stopped or failed
                               started_ms, updated_ms
                               token        of the lease
                               last_error   of the newest item that failed, or of the job itself
                               ...          the job's own figures

    tidelog:pipeline:jobs      the jobs that have, or had, such a hash

A job may have parts, each with a hash of its own: `view` has `view:<name>` for each of its views. All are written in
one transaction. A job that was killed leaves the state `running`, and an `updated_ms` that stands still.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Set
from typing import Any, Final

from tidelog import limits
from tidelog.days.exchange import RedisClient
from tidelog.keys import JOB_INDEX, PIPELINE_PREFIX
from tidelog.spark.jobs.figures import Figures, Parts

OWN_KEYS: Final = PIPELINE_PREFIX.encode()
"""No lake and no view reads these keys: a job that did would change them by reporting about itself."""


def no_parts() -> Parts:
    return {}


class Report:
    """Writes the hashes of a job and of its parts."""

    def __init__(
        self,
        server: RedisClient,
        job: str,
        token: int,
        figures: Callable[[], Figures],
        parts: Callable[[], Parts] = no_parts,
    ) -> None:
        self._server = server
        self._job = job
        self._token = token
        self._figures = figures
        self._parts = parts
        self._started_ms = _now_ms()
        self.told: dict[str, dict[str, Any]] = {}
        """The last report, by job. It is replaced as a whole, so any thread may look."""

    def write(self, state: str, error: str | None = None) -> None:
        """Write the hashes. The first time, whatever an earlier run left in them is removed."""
        base: dict[str, int | float | str | None] = {
            "state": state,
            "started_ms": self._started_ms,
            "updated_ms": _now_ms(),
            "token": self._token,
            "last_error": None,
        }
        ended = {} if error is None else {"last_error": error}
        told = {
            job: {**base, **figures, **ended} for job, figures in {self._job: self._figures(), **self._parts()}.items()
        }
        fresh = told.keys() - self.told.keys()
        if len(told) == 1:  # a cluster takes no transaction over keys of several slots
            self._write(self._server, told, fresh)
        else:
            with self._server.pipeline(transaction=True) as pipeline:
                self._write(pipeline, told, fresh)
                pipeline.execute()
        self.told = told

    def _write(self, link: Any, told: Parts, fresh: Set[str]) -> None:
        for job, fields in told.items():
            if job in fresh:
                link.delete(PIPELINE_PREFIX + job)
            link.hset(PIPELINE_PREFIX + job, mapping=_plain(fields))
        link.sadd(JOB_INDEX, *told)  # each time, because somebody may have flushed the database


def _plain(fields: Figures) -> dict[str, int | float | str]:
    """As hash fields: an unknown figure is empty, and a long error is cut."""
    return {
        name: value[: limits.PIPELINE_TEXT_CHARS_MAX] if isinstance(value, str) else "" if value is None else value
        for name, value in fields.items()
    }


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
