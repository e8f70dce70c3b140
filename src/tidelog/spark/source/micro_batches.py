"""What all readers of `readStream` share: where they stand between two batches, and how large a batch is.

Spark asks such a reader, on the driver, where a batch ends, writes the answer into its checkpoint, and then runs the
batch. A batch that is repeated has the same beginning and the same end.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from tidelog.spark.source.batch_bounds import BatchBounds, TriggerDelay
from tidelog.spark.source.told_first import ToldFirst


class MicroBatchReader(ToldFirst, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a target without end, batch after batch."""

    def __init__(self, bounds: BatchBounds) -> None:
        self._bounds = bounds
        self._delay = TriggerDelay()
        self._is_ending = False
        """The trigger is `availableNow`: no more will come."""

    def getDefaultReadLimit(self) -> ReadLimit:
        return self._bounds.default_limit()

    def prepareForTriggerAvailableNow(self) -> None:
        self._is_ending = True

    def _waits(self, position: Any, bounds: BatchBounds) -> bool:
        """Whether to wait for more after a position, behind which there is something to read."""
        most = bounds.rows_min
        if most is None or self._is_ending or self._has_rows(position, most):
            return False
        return self._delay.lasts(position, bounds.delay_s)

    def _has_rows(self, _position: Any, _count: int) -> bool:
        """Whether there are so many rows after a position."""
        raise NotImplementedError
