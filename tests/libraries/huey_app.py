"""Huey's tasks: imported by its consumer processes, and by the test to send them."""

from __future__ import annotations

import os
import time
from typing import Any, NamedTuple

from huey import Huey, PriorityRedisHuey, RedisHuey

from tests.libraries.job_log import note
from tests.libraries.worker_process import URL_VARIABLE

KINDS = {"list": RedisHuey, "sorted-set": PriorityRedisHuey}
KIND_VARIABLE = "LIBRARY_HUEY_KIND"


class App(NamedTuple):
    """Huey, and its tasks as they were decorated."""

    huey: Huey
    double: Any
    fail: Any
    recover: Any
    work: Any
    alone: Any


def make_app(kind: str, url: str) -> App:
    huey = KINDS[kind]("jobs", url=url, notify_result=True)

    @huey.task(name="double")
    def double(number: int) -> int:
        note("done", number)
        return 2 * number

    @huey.task(name="fail")
    def fail(job: str) -> None:
        note("tried", job)
        raise ValueError(f"{job} fails")

    @huey.task(name="recover", retries=2, context=True)
    def recover(job: str, task: Any = None) -> str:
        note("tried", job)
        if task.retries:
            raise ValueError("not yet")
        return "recovered"

    @huey.task(name="work")
    def work(job: str, seconds: float = 0) -> str:
        note("begun", job)
        time.sleep(seconds)
        note("done", job)
        return job

    @huey.task(name="alone", retries=100, retry_delay=0)
    def alone(job: str) -> None:
        with huey.lock_task("alone"):
            note("in", job)
            time.sleep(0.01)
            note("out", job)

    return App(huey, double, fail, recover, work, alone)


if URL_VARIABLE in os.environ:  # in a consumer process
    huey = make_app(os.environ[KIND_VARIABLE], os.environ[URL_VARIABLE]).huey
