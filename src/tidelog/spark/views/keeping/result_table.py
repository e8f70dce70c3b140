"""The rows of a view in the lake: a Delta table that gets what changed, and records how far it is.

Its description says which definition made it, and from which database. A new definition replaces the table in one
commit, so a reader sees the old view or the new one. A view of another database needs another folder.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake

from tidelog import limits
from tidelog.spark.delta.faults import TableUnusable, faults_at
from tidelog.spark.delta.storage import Storage
from tidelog.spark.delta.table import HistoryPoint, commit_at, keep_history, open_delta, point_of
from tidelog.spark.views.keeping.folders import FOLDER
from tidelog.spark.views.keeping.results import Difference, Row
from tidelog.spark.views.sql.definition import View

_GONE: Final = "_gone"
_PROPERTIES: Final = keep_history("1 hours", "15 minutes")


class ResultTable:
    """The table of one view."""

    def __init__(self, storage: Storage, view: View, schema: pa.Schema, database: int = 0) -> None:
        self._uri = storage.uri(f"{FOLDER}/{view.name}")
        self._options = dict(storage.options)
        self._view = view
        self._schema = schema
        self._database = database
        self._delta = open_result(storage, view.name)
        if self._delta is not None:
            refuse_other_database(self._delta, self._uri, database)
        self._tended = time.monotonic()

    @property
    def about(self) -> dict[str, Any]:
        """The description of the table; empty if there is no table."""
        return {} if self._delta is None else description(self._delta)

    @property
    def point(self) -> HistoryPoint | None:
        return None if self._delta is None else point_of(self._delta)

    @property
    def is_ours(self) -> bool:
        """Whether this definition made it."""
        return self.about.get("digest") == self._view.digest

    @property
    def version(self) -> int:
        """Counts definitions, from 1."""
        return int(self.about.get("version", 0)) + (not self.is_ours)

    def replace(self, rows: Mapping[str, Row], point: HistoryPoint) -> None:
        """Replace the whole table."""
        about = json.dumps(
            {
                "view": self._view.name,
                "version": self.version,
                "digest": self._view.digest,
                "database": self._database,
                "source": str(self._view.source),
                "sql": self._view.sql,
                "key": list(self._view.key),
                "lookups": {name: str(source) for name, source in self._view.lookups.items()},
            }
        )
        table = self._table(rows)
        with faults_at(self._uri):
            write_deltalake(
                self._uri if self._delta is None else self._delta,
                table,
                mode="overwrite",
                schema_mode="overwrite",
                name=f"tidelog view {self._view.name}",
                description=about,
                configuration=_PROPERTIES if self._delta is None else None,
                storage_options=self._options,
                commit_properties=commit_at(point),
            )
            self._delta = DeltaTable(self._uri, storage_options=self._options)
            if description(self._delta) != json.loads(about):
                self._delta.alter.set_table_description(about)
                self._delta.update_incremental()

    def merge(self, difference: Difference, point: HistoryPoint) -> None:
        """Write what changed."""
        assert self._delta is not None
        rows = self._table({**difference.changed, **difference.gone})
        is_gone = [False] * len(difference.changed) + [True] * len(difference.gone)
        rows = rows.append_column(_GONE, pa.array(is_gone))
        same = " and ".join(f"(t.`{name}` is not distinct from s.`{name}`)" for name in self._view.key) or "true"
        columns = {f"`{name}`": f"s.`{name}`" for name in self._schema.names}
        with faults_at(self._uri):
            merge = self._delta.merge(
                rows, same, source_alias="s", target_alias="t", commit_properties=commit_at(point)
            )
            merge = merge.when_matched_delete(f"s.{_GONE}")
            merge = merge.when_matched_update(columns, f"not s.{_GONE}")
            merge.when_not_matched_insert(columns, f"not s.{_GONE}").execute()
            self._tend()

    def _table(self, rows: Mapping[str, Row]) -> pa.Table:
        columns = [[row[at] for row in rows.values()] for at in range(len(self._schema))]
        return pa.table(
            [pa.array(values, field.type) for values, field in zip(columns, self._schema, strict=True)],
            schema=self._schema,
        )

    def _tend(self) -> None:
        """Compact files and remove old ones now and then, because every change leaves files behind.

        This does not alter how far the table is.
        """
        assert self._delta is not None
        if time.monotonic() - self._tended > limits.VIEW_VACUUM_S:
            self._delta.optimize.compact(commit_properties=CommitProperties(max_commit_retries=0))
            self._delta.vacuum(dry_run=False, enforce_retention_duration=False)
            self._delta.cleanup_metadata()
            self._tended = time.monotonic()


def open_result(storage: Storage, name: str) -> DeltaTable | None:
    """The table of a view; None: there is none."""
    found = open_delta(storage, f"{FOLDER}/{name}")
    if found is not None and not (found.metadata().name or "").startswith("tidelog view"):
        uri = storage.uri(f"{FOLDER}/{name}")
        raise TableUnusable(f"{uri} is a table that `tidelog pipeline view` did not make: give another folder")
    return found


def description(table: DeltaTable) -> dict[str, Any]:
    """Which definition made a table, and from what."""
    try:
        found: dict[str, Any] = json.loads(table.metadata().description or "{}")
    except ValueError:
        return {}
    return found


def refuse_other_database(table: DeltaTable, uri: str, database: int) -> None:
    """`TableUnusable` if a table was made from another database."""
    made_from = description(table).get("database", 0)
    if made_from != database:
        raise TableUnusable(
            f"{uri} was made from database {made_from}, and now it is {database}: give that one, or another folder"
        )
