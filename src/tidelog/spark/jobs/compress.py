"""The job `compress`: hot days that are old enough become compressed days, one task for each day.

A task runs `days.compressor`: batches are written beside the hot stream, read back, compared by number and digest, and
swapped in by one transaction. A task that dies leaves the day as it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import date
from functools import partial
from typing import Any, ClassVar, NamedTuple

import redis

from tidelog.address import ServerAddress
from tidelog.days.compressor import Outcome, compress_day
from tidelog.days.jobset import JobSet
from tidelog.days.listing import scan_indexes
from tidelog.errors import FencedOff, TidelogError
from tidelog.redis_client import connect
from tidelog.spark.jobs.job import FAILED, FENCED, Done, Job
from tidelog.spark.jobs.pace import Throttle


class HotDay(NamedTuple):
    """A day of a job set that is to be compressed."""

    queue: str
    jobset: str
    day: date


class CompressJob(Job[HotDay]):
    """Compresses the days that are more than so many days before today."""

    name: ClassVar[str] = "compress"
    productive: ClassVar[str] = Outcome.COMPRESSED.value

    def find(self, server: Any) -> Iterator[HotDay]:
        for index in scan_indexes(server):
            for stream in index.streams:
                if stream.is_hot and stream.day < self.first_kept:
                    yield HotDay(index.jobset.queue, index.jobset.jobset, stream.day)

    def task(self, token: int, share: float | None) -> Callable[[HotDay], Done]:
        return partial(compress_hot_day, address=self.address, token=token, share=share)

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
            "ratio": total.ratio,
            "skipped": total.skipped,
            "failed": total.failed,
        }


def compress_hot_day(item: HotDay, *, address: ServerAddress, token: int, share: float | None) -> Done:
    """What a task does."""
    begun = time.monotonic()
    done = partial(Done, item.queue, item.jobset, (item.day.isoformat(),))
    try:
        with connect(address) as server:
            result = compress_day(server, JobSet(item.queue, item.jobset), item.day, token, on_bytes=Throttle(share))
    except FencedOff as error:
        return done(FENCED, time.monotonic() - begun, error=str(error))
    except (TidelogError, redis.RedisError, OSError) as error:
        return done(FAILED, time.monotonic() - begun, error=f"{type(error).__name__}: {error}")
    sizes = result.messages, result.batches, result.event_bytes, result.packed_bytes
    return done(result.outcome.value, time.monotonic() - begun, *sizes)
