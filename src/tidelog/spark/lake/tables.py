"""The tables of a lake: made, opened and committed to. How a table records how far it is: see `delta.table`.

Transaction("tidelog/initial", ts)    of `changes`: the lake began with values that were read up to this ts
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, NamedTuple

import pyarrow as pa
from deltalake import DeltaTable

from tidelog import limits
from tidelog.spark.delta.commit import DeltaFile, FilesCommit, FilesReplaced, paths_of
from tidelog.spark.delta.faults import TableFault, TableUnusable, faults_at
from tidelog.spark.delta.storage import Storage
from tidelog.spark.delta.table import HistoryPoint, open_delta, point_of
from tidelog.spark.lake.layout import DAY, DIVIDED, PROPERTIES, SCHEMAS

_INITIAL: Final = "tidelog/initial"


class FileMade(NamedTuple):
    """A file in the folder of a table, that a task has written. It counts once it is committed."""

    table: str
    path: str
    """Below the table's folder."""
    size_bytes: int
    rows: int
    day: str | None
    """None: the table is not divided by day."""
    ts_min: int
    ts_max: int

    @property
    def committed(self) -> DeltaFile:
        """As a commit names it."""
        stats = {
            "numRecords": self.rows,
            "minValues": {"ts": self.ts_min},
            "maxValues": {"ts": self.ts_max},
            "nullCount": {"ts": 0},
        }
        days = {} if self.day is None else {DAY: self.day}
        return DeltaFile(self.path, self.size_bytes, days, json.dumps(stats))


class Replacement(NamedTuple):
    """Files that a task has made of others: the same rows."""

    come: Sequence[FileMade]
    go: Sequence[FileMade]


class LakeTable:
    """One table, at the version that was last read."""

    def __init__(self, storage: Storage, name: str, delta: DeltaTable) -> None:
        self.storage = storage
        self.name = name
        self.delta = delta

    @property
    def point(self) -> HistoryPoint | None:
        """None: nothing was committed yet."""
        return point_of(self.delta)

    @property
    def ts(self) -> int:
        """-1: before everything."""
        point = self.point
        return -1 if point is None else point.ts

    @property
    def initial_ts(self) -> int | None:
        """The ts at which the newest initial value was read; None: the lake did not begin with values."""
        return self.delta.transaction_version(_INITIAL)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema(self.delta.schema().to_arrow())

    def added_columns(self) -> dict[str, pa.DataType]:
        """The columns that JSON values have added."""
        fixed = SCHEMAS[self.name].names
        return {column.name: column.type for column in self.schema if column.name not in fixed}

    def add_columns(self, columns: dict[str, pa.DataType]) -> None:
        """Add columns in a commit of its own; a column without values does no harm."""
        known = set(self.schema.names)
        new = pa.schema([pa.field(name, its) for name, its in columns.items() if name not in known])
        if len(new):
            from deltalake import Schema

            with faults_of(self):
                self.delta.alter.add_columns(Schema.from_arrow(new).fields)
                self.delta.update_incremental()

    def files(self) -> list[FileMade]:
        """The files of this version, by the newest ts in them."""
        found = pa.table(self.delta.get_add_actions(flatten=True))
        if not found.num_rows:
            return []
        columns = [found.column(name).to_pylist() for name in ("path", "size_bytes", "num_records")]
        days = found.column(f"partition.{DAY}").to_pylist() if self.name in DIVIDED else [None] * found.num_rows
        columns += [[None if day is None else str(day) for day in days]]
        columns += [found.column(name).to_pylist() for name in ("min.ts", "max.ts")]
        return sorted((FileMade(self.name, *row) for row in zip(*columns, strict=True)), key=lambda file: file.ts_max)

    def commit(
        self,
        files: Sequence[FileMade],
        point: HistoryPoint,
        *,
        gone: Sequence[FileMade] = (),
        overwrite: bool = False,
        initial_ts: int | None = None,
    ) -> None:
        """Add the rows of some files, take away those of others, and record how far the table is with that."""
        with faults_of(self):
            self._check_there(files)
            FilesCommit(
                [file.committed for file in files],
                [file.committed for file in gone],
                point,
                {} if initial_ts is None else {_INITIAL: initial_ts},
                overwrite,
            ).make(self.delta, self.storage.uri(self.name), self._partition_by)

    def replace(self, replacements: Sequence[Replacement]) -> list[Replacement]:
        """Put files in the place of others with the same rows, in one commit. Returns what was done.

        Another job may have replaced some of them first: those replacements are left out.
        """
        with faults_of(self):
            self._check_there([file for each in replacements for file in each.come])
            for _ in range(limits.LAKE_COMMIT_ATTEMPTS):
                there = paths_of(self.delta)
                found = [each for each in replacements if all(file.path in there for file in each.go)]
                if not found:
                    return []
                come, go = ([file.committed for each in found for file in each[part]] for part in (0, 1))
                try:
                    FilesCommit(come, go).make(self.delta, self.storage.uri(self.name), self._partition_by)
                except FilesReplaced:
                    continue
                return found
        return []

    @property
    def _partition_by(self) -> list[str]:
        return [DAY] if self.name in DIVIDED else []

    def _check_there(self, files: Sequence[FileMade]) -> None:
        """Make sure that files of tasks are here: on another machine, the same path may be another folder."""
        if not files or not self.storage.is_local:
            return
        for file, its in zip(files, self.storage.files(self.name).get_file_info([f.path for f in files]), strict=True):
            if not its.is_file or its.size != file.size_bytes:
                raise TableFault(
                    f"{self.storage.uri(self.name)}/{file.path} was written by a task and cannot be found here: "
                    "executors on other machines must share the folder of --to with the driver. Give a folder "
                    "that they share, or an object store"
                )

    def refresh(self) -> None:
        with faults_of(self):
            self.delta.update_incremental()


def open_table(storage: Storage, name: str, about: str) -> LakeTable:
    """A table; it is made if there is none. `about`: settings of the lake, which must be the same each time."""
    uri = storage.uri(name)
    with faults_at(uri):
        delta = open_delta(storage, name)
        if delta is None:
            _check_empty(storage, name)
            delta = DeltaTable.create(
                uri,
                SCHEMAS[name],
                partition_by=[DAY] if name in DIVIDED else None,
                name=f"tidelog {name}",
                description=about,
                configuration=PROPERTIES[name],
                storage_options=dict(storage.options),
            )
    metadata = delta.metadata()
    if metadata.name != f"tidelog {name}":
        raise TableUnusable(f"{uri} is a table that `tidelog pipeline lake` did not make: give another folder")
    if metadata.description != about:
        raise TableUnusable(
            f"{uri} was made with other settings: {metadata.description}, and now they are {about}. Give those, or "
            "another folder"
        )
    return LakeTable(storage, name, delta)


def find_table(storage: Storage, name: str) -> LakeTable | None:
    """A table of a lake as it is, whatever its settings are; None: there is none."""
    delta = open_delta(storage, name)
    if delta is None:
        return None
    if delta.metadata().name != f"tidelog {name}":
        raise TableUnusable(f"{storage.uri(name)} is a table that `tidelog pipeline lake` did not make")
    return LakeTable(storage, name, delta)


def _check_empty(storage: Storage, name: str) -> None:
    """Refuse to make a table in a folder that holds other files."""
    import pyarrow.fs as pa_fs

    try:
        found = storage.files(name).get_file_info(pa_fs.FileSelector("", allow_not_found=True))
    except NotADirectoryError:
        raise TableUnusable(f"{storage.uri(name)}: a file is in the way") from None
    if found:
        raise TableUnusable(
            f"{storage.uri(name)} holds files and is not a Delta table ({found[0].base_name}): give another folder"
        )


def faults_of(table: LakeTable) -> faults_at:
    """Within this block, errors of the storage name this table."""
    return faults_at(table.storage.uri(table.name))
