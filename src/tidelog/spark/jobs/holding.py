"""A running job's hold: its lease, renewed by a thread, and the hash in which it says how far it is.

    tidelog:pipeline:<job>     state        running, done, stopped or failed
                               started_ms, updated_ms
                               token        of the lease
                               last_error   of the newest item that failed
                               ...          the job's own figures

A job that was killed leaves `running` there, with an `updated_ms` that stands still; its lease ends by itself.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

import redis

from tidelog import limits
from tidelog.days.exchange import Server
from tidelog.days.lease import Lease
from tidelog.errors import ClientError, LeaseLost, TidelogError

LEASE: Final = "days"
"""One for all jobs that rewrite days: their tokens meet at the same fences, and must be in one order."""

Figures = Mapping[str, int | float | str | None]


class JobRunning(ClientError):
    """Another job has the lease."""


class Stop(threading.Event):
    """Set when a job is to end before its work does."""

    def __init__(self) -> None:
        super().__init__()
        self.reason = ""
        """Of whoever came first."""

    def because(self, reason: str) -> None:
        self.reason = self.reason or reason
        self.set()


def take_lease(server: Server, job: str, ttl_ms: int) -> Lease:
    """The lease; `JobRunning` says who has it."""
    lease = Lease.take(server, LEASE, ttl_ms=ttl_ms)
    if lease is None:
        raise JobRunning(f"{job} did not begin: {_who_runs(server)}")
    return lease


def _who_runs(server: Server) -> str:
    left_ms = max(0, int(server.pttl(f"tidelog:pipeline:lease:{LEASE}")))
    text = f"another job has the lease {LEASE!r}"
    for job in ("compress", "expire"):
        state, started_ms, updated_ms = server.hmget(f"tidelog:pipeline:{job}", "state", "started_ms", "updated_ms")
        if state == b"running" and started_ms and updated_ms:
            now_ms = time.time_ns() // 1_000_000
            seconds = [max(0, now_ms - int(each)) // 1000 for each in (started_ms, updated_ms)]
            text += f" ({job}, begun {seconds[0]} s ago, last heard of {seconds[1]} s ago)"
    return f"{text}; unless it renews it, it ends in {left_ms / 1000:.0f} s"


class Holding:
    """Keeps the lease while its block runs. If it is lost, the job is told to stop."""

    def __init__(
        self, server: Server, lease: Lease, job: str, ttl_ms: int, stop: Stop, figures: Callable[[], Figures]
    ) -> None:
        self._server = server
        self._lease = lease
        self._key = f"tidelog:pipeline:{job}"
        self._ttl_s = ttl_ms / 1000
        self._stop = stop
        self._figures = figures
        self._started_ms = time.time_ns() // 1_000_000
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"lease of {job}", daemon=True)
        self.state = "failed"
        """What the hash will say at the end, unless it is set to something better."""

    def __enter__(self) -> Holding:
        self._server.delete(self._key)
        self._report(self._server, "running")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()
        try:
            self._lease.renew()
            self._report(self._server, self.state)
            self._lease.release()
        except LeaseLost as error:
            self._stop.because(str(error))  # and the hash may be another's by now

    def _keep(self) -> None:
        """Renew three times a term. A server that does not answer may come back before the term is over."""
        pause_s = min(limits.PIPELINE_REPORT_S, self._ttl_s / 3)
        renewed = time.monotonic()
        while not self._ends.wait(pause_s):
            try:
                if time.monotonic() - renewed >= self._ttl_s / 3 - pause_s / 2:
                    self._lease.renew()
                    renewed = time.monotonic()
                self._report(self._server, "running")
            except LeaseLost as error:
                self._stop.because(str(error))
                return
            except (redis.RedisError, TidelogError) as error:
                if time.monotonic() - renewed > self._ttl_s:
                    self._stop.because(f"the lease could not be renewed: {error}")
                    return

    def _report(self, server: Server, state: str) -> None:
        figures = {name: "" if value is None else value for name, value in self._figures().items()}
        told = {
            "state": state,
            "started_ms": self._started_ms,
            "updated_ms": time.time_ns() // 1_000_000,
            "token": self._lease.token,
        }
        server.hset(self._key, mapping={**told, **figures})
