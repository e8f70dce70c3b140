"""The rows that a view should have, compared with its hashes and with its table, bucket by bucket.

    rows of the recomputation ─┐
    keys of hashes             ├─ by bucket of the group ─> differences
    rows of the table         ─┘

Each task gets all there is of its bucket; it reads the hashes of its groups from the server. Fractions may differ in
their last digits, because they are added in another order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark import TaskContext
from pyspark.sql import DataFrame

from tidelog import limits
from tidelog.spark.delta.storage import Storage
from tidelog.spark.views.dataflow.folders import FOLDER
from tidelog.spark.views.dataflow.group_names import group_texts
from tidelog.spark.views.dataflow.hashes import Hashes, read_hashes
from tidelog.spark.views.dataflow.packing import PACKED, divided, packed_row, portions
from tidelog.spark.views.sql.plan import ViewPlan

_FOUND: Final = "what string, place string, key string, rows bigint"
_GROUP: Final = "(group)"
_KIND: Final = "(kind)"
_EXPECTED, _KEYS, _TABLE = 0, 1, 2
Fields = Mapping[bytes, bytes]


class Differences(NamedTuple):
    """Keys of rows that differ."""

    missing: list[str]
    wrong: list[str]
    extra: list[str]

    @property
    def number(self) -> int:
        return len(self.missing) + len(self.wrong) + len(self.extra)


class Check(NamedTuple):
    """The result of a check."""

    view: str
    rows: int
    """That the recomputation has."""
    hashes: Differences
    table: Differences
    is_settled: bool
    """False: something kept changing, so the view may only be a little behind."""

    @property
    def is_right(self) -> bool:
        return not self.hashes.number and not self.table.number


@dataclass(frozen=True)
class ViewComparison:
    """Compares a view. It travels to executors."""

    hashes: Hashes
    plan: ViewPlan
    result: pa.Schema
    storage: Storage

    def run(self, expected: DataFrame, table: DeltaTable | None) -> Check:
        session = expected.sparkSession
        buckets = limits.VIEW_BUCKETS_MIN
        sides = expected.mapInArrow(self._expected, PACKED)
        sides = sides.unionAll(session.range(0, 1, 1, 1).mapInArrow(self._keys, PACKED))
        if table is not None and (paths := pa.table(table.get_add_actions())["path"].to_pylist()):
            files = session.createDataFrame([(path,) for path in paths], "path string").repartition(buckets)
            sides = sides.unionAll(files.mapInArrow(self._rows_of_table, PACKED))
        there = sides.repartitionById(buckets, "bucket")
        found = there.mapInArrow(self._compared, _FOUND).collect()
        rows = sum(row["rows"] for row in found if row["what"] == "rows")
        places = {}
        for place in ("hash", "table"):
            of_place = [row for row in found if row["place"] == place]
            places[place] = Differences(
                *(sorted(row["key"] for row in of_place if row["what"] == what) for what in Differences._fields)
            )
        return Check(self.hashes.view, rows, places["hash"], places["table"], True)

    # --- the three sides --------------------------------------------------------------------------------------------

    def _expected(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from self._packed(pa.Table.from_batches([batch]), _EXPECTED)

    def _rows_of_table(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = self.storage.files(f"{FOLDER}/{self.hashes.view}")
        for batch in batches:
            for path in batch.column(0).to_pylist():
                with files.open_input_file(path) as file:
                    for rows in pq.ParquetFile(file).iter_batches(limits.VIEW_PACKED_ROWS):
                        yield from self._packed(pa.Table.from_batches([rows]), _TABLE)

    def _packed(self, rows: pa.Table, kind: int) -> Iterator[pa.RecordBatch]:
        if not len(rows):
            return
        rows = pa.table([rows[field.name].cast(field.type) for field in self.result], schema=self.result)
        groups = group_texts([rows[name] for name in self.plan.key], len(rows)).cast(pa.binary())
        yield from _divided(rows.append_column(_GROUP, groups), kind)

    def _keys(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        list(batches)
        for bucket in range(limits.VIEW_BUCKETS_MIN):  # each has its task
            nothing = pa.table({_GROUP: pa.array([], pa.binary()), _KIND: pa.array([], pa.int32())})
            yield packed_row(bucket, [nothing])
        with self.hashes.server.connect() as client:
            for groups in self.hashes.groups(client):
                yield from _divided(pa.table({_GROUP: pa.array(groups, pa.binary())}), _KEYS)

    # --- comparing them ---------------------------------------------------------------------------------------------

    def _compared(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        sides: dict[int, list[pa.Table]] = {_EXPECTED: [], _KEYS: [], _TABLE: []}
        for some in portions(batches, 1 << 40):
            for [table] in some:
                if len(table):
                    sides[table[_KIND][0].as_py()].append(table.drop_columns([_KIND]))
        expected, count = self._fields(sides[_EXPECTED])
        in_lake, _ = self._fields(sides[_TABLE])
        keys = {key for table in sides[_KEYS] for key in table[_GROUP].to_pylist()} | expected.keys()
        there = self._hashes_of(sorted(keys))
        numbers = {field.name.encode() for field in self.result if pa.types.is_floating(field.type)}
        found = [{"what": "rows", "place": "", "key": "", "rows": count}]
        for place, have in (("hash", there), ("table", in_lake)):
            for what, group in _different(expected, have, numbers):
                key = group.decode(errors="surrogateescape").encode(errors="replace").decode()
                found.append({"what": what, "place": place, "key": key, "rows": 0})
        yield pa.RecordBatch.from_pylist(
            found,
            pa.schema([("what", pa.string()), ("place", pa.string()), ("key", pa.string()), ("rows", pa.int64())]),
        )

    def _fields(self, tables: list[pa.Table]) -> tuple[dict[bytes, Fields], int]:
        """The fields of the hashes of these rows, where there are any; and the number of rows."""
        found: dict[bytes, Fields] = {}
        for table in tables:
            rows = table.select(self.result.names)
            found |= self.hashes.fields(table[_GROUP].to_pylist(), rows)
        return {group: fields for group, fields in found.items() if fields}, len(found)

    def _hashes_of(self, groups: list[bytes]) -> dict[bytes, Fields]:
        found: dict[bytes, Fields] = {}
        with self.hashes.server.connect() as client:
            for at in range(0, len(groups), limits.VIEW_CALLS):
                some = groups[at : at + limits.VIEW_CALLS]
                read = read_hashes(client, [self.hashes.prefix + group for group in some])
                found |= {group: fields or {} for group, fields in zip(some, read, strict=True) if fields != {}}
        return found


def _divided(rows: pa.Table, kind: int) -> Iterator[pa.RecordBatch]:
    rows = rows.append_column(_KIND, pa.array([kind] * len(rows), pa.int32()))
    for bucket, some in enumerate(divided(rows, _GROUP, limits.VIEW_BUCKETS_MIN)):
        if len(some):
            yield packed_row(bucket, [some])


def _different(
    wanted: Mapping[bytes, Fields], there: Mapping[bytes, Fields], numbers: set[bytes]
) -> Iterator[tuple[str, bytes]]:
    for group in wanted.keys() - there.keys():
        yield "missing", group
    for group in wanted.keys() & there.keys():
        if not _is_same(wanted[group], there[group], numbers):
            yield "wrong", group
    for group in there.keys() - wanted.keys():
        yield "extra", group


def _is_same(one: Fields, other: Fields, numbers: set[bytes]) -> bool:
    if one == other:
        return True
    if one.keys() != other.keys():
        return False
    return all(
        value == other[name] or (name in numbers and _is_close(value, other[name])) for name, value in one.items()
    )


def _is_close(one: bytes, other: bytes) -> bool:
    try:
        return math.isclose(float(one), float(other), rel_tol=1e-9, abs_tol=1e-9)
    except ValueError:
        return False
