"""The job `view`: a Spark query takes the batches of a feed over all sources, and each view applies what concerns it.

A view that is new, or whose definition changed, is built from what there is; all others go on where they stopped. A
view that cannot go on, because the journal no longer has what it needs or the server has lost what it has, is built
anew.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from tidelog import limits
from tidelog.address import ServerAddress
from tidelog.errors import FeedDiverged, TooOld
from tidelog.feeds.span import span_of_prefix
from tidelog.spark.delta.storage import Storage
from tidelog.spark.delta.table import HistoryPoint
from tidelog.spark.jobs.feed_job import FeedJob
from tidelog.spark.jobs.feed_query import BatchTrigger, FeedQuery
from tidelog.spark.jobs.figures import BatchFigures, Figures
from tidelog.spark.jobs.job_lease import Stop
from tidelog.spark.source.feed.origin import ServerOrigin
from tidelog.spark.source.feed.position import ask_oldest
from tidelog.spark.views.keeping.change_reader import ChangeReader, read_everything
from tidelog.spark.views.keeping.folders import check_writable
from tidelog.spark.views.keeping.maintained import MaintainedView
from tidelog.spark.views.naming import lease_of
from tidelog.spark.views.sql.definition import View
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


class ViewJob(FeedJob):
    """Some views, kept from one server. Making one refuses what can be refused without Spark."""

    name: ClassVar[str] = NAME

    def __init__(self, address: ServerAddress, storage: Storage, views: Sequence[View], options: ViewOptions) -> None:
        for view in views:
            plan_view(view)
        trigger = BatchTrigger(options.is_once, options.batch_records, options.trigger_s)
        super().__init__(address, trigger, options.lease_ms, from_followers=options.from_followers)
        self._storage = storage
        self._views = list(views)
        self._kept: list[MaintainedView] = []
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
            "version": each.version,
            "view_rows": each.rows,
            "source_rows": each.source_rows,
            "source": str(each.view.source),
            "sql": each.view.sql,
            "key": json.dumps(list(each.view.key)),
        }

    # --- running --------------------------------------------------------------------------------------------------

    def follow(self, make_spark: Callable[[], SparkSession], stop: Stop) -> None:
        spark = make_spark()
        reader = ChangeReader(self._server, [wanted for view in self._kept for wanted in view.wanted.values()])
        for view in self._kept:
            view.load()
        while True:
            self._begin(spark, stop)
            if stop.is_set():
                return
            try:
                self._take_batches(spark, reader, stop)
                return
            except (TooOld, FeedDiverged) as error:
                self._rebuilt += 1
                if self._rebuilt > limits.VIEW_REBUILDS_MAX:
                    raise
                self._forget(error)

    def _forget(self, error: TooOld | FeedDiverged) -> None:
        """Have the views that cannot go on built anew; all of them if it is not known which."""
        lapsed = []
        if isinstance(error, TooOld):
            oldest = error.oldest or ask_oldest(self._server, span_of_prefix(b""))
            lapsed = [view for view in self._kept if view.point is not None and view.point.ts < oldest]
        for view in lapsed or self._kept:
            view.forget()

    def _begin(self, spark: SparkSession, stop: Stop) -> None:
        """Build the views that are missing, and compare the others with what their rows come to."""
        for view in self._kept:
            if stop.is_set():
                return
            point = view.point
            if point is not None:
                view.reconcile(point)
                continue
            point, changes = read_everything(spark, self._server, list(view.wanted.values()))
            view.build(changes, point)

    def _take_batches(self, spark: SparkSession, reader: ChangeReader, stop: Stop) -> None:
        point = self._point
        assert point is not None
        start = json.dumps({"ts": point.ts, "epoch": point.epoch})
        query = FeedQuery(ServerOrigin(self._server).options(), reader.target, start, self._trigger)
        # A view waits for Spark, for the server and for files in turn, while others go on.
        with ThreadPoolExecutor(limits.VIEW_THREADS, "view") as threads:
            query.run(spark, lambda parts: self._take(reader, parts, threads), stop)
        for view in self._kept:
            view.note()

    def _take(self, reader: ChangeReader, parts: Any, threads: ThreadPoolExecutor) -> None:
        begun = time.monotonic()
        point, changes = reader.changes(parts)
        applied = [threads.submit(view.apply, changes, point) for view in self._kept]
        wait(applied)  # if one fails, the others still end where the batch does
        self._changed += sum(each.result() for each in applied)
        self._batches.add(sum(map(len, changes.values())), time.monotonic() - begun)
