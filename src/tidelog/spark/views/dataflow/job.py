"""The job `view`: a Spark query takes the batches of a feed over all sources, and each view applies what concerns it.

    parts of a batch ── one job reads them, and divides the changes by view and bucket ──> a job for each view

A view that is new, or whose definition changed, is built from what there is; all others go on where they stopped. A
view that cannot go on, because the journal no longer has what it needs, the server has lost what it has, or its state
is damaged, is built anew. A view that reads the hashes of another one is built after it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from pyspark.errors import PySparkException

from tidelog import limits
from tidelog.address import ServerAddress
from tidelog.errors import FeedDiverged, TooOld
from tidelog.feeds.span import span_of_prefix
from tidelog.spark.delta.storage import Storage
from tidelog.spark.delta.table import HistoryPoint
from tidelog.spark.endpoint import call
from tidelog.spark.jobs.feed_job import FeedJob
from tidelog.spark.jobs.feed_query import BatchTrigger, FeedQuery
from tidelog.spark.jobs.figures import BatchFigures, Figures
from tidelog.spark.jobs.job_lease import Stop
from tidelog.spark.jobs.query_error import explained
from tidelog.spark.runs.run_files import RunLost
from tidelog.spark.source.feed.origin import ServerOrigin
from tidelog.spark.source.feed.position import ask_oldest
from tidelog.spark.views.dataflow.change_reader import ChangeReader, ask_now
from tidelog.spark.views.dataflow.folders import STATE, check_writable
from tidelog.spark.views.dataflow.maintained import MaintainedView
from tidelog.spark.views.naming import lease_of
from tidelog.spark.views.sql.definition import View, in_order
from tidelog.spark.views.sql.query import plan_view

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME: Final = "view"


@dataclass(frozen=True, slots=True)
class ViewOptions:
    """How views are kept."""

    is_once: bool = True
    """End when there is nothing left."""
    batch_records: int = limits.VIEW_BATCH_RECORDS
    trigger_s: float = limits.VIEW_TRIGGER_S
    lease_ms: int = limits.LEASE_MS_DEFAULT
    from_followers: bool = False
    """Of several servers, tasks read from those that follow, if they can."""
    buckets: int | None = None
    """Into how many buckets a view that is built is divided; None: as its source is large."""


class ViewJob(FeedJob):
    """Some views, kept from one server. Making one refuses what can be refused without Spark."""

    name: ClassVar[str] = NAME

    def __init__(self, address: ServerAddress, storage: Storage, views: Sequence[View], options: ViewOptions) -> None:
        for view in views:
            plan_view(view)
        trigger = BatchTrigger(options.is_once, options.batch_records, options.trigger_s)
        super().__init__(address, trigger, options.lease_ms, from_followers=options.from_followers)
        self._storage = storage
        ordered = in_order(views)
        self._views = [view for view, _ in ordered]
        self._depth = max((depth for _, depth in ordered), default=0)
        """How many views lie behind one another: each reads what the one before has written."""
        self._kept: list[MaintainedView] = []
        self._buckets = options.buckets
        self._batches = BatchFigures()
        self._changed = 0
        self._rebuilt = 0

    def lease_names(self) -> list[str]:
        return [lease_of(view.name) for view in self._views]

    def prepare(self, make_spark: Callable[[], SparkSession]) -> None:
        check_writable(self._storage)
        spark = make_spark()
        self._kept = [MaintainedView(spark, self._storage, self._server, view) for view in self._views]

    @property
    def _point(self) -> HistoryPoint | None:
        """How far all views are."""
        points = [view.point for view in self._kept]
        known = [point for point in points if point is not None]
        return min(known) if known and len(known) == len(points) else None

    def done_ts(self) -> int | None:
        point = self._point
        return None if point is None else point.ts

    def totals(self) -> Figures:
        return {**self._batches.figures(), "views": len(self._kept), "changed": self._changed}

    def parts(self) -> dict[str, Figures]:
        """The figures of each view."""
        return {lease_of(each.view.name): self._figures_of(each) for each in self._kept}

    def _figures_of(self, each: MaintainedView) -> Figures:
        point = each.point
        return {
            "ts": None if point is None else point.ts,
            "table_ts": each.table_ts,
            "version": each.version,
            "view_rows": each.rows,
            "source_rows": each.source_rows,
            "state_bytes": each.state_bytes,
            "buckets": each.buckets,
            "source": str(each.view.source),
            "sql": each.view.sql,
            "key": json.dumps(list(each.view.key)),
        }

    # --- running --------------------------------------------------------------------------------------------------

    def follow(self, make_spark: Callable[[], SparkSession], stop: Stop) -> None:
        spark = make_spark()
        try:
            for view in self._kept:
                view.load()
            while True:
                try:
                    self._begin(spark, stop)
                    # A run that ends takes what there was when it began: views of views are behind by what it wrote.
                    for _ in range(1 + self._depth if self._trigger.is_once else 1):
                        if stop.is_set():
                            return
                        self._take_batches(spark, stop)
                    return
                except (TooOld, FeedDiverged, RunLost) as error:
                    self._rebuilt += 1
                    if self._rebuilt > limits.VIEW_REBUILDS_MAX:
                        raise
                    self._forget(error)
        finally:
            for view in self._kept:
                view.close()

    def _forget(self, error: TooOld | FeedDiverged | RunLost) -> None:
        """Have the views that cannot go on built anew; all of them if it is not known which."""
        lapsed = []
        if isinstance(error, RunLost):
            lapsed = [view for view in self._kept if f"{STATE}/{view.view.name}/" in str(error)]
        elif isinstance(error, TooOld):
            oldest = error.oldest or ask_oldest(self._server, span_of_prefix(b""))
            lapsed = [view for view in self._kept if view.point is not None and view.point.ts < oldest]
        for view in lapsed or self._kept:
            view.forget()

    def _begin(self, spark: SparkSession, stop: Stop) -> None:
        """Build the views that are missing, and compare the others with what their rows come to."""
        for view in self._kept:
            if stop.is_set():
                return
            try:
                point = view.point
                if point is not None:
                    view.reconcile(point)
                    continue
                position = ask_now(self._server)
                view.build(position, self._buckets or self._buckets_for(view, spark))
            except PySparkException as error:
                raise explained(error, None) from None

    def _buckets_for(self, view: MaintainedView, spark: SparkSession) -> int:
        """So many that all cores have a task, and that a task can hold what is new of its bucket in memory."""
        with self._server.connect() as client:
            source = view.view.source
            words = ("XLEN", source.target) if source.kind == "stream" else ("DBSIZE",)
            rows = int(call(client, *words))
        wanted = max(spark.sparkContext.defaultParallelism, -(-rows // limits.VIEW_BUCKET_ROWS))
        return min(max(wanted, limits.VIEW_BUCKETS_MIN), limits.VIEW_BUCKETS_MAX)

    def _take_batches(self, spark: SparkSession, stop: Stop) -> None:
        point = self._point
        assert point is not None
        start = json.dumps({"ts": point.ts, "epoch": point.epoch})
        names = [(view, name) for view in self._kept for name in view.sources]
        reader = ChangeReader(self._server, tuple(view.wanted()[name] for view, name in names))
        query = FeedQuery(ServerOrigin(self._server).options(), reader.target, start, self._trigger)
        # A view waits for Spark, for the server and for files in turn, while others go on.
        with ThreadPoolExecutor(limits.VIEW_THREADS, "view") as threads:
            query.run(spark, lambda parts: self._take(reader, names, parts, threads), stop, self._tend)
        for view in self._kept:
            view.note()

    def _tend(self) -> None:
        try:
            for view in self._kept:
                view.tend()
        except PySparkException as error:
            raise explained(error, None) from None

    def _take(
        self, reader: ChangeReader, names: list[tuple[MaintainedView, str]], parts: Any, threads: ThreadPoolExecutor
    ) -> None:
        begun = time.monotonic()
        read = reader.read(parts)
        try:
            applied = []
            for view in self._kept:
                if view.point is None or view.point >= read.point:
                    continue
                of_view = {number: name for number, (each, name) in enumerate(names) if each is view}
                is_cleared = any(number in read.cleared for number in of_view)
                blobs = {
                    name: read.blobs.where(f"what = {number}")
                    for number, name in of_view.items()
                    if read.rows.get(number)
                }
                applied.append(
                    threads.submit(view.apply, blobs, read.point, is_cleared=is_cleared, session=parts.sparkSession)
                )
            wait(applied)  # if one fails, the others still end where the batch does
            self._changed += sum(each.result() for each in applied)
        finally:
            read.blobs.unpersist()
        self._batches.add(sum(read.rows.values()), time.monotonic() - begun)
