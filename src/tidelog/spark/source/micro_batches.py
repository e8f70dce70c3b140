"""What all readers of `readStream` share: how many rows Spark lets a batch have.

Spark asks such a reader, on the driver, where a batch ends, writes the answer into its checkpoint, and then runs the
batch. A batch that is repeated has the same beginning and the same end.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from tidelog.spark.source.told_first import ToldFirst


class MicroBatchReader(ToldFirst, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a target without end, batch after batch."""

    def __init__(self, rows_per_trigger: int | None) -> None:
        self._rows_per_trigger = rows_per_trigger

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._rows_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)


def rows_allowed(limit: ReadLimit) -> int | None:
    """None: there is no limit."""
    return int(limit.max_rows) if isinstance(limit, ReadMaxRows) else None
