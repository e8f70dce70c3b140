"""RQ's jobs: plain functions that its workers import."""

from __future__ import annotations

import time

from rq import get_current_job

from tests.libraries.job_log import note


def double(number: int) -> int:
    note("done", number)
    return 2 * number


def fail(job: str) -> None:
    note("tried", job)
    raise ValueError(f"{job} fails")


def recover(job: str) -> str:
    """Succeeds when no retry is left."""
    note("tried", job)
    current = get_current_job()
    assert current is not None
    if current.retries_left:
        raise ValueError("not yet")
    return "recovered"


def work(job: str, seconds: float = 0) -> None:
    note("begun", job)
    time.sleep(seconds)
    note("done", job)
