"""The job `view`: a query of Spark's takes the batches of a feed over all sources, and each view takes in what is its.

What is new, or was defined otherwise before, is built from what there is; all others go on where they stopped. A view
that cannot go on, because the journal no longer has what it needs or the server has lost what it has, is built anew.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tidelog import limits
from tidelog.address import ServerAddress
from tidelog.errors import FeedDiverged, TooOld
from tidelog.feeds.span import span_of_prefix
from tidelog.redis_client import connect
from tidelog.spark.endpoint import Endpoint
from tidelog.spark.feed_parts import PARTS
from tidelog.spark.feed_places import ask_oldest, ask_position, explored_feed_server
from tidelog.spark.jobs.feed_query import FeedQuery, Pulse, while_it_answers
from tidelog.spark.jobs.holding import Holding, Stop
from tidelog.spark.jobs.report import Batches, Figures, Lag
from tidelog.spark.lake.storage import Storage
from tidelog.spark.lake.tables import Place
from tidelog.spark.views.definition import View
from tidelog.spark.views.folders import make_sure_of
from tidelog.spark.views.maintained import MaintainedView
from tidelog.spark.views.naming import lease_of
from tidelog.spark.views.query import plan
from tidelog.spark.views.reading import Reader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME: Final = "view"


@dataclass(frozen=True, slots=True)
class ViewOptions:
    """How views are kept."""

    is_once: bool = True
    """Take what there is, and end."""
    batch_records: int = limits.VIEW_BATCH_RECORDS
    trigger_s: float = limits.VIEW_TRIGGER_S
    lease_ms: int = limits.LEASE_MS_DEFAULT


class ViewJob:
    """Some views, kept from one server. Making one refuses what can be refused without Spark."""

    def __init__(self, address: ServerAddress, storage: Storage, views: Sequence[View], options: ViewOptions) -> None:
        for view in views:
            plan(view)
        self._address = address
        self._storage = storage
        self._views = list(views)
        self._options = options
        self._kept: list[MaintainedView] = []
        self._batches = Batches()
        self._changed = 0
        self._rebuilt = 0
        self._lag: Lag | None = None
        self._holding: Holding | None = None

    @property
    def _place(self) -> Place | None:
        """Up to where all of them are."""
        places = [view.place for view in self._kept]
        known = [place for place in places if place is not None]
        return min(known) if known and len(known) == len(places) else None

    def figures(self) -> Figures:
        place = self._place
        lag = {} if self._lag is None else self._lag.of(None if place is None else place.ts)
        return {**lag, **self.totals()}

    def totals(self) -> Figures:
        """What was done, without asking the server anything."""
        return {**self._batches.figures(), "views": len(self._kept), "changed": self._changed}

    def told(self) -> Figures:
        """What was last reported."""
        return {} if self._holding is None else self._holding.told.get(NAME, {})

    def parts(self) -> dict[str, Figures]:
        """The figures of each view."""
        return {lease_of(each.view.name): self._figures_of(each) for each in self._kept}

    def _figures_of(self, each: MaintainedView) -> Figures:
        place = each.place
        return {
            "ts": None if place is None else place.ts,
            "version": each.version,
            "view_rows": each.rows,
            "source_rows": each.source_rows,
            "source": str(each.view.source),
            "sql": each.view.sql,
            "key": json.dumps(list(each.view.key)),
        }

    # --- running --------------------------------------------------------------------------------------------------

    def run(self, make_spark: Callable[[], SparkSession], stop: Stop) -> None:
        """Until there is nothing left, or it is stopped."""
        server = explored_feed_server(Endpoint(self._address))
        make_sure_of(self._storage)
        spark = make_spark()
        self._kept = [MaintainedView(spark, self._storage, server, view) for view in self._views]
        with connect(self._address) as client:
            self._lag = Lag(client)
            self._holding = Holding.take(
                client,
                NAME,
                stop,
                self.figures,
                lease=[lease_of(view.name) for view in self._views],
                parts=self.parts,
                ttl_ms=self._options.lease_ms,
                is_fenced=False,
            )
            with self._holding:
                while_it_answers(lambda: self._run(spark, server, stop), stop, is_once=self._options.is_once)
                self._holding.state = "stopped" if stop.is_set() else "done"

    def _run(self, spark: SparkSession, server: Endpoint, stop: Stop) -> None:
        reader = Reader(server, [wanted for view in self._kept for wanted in view.wanted.values()])
        for view in self._kept:
            view.load()
        while True:
            self._begin(spark, server, stop)
            if stop.is_set():
                return
            try:
                self._follow(spark, server, reader, stop)
                return
            except (TooOld, FeedDiverged) as error:
                self._rebuilt += 1
                if self._rebuilt > limits.VIEW_REBUILDS_MAX:
                    raise
                self._forget(error, server)

    def _forget(self, error: TooOld | FeedDiverged, server: Endpoint) -> None:
        """The views that cannot go on; all of them if it is not known which."""
        lapsed = []
        if isinstance(error, TooOld):
            oldest = error.oldest or ask_oldest(server, span_of_prefix(b""))
            lapsed = [view for view in self._kept if view.place is not None and view.place.ts < oldest]
        for view in lapsed or self._kept:
            view.forget()

    def _begin(self, spark: SparkSession, server: Endpoint, stop: Stop) -> None:
        """Build what is not there, and look over what is."""
        for view in self._kept:
            if stop.is_set():
                return
            place = view.place
            if place is not None:
                view.reconcile(place)
                continue
            place, changes = everything(spark, server, view)
            view.build(changes, place)

    def _follow(self, spark: SparkSession, server: Endpoint, reader: Reader, stop: Stop) -> None:
        place = self._place
        assert place is not None
        start = json.dumps({"ts": place.ts, "epoch": place.epoch})
        pulse = Pulse(self._options.is_once, self._options.batch_records, self._options.trigger_s)
        query = FeedQuery(server, reader.target, start, pulse)
        # A view waits for Spark, for the server and for files in turn; others go on meanwhile.
        with ThreadPoolExecutor(limits.VIEW_THREADS, "view") as threads:
            query.run(spark, lambda parts: self._take(reader, parts, threads), stop)
        for view in self._kept:
            view.note()

    def _take(self, reader: Reader, parts: Any, threads: ThreadPoolExecutor) -> None:
        begun = time.monotonic()
        place, changes = reader.changes(parts)
        applied = [threads.submit(view.apply, changes, place) for view in self._kept]
        wait(applied)  # whatever becomes of one, no other is left in the middle
        self._changed += sum(each.result() for each in applied)
        self._batches.add(sum(map(len, changes.values())), time.monotonic() - begun)


def everything(spark: SparkSession, server: Endpoint, view: MaintainedView) -> tuple[Place, Mapping[Any, pa.Table]]:
    """All rows of a view's sources, and a place from which changes are to be taken in afterwards."""
    reader = Reader(server, list(view.wanted.values()))
    with server.connect() as client:
        position = ask_position(client)
    parts = [
        {"shard": shard, "since": 0, "until": position.visible, "is_initial": True, "until_epoch": position.epoch}
        for shard in position.shards
    ]
    rows = [tuple(part.get(name) for name in PARTS.names) for part in parts]
    frame = spark.createDataFrame(rows, PARTS)
    return Place(position.visible, position.epoch), reader.everything(spark, frame)
