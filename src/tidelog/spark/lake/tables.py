"""Delta tables that know how far they are.

    Transaction("tidelog/ts", ts)         the table has everything up to and with this ts, and nothing after it
    Transaction("tidelog/epoch", epoch)   the history that this ts belongs to
    Transaction("tidelog/initial", ts)    of `changes`: the lake began with values that were read up to this ts

These are in the commit that adds the rows, so the tables are their own checkpoint: whatever is killed, a table has all
rows of a batch and its ts, or neither. There is no other state; a copy of a lake goes on like the lake.

Two jobs on one table: both would write the same transactions, so the commit of whoever read an older version of the
table fails (`LakeTaken`), and nothing of it is there.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction

from tidelog.errors import ClientError, EnvironmentFault
from tidelog.spark.lake.layout import DAY, DIVIDED, PROPERTIES, SCHEMAS
from tidelog.spark.lake.storage import Storage

_TS: Final = "tidelog/ts"
_EPOCH: Final = "tidelog/epoch"
_INITIAL: Final = "tidelog/initial"


class LakeUnusable(ClientError):
    """What is there is no lake, or another one."""


class LakeTaken(EnvironmentFault):
    """Another job wrote to the same table."""


class LakeFault(EnvironmentFault):
    """The folder or the object store did not do what was asked."""


class Place(NamedTuple):
    """How far a table is."""

    ts: int
    epoch: int


class FileMade(NamedTuple):
    """A file that a task has written into the folder of a table; it counts once it is committed."""

    table: str
    path: str
    """Below the table's folder."""
    size_bytes: int
    rows: int
    day: str | None
    """None: the table is not divided."""
    ts_min: int
    ts_max: int


class LakeTable:
    """One table, at the version that was last looked at."""

    def __init__(self, storage: Storage, name: str, delta: DeltaTable) -> None:
        self.storage = storage
        self.name = name
        self.delta = delta

    @property
    def place(self) -> Place | None:
        """None: nothing was committed yet."""
        return place_of(self.delta)

    @property
    def ts(self) -> int:
        """-1: before everything."""
        place = self.place
        return -1 if place is None else place.ts

    @property
    def initial_ts(self) -> int | None:
        """Of a lake that began with the values of then: the ts that the newest of them was read at."""
        return self.delta.transaction_version(_INITIAL)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema(self.delta.schema().to_arrow())

    def added_columns(self) -> dict[str, pa.DataType]:
        """Those that JSON values have brought."""
        fixed = SCHEMAS[self.name].names
        return {column.name: column.type for column in self.schema if column.name not in fixed}

    def add_columns(self, columns: dict[str, pa.DataType]) -> None:
        """A commit of its own: that a column is there and has no values yet does no harm."""
        known = set(self.schema.names)
        new = pa.schema([pa.field(name, its) for name, its in columns.items() if name not in known])
        if len(new):
            from deltalake import Schema

            with faults_of(self):
                self.delta.alter.add_columns(Schema.from_arrow(new).fields)
                self.delta.update_incremental()

    def commit(
        self, files: Sequence[FileMade], place: Place, *, overwrite: bool = False, initial_ts: int | None = None
    ) -> None:
        """The rows of some files, and how far the table is with them."""
        now_ms = time.time_ns() // 1_000_000
        actions: list[Any] = [_add_action(file, now_ms) for file in files]
        with faults_of(self):
            self._check_there(files)
            self.delta.create_write_transaction(
                actions,
                "overwrite" if overwrite else "append",
                self.delta.schema(),
                [DAY] if self.name in DIVIDED else [],
                commit_properties=at_place(place, initial_ts),
            )
            self.delta.update_incremental()

    def _check_there(self, files: Sequence[FileMade]) -> None:
        """A folder may be another on the machine of a task: the table would have files that nobody can read."""
        if not files or not self.storage.is_local:
            return
        for file, its in zip(files, self.storage.files(self.name).get_file_info([f.path for f in files]), strict=True):
            if not its.is_file or its.size != file.size_bytes:
                raise LakeFault(
                    f"{self.storage.uri(self.name)}/{file.path}, which a task has written, is not here: executors on "
                    "other machines must share the folder of --to with the driver. Give one that they share, or an "
                    "object store"
                )

    def refresh(self) -> None:
        with faults_of(self):
            self.delta.update_incremental()


def place_of(delta: DeltaTable) -> Place | None:
    """How far a table is; None: nothing was committed yet."""
    ts = delta.transaction_version(_TS)
    return None if ts is None else Place(ts, delta.transaction_version(_EPOCH) or 0)


def at_place(place: Place, initial_ts: int | None = None) -> CommitProperties:
    """For a commit that says how far the table is with it."""
    said = [Transaction(_TS, place.ts), Transaction(_EPOCH, place.epoch)]
    if initial_ts is not None:
        said.append(Transaction(_INITIAL, initial_ts))
    return CommitProperties(max_commit_retries=0, app_transactions=said)


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
    """A table, made if there is nothing. `about`: what is in the lake, which must be the same whenever it is opened."""
    uri, options = storage.uri(name), dict(storage.options)
    try:
        delta = _opened(uri, options)
        if delta is None:
            _check_empty(storage, name)
            delta = DeltaTable.create(
                uri,
                SCHEMAS[name],
                partition_by=[DAY] if name in DIVIDED else None,
                name=f"tidelog {name}",
                description=about,
                configuration=PROPERTIES[name],
                storage_options=options,
            )
    except (DeltaError, OSError) as error:
        raise LakeFault(f"{uri}: {first_line(error)}") from None
    metadata = delta.metadata()
    if metadata.name != f"tidelog {name}":
        raise LakeUnusable(f"{uri} is a table that `tidelog pipeline lake` did not make: give another folder")
    if metadata.description != about:
        raise LakeUnusable(
            f"{uri} was made with other settings: {metadata.description}, and now they are {about}. Give those, or "
            "another folder"
        )
    return LakeTable(storage, name, delta)


def _opened(uri: str, options: dict[str, str]) -> DeltaTable | None:
    try:
        return DeltaTable(uri, storage_options=options)
    except TableNotFoundError:
        return None


def _check_empty(storage: Storage, name: str) -> None:
    """Do not make a table among files that are somebody's."""
    import pyarrow.fs as pa_fs

    try:
        found = storage.files(name).get_file_info(pa_fs.FileSelector("", allow_not_found=True))
    except NotADirectoryError:
        raise LakeUnusable(f"{storage.uri(name)}: there is a file in the way") from None
    if found:
        raise LakeUnusable(
            f"{storage.uri(name)} has files in it and is no Delta table ({found[0].base_name}): give another folder"
        )


def faults_of(table: LakeTable) -> faults_at:
    """What goes wrong with a table in the block, in our words."""
    return faults_at(table.storage.uri(table.name))


class faults_at:
    """The same for what is at a URI."""

    def __init__(self, uri: str) -> None:
        self._uri = uri

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, CommitFailedError):
            raise LakeTaken(
                f"{self._uri}: another job wrote to it at the same time ({first_line(error)}). What this one was at is "
                "not there; see to it that one job writes to a lake, and run it again"
            ) from None
        if isinstance(error, DeltaError | OSError):
            raise LakeFault(f"{self._uri}: {first_line(error)}") from None


def first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
