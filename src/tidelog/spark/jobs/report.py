"""What a running job says of itself: hashes on the server, which `tidelog pipeline status` and /metrics show.

    tidelog:pipeline:<job>     state        running, done, stopped or failed
                               started_ms, updated_ms
                               token        of the lease
                               last_error   of the newest item that failed, or of the job itself
                               ...          the job's own figures

    tidelog:pipeline:jobs      the jobs that have, or had, such a hash

A job may have parts, each with a hash of its own: `view` has `view:<name>` for each of its views. All are written in
one transaction. A job that was killed leaves `running` there, with an `updated_ms` that stands still.

`Batches` and `Lag` are figures that jobs without end have in common:

    def figures() -> Figures:
        return {**lag.of(done_ts), **batches.figures(), "last_error": None}

    batches rows                        since the job began
    batch_seconds                       of the newest batch; _p50 and _p99 of the newest hundred
    rows_per_second                     in the newest ten seconds
    ts lag_seconds lag_records          how far the job is, and how far the server is ahead of it
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Set
from typing import Any, Final, NamedTuple

from tidelog import limits
from tidelog.days.exchange import RedisClient
from tidelog.keys import JOB_INDEX, PIPELINE_PREFIX
from tidelog.spark.feed_places import ask_behind

Figures = Mapping[str, int | float | str | None]
Parts = Mapping[str, Figures]
"""By the name of the job that has them."""

_INSTANT_S: Final = 0.001
"""No batch is quicker than this, whatever the clock says."""


def no_parts() -> Parts:
    return {}


class Report:
    """Writes the hashes of a job and of its parts."""

    def __init__(
        self,
        server: RedisClient,
        job: str,
        token: int,
        figures: Callable[[], Figures],
        parts: Callable[[], Parts] = no_parts,
    ) -> None:
        self._server = server
        self._job = job
        self._token = token
        self._figures = figures
        self._parts = parts
        self._started_ms = _now_ms()
        self.told: dict[str, dict[str, Any]] = {}
        """What was said last, by job; replaced as a whole, so any thread may look."""

    def write(self, state: str, error: str | None = None) -> None:
        """Say how far it is. What an earlier run left in a hash goes when this one first writes it."""
        base: dict[str, int | float | str | None] = {
            "state": state,
            "started_ms": self._started_ms,
            "updated_ms": _now_ms(),
            "token": self._token,
            "last_error": None,
        }
        ended = {} if error is None else {"last_error": error}
        told = {
            job: {**base, **figures, **ended} for job, figures in {self._job: self._figures(), **self._parts()}.items()
        }
        fresh = told.keys() - self.told.keys()
        if len(told) == 1:  # nor would a cluster take keys of several slots in a transaction
            self._write(self._server, told, fresh)
        else:
            with self._server.pipeline(transaction=True) as pipeline:
                self._write(pipeline, told, fresh)
                pipeline.execute()
        self.told = told

    def _write(self, link: Any, told: Parts, fresh: Set[str]) -> None:
        for job, fields in told.items():
            if job in fresh:
                link.delete(PIPELINE_PREFIX + job)
            link.hset(PIPELINE_PREFIX + job, mapping=_plain(fields))
        link.sadd(JOB_INDEX, *told)  # each time: somebody may have flushed the database


def _plain(fields: Figures) -> dict[str, int | float | str]:
    """As hash fields are: what is not known is empty, and an error that goes on for pages is cut."""
    return {
        name: value[: limits.PIPELINE_TEXT_CHARS_MAX] if isinstance(value, str) else "" if value is None else value
        for name, value in fields.items()
    }


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


# --- figures ----------------------------------------------------------------------------------------------------------


class Lag:
    """How far a server is ahead of a job: a client of it, and the ts up to which the job is done."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def of(self, ts: int | None) -> Figures:
        """None: the job does not know yet how far it is."""
        if ts is None:
            return {"ts": None, "lag_seconds": None, "lag_records": None}
        behind = ask_behind(self._client, ts)
        return {"ts": ts, "lag_seconds": behind.seconds, "lag_records": behind.records}


class _Batch(NamedTuple):
    rows: int
    begun: float
    ended: float


class Batches:
    """Adds up batches as they end. Any thread may add, and any may look."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._newest: deque[_Batch] = deque(maxlen=limits.PIPELINE_BATCHES_KEPT)
        self._count = self._rows = 0

    def add(self, rows: int, seconds: float) -> None:
        """A batch that took so long has ended now."""
        now = self._clock()
        with self._lock:
            self._newest.append(_Batch(rows, now - max(seconds, _INSTANT_S), now))
            self._count += 1
            self._rows += rows

    def figures(self) -> Figures:
        with self._lock:
            newest, count, rows = list(self._newest), self._count, self._rows
        took = sorted(batch.ended - batch.begun for batch in newest)
        return {
            "batches": count,
            "rows": rows,
            "batch_seconds": round(newest[-1].ended - newest[-1].begun, 3) if newest else None,
            "batch_seconds_p50": _quantile(took, 0.5),
            "batch_seconds_p99": _quantile(took, 0.99),
            "rows_per_second": round(_rate(newest, self._clock()), 1),
        }


def _quantile(ordered: list[float], share: float) -> float | None:
    return round(ordered[min(int(share * len(ordered)), len(ordered) - 1)], 3) if ordered else None


def _rate(batches: list[_Batch], now: float) -> float:
    """Rows a second of the newest seconds, as many as the last batch took if those are more.

    A batch that began before counts in part, as if its rows had come evenly.
    """
    if not batches:
        return 0.0
    last = batches[-1]
    since = max(batches[0].begun, now - max(limits.PIPELINE_RATE_S, last.ended - last.begun))
    rows = 0.0
    for batch in batches:
        if batch.ended > since:
            rows += batch.rows * (batch.ended - max(batch.begun, since)) / (batch.ended - batch.begun)
    return rows / (now - since)
