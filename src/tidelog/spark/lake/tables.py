"""The tables of a lake: made, opened and committed to. How a table records how far it is: see `delta.table`.

Transaction("tidelog/initial", ts)    of `changes`: the lake began with values that were read up to this ts
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.transaction import AddAction

from tidelog.spark.delta.faults import TableFault, TableUnusable, faults_at
from tidelog.spark.delta.storage import Storage
from tidelog.spark.delta.table import HistoryPoint, commit_at, open_delta, point_of
from tidelog.spark.lake.layout import DAY, DIVIDED, PROPERTIES, SCHEMAS

_INITIAL: Final = "tidelog/initial"


class FileMade(NamedTuple):
    """A file that a task has written into the folder of a table. It counts once it is committed."""

    table: str
    path: str
    """Below the table's folder."""
    size_bytes: int
    rows: int
    day: str | None
    """None: the table is not divided by day."""
    ts_min: int
    ts_max: int


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

    def commit(
        self, files: Sequence[FileMade], point: HistoryPoint, *, overwrite: bool = False, initial_ts: int | None = None
    ) -> None:
        """Add the rows of some files, and record how far the table is with them."""
        now_ms = time.time_ns() // 1_000_000
        actions: list[Any] = [_add_action(file, now_ms) for file in files]
        with faults_of(self):
            self._check_there(files)
            self.delta.create_write_transaction(
                actions,
                "overwrite" if overwrite else "append",
                self.delta.schema(),
                [DAY] if self.name in DIVIDED else [],
                commit_properties=commit_at(point, **({} if initial_ts is None else {_INITIAL: initial_ts})),
            )
            self.delta.update_incremental()

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


def _add_action(file: FileMade, now_ms: int) -> AddAction:
    stats = {
        "numRecords": file.rows,
        "minValues": {"ts": file.ts_min},
        "maxValues": {"ts": file.ts_max},
        "nullCount": {"ts": 0},
    }
    days = {} if file.day is None else {DAY: file.day}
    return AddAction(file.path, file.size_bytes, days, now_ms, True, json.dumps(stats))


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
