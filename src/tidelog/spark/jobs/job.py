"""What the jobs over day streams share: work is found by SCAN and run in waves, by one job at a time.

    take the lease                 or say which job has it
    find some items                SCAN goes on where it stopped; only one wave is held in memory
    run them on Spark              with the token of the lease, small ones together; results are added up as they come
    repeat until SCAN is complete, the job is stopped, or the lease is lost

However a job ends, the next run begins from what the server has: a job has no state of its own to repair.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

from redis.exceptions import AskError

from tidelog import limits
from tidelog.address import ServerAddress
from tidelog.days.fence import DAYS_LEASE
from tidelog.errors import ClientError
from tidelog.redis_client import connect, explained
from tidelog.spark.jobs.job_lease import DAYS_JOBS, JobLease, Stop
from tidelog.spark.jobs.pace import Pace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Item = TypeVar("Item")


class Done(NamedTuple):
    """The result of one item: a day of a job set, or a job set as a whole."""

    queue: str
    jobset: str
    days: tuple[str, ...]
    outcome: str
    """In a word or two; `failed` and `fenced off` come with an error."""
    seconds: float = 0.0
    events: int = 0
    batches: int = 0
    event_bytes: int = 0
    packed_bytes: int = 0
    memory_before_bytes: int = 0
    memory_after_bytes: int = 0
    error: str | None = None

    @property
    def is_fenced(self) -> bool:
        """A later job has taken over, so everything else would be refused as well."""
        return self.outcome == FENCED


FAILED = "failed"
FENCED = "fenced off"


def problem_of(error: Exception) -> str:
    """The error of a task in one line."""
    told = explained(error) if isinstance(error, AskError) else error
    return f"{type(told).__name__}: {told}"


class Total:
    """All results, added up. Failures are listed as well, up to a limit."""

    def __init__(self, productive: str) -> None:
        self._productive = productive
        """The outcome that changes something."""
        self.items = self.skipped = self.failed = self.days = 0
        self.events = self.batches = self.event_bytes = self.packed_bytes = 0
        self.memory_before_bytes = self.memory_after_bytes = 0
        self.outcomes = Counter[str]()
        self.failures: list[Done] = []
        self.last_error: str | None = None

    def add(self, done: Done) -> None:
        self.outcomes[done.outcome] += 1
        if done.outcome == self._productive:
            self.items += 1
            self.days += len(done.days)
        elif done.error is None:
            self.skipped += 1
        else:
            self.failed += 1
            self.last_error = done.error
            if len(self.failures) < limits.PIPELINE_FAILURES_KEPT:
                self.failures.append(done)
        self.events += done.events
        self.batches += done.batches
        self.event_bytes += done.event_bytes
        self.packed_bytes += done.packed_bytes
        if done.memory_before_bytes and done.memory_after_bytes:
            self.memory_before_bytes += done.memory_before_bytes
            self.memory_after_bytes += done.memory_after_bytes

    @property
    def seen(self) -> int:
        return self.items + self.skipped + self.failed

    @property
    def ratio(self) -> float | None:
        """How many times less memory the streams take on the server, if it says so."""
        return round(self.memory_before_bytes / self.memory_after_bytes, 2) if self.memory_after_bytes else None


class Job(ABC, Generic[Item]):
    """One of the jobs: which items it looks for, and what it does with each."""

    name: ClassVar[str]
    productive: ClassVar[str]

    def __init__(self, address: ServerAddress, *, older_than_days: int, today: date) -> None:
        if older_than_days < 0:
            raise ClientError(f"--older-than-days is {older_than_days}: it cannot be negative")
        self.address = address
        self.older_than_days = older_than_days
        self.today = today
        self.total = Total(self.productive)

    @property
    def first_kept(self) -> date:
        """The first day that is left alone. Older days lie more than `older_than_days` before today."""
        return self.today - timedelta(days=min(self.older_than_days, self.today.toordinal() - 1))

    @abstractmethod
    def find(self, server: Any) -> Iterator[Item]:
        """The items that are to be done, a few at a time."""

    @abstractmethod
    def size_bytes(self, item: Item) -> int | None:
        """About how much an item has to read, so that small ones share a task; None: not known."""

    @abstractmethod
    def task(self, token: int, share: float | None) -> Callable[[Item], Done]:
        """What an executor does with an item. Spark must be able to send it there."""

    @abstractmethod
    def failed(self, item: Item, error: str) -> Done:
        """The result of an item whose task ended without a result."""

    @abstractmethod
    def figures(self) -> dict[str, Any]:
        """The total, for the summary and the report."""


def run_job(
    job: Job[Item],
    make_spark: Callable[[], SparkSession],
    stop: Stop,
    *,
    pace: Pace,
    lease_ms: int = limits.LEASE_MS_DEFAULT,
    on_result: Callable[[Done], object],
    on_found: Callable[[int, bool], object],
) -> None:
    """Run a job to its end, or until it is stopped. Spark is started when there is something to do.

    `on_found` gets the number of items found so far, and whether these are all.
    """
    with connect(job.address) as server:
        figures = lambda: {**job.figures(), "last_error": job.total.last_error}  # noqa: E731
        with JobLease.take(
            server, job.name, stop, figures, lease=DAYS_LEASE, rivals=DAYS_JOBS, ttl_ms=lease_ms
        ) as lease:
            _run_waves(job, lease.token, server, make_spark, stop, pace, on_result, on_found)
            lease.state = "stopped" if stop.is_set() else "done"


def _run_waves(
    job: Job[Item],
    token: int,
    server: Any,
    make_spark: Callable[[], SparkSession],
    stop: Stop,
    pace: Pace,
    on_result: Callable[[Done], object],
    on_found: Callable[[int, bool], object],
) -> None:
    from tidelog.spark.jobs.waves import Waves

    def take(done: Done) -> None:
        job.total.add(done)
        on_result(done)
        if done.is_fenced:
            stop.because(done.error or done.outcome)

    items = job.find(server)
    first = next(items, None)
    if first is None:
        on_found(0, True)
        return
    waves = Waves[Item, Done](make_spark(), stop, on_result=take, failed=job.failed)
    found = 0
    while first is not None and not stop.is_set():
        most = pace.wave_items(waves.parallel)
        # SCAN may name a job set twice. If that is more than a wave apart, the second task finds nothing to do.
        wave = list(dict.fromkeys([first, *islice(items, most - 1)]))
        first = next(items, None)
        found += len(wave)
        on_found(found + (first is not None), first is None)
        rest = _WavePause(pace.wave_seconds(len(wave)))
        # A share of bytes a second is that of a task with one item.
        size_bytes = job.size_bytes if pace.bytes_per_second is None else None
        waves.run(wave, job.task(token, pace.share(len(wave))), size_bytes)
        if first is not None:
            rest.wait(stop)


class _WavePause:
    """The rest of the time that a wave must at least take."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds

    def wait(self, stop: Stop) -> None:
        stop.wait(max(0.0, self._until - time.monotonic()))
