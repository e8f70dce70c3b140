"""Taskiq's tasks: imported by the worker processes, and by the test to send them."""

from __future__ import annotations

import asyncio
import os
from typing import Any, NamedTuple

from taskiq import Context, SimpleRetryMiddleware, TaskiqDepends
from taskiq_redis import ListQueueBroker, RedisAsyncResultBackend, RedisStreamBroker

from tests.libraries.job_log import note
from tests.libraries.worker_process import URL_VARIABLE

KIND_VARIABLE = "LIBRARY_TASKIQ_KIND"
IDLE_MS = 3000


class App(NamedTuple):
    """A broker, and its tasks as they were decorated."""

    broker: ListQueueBroker | RedisStreamBroker
    double: Any
    fail: Any
    recover: Any
    work: Any


def make_app(kind: str, url: str) -> App:
    broker: ListQueueBroker | RedisStreamBroker
    if kind == "list":
        broker = ListQueueBroker(url)
    else:
        # By default, a message of a killed worker is taken over after ten minutes, and a lock of one never ends.
        broker = RedisStreamBroker(url, idle_timeout=IDLE_MS, unacknowledged_lock_timeout=2, xread_block=200)
    broker = broker.with_result_backend(RedisAsyncResultBackend(url, result_ex_time=600))
    broker = broker.with_middlewares(SimpleRetryMiddleware(default_retry_count=3))

    @broker.task(task_name="double")
    async def double(number: int) -> int:
        note("done", number)
        return 2 * number

    @broker.task(task_name="fail")
    async def fail(job: str) -> None:
        note("tried", job)
        raise ValueError(f"{job} fails")

    @broker.task(task_name="recover", retry_on_error=True)
    async def recover(job: str, failures: int, context: Context = TaskiqDepends()) -> str:  # noqa: B008 (their way)
        note("tried", job)
        if int(context.message.labels.get("_retries", 0)) < failures:
            raise ValueError("not yet")
        return "recovered"

    @broker.task(task_name="work")
    async def work(job: str, seconds: float = 0) -> None:
        note("begun", job)
        await asyncio.sleep(seconds)
        note("done", job)

    return App(broker, double, fail, recover, work)


if URL_VARIABLE in os.environ:  # in a worker process
    broker = make_app(os.environ[KIND_VARIABLE], os.environ[URL_VARIABLE]).broker
