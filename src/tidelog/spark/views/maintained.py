"""One view, kept as its source changes.

    rows of the source (and of its lookups)   `Rows`, with a log in the lake
      -> what they contribute                 `Evaluation`, by Spark; `Groups`
      -> what their groups come to            `Groups`, in Arrow; `Evaluation` again where that is an expression
      -> hashes, table                        `Results`, `Hashes`, `ResultTable`

A batch of changes goes through it from top to bottom, and the log of the rows is committed last. If it is killed before
that, the next run goes on from the rows as they were: changes are applied again, and come to the same. Because a batch
may end elsewhere then, a run begins with a look at all hashes and the table (`reconcile`): what does not follow from
the rows is made right.

While nothing of its own changes, a view says now and then how far it is: what it goes on from has to stay in the
journal.
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
from tidelog.spark.endpoint import Endpoint
from tidelog.spark.lake.storage import Storage
from tidelog.spark.lake.tables import Place
from tidelog.spark.views.definition import View
from tidelog.spark.views.evaluation import Evaluation
from tidelog.spark.views.folders import STATE
from tidelog.spark.views.groups import Groups
from tidelog.spark.views.query import plan as plan_of
from tidelog.spark.views.reading import Wanted
from tidelog.spark.views.result_table import ResultTable
from tidelog.spark.views.results import Difference, Hashes, Results
from tidelog.spark.views.row_log import RowLog
from tidelog.spark.views.rows import Applied

_SOURCE: Final = "source"


class MaintainedView:
    """A view that is being kept. Making one checks its definition, and changes nothing."""

    def __init__(self, spark: SparkSession, storage: Storage, server: Endpoint, view: View) -> None:
        self.view = view
        plan = plan_of(view)
        if len(plan.columns) > limits.VIEW_COLUMNS_MAX:
            raise view.refusal(f"it names {len(plan.columns)} columns: at most {limits.VIEW_COLUMNS_MAX} can be")
        self._evaluation = Evaluation(spark, view, plan)
        self.plan = self._evaluation.plan
        columns = {_SOURCE: (view.source, self.plan.columns)}
        columns |= {name: (view.lookups[name], named) for name, named in self.plan.lookups.items()}
        self.wanted = {name: Wanted(source.kind, source.target, named) for name, (source, named) in columns.items()}
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
        self._committed: dict[str, Place] = {}
        """Up to where the rows are, be it that a log says so or that nothing has changed since."""
        self._logged: Place | None = None
        """What the log of the source says."""
        self._logged_at = time.monotonic()

    @property
    def place(self) -> Place | None:
        """Up to where all of it is done; None: it is not built."""
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
        """Take up where an earlier run stopped, if there was one."""
        self._committed = {}
        for name, log in self._logs.items():
            found = log.load()
            if found is not None:
                self._committed[name], table = found
                self._rows[name] = self.wanted[name].rows(table)
        if len(self._committed) < len(self._logs):
            self._committed = {}
        else:
            # The log of the source is written whenever another one is, and last: what is older than it did not change.
            self._committed = {name: max(place, self._committed[_SOURCE]) for name, place in self._committed.items()}
            self._logged = self._committed[_SOURCE]

    def build(self, changes: Mapping[Wanted, pa.Table], place: Place) -> None:
        """Make it from everything that there is."""
        for name, wanted in self.wanted.items():
            self._rows[name] = wanted.rows()
            self._rows[name].apply(changes[wanted])
        self._check_size()
        self.reconcile(place)
        for name, log in self._logs_source_last():
            log.begin(self._rows[name], place)
            self._committed[name] = place
        self._has_logged(place)
        self._remove_others()

    def _logs_source_last(self) -> list[tuple[str, RowLog]]:
        return sorted(self._logs.items(), key=lambda each: each[0] == _SOURCE)

    def _remove_others(self) -> None:
        """The rows of earlier definitions: nobody goes on from them. The table is of one database, so are these."""
        files = self._storage.files(f"{STATE}/{self.view.name}")
        for each in files.get_file_info(pa_fs.FileSelector("")):
            if each.base_name != self._folder:
                files.delete_dir(each.path)

    def forget(self) -> None:
        """What was done can no longer be gone on from."""
        self._committed = {}

    def reconcile(self, place: Place) -> None:
        """Make hashes and table what follows from the rows, whatever they are."""
        self._groups.replace_all(self._contributions(self._rows[_SOURCE].table))
        self._results.update(None, self._finished(None))
        self._hashes.reconcile(self._results.rows, self._evaluation.result)
        self._table.replace(self._results.rows, place)

    # --- going on -------------------------------------------------------------------------------------------------

    def apply(self, changes: Mapping[Wanted, pa.Table], place: Place) -> int:
        """Take in the changes of a batch that ends there; how many rows of the view are different now."""
        new = {name: wanted for name, wanted in self.wanted.items() if self._committed[name] < place}
        applied = {name: self._rows[name].apply(changes[each]) for name, each in new.items() if len(changes[each])}
        self._check_size()
        difference = Difference({}, {})
        groups: Any = self._affected(applied) if applied else ()
        if len(groups):
            difference = self._results.update(groups.to_pylist(), self._finished(groups))
        if difference:
            self._hashes.write(difference, self._evaluation.result)
            self._table.merge(difference, place)
        if any(each.is_cleared_by(changes[each]) for each in new.values()):
            self._hashes.reconcile(self._results.rows, self._evaluation.result)  # FLUSHDB takes hashes along
        for name, log in self._logs_source_last():
            if name in applied or (applied and name == _SOURCE):
                log.add(applied.get(name), self._rows[name], place)
        self._committed |= dict.fromkeys(new, place)
        if applied:
            self._has_logged(place)
        elif time.monotonic() - self._logged_at >= limits.LAKE_IDLE_COMMIT_S:
            self.note()
        return len(difference.changed) + len(difference.gone)

    def note(self) -> None:
        """Have the log say how far it is, for a later run."""
        place = self.place
        if place is not None and place != self._logged:
            self._logs[_SOURCE].add(None, self._rows[_SOURCE], place)
            self._has_logged(place)

    def _has_logged(self, place: Place) -> None:
        self._logged = place
        self._logged_at = time.monotonic()

    def _affected(self, applied: Mapping[str, Applied]) -> Any:
        """Exchange contributions; the groups that are concerned."""
        if applied.keys() - {_SOURCE}:
            # Lookups are small and change rarely: whatever they may concern is everything.
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
                    f"view {self.view.name}: {source} has {len(rows):,} rows, and at most {limits.VIEW_ROWS_MAX:,} can "
                    "be kept"
                )

    # --- checking -------------------------------------------------------------------------------------------------

    def recomputed(self, changes: Mapping[Wanted, pa.Table]) -> pa.Table:
        """The view from scratch, of everything that there is."""
        rows = {}
        for name, wanted in self.wanted.items():
            rows[name] = wanted.rows()
            rows[name].apply(changes[wanted])
        source = rows.pop(_SOURCE).table
        return self._evaluation.recomputed(source, {name: each.table for name, each in rows.items()})
