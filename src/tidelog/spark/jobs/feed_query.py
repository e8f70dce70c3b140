"""The Spark query that hands the parts of a feed to a job, batch after batch.

The job's tables are the checkpoint: they record how far they are, and the query begins there. Spark insists on a
checkpoint folder of its own; it gets a temporary one.

The query is stopped only between two batches. Interrupting a batch gains nothing, as it takes only seconds, and Spark
then parses the text of its own error in a way that can overflow its stack.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidelog import limits
from tidelog.errors import ServerUnreachable
from tidelog.spark.jobs.job_lease import Stop
from tidelog.spark.jobs.query_error import explained

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class BatchTrigger:
    """How often there are batches, and how large they are."""

    is_once: bool
    """End when there is nothing left."""
    records: int
    """About so many of each shard in a batch."""
    seconds: float
    """How often to look for more, unless `is_once`."""


def while_it_answers(run: Callable[[], None], stop: Stop, *, is_once: bool) -> None:
    """Run a job. If its server goes away, run it again when the server is back, from what its tables have."""
    lost_s = 0.0
    while True:
        begun = time.monotonic()
        try:
            run()
            return
        except ServerUnreachable:
            now = time.monotonic()
            lost_s = lost_s + now - begun if now - begun < limits.SPARK_FEED_LOST_S else 0.0
            if is_once or lost_s > limits.SPARK_FEED_LOST_S or stop.wait(limits.PIPELINE_REPORT_S):
                raise
            lost_s += limits.PIPELINE_REPORT_S


class FeedQuery:
    """Runs until there is nothing left, or until it is stopped."""

    def __init__(self, source: Mapping[str, str], target: str, start: str, pulse: BatchTrigger) -> None:
        """`source`: the options that make the data source read the feed."""
        self._options = source
        self._target = target
        self._start = start
        self._pulse = pulse
        self._busy = threading.Lock()
        self._is_over = False
        self._error: BaseException | None = None

    def run(
        self,
        spark: SparkSession,
        take: Callable[[DataFrame], None],
        stop: Stop,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> None:
        """`take` gets the parts of each batch, on a thread of Spark's; `meanwhile` is called repeatedly on this one."""
        with tempfile.TemporaryDirectory(prefix="tidelog-query-", ignore_cleanup_errors=True) as checkpoint:
            query = self._begun(spark, take, checkpoint)
            try:
                while query.isActive and not stop.is_set():
                    meanwhile()
                    stop.wait(_POLL_S)
            finally:
                self._is_over = True
                with self._busy:
                    pass  # the current batch has ended; later ones are skipped
                query.stop()
        problem = query.exception()
        if problem is not None and not stop.is_set():
            raise explained(problem, self._error)

    def _begun(self, spark: SparkSession, take: Callable[[DataFrame], None], checkpoint: str) -> StreamingQuery:
        def on_batch(parts: DataFrame, _batch_id: int) -> None:
            with self._busy:
                if self._is_over:
                    return
                try:
                    take(parts)
                except BaseException as error:
                    self._error = error
                    raise

        source: Any = spark.readStream.format("tidelog").options(**self._options)
        source = source.option("start", self._start).option("max_records_per_trigger", self._pulse.records)
        writer = source.load(f"feedparts:{self._target}").writeStream.foreachBatch(on_batch)
        # With its scheme, because a path alone means the cluster's default file system.
        writer = writer.option("checkpointLocation", Path(checkpoint).as_uri())
        often = f"{int(1000 * self._pulse.seconds)} milliseconds"
        writer = writer.trigger(availableNow=True) if self._pulse.is_once else writer.trigger(processingTime=often)
        query: StreamingQuery = writer.start()
        return query
