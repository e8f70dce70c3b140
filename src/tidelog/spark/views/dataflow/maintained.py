"""One view that is kept up to date: its state in the lake, and what a batch of changes does to it.

    rows of the source and of lookups, groups, values     runs (`spark.runs`), listed in one commit
    hashes                                                on the server, written by tasks
    table                                                 for every reader of the lake

A batch is one Spark job (`flow`). The runs that it wrote count once the list that names them is committed, and that
comes last, after the hashes. If the job is killed before, the next run goes on from the earlier list: changes are
applied again, and lead to the same result. As its batches may end elsewhere, a run begins by correcting all hashes
(`correction`).

The table follows: it is written bucket by bucket, after the batch, and takes a part of the time only. It says itself
how far it is. A view whose source does not change still records now and then how far it is, because the journal may
erase what lies behind.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.fs as pa_fs
from pyspark.sql import DataFrame, SparkSession

from tidelog import limits
from tidelog.spark.delta.storage import Storage
from tidelog.spark.delta.table import HistoryPoint
from tidelog.spark.endpoint import Endpoint
from tidelog.spark.runs.run_files import RunFiles
from tidelog.spark.runs.run_lists import RunLists, RunLog
from tidelog.spark.views.dataflow.change_reader import ChangeReader, SourceColumns, WantedRows
from tidelog.spark.views.dataflow.components import KeptParts
from tidelog.spark.views.dataflow.correction import Correction
from tidelog.spark.views.dataflow.evaluation import Evaluation
from tidelog.spark.views.dataflow.flow import SOURCE, ViewFlow, gathering
from tidelog.spark.views.dataflow.folders import STATE
from tidelog.spark.views.dataflow.group_task import TABLE as GROUPS
from tidelog.spark.views.dataflow.hashes import Hashes
from tidelog.spark.views.dataflow.merge_job import Merges
from tidelog.spark.views.dataflow.result_table import ResultTable
from tidelog.spark.views.dataflow.row_task import rows_table
from tidelog.spark.views.dataflow.shown_rows import ShownRows
from tidelog.spark.views.dataflow.told import Told, number_of, runs_of
from tidelog.spark.views.sql.definition import View
from tidelog.spark.views.sql.query import plan_view

_FORMAT: Final = "1"
"""Of the state. Another one is built anew."""


class MaintainedView:
    """A view that is kept. Making one checks its definition, and changes nothing."""

    def __init__(self, spark: SparkSession, storage: Storage, server: Endpoint, view: View) -> None:
        self.view = view
        plan = plan_view(view)
        if len(plan.columns) > limits.VIEW_COLUMNS_MAX:
            raise view.refusal(f"it names {len(plan.columns)} columns, more than {limits.VIEW_COLUMNS_MAX}")
        self._evaluation = Evaluation(spark, view, plan)
        self.plan = self._evaluation.plan
        columns = {SOURCE: (view.source, self.plan.columns)}
        columns |= {name: (view.lookups[name], named) for name, named in self.plan.lookups.items()}
        self.sources = {
            name: SourceColumns(source.kind, source.target, named) for name, (source, named) in columns.items()
        }
        self._storage = storage
        self._server = server
        self._folder = f"{server.database}-{view.digest[:16]}-{_FORMAT}"
        folder = f"{STATE}/{view.name}/{self._folder}"
        self._files = RunFiles(storage, f"{folder}/runs")
        self._log = RunLog(storage, f"{folder}/lists")
        self._lists = RunLists(1)
        self._hashes = Hashes(server, view.name, tuple(self._evaluation.result.names))
        self._table = ResultTable(storage, view, self._evaluation.result, server.database)
        self._merges = Merges(self._files)
        self._token = secrets.token_hex(4)
        self._batch = 0
        self._dirty: set[int] = set()
        """Buckets whose rows the table does not have yet."""
        self._table_s = 0.0
        """How long it took to write the table the last time ..."""
        self._table_at = 0.0
        """... and when that was."""
        self._changing = threading.Lock()
        """Held by who changes the lists, or writes the table."""
        self._point: HistoryPoint | None = None
        self._logged: HistoryPoint | None = None
        self._logged_at = time.monotonic()

    @property
    def point(self) -> HistoryPoint | None:
        """How far the view is; None: it is not built."""
        return self._point

    @property
    def buckets(self) -> int:
        return self._lists.buckets

    @property
    def rows(self) -> int:
        return self._lists.facts.get("view_rows", 0)

    @property
    def source_rows(self) -> int:
        return self._lists.facts.get(rows_table(SOURCE), 0)

    @property
    def table_ts(self) -> int | None:
        """How far the table is."""
        point = self._table.point if self._dirty else self._point
        return None if point is None else point.ts

    @property
    def state_bytes(self) -> int:
        return self._lists.size_bytes

    @property
    def version(self) -> int:
        return self._table.version

    @property
    def hashes(self) -> Hashes:
        return self._hashes

    @property
    def result(self) -> pa.Schema:
        """The columns of the view."""
        return self._evaluation.result

    def wanted(self) -> dict[str, WantedRows]:
        """What is read for the view, by the names that its SQL has for it."""
        return {name: WantedRows(each, self.buckets) for name, each in self.sources.items()}

    # --- beginning ------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Load what an earlier run left, if there was one."""
        found = self._log.load()
        if found is None:
            self._point = None
            return
        self._point, self._lists = found
        self._logged = self._point
        self._remove_strange()

    def _remove_strange(self) -> None:
        """Remove runs that no list names: those of batches that were killed, and those that were merged."""
        named = self._lists.names()
        self._files.remove([name for name in self._files.names() if name not in named])

    def forget(self) -> None:
        """Have the view built anew."""
        self._point = None

    def build(self, position: Any, buckets: int) -> None:
        """Build the view from all rows of its sources, which are read after `position` was asked for."""
        self._lists = RunLists(buckets)
        self._merges.forget()
        session = self._evaluation.session
        wanted = self.wanted()
        reader = ChangeReader(self._server, tuple(wanted.values()))
        for number, name in enumerate(wanted):
            if name != SOURCE:
                self._build_lookup(name, reader.everything(session, number, position), session)
        number = list(wanted).index(SOURCE)
        self._build_source(reader.everything(session, number, position), session)
        point = HistoryPoint(position.visible, position.epoch)
        self.reconcile(point)
        self._commit(point)
        self._remove_others()

    def _build_lookup(self, name: str, blobs: DataFrame, session: SparkSession) -> None:
        flow, gathered = self._flow(), gathering(session)
        rows = flow.changed_rows(name, blobs, gathered)
        if self.plan.joins:
            flow.write_pairs_of_lookup(name, rows, gathered)
        else:
            rows.foreach(_nothing)
        self._take(gathered.value)

    def _build_source(self, blobs: DataFrame, session: SparkSession) -> None:
        flow, gathered = self._flow(), gathering(session)
        rows = flow.changed_rows(SOURCE, blobs, gathered)
        if self.plan.joins:
            # All rows are joined with all of the lookups, which Spark knows how to do.
            flow.write_pairs_of_source(rows, gathered)
            self._take(gathered.value)
            flow, gathered = self._flow(), gathering(session)
            rows = flow.all_rows(session, SOURCE)
        contributions = self._evaluation.contributions(rows, self._all_of_lookups(flow, session))
        flow.write_results(contributions, gathered, is_new=True)
        self._take(gathered.value)

    def _remove_others(self) -> None:
        """Remove the state of earlier definitions, from which no run will go on. All of it is of this database."""
        files = self._storage.files(f"{STATE}/{self.view.name}")
        for each in files.get_file_info(pa_fs.FileSelector("")):
            if each.base_name != self._folder:
                files.delete_dir(each.path)

    def reconcile(self, point: HistoryPoint) -> None:
        """Correct all hashes and the table, so that they follow from the rows."""
        self.correct_hashes()
        self._dirty = set(range(self.buckets))
        self._write_table(point)

    def correct_hashes(self) -> int:
        return Correction(self._hashes, self._shown()).run(self._evaluation.session)

    def _shown(self) -> ShownRows:
        evaluation = self._evaluation
        groups = self._lists.of(GROUPS)
        return ShownRows(self.plan, evaluation.contributed, evaluation.result, self._files, groups)

    # --- going on -------------------------------------------------------------------------------------------------

    def apply(
        self, blobs: Mapping[str, DataFrame], point: HistoryPoint, *, is_cleared: bool, session: SparkSession
    ) -> int:
        """Apply the changes of a batch that ends at this point, by the names that the SQL has for what changed.

        Returns how many rows of the view changed.
        """
        with self._changing:
            if blobs:  # so that what was merged is committed, too
                self._lists = self._merges.taken(self._lists)
            before = self._lists
            try:
                return self._apply(blobs, point, is_cleared, session)
            except BaseException:
                self._lists = before  # so that nothing is applied twice if the job goes on
                raise

    def _apply(
        self, blobs: Mapping[str, DataFrame], point: HistoryPoint, is_cleared: bool, session: SparkSession
    ) -> int:
        changed = 0
        if SOURCE in blobs:
            changed += self._apply_source(blobs[SOURCE], session)
        for name, frame in blobs.items():
            if name != SOURCE:
                changed += self._apply_lookup(name, frame, session)
        if is_cleared:
            self.correct_hashes()  # FLUSHDB removes the hashes too
        if blobs:
            self._commit(point)
            self._merges.begin(session, self._lists)
        self._point = point
        if not blobs and time.monotonic() - self._logged_at >= limits.LAKE_IDLE_COMMIT_S:
            self.note()
        return changed

    def _apply_source(self, blobs: DataFrame, session: SparkSession) -> int:
        flow, gathered = self._flow(), gathering(session)
        rows = flow.changed_rows(SOURCE, blobs, gathered)
        kept: list[DataFrame] = []
        lookups = self._all_of_lookups(flow, session)
        if self.plan.joins:
            matched, lookups = flow.matched(rows.persist(), gathered)
            kept = [rows, matched]
        flow.write_results(self._evaluation.contributions(rows, lookups), gathered)
        _let_go(kept)
        return self._take(gathered.value)

    def _apply_lookup(self, name: str, blobs: DataFrame, session: SparkSession) -> int:
        """What rows of the source contribute is taken away as the lookup was, and added as it is."""
        before, gathered = self._flow(), gathering(session)
        rows = before.changed_rows(name, blobs, gathered)
        kept: list[DataFrame] = []
        if self.plan.joins:
            touched = before.touched_rows(name, rows, gathered).persist()
            kept.append(touched)
            if not touched.count():
                _let_go(kept)
                return self._take(gathered.value)
            was, now = touched.where("_row.sign < 0"), touched.where("_row.sign > 0")
        else:
            rows.foreach(_nothing)
            was, now = before.all_rows(session, SOURCE, sign=-1), before.all_rows(session, SOURCE)
        self._take(gathered.value)
        after, gathered = self._flow(), gathering(session)
        contributions = []
        for flow, some in ((before, was), (after, now)):
            lookups = self._all_of_lookups(flow, session)
            if self.plan.joins:
                matched, lookups = flow.matched(some, None)
                kept.append(matched)
            contributions.append(self._evaluation.contributions(some, lookups))
        after.write_results(contributions[0].unionAll(contributions[1]), gathered)
        _let_go(kept)
        return self._take(gathered.value)

    def _all_of_lookups(self, flow: ViewFlow, session: SparkSession) -> dict[str, DataFrame]:
        """All rows of the lookups, for joins that may need any of them."""
        return {name: flow.all_rows(session, name).drop("_row") for name in self.sources if name != SOURCE}

    def _flow(self) -> ViewFlow:
        self._batch += 1
        columns = {name: each.columns for name, each in self.sources.items()}
        prefix = f"{self._token}-{self._batch:08d}"
        evaluation = self._evaluation
        has_times = self.view.source.kind == "prefix" and KeptParts(self.plan, evaluation.contributed).has_order
        return ViewFlow(evaluation, self._files, self._hashes, columns, self._lists, has_times, prefix)

    def _take(self, told: Told) -> int:
        """Take what the tasks of a job have written. Returns how many rows of the view changed."""
        facts = {
            name: self._lists.facts.get(name, 0) + number_of(told, name) for name in ("view_rows", rows_table(SOURCE))
        }
        runs = runs_of(told)
        self._lists = self._lists.with_more(runs, facts)
        changed = number_of(told, "changed")
        if changed:
            self._dirty |= {bucket for table, bucket, _ in runs if table == GROUPS}
        return changed

    def _commit(self, point: HistoryPoint) -> None:
        self._log.commit(self._lists, point)
        self._point = self._logged = point
        self._logged_at = time.monotonic()

    def tend(self) -> None:
        """Have the table follow, if it is its turn. This is called all the time, between batches and beside them."""
        if not self._dirty or time.monotonic() - self._table_at < limits.VIEW_TABLE_REST * self._table_s:
            return
        if not self._changing.acquire(blocking=False):
            return  # a batch is going on
        try:
            if self._dirty and self._point is not None:
                self._write_table(self._point)
        finally:
            self._changing.release()

    def _write_table(self, point: HistoryPoint) -> None:
        begun = time.monotonic()
        self._batch += 1  # so that no file of an earlier commit has the same name
        token = f"{self._token}-{self._batch:08d}"
        self._table.write(self._evaluation.session, self._shown(), self._dirty, token, point)
        self._dirty = set()
        self._table_at = time.monotonic()
        self._table_s = self._table_at - begun

    def note(self) -> None:
        """Record how far the view is, for a later run; and have the table as far."""
        point = self._point
        if point is None:
            return
        if self._dirty:
            self._write_table(point)
        if point != self._logged:
            self._commit(point)

    # --- checking -------------------------------------------------------------------------------------------------

    def recomputed(self, position: Any) -> DataFrame:
        """The view from scratch, from all rows of its sources."""
        found = self._log.load()
        self._lists = RunLists(limits.VIEW_BUCKETS_MIN) if found is None else found[1]
        session = self._evaluation.session
        wanted = self.wanted()
        reader = ChangeReader(self._server, tuple(wanted.values()))
        flow = self._flow()
        rows = {
            name: flow.present_rows(name, reader.everything(session, number, position))
            for number, name in enumerate(wanted)
        }
        source = rows.pop(SOURCE)
        source = source.selectExpr("_row.order as _order", *(f"`{name}`" for name in self.sources[SOURCE].columns))
        return self._evaluation.recomputed(source, {name: each.drop("_row") for name, each in rows.items()})

    def close(self) -> None:
        """End what runs in the background."""
        self._merges.close()


def _let_go(frames: Sequence[DataFrame]) -> None:
    for frame in frames:
        frame.unpersist()


def _nothing(_row: object) -> None:
    """For jobs whose tasks have told everything already."""
