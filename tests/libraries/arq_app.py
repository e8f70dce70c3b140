"""Arq's functions and the settings of its worker."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from arq import Retry
from arq.connections import RedisSettings

from tests.libraries.job_log import note
from tests.libraries.worker_process import URL_VARIABLE

JOB_S_MAX = 3


async def double(_: dict[str, Any], number: int) -> int:
    note("done", number)
    return 2 * number


async def fail(_: dict[str, Any], job: str) -> None:
    note("tried", job)
    raise ValueError(f"{job} fails")


async def recover(context: dict[str, Any], job: str, failures: int) -> str:
    note("tried", job)
    if context["job_try"] <= failures:
        raise Retry(defer=0.1)
    return "recovered"


async def work(_: dict[str, Any], job: str, seconds: float = 0) -> None:
    note("begun", job)
    await asyncio.sleep(seconds)
    note("done", job)


class WorkerSettings:
    """What `python -m arq` runs."""

    functions = (double, fail, recover, work)
    max_jobs = 4
    job_timeout = JOB_S_MAX
    """A job of a killed worker runs again ten seconds after this."""
    poll_delay = 0.05
    if URL_VARIABLE in os.environ:  # in a worker process
        redis_settings = RedisSettings.from_dsn(os.environ[URL_VARIABLE])
