"""Dramatiq's actors: imported by the worker processes, and by the test to send messages to them."""

from __future__ import annotations

import os
import time
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import CurrentMessage, GroupCallbacks
from dramatiq.rate_limits import ConcurrentRateLimiter
from dramatiq.rate_limits.backends import RedisBackend as RedisLimits
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend as RedisResults

from tests.libraries.job_log import note
from tests.libraries.worker_process import URL_VARIABLE

HEARTBEAT_MS: int = 4000


def make_broker(url: str) -> RedisBroker:
    # Messages of a killed worker are queued again after this; by default after a minute, by one command in a thousand.
    broker = RedisBroker(url=url, heartbeat_timeout=HEARTBEAT_MS, maintenance_chance=1_000_000)
    limits = RedisLimits(url=url)
    broker.add_middleware(Results(backend=RedisResults(url=url)))
    broker.add_middleware(GroupCallbacks(limits))
    broker.add_middleware(CurrentMessage())
    dramatiq.set_broker(broker)

    def actor_of(name: str, **options: Any) -> Any:
        return dramatiq.actor(actor_name=name, max_backoff=200, min_backoff=100, **options)

    @actor_of("double", store_results=True)
    def double(number: int) -> int:
        note("done", number)
        return 2 * number

    @actor_of("fail", max_retries=1)
    def fail(job: str) -> None:
        note("tried", job)
        raise ValueError(f"{job} fails")

    @actor_of("recover", store_results=True, max_retries=5)
    def recover(job: str, failures: int) -> str:
        note("tried", job)
        message = CurrentMessage.get_current_message()
        assert message is not None
        if message.options.get("retries", 0) < failures:
            raise ValueError("not yet")
        return "recovered"

    @actor_of("work")
    def work(job: str, seconds: float = 0) -> None:
        note("begun", job)
        time.sleep(seconds)
        note("done", job)

    @actor_of("alone", max_retries=100)
    def alone(job: str) -> None:
        with ConcurrentRateLimiter(limits, "alone", limit=1).acquire():
            note("in", job)
            time.sleep(0.01)
            note("out", job)

    return broker


if URL_VARIABLE in os.environ:  # in a worker process
    broker = make_broker(os.environ[URL_VARIABLE])
