"""One view that is kept up to date.

    rows of the source (and of its lookups)   `SourceRows`, with a `RowLog` in the lake
      -> what they contribute                 `Evaluation`, by Spark; `Groups`
      -> what their groups come to            `Groups`, in Arrow; `Evaluation` again if the result is an expression
      -> hashes, table                        `Results`, `Hashes`, `ResultTable`

A batch of changes passes through these steps from top to bottom, and the log of the rows is committed last. If the job
is killed before that, the next run goes on from the earlier rows: changes are applied again, and lead to the same
result. As its batches may end elsewhere, a run begins by comparing all hashes and the table with the rows
(`reconcile`), and corrects what does not follow from them.

A view whose source does not change still records now and then how far it is, because the journal may erase what lies
behind.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.fs as pa_fs
from pyspark.sql import SparkSession

from tidelog import limits
from tidelog.errors import LimitExceeded
from tidelog.spark.delta.storage import Storage
from tidelog.spark.delta.table import HistoryPoint
from tidelog.spark.endpoint import Endpoint
from tidelog.spark.views.keeping.change_reader import SourceColumns
from tidelog.spark.views.keeping.evaluation import Evaluation
from tidelog.spark.views.keeping.folders import STATE
from tidelog.spark.views.keeping.groups import Groups
from tidelog.spark.views.keeping.result_table import ResultTable
from tidelog.spark.views.keeping.results import Difference, Hashes, Results
from tidelog.spark.views.keeping.row_log import RowLog
from tidelog.spark.views.keeping.source_rows import Applied
from tidelog.spark.views.sql.definition import View
from tidelog.spark.views.sql.query import plan_view

_SOURCE: Final = "source"


class MaintainedView:
    """A view that is kept. Making one checks its definition, and changes nothing."""

    def __init__(self, spark: SparkSession, storage: Storage, server: Endpoint, view: View) -> None:
        self.view = view
        plan = plan_view(view)
        if len(plan.columns) > limits.VIEW_COLUMNS_MAX:
            raise view.refusal(f"it names {len(plan.columns)} columns, more than {limits.VIEW_COLUMNS_MAX}")
        self._evaluation = Evaluation(spark, view, plan)
        self.plan = self._evaluation.plan
        columns = {_SOURCE: (view.source, self.plan.columns)}
        columns |= {name: (view.lookups[name], named) for name, named in self.plan.lookups.items()}
        self.wanted = {
            name: SourceColumns(source.kind, source.target, named) for name, (source, named) in columns.items()
        }
        self._storage = storage
        self._folder = f"{server.database}-{view.digest[:16]}"
        folder = f"{STATE}/{view.name}/{self._folder}"
        self._logs = {
            name: RowLog(storage, f"{folder}/{name}", len(each.columns)) for name, each in self.wanted.items()
        }
        self._rows = {name: each.rows() for name, each in self.wanted.items()}
        self._groups = Groups(self.plan, self._evaluation.contributed)
        self._results = Results(self.plan)
        self._hashes = Hashes(server, self.plan, view.name)
        self._table = ResultTable(storage, view, self._evaluation.result, server.database)
        self._committed: dict[str, HistoryPoint] = {}
        """How far the rows are: as the log says, or further if nothing has changed since."""
        self._logged: HistoryPoint | None = None
        """How far the log of the source is."""
        self._logged_at = time.monotonic()

    @property
    def point(self) -> HistoryPoint | None:
        """How far the view is; None: it is not built."""
        return self._committed.get(_SOURCE)

    @property
    def rows(self) -> int:
        return len(self._results.rows)

    @property
    def source_rows(self) -> int:
        return len(self._rows[_SOURCE])

    @property
    def version(self) -> int:
        return self._table.version

    # --- beginning ------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Load what an earlier run left, if there was one."""
        self._committed = {}
        for name, log in self._logs.items():
            found = log.load()
            if found is not None:
                self._committed[name], table = found
                self._rows[name] = self.wanted[name].rows(table)
        if len(self._committed) < len(self._logs):
            self._committed = {}
        else:
            # The log of the source is written whenever another log is, and after it: older logs had no changes since.
            self._committed = {name: max(point, self._committed[_SOURCE]) for name, point in self._committed.items()}
            self._logged = self._committed[_SOURCE]

    def build(self, changes: Mapping[SourceColumns, pa.Table], point: HistoryPoint) -> None:
        """Build the view from all rows of its sources."""
        for name, wanted in self.wanted.items():
            self._rows[name] = wanted.rows()
            self._rows[name].apply(changes[wanted])
        self._check_size()
        self.reconcile(point)
        for name, log in self._logs_source_last():
            log.begin(self._rows[name], point)
            self._committed[name] = point
        self._has_logged(point)
        self._remove_others()

    def _logs_source_last(self) -> list[tuple[str, RowLog]]:
        return sorted(self._logs.items(), key=lambda each: each[0] == _SOURCE)

    def _remove_others(self) -> None:
        """Remove the rows of earlier definitions, from which no run will go on. All of them are of this database."""
        files = self._storage.files(f"{STATE}/{self.view.name}")
        for each in files.get_file_info(pa_fs.FileSelector("")):
            if each.base_name != self._folder:
                files.delete_dir(each.path)

    def forget(self) -> None:
        """Have the view built anew."""
        self._committed = {}

    def reconcile(self, point: HistoryPoint) -> None:
        """Correct all hashes and the table, so that they follow from the rows."""
        self._groups.replace_all(self._contributions(self._rows[_SOURCE].table))
        self._results.update(None, self._finished(None))
        self._hashes.reconcile(self._results.rows, self._evaluation.result)
        self._table.replace(self._results.rows, point)

    # --- going on -------------------------------------------------------------------------------------------------

    def apply(self, changes: Mapping[SourceColumns, pa.Table], point: HistoryPoint) -> int:
        """Apply the changes of a batch that ends at this point. Returns how many rows of the view changed."""
        new = {name: wanted for name, wanted in self.wanted.items() if self._committed[name] < point}
        applied = {name: self._rows[name].apply(changes[each]) for name, each in new.items() if len(changes[each])}
        self._check_size()
        difference = Difference({}, {})
        groups: Any = self._affected(applied) if applied else ()
        if len(groups):
            difference = self._results.update(groups.to_pylist(), self._finished(groups))
        if difference:
            self._hashes.write(difference, self._evaluation.result)
            self._table.merge(difference, point)
        if any(each.is_cleared_by(changes[each]) for each in new.values()):
            self._hashes.reconcile(self._results.rows, self._evaluation.result)  # FLUSHDB removes the hashes too
        for name, log in self._logs_source_last():
            if name in applied or (applied and name == _SOURCE):
                log.add(applied.get(name), self._rows[name], point)
        self._committed |= dict.fromkeys(new, point)
        if applied:
            self._has_logged(point)
        elif time.monotonic() - self._logged_at >= limits.LAKE_IDLE_COMMIT_S:
            self.note()
        return len(difference.changed) + len(difference.gone)

    def note(self) -> None:
        """Record in the log how far the view is, for a later run."""
        point = self.point
        if point is not None and point != self._logged:
            self._logs[_SOURCE].add(None, self._rows[_SOURCE], point)
            self._has_logged(point)

    def _has_logged(self, point: HistoryPoint) -> None:
        self._logged = point
        self._logged_at = time.monotonic()

    def _affected(self, applied: Mapping[str, Applied]) -> Any:
        """Replace contributions. Returns the groups that are affected."""
        if applied.keys() - {_SOURCE}:
            # Lookups are small and change rarely, so everything is computed again.
            return self._groups.replace_all(self._contributions(self._rows[_SOURCE].table))
        changed = applied[_SOURCE]  # alone
        return self._groups.replace(changed.ids, self._contributions(changed.rows))

    def _contributions(self, rows: pa.Table) -> pa.Table:
        lookups = {name: each.table for name, each in self._rows.items() if name != _SOURCE}
        return self._evaluation.contributions(rows, lookups)

    def _finished(self, groups: Any | None) -> pa.Table:
        reduced = self._groups.reduced(groups)
        return self._evaluation.finished(reduced.drop_columns(["group"]))

    def _check_size(self) -> None:
        for name, rows in self._rows.items():
            if len(rows) > limits.VIEW_ROWS_MAX:
                source = f"{self.wanted[name].kind}:{self.wanted[name].target}"
                raise LimitExceeded(
                    f"view {self.view.name}: {source} has {len(rows):,} rows, more than the {limits.VIEW_ROWS_MAX:,} "
                    "that a view can keep"
                )

    # --- checking -------------------------------------------------------------------------------------------------

    def recomputed(self, changes: Mapping[SourceColumns, pa.Table]) -> pa.Table:
        """The view from scratch, from all rows of its sources."""
        rows = {}
        for name, wanted in self.wanted.items():
            rows[name] = wanted.rows()
            rows[name].apply(changes[wanted])
        source = rows.pop(_SOURCE).table
        return self._evaluation.recomputed(source, {name: each.table for name, each in rows.items()})
