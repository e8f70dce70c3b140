"""Celery's tasks: imported by the worker processes, and by the test to send them."""

from __future__ import annotations

import os
import time
from typing import Any

from celery import Celery

from tests.libraries.job_log import note
from tests.libraries.worker_process import URL_VARIABLE


def make_app(url: str) -> Celery:
    app = Celery("jobs", broker=url, backend=url)
    app.conf.update(
        task_acks_late=True,
        worker_prefetch_multiplier=1,
        broker_connection_retry_on_startup=True,
        # Defaults are hours and minutes: a job of a killed worker is handed out again after this.
        broker_transport_options={
            "visibility_timeout": 4,
            "unacked_restore_interval": 1,
            "unacked_restore_throttle": 1,
        },
    )

    @app.task(shared=False, name="double")
    def double(number: int) -> int:
        note("done", number)
        return 2 * number

    @app.task(shared=False, name="add")
    def add(numbers: list[int]) -> int:
        return sum(numbers)

    @app.task(shared=False, name="fail")
    def fail(job: str) -> None:
        note("tried", job)
        raise ValueError(f"{job} fails")

    @app.task(shared=False, name="recover", bind=True, max_retries=5)
    def recover(task: Any, job: str, failures: int) -> int:
        note("tried", job)
        if task.request.retries < failures:
            raise task.retry(countdown=0.1, exc=ValueError("not yet"))
        return int(task.request.retries)

    @app.task(shared=False, name="work")
    def work(job: str, seconds: float = 0) -> None:
        note("begun", job)
        time.sleep(seconds)
        note("done", job)

    return app


if URL_VARIABLE in os.environ:  # in a worker process
    app = make_app(os.environ[URL_VARIABLE])
