"""The rows of a view in the lake: a Delta table that gets what has changed, and knows how far it is.

Its description says which definition it was made by, and from which database. Another definition takes its place in one
commit: whoever reads the table sees the one or the other. Another database goes elsewhere: its view is another one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError

from tidelog import limits
from tidelog.spark.lake.storage import Storage
from tidelog.spark.lake.tables import LakeFault, LakeUnusable, Place, at_place, faults_at, first_line, place_of
from tidelog.spark.views.definition import View
from tidelog.spark.views.folders import FOLDER
from tidelog.spark.views.results import Difference, Row

_GONE: Final = "_gone"
_PROPERTIES: Final = {
    "delta.logRetentionDuration": "interval 1 hours",
    "delta.deletedFileRetentionDuration": "interval 15 minutes",
}


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
        """What made it; nothing if there is none."""
        return {} if self._delta is None else description(self._delta)

    @property
    def place(self) -> Place | None:
        return None if self._delta is None else place_of(self._delta)

    @property
    def is_ours(self) -> bool:
        """Whether this definition made it."""
        return self.about.get("digest") == self._view.digest

    @property
    def version(self) -> int:
        """Counts definitions, from 1."""
        return int(self.about.get("version", 0)) + (not self.is_ours)

    def replace(self, rows: Mapping[str, Row], place: Place) -> None:
        """All rows, in place of whatever was there."""
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
                commit_properties=at_place(place),
            )
            self._delta = DeltaTable(self._uri, storage_options=self._options)
            if description(self._delta) != json.loads(about):
                self._delta.alter.set_table_description(about)
                self._delta.update_incremental()

    def merge(self, difference: Difference, place: Place) -> None:
        """What has changed."""
        assert self._delta is not None
        rows = self._table({**difference.changed, **difference.gone})
        is_gone = [False] * len(difference.changed) + [True] * len(difference.gone)
        rows = rows.append_column(_GONE, pa.array(is_gone))
        same = " and ".join(f"(t.`{name}` is not distinct from s.`{name}`)" for name in self._view.key) or "true"
        columns = {f"`{name}`": f"s.`{name}`" for name in self._schema.names}
        with faults_at(self._uri):
            merge = self._delta.merge(rows, same, source_alias="s", target_alias="t", commit_properties=at_place(place))
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
        """Put small files together and remove what was, now and then: every change leaves files behind.

        How far the table is stays what the last merge said.
        """
        assert self._delta is not None
        if time.monotonic() - self._tended > limits.VIEW_VACUUM_S:
            self._delta.optimize.compact(commit_properties=CommitProperties(max_commit_retries=0))
            self._delta.vacuum(dry_run=False, enforce_retention_duration=False)
            self._delta.cleanup_metadata()
            self._tended = time.monotonic()


def open_result(storage: Storage, name: str) -> DeltaTable | None:
    """The table of a view; None: there is none."""
    uri = storage.uri(f"{FOLDER}/{name}")
    try:
        found = DeltaTable(uri, storage_options=dict(storage.options))
    except TableNotFoundError:
        return None
    except (DeltaError, OSError) as error:
        raise LakeFault(f"{uri}: {first_line(error)}") from None
    if not (found.metadata().name or "").startswith("tidelog view"):
        raise LakeUnusable(f"{uri} is a table that `tidelog pipeline view` did not make: give another folder")
    return found


def description(table: DeltaTable) -> dict[str, Any]:
    """What made a table."""
    try:
        found: dict[str, Any] = json.loads(table.metadata().description or "{}")
    except ValueError:
        return {}
    return found


def refuse_other_database(table: DeltaTable, uri: str, database: int) -> None:
    """`LakeUnusable` if a table was made from another database."""
    made_from = description(table).get("database", 0)
    if made_from != database:
        raise LakeUnusable(
            f"{uri} was made from database {made_from}, and now it is {database}: give that one, or another folder"
        )
