"""A running job's lease. A thread renews it, and reports how far the job is (`report`).

    with JobLease.take(server, "lake", stop, figures, lease="lake:4f1c") as lease:
        ...
        lease.state = "stopped" if stop.is_set() else "done"

If the lease is lost, the job is told to stop. The lease of a job that was killed ends by itself. A job may hold several
leases, one for each thing that it keeps: it gets all of them, or it does not start.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import redis

from tidelog import limits
from tidelog.days.exchange import RedisClient
from tidelog.days.lease import Lease
from tidelog.errors import ClientError, LeaseLost, TidelogError
from tidelog.keys import LEASE_PREFIX, PIPELINE_PREFIX
from tidelog.spark.jobs.figures import Figures, Parts
from tidelog.spark.jobs.report import Report, no_parts

DAYS_JOBS: Final = ("compress", "expire")


class JobRunning(ClientError):
    """Another job has the lease."""


class Stop(threading.Event):
    """Set to end a job before its work is done."""

    def __init__(self) -> None:
        super().__init__()
        self.reason = ""
        """The first reason that was given."""

    def because(self, reason: str) -> None:
        self.reason = self.reason or reason
        self.set()


def take_lease(server: RedisClient, job: str, ttl_ms: int, name: str, rivals: Sequence[str]) -> Lease:
    """The lease; `JobRunning` says which of the jobs that share it holds it."""
    lease = Lease.take(server, name, ttl_ms=ttl_ms)
    if lease is None:
        raise JobRunning(f"{job} did not start: {_who_runs(server, name, rivals)}")
    return lease


def take_leases(server: RedisClient, job: str, ttl_ms: int, names: Sequence[str], rivals: Sequence[str]) -> list[Lease]:
    """All of these leases, or none."""
    taken: list[Lease] = []
    try:
        taken.extend(take_lease(server, job, ttl_ms, name, rivals or (name,)) for name in names)
    except JobRunning:
        for lease in taken:
            with suppress(LeaseLost):
                lease.release()
        raise
    return taken


def _who_runs(server: RedisClient, name: str, rivals: Sequence[str]) -> str:
    left_ms = max(0, int(server.pttl(LEASE_PREFIX + name)))
    text = f"another job has the lease {name!r}"
    for job in rivals:
        state, started_ms, updated_ms = server.hmget(PIPELINE_PREFIX + job, "state", "started_ms", "updated_ms")
        if state == b"running" and started_ms and updated_ms:
            now_ms = time.time_ns() // 1_000_000
            seconds = [max(0, now_ms - int(each)) // 1000 for each in (started_ms, updated_ms)]
            text += f" ({job}, started {seconds[0]} s ago, last reported {seconds[1]} s ago)"
    return f"{text}; the lease ends in {left_ms / 1000:.0f} s unless it is renewed"


class JobLease:
    """Holds the lease while its block runs, and reports. If the lease is lost, the job is told to stop."""

    def __init__(
        self, leases: Sequence[Lease], report: Report, job: str, ttl_ms: int, stop: Stop, *, is_fenced: bool
    ) -> None:
        self._leases = leases
        self._is_fenced = is_fenced
        self._report = report
        self._ttl_s = ttl_ms / 1000
        self._stop = stop
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"lease of {job}", daemon=True)
        self.state = "failed"
        """The state in the last report, unless the job sets a better one."""

    @classmethod
    def take(
        cls,
        server: RedisClient,
        job: str,
        stop: Stop,
        figures: Callable[[], Figures],
        *,
        lease: str | Sequence[str],
        rivals: Sequence[str] | None = None,
        parts: Callable[[], Parts] = no_parts,
        ttl_ms: int = limits.LEASE_MS_DEFAULT,
        is_fenced: bool = True,
    ) -> JobLease:
        """Take the lease of that name, or several; `JobRunning` if another job has one of them.

        `figures` and `parts` are called about once a second, on a thread of their own. `rivals`: the jobs that may hold
        the lease, if there are others than this one; if there are several leases, each has the name of a part. A lease
        that has ended (somebody flushed the database, or the machine stood still) is taken again if nobody has it, and,
        if `is_fenced`, nobody had it meanwhile.
        """
        if isinstance(lease, str):
            taken = [take_lease(server, job, ttl_ms, lease, rivals if rivals is not None else (job,))]
        else:
            taken = take_leases(server, job, ttl_ms, lease, rivals or ())
        report = Report(server, job, taken[0].token, figures, parts)
        return cls(taken, report, job, ttl_ms, stop, is_fenced=is_fenced)

    @property
    def token(self) -> int:
        return self._leases[0].token

    @property
    def told(self) -> dict[str, dict[str, Any]]:
        """The last report, by job. It is replaced about once a second, and never altered."""
        return self._report.told

    def __enter__(self) -> JobLease:
        self._report.write("running")
        self._thread.start()
        return self

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        self._ends.set()
        self._thread.join()
        try:
            self._renew()
            self._report.write(self.state, None if error is None else str(error) or type(error).__name__)
        except LeaseLost as lost:
            self._stop.because(str(lost))  # and the hash may belong to another job by now
        for lease in self._leases:
            try:
                lease.release()
            except LeaseLost as lost:
                self._stop.because(str(lost))

    def _renew(self) -> None:
        for lease in self._leases:
            try:
                lease.renew()
            except LeaseLost:
                if not lease.regain(is_fenced=self._is_fenced):
                    raise

    def _keep(self) -> None:
        """Renew the lease three times a term. A server that does not answer may come back before the term is over."""
        pause_s = min(limits.PIPELINE_REPORT_S, self._ttl_s / 3)
        renewed = time.monotonic()
        while not self._ends.wait(pause_s):
            try:
                if time.monotonic() - renewed >= self._ttl_s / 3 - pause_s / 2:
                    self._renew()
                    renewed = time.monotonic()
                self._report.write("running")
            except LeaseLost as error:
                self._stop.because(str(error))
                return
            except (redis.RedisError, TidelogError) as error:
                if time.monotonic() - renewed > self._ttl_s:
                    self._stop.because(f"the lease could not be renewed: {error}")
                    return
            except Exception as error:  # if this thread died, the job would lose its lease unnoticed
                self._stop.because(f"its report failed: {error!r}")
                return
