"""The job `compress`: hot days that are old enough become compressed days. Small days share a task.

A task runs `days.compressor`: batches are written beside the hot stream, read back, compared by number and digest, and
swapped in by one transaction. A task that dies leaves the day as it was. A day that would save too little memory is
left hot, and is not found again by later runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import date
from functools import partial
from typing import Any, ClassVar, NamedTuple

import redis

from tidelog import limits
from tidelog.address import ServerAddress
from tidelog.days.compressor import Outcome, compress_day
from tidelog.days.jobset import JobSet
from tidelog.days.saving import hot_days
from tidelog.errors import FencedOff, TidelogError
from tidelog.redis_client import connect
from tidelog.spark.jobs.job import FAILED, FENCED, Done, Job, problem_of
from tidelog.spark.jobs.pace import Throttle


class HotDay(NamedTuple):
    """A day of a job set that is to be compressed."""

    queue: str
    jobset: str
    day: date
    memory_bytes: int | None = None
    """About; None: the server does not say."""


class CompressJob(Job[HotDay]):
    """Compresses the days that are more than so many days before today."""

    name: ClassVar[str] = "compress"
    productive: ClassVar[str] = Outcome.COMPRESSED.value

    def __init__(
        self,
        address: ServerAddress,
        *,
        older_than_days: int,
        today: date,
        saving_min: float | None = limits.DAYS_SAVING_MIN,
    ) -> None:
        super().__init__(address, older_than_days=older_than_days, today=today)
        self._saving_min = saving_min
        """The share of its memory that compressing a day must save; None: compress all."""

    def find(self, server: Any) -> Iterator[HotDay]:
        for jobset, stream, memory_bytes in hot_days(server, self.first_kept, self._saving_min):
            yield HotDay(jobset.queue, jobset.jobset, stream.day, memory_bytes)

    def size_bytes(self, item: HotDay) -> int | None:
        return item.memory_bytes

    def task(self, token: int, share: float | None) -> Callable[[HotDay], Done]:
        return partial(compress_hot_day, address=self.address, token=token, saving_min=self._saving_min, share=share)

    def failed(self, item: HotDay, error: str) -> Done:
        return Done(item.queue, item.jobset, (item.day.isoformat(),), FAILED, error=error)

    def figures(self) -> dict[str, Any]:
        total = self.total
        return {
            "streams": total.items,
            "events": total.events,
            "batches": total.batches,
            "event_bytes": total.event_bytes,
            "packed_bytes": total.packed_bytes,
            "memory_before_bytes": total.memory_before_bytes,
            "memory_after_bytes": total.memory_after_bytes,
            "ratio": total.ratio,
            "left_hot": total.outcomes[Outcome.LEFT_HOT.value],
            "skipped": total.skipped,
            "failed": total.failed,
        }


def compress_hot_day(
    item: HotDay, *, address: ServerAddress, token: int, saving_min: float | None, share: float | None
) -> Done:
    """What a task does."""
    begun = time.monotonic()
    done = partial(Done, item.queue, item.jobset, (item.day.isoformat(),))
    try:
        with connect(address) as server:
            jobset = JobSet(item.queue, item.jobset)
            throttle = Throttle(share)
            result = compress_day(server, jobset, item.day, token, saving_min=saving_min, on_bytes=throttle)
    except FencedOff as error:
        return done(FENCED, time.monotonic() - begun, error=str(error))
    except (TidelogError, redis.RedisError, OSError) as error:
        return done(FAILED, time.monotonic() - begun, error=problem_of(error))
    sizes = result.messages, result.batches, result.event_bytes, result.packed_bytes
    before, after = (size or 0 for size in result.memory)
    return done(result.outcome.value, time.monotonic() - begun, *sizes, before, after)
