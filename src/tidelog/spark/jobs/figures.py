"""Figures of jobs that run without end, for their reports.

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
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from tidelog import limits
from tidelog.spark.source.feed.position import ask_behind

Figures = Mapping[str, int | float | str | None]
Parts = Mapping[str, Figures]
"""By the name of the job that has them."""

_INSTANT_S: Final = 0.001
"""No batch is quicker than this, whatever the clock says."""


class Lag:
    """How far a server is ahead of a job."""

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


class BatchFigures:
    """Adds up batches as they end. Any thread may call it."""

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
