"""The job `expire`: removes days that are old enough, hot and compressed ones alike. Several job sets share a task."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import date
from functools import partial
from typing import Any, ClassVar, NamedTuple

import redis

from tidelog import limits
from tidelog.address import ServerAddress
from tidelog.days.jobset import JobSet
from tidelog.days.listing import scan_indexes
from tidelog.days.retention import expire_days
from tidelog.errors import FencedOff, TidelogError
from tidelog.redis_client import connect
from tidelog.spark.jobs.job import FAILED, FENCED, Done, Job, problem_of

REMOVED = "removed"


class OldDays(NamedTuple):
    """A job set with days to remove."""

    queue: str
    jobset: str
    days: tuple[date, ...]
    """As they were found. The task looks again before it removes them."""


class ExpireJob(Job[OldDays]):
    """Removes the days that are more than so many days before today."""

    name: ClassVar[str] = "expire"
    productive: ClassVar[str] = REMOVED

    def find(self, server: Any) -> Iterator[OldDays]:
        for index in scan_indexes(server):
            days = sorted({stream.day for stream in index.streams if stream.day < self.first_kept})
            if days:
                yield OldDays(index.jobset.queue, index.jobset.jobset, tuple(days))

    def size_bytes(self, item: OldDays) -> int:
        return len(item.days) * limits.PIPELINE_REMOVED_DAY_BYTES

    def task(self, token: int, share: float | None) -> Callable[[OldDays], Done]:  # noqa: ARG002
        return partial(
            expire_old_days, address=self.address, token=token, keep_days=self.older_than_days, today=self.today
        )

    def failed(self, item: OldDays, error: str) -> Done:
        return Done(item.queue, item.jobset, tuple(day.isoformat() for day in item.days), FAILED, error=error)

    def figures(self) -> dict[str, Any]:
        total = self.total
        return {"jobsets": total.items, "days": total.days, "skipped": total.skipped, "failed": total.failed}


def expire_old_days(item: OldDays, *, address: ServerAddress, token: int, keep_days: int, today: date) -> Done:
    """What a task does."""
    begun = time.monotonic()
    found = tuple(day.isoformat() for day in item.days)
    try:
        with connect(address) as server:
            jobset = JobSet(item.queue, item.jobset)
            removed = expire_days(server, jobset, keep_days=keep_days, today=today, token=token)
    except FencedOff as error:
        return Done(item.queue, item.jobset, found, FENCED, time.monotonic() - begun, error=str(error))
    except (TidelogError, redis.RedisError, OSError) as error:
        return Done(item.queue, item.jobset, found, FAILED, time.monotonic() - begun, error=problem_of(error))
    outcome = REMOVED if removed else "nothing to remove"
    days = tuple(day.isoformat() for day in removed)
    return Done(item.queue, item.jobset, days, outcome, time.monotonic() - begun)
