"""What the jobs that follow a server's feed share (`lake`, `view`): one at a time, reported, resumed from their tables.

explore the server, prepare       whatever can be refused is refused before anything is changed
take the lease                    `JobRunning` if another job has it
follow the feed                   again and again while the server comes back, from what the tables have
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from tidelog import limits
from tidelog.address import ServerAddress
from tidelog.redis_client import connect
from tidelog.spark.endpoint import Endpoint
from tidelog.spark.jobs.feed_query import BatchTrigger, while_it_answers
from tidelog.spark.jobs.figures import Figures, Lag, Parts
from tidelog.spark.jobs.job_lease import JobLease, Stop
from tidelog.spark.source.feed.position import explored_feed_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class FeedJob(ABC):
    """A job that follows the feed of a server, or of several of which one leads.

    `run` is the way in; the rest is for subclasses and reports.
    """

    name: ClassVar[str]

    def __init__(
        self,
        address: ServerAddress,
        trigger: BatchTrigger,
        lease_ms: int = limits.LEASE_MS_DEFAULT,
        *,
        from_followers: bool = False,
    ) -> None:
        self.address = address
        self._trigger = trigger
        self._lease_ms = lease_ms
        self._server = Endpoint(address, from_followers=from_followers)
        self._lag: Lag | None = None
        self._lease: JobLease | None = None

    # --- what a job is --------------------------------------------------------------------------------------------

    @abstractmethod
    def lease_names(self) -> str | Sequence[str]:
        """The lease that keeps others away, or several: one for each thing that the job keeps."""

    @abstractmethod
    def prepare(self, make_spark: Callable[[], SparkSession]) -> None:
        """Refuse what can be refused before the lease is taken."""

    @abstractmethod
    def follow(self, make_spark: Callable[[], SparkSession], stop: Stop) -> None:
        """Go on from what the tables have, until there is nothing left or the job is stopped."""

    @abstractmethod
    def done_ts(self) -> int | None:
        """The ts up to which everything is done; None: not known yet."""

    @abstractmethod
    def totals(self) -> Figures:
        """What was done, without asking the server anything."""

    def parts(self) -> Parts:
        """The figures of parts that are reported on their own."""
        return {}

    # --- running and reporting ------------------------------------------------------------------------------------

    def run(self, make_spark: Callable[[], SparkSession], stop: Stop) -> None:
        """Run until there is nothing left, or until the job is stopped."""
        self._server = explored_feed_server(self._server)
        self.prepare(make_spark)
        with connect(self.address) as client:
            self._lag = Lag(client)
            self._lease = JobLease.take(
                client,
                self.name,
                stop,
                self.figures,
                lease=self.lease_names(),
                parts=self.parts,
                ttl_ms=self._lease_ms,
                is_fenced=False,
            )
            with self._lease:
                while_it_answers(lambda: self.follow(make_spark, stop), stop, is_once=self._trigger.is_once)
                self._lease.state = "stopped" if stop.is_set() else "done"

    def figures(self) -> Figures:
        """How far the job is, how far the server is ahead, and what was done."""
        lag = {} if self._lag is None else self._lag.of(self.done_ts())
        return {**lag, **self.totals()}

    def told(self) -> Figures:
        """The last report."""
        return {} if self._lease is None else self._lease.told.get(self.name, {})
