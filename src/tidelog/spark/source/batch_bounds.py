"""How much a batch of `readStream` has: what the options allow, and what the reader waits for.

    maxRowsPerBatch      at most so many rows; of a feed, about so many records of each shard
    maxBytesPerTrigger   about so many bytes at most, and at least one row
    minRowsPerBatch      wait until there are so many rows ...
    maxTriggerDelay      ... but at most so long after there is anything to read; 15 minutes unless given

Spark asks a reader for one limit, and hands it back with each question where a batch ends. It knows no limits that are
made of several, and needs to know none: what it hands back says whether limits count at all (`ReadAllAvailable`, of the
trigger `once`, says that they do not), and the others are known here. With the trigger `availableNow`, nothing is
waited for: no more will come.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows, ReadMinRows

from tidelog import limits
from tidelog.spark.options import BadOption, Options


@dataclass(frozen=True, slots=True)
class BatchBounds:
    """How large batches are. None: there is no such bound."""

    rows_max: int | None = None
    bytes_max: int | None = None
    rows_min: int | None = None
    delay_s: float = limits.SPARK_TRIGGER_DELAY_S
    """How long a row waits at most for `rows_min`, once the reader knows of it."""

    def default_limit(self) -> ReadLimit:
        """The one that Spark is told."""
        if self.rows_max is not None:
            return ReadMaxRows(self.rows_max)
        if self.bytes_max is not None:
            return ReadMaxBytes(self.bytes_max)
        return ReadAllAvailable() if self.rows_min is None else ReadMinRows(self.rows_min)

    def within(self, limit: ReadLimit) -> BatchBounds:
        """What counts for a batch for which Spark says this."""
        match limit:
            case ReadAllAvailable():
                return BatchBounds()
            case ReadMaxRows():
                return replace(self, rows_max=limit.max_rows)
            case ReadMaxBytes():
                return replace(self, bytes_max=limit.max_bytes)
            case ReadMinRows():
                return replace(self, rows_min=limit.min_rows)
        return self


def take_bounds(options: Options, older: str) -> BatchBounds:
    """`older`: another name of `maxRowsPerBatch`, which it had before."""
    rows_max = options.number("maxRowsPerBatch", 1, older=older)
    bytes_max = options.number("maxBytesPerTrigger", 1)
    rows_min = options.number("minRowsPerBatch", 1)
    delay_s = options.duration_s("maxTriggerDelay")
    if rows_min is None and delay_s is not None:
        raise BadOption("maxTriggerDelay says how long to wait for minRowsPerBatch: give both")
    if rows_min is not None and rows_max is not None and rows_min > rows_max:
        raise BadOption(f"minRowsPerBatch={rows_min} contradicts maxRowsPerBatch={rows_max}: no batch could be both")
    return BatchBounds(rows_max, bytes_max, rows_min, limits.SPARK_TRIGGER_DELAY_S if delay_s is None else delay_s)


class TriggerDelay:
    """Since when there has been something to read after a position, but too little for a batch."""

    def __init__(self) -> None:
        self._position: Any = None
        self._since_s = 0.0

    def lasts(self, position: Any, delay_s: float) -> bool:
        """Whether to wait on. The first time for a position, its time begins."""
        now_s = time.monotonic()
        if position != self._position:
            self._position, self._since_s = position, now_s
        return now_s - self._since_s < delay_s
