"""The job `lake`: a query of Spark's takes the batches, and this thread sees to all that is made of them.

    Spark's thread     batch after batch: tasks read the feed and write files, which are committed (`batches`)
    this thread        folds `changes` into `current`, puts small files together, removes old ones

The tables are the checkpoint: a start asks `changes` where to go on.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidelog import limits
from tidelog.address import ServerAddress
from tidelog.errors import ClientError, FeedDiverged, TooOld
from tidelog.feeds.span import Span, span_of_prefix
from tidelog.redis_client import connect
from tidelog.spark.endpoint import Endpoint
from tidelog.spark.feed_places import ask_oldest, ask_position, explored_feed_server
from tidelog.spark.jobs.feed_query import FeedQuery, Pulse, while_it_answers
from tidelog.spark.jobs.holding import Holding, Stop
from tidelog.spark.jobs.report import Figures, Lag
from tidelog.spark.lake.batches import Batches, Taken
from tidelog.spark.lake.current import Current
from tidelog.spark.lake.layout import BAD, CHANGES, CURRENT, ENTRIES
from tidelog.spark.lake.storage import Storage
from tidelog.spark.lake.tables import LakeTable, Place, open_table
from tidelog.spark.lake.task import OWN_KEYS
from tidelog.spark.lake.upkeep import compact, vacuum

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME: Final = "lake"
STARTS: Final = ("auto", "earliest", "initial", "latest")


@dataclass(frozen=True, slots=True)
class LakeOptions:
    """What is kept, and how."""

    prefixes: tuple[str, ...] = ()
    """Of the keys; none: all keys."""
    start: str = "auto"
    """Where a new lake begins: one of `STARTS`."""
    is_json: bool = False
    is_once: bool = True
    """Take what there is, and end."""
    batch_records: int = limits.LAKE_BATCH_RECORDS
    trigger_s: float = limits.LAKE_TRIGGER_S
    is_compacting: bool = True
    vacuum_hours: int | None = None
    lease_ms: int = limits.LEASE_MS_DEFAULT

    @property
    def spans(self) -> tuple[Span, ...]:
        return tuple(dict.fromkeys(span_of_prefix(prefix.encode()) for prefix in self.prefixes or ("",)))

    def about(self, database: int) -> str:
        """What must be the same for a lake whenever it is kept."""
        said = {"database": database, "prefixes": sorted(self.prefixes), "json": self.is_json}
        return json.dumps(said, separators=(",", ":"))

    def check(self) -> None:
        if self.start not in STARTS:
            raise ClientError(f"--start {self.start!r}: it is one of {', '.join(STARTS)}")
        for prefix in self.prefixes:
            if prefix.encode().startswith(OWN_KEYS):
                raise ClientError(f"--prefix {prefix!r}: what jobs say about themselves is in no lake")
        if len(self.prefixes) > limits.FEED_SPANS_MAX:
            raise ClientError(f"there are {len(self.prefixes)} prefixes: at most {limits.FEED_SPANS_MAX} can be")


class LakeJob:
    """One lake, kept from one server."""

    def __init__(
        self,
        address: ServerAddress,
        storage: Storage,
        options: LakeOptions,
        on_batch: Callable[[Taken], object] = lambda _: None,
    ) -> None:
        options.check()
        self.address = address
        self._storage = storage
        self._options = options
        self._on_batch = on_batch
        self._server = Endpoint(address)
        self._batches: Batches | None = None
        self._current: Current | None = None
        self._looked_at: int | None = None
        """How far batches were when `current` last looked for changes."""
        self._compacted = self._vacuumed = 0
        self._upkept = time.monotonic()
        self._lag: Lag | None = None
        self._holding: Holding | None = None

    def figures(self) -> Figures:
        """How far it is, and how far the server is ahead."""
        lag = {} if self._lag is None else self._lag.of(self._batches.taken.ts if self._batches else None)
        return {**lag, **self.totals()}

    def totals(self) -> Figures:
        """What was done, without asking the server anything."""
        taken = self._batches.taken if self._batches else Taken()
        current = self._current
        return {
            **taken.figures(),
            "current_ts": None if current is None else max(0, current.table.ts),
            "passes": 0 if current is None else current.passes,
            "pass_seconds": None if current is None else round(current.last_s, 3),
            "files_compacted": self._compacted,
            "files_vacuumed": self._vacuumed,
        }

    def told(self) -> Figures:
        """What was last reported."""
        return {} if self._holding is None else self._holding.told.get(NAME, {})

    # --- running --------------------------------------------------------------------------------------------------

    def run(self, make_spark: Callable[[], SparkSession], stop: Stop) -> None:
        """Until there is nothing left, or it is stopped."""
        self._server = explored_feed_server(self._server)
        lease = f"{NAME}:{hashlib.sha256(self._storage.root.encode()).hexdigest()[:16]}"
        with connect(self.address) as client:
            self._lag = Lag(client)
            self._holding = Holding.take(
                client, NAME, stop, self.figures, lease=lease, ttl_ms=self._options.lease_ms, is_fenced=False
            )
            with self._holding:
                while_it_answers(lambda: self._run(make_spark, stop), stop, is_once=self._options.is_once)
                self._holding.state = "stopped" if stop.is_set() else "done"

    def _run(self, make_spark: Callable[[], SparkSession], stop: Stop) -> None:
        tables = self._open()
        start = self._start(tables)
        self._batches = Batches(tables, self._server, self._options.spans, self._on_batch)
        # Its own view of `changes`: batches are committed while it reads.
        current = self._current = Current(self._table(CURRENT), self._table(CHANGES))
        pulse = Pulse(self._options.is_once, self._options.batch_records, self._options.trigger_s)
        query = FeedQuery(self._server, "*", start, pulse)
        try:
            query.run(make_spark(), self._batches.take, stop, lambda: self._see_to(tables, current))
        except (TooOld, FeedDiverged) as error:
            raise _ended(error, self._storage.root) from None
        self._batches.finish()
        if not stop.is_set():
            current.refresh()
            current.catch_up()
            self._tidy(tables, current)

    def _open(self) -> dict[str, LakeTable]:
        names = [CHANGES, CURRENT, ENTRIES, *([BAD] if self._options.is_json else [])]
        return {name: self._table(name) for name in names}

    def _table(self, name: str) -> LakeTable:
        return open_table(self._storage, name, self._options.about(self._server.database))

    def _start(self, tables: Mapping[str, LakeTable]) -> str:
        """Where the query begins; that of a new lake is written down at once, for `latest` is another moment later."""
        changes = tables[CHANGES]
        place = changes.place
        places = [its for table in tables.values() if (its := table.place) is not None]
        if place is None and places:
            return "initial"  # a job that began so was killed, and only another such replaces what it left
        if place is None:
            start = self._options.start
            oldest = ask_oldest(self._server, self._options.spans[0])
            if start == "auto":
                start = "initial" if oldest else "earliest"
            if start == "initial":
                return start
            with self._server.connect() as client:
                position = ask_position(client)
            place = Place(position.visible if start == "latest" else oldest, position.epoch)
            changes.commit([], place)
        # Others may be ahead of `changes`, and what they have must still be history as well. The epoch is that of the
        # furthest: up to there it was read in one go with what is before it.
        seen = max([place, *places])
        return json.dumps({"ts": place.ts, "epoch": seen.epoch, "seen": seen.ts})

    def _see_to(self, tables: Mapping[str, LakeTable], current: Current) -> None:
        """What is to be done while batches are taken. It is called all the time: tables are looked at after a batch."""
        assert self._batches is not None
        ts = self._batches.taken.ts
        if ts != self._looked_at:
            current.refresh()
            self._looked_at = ts
        if current.is_due:
            current.run_pass()
        elif current.has_begun and time.monotonic() - self._upkept >= limits.LAKE_UPKEEP_S:
            self._tidy(tables, current, hours_min=1)
            self._looked_at = None

    def _tidy(self, tables: Mapping[str, LakeTable], current: Current, *, hours_min: int = 0) -> None:
        """`hours_min`: tasks may be at work, whose files no table has yet."""
        assert self._batches is not None
        hours = self._options.vacuum_hours
        hours = None if hours is None else max(hours, hours_min)
        with self._batches.committing:
            for table in tables.values():
                if table.name == CURRENT:
                    table = current.table
                table.refresh()
                if self._options.is_compacting:
                    self._compacted += compact(table)
                self._vacuumed += vacuum(table, hours)
        self._upkept = time.monotonic()


def _ended(error: TooOld | FeedDiverged, root: str) -> ClientError:
    """Why a lake cannot go on, and what to do."""
    if isinstance(error, TooOld):
        why = f"the lake at {root} cannot go on: the server's journal no longer has what came after it"
    else:
        why = (
            f"the lake at {root} has changes that the server has lost (it crashed, or is another server): "
            f"{str(error).partition('. ')[0]}"
        )
    return ClientError(f"{why}. Begin a new one in another folder, with --start initial")
