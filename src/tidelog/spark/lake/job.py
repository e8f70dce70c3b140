"""The job `lake`: a Spark query takes the batches, and this thread does the rest.

    Spark's thread     batch after batch: tasks read the feed and write files, which are committed (`batches`)
    this thread        folds `changes` into `current`, compacts small files, removes old ones

The tables are the checkpoint: a start asks `changes` where to go on.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from tidelog import limits
from tidelog.address import ServerAddress
from tidelog.errors import ClientError, FeedDiverged, TooOld
from tidelog.feeds.span import Span, span_of_prefix
from tidelog.spark.delta.storage import Storage
from tidelog.spark.delta.table import HistoryPoint
from tidelog.spark.jobs.feed_job import FeedJob
from tidelog.spark.jobs.feed_query import BatchTrigger, FeedQuery
from tidelog.spark.jobs.figures import Figures
from tidelog.spark.jobs.job_lease import Stop
from tidelog.spark.jobs.report import OWN_KEYS
from tidelog.spark.lake.batches import BatchCommitter, BatchTotals
from tidelog.spark.lake.current import Current
from tidelog.spark.lake.executors import Executors
from tidelog.spark.lake.layout import BAD, CHANGES, CURRENT, ENTRIES
from tidelog.spark.lake.tables import LakeTable, open_table
from tidelog.spark.lake.upkeep import compact, vacuum
from tidelog.spark.source.feed.origin import FeedOrigin, ServerOrigin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME: Final = "lake"
STARTS: Final = ("auto", "earliest", "initial", "latest")


@dataclass(frozen=True, slots=True)
class LakeOptions:
    """What a lake holds, and how it is kept."""

    prefixes: tuple[str, ...] = ()
    """Prefixes of the keys; none: all keys."""
    start: str = "auto"
    """Where a new lake begins: one of `STARTS`."""
    is_json: bool = False
    is_once: bool = True
    """End when there is nothing left."""
    batch_records: int = limits.LAKE_BATCH_RECORDS
    trigger_s: float = limits.LAKE_TRIGGER_S
    is_compacting: bool = True
    vacuum_hours: int | None = None
    lease_ms: int = limits.LEASE_MS_DEFAULT
    from_followers: bool = False
    """Of several servers, tasks read from those that follow, if they can."""

    @property
    def spans(self) -> tuple[Span, ...]:
        return tuple(dict.fromkeys(span_of_prefix(prefix.encode()) for prefix in self.prefixes or ("",)))

    def about(self, database: int) -> str:
        """The settings that must stay the same for a lake, as text."""
        said = {"database": database, "prefixes": sorted(self.prefixes), "json": self.is_json}
        return json.dumps(said, separators=(",", ":"))

    def check(self) -> None:
        if self.start not in STARTS:
            raise ClientError(f"--start {self.start!r}: give one of {', '.join(STARTS)}")
        for prefix in self.prefixes:
            if prefix.encode().startswith(OWN_KEYS):
                raise ClientError(f"--prefix {prefix!r}: a lake does not hold the reports of jobs")
        if len(self.prefixes) > limits.FEED_SPANS_MAX:
            raise ClientError(f"there are {len(self.prefixes)} prefixes, more than {limits.FEED_SPANS_MAX}")


class LakeJob(FeedJob):
    """One lake, kept from one server, or from a copy."""

    name: ClassVar[str] = NAME

    def __init__(
        self,
        address: ServerAddress,
        storage: Storage,
        options: LakeOptions,
        on_batch: Callable[[BatchTotals], object] = lambda _: None,
        copy: FeedOrigin | None = None,
    ) -> None:
        """`copy`: it is read in place of the server, of which nothing is asked."""
        options.check()
        trigger = BatchTrigger(options.is_once, options.batch_records, options.trigger_s)
        super().__init__(address, trigger, options.lease_ms, from_followers=options.from_followers)
        self._storage = storage
        self._options = options
        self._on_batch = on_batch
        self._copy = copy
        self._batches: BatchCommitter | None = None
        self._current: Current | None = None
        self._looked_at: int | None = None
        """How far batches were when `current` last looked for changes."""
        self._compacted = self._vacuumed = 0
        self._began = self._upkept = time.monotonic()

    def run(self, make_spark: Callable[[], SparkSession], stop: Stop) -> None:
        if self._copy is None:
            super().run(make_spark, stop)
        else:  # there is nobody to take a lease of: of two jobs on one table, the second one's commit fails
            self.follow(make_spark, stop)

    @property
    def _origin(self) -> FeedOrigin:
        return ServerOrigin(self._server) if self._copy is None else self._copy

    def told(self) -> Figures:
        if self._copy is None:
            return super().told()
        return {"state": "running", "updated_ms": time.time_ns() // 1_000_000, **self.totals()}

    def lease_names(self) -> str:
        return f"{NAME}:{hashlib.sha256(self._storage.root.encode()).hexdigest()[:16]}"

    def prepare(self, make_spark: Callable[[], SparkSession]) -> None:
        """Tables are opened, and perhaps made, only by the job that holds the lease."""

    def done_ts(self) -> int | None:
        return self._batches.taken.ts if self._batches else None

    def totals(self) -> Figures:
        taken = self._batches.taken if self._batches else BatchTotals()
        current = self._current
        return {
            **taken.figures(),
            "current_ts": None if current is None else max(0, current.table.ts),
            "passes": 0 if current is None else current.passes,
            "pass_seconds": None if current is None else round(current.last_s, 3),
            "files_compacted": self._compacted,
            "files_vacuumed": self._vacuumed,
        }

    # --- running --------------------------------------------------------------------------------------------------

    def follow(self, make_spark: Callable[[], SparkSession], stop: Stop) -> None:
        tables = self._open()
        start = self._begin(tables)
        self._batches = BatchCommitter(tables, self._origin, self._options.spans, self._on_batch)
        # With its own `changes` table object, because batches are committed while it reads.
        executors = Executors(make_spark)
        current = self._current = Current(self._table(CURRENT), self._table(CHANGES), self._shard_count(), executors)
        query = FeedQuery(self._origin.options(), "*", start, self._trigger)
        try:
            query.run(make_spark(), self._batches.take, stop, lambda: self._work_between(tables, current, executors))
        except (TooOld, FeedDiverged) as error:
            raise _ended(error, self._storage.root, self._copy) from None
        self._batches.finish()
        if not stop.is_set():
            current.refresh()
            current.catch_up()
            self._tidy(tables, current, executors)

    def _begin(self, tables: Mapping[str, LakeTable]) -> str:
        try:
            return self._start(tables)
        except (TooOld, FeedDiverged) as error:
            raise _ended(error, self._storage.root, self._copy) from None

    def _shard_count(self) -> int:
        return len(self._origin.position().shards)

    def _open(self) -> dict[str, LakeTable]:
        names = [CHANGES, CURRENT, ENTRIES, *([BAD] if self._options.is_json else [])]
        return {name: self._table(name) for name in names}

    def _table(self, name: str) -> LakeTable:
        return open_table(self._storage, name, self._options.about(self._origin.database))

    def _start(self, tables: Mapping[str, LakeTable]) -> str:
        """Where the query begins. For a new lake this is committed at once: later, `latest` is another moment."""
        changes = tables[CHANGES]
        point = changes.point
        points = [its for table in tables.values() if (its := table.point) is not None]
        if point is None and points:
            # A job that began with the values of now was killed. Only such a beginning replaces what it left.
            return "initial"
        if point is None:
            start = self._options.start
            oldest = self._origin.oldest(self._options.spans[0])
            if start == "auto":
                start = "initial" if oldest else "earliest"
            if start == "initial":
                return start
            position = self._origin.position()
            point = HistoryPoint(position.visible if start == "latest" else oldest, position.epoch)
            changes.commit([], point)
        # Other tables may be ahead of `changes`, and what they have must still be part of the history too. So the epoch
        # is that of the furthest table.
        seen = max([point, *points])
        self._origin.refuse_lost(point.ts, seen.epoch, seen.ts)
        return json.dumps({"ts": point.ts, "epoch": seen.epoch, "seen": seen.ts})

    def _work_between(self, tables: Mapping[str, LakeTable], current: Current, executors: Executors) -> None:
        """The work between batches. It is called all the time, but looks at tables only after a batch.

        Passes wait for the first batch: they would delay it, because Spark is busy with coming up.
        """
        assert self._batches is not None
        ts = self._batches.taken.ts
        if ts != self._looked_at:
            current.refresh()
            self._looked_at = ts
        has_come_up = self._batches.has_taken or time.monotonic() - self._began >= limits.LAKE_FIRST_BATCH_S
        if current.is_due and has_come_up:
            current.run_pass()
        elif current.has_begun and time.monotonic() - self._upkept >= limits.LAKE_UPKEEP_S:
            self._tidy(tables, current, executors, hours_min=1)
            self._looked_at = None

    def _tidy(
        self, tables: Mapping[str, LakeTable], current: Current, executors: Executors, *, hours_min: int = 0
    ) -> None:
        """Compact and vacuum. `hours_min`: files of running tasks, which no table has yet, must not be removed."""
        assert self._batches is not None
        hours = self._options.vacuum_hours
        hours = None if hours is None else max(hours, hours_min)
        with self._batches.committing:
            for table in tables.values():
                if table.name == CURRENT:
                    table = current.table
                table.refresh()
                if self._options.is_compacting:
                    self._compacted += compact(table, current.table.ts, executors)
                self._vacuumed += vacuum(table, hours)
        self._upkept = time.monotonic()


def _ended(error: TooOld | FeedDiverged, root: str, copy: FeedOrigin | None) -> ClientError:
    """The error that says why a lake cannot go on, and what to do."""
    journal, who = ("the server's journal", "the server") if copy is None else (copy.url, copy.url)
    if isinstance(error, TooOld):
        why = f"the lake at {root} cannot go on: {journal} no longer has what came after it"
    else:
        why = (
            f"the lake at {root} has changes that {who} has lost (it crashed, or is another server): "
            f"{str(error).partition('. ')[0]}"
        )
    return ClientError(f"{why}. Begin a new one in another folder, with --start initial")
