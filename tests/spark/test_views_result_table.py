"""The rows of a view as a table in a lake, written bucket by bucket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from tests.integration.s3_server import S3Bucket
from tests.spark.shown_groups import SCHEMA, VIEW, ShownGroups
from tidelog import limits
from tidelog.spark.delta.faults import TableTaken, TableUnusable
from tidelog.spark.delta.storage import Storage, find_storage
from tidelog.spark.delta.table import HistoryPoint
from tidelog.spark.views.dataflow.result_table import ResultTable, open_result
from tidelog.spark.views.sql.definition import View, ViewSource

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]

BUCKETS = 3
Row = tuple[Any, ...]


class Scene:
    """A view's rows in buckets, and its table."""

    def __init__(self, spark: SparkSession, folder: Path, storage: Storage | None = None) -> None:
        self.spark = spark
        self.folder = folder
        self.groups = ShownGroups(folder, BUCKETS)
        self.storage = storage or find_storage(str(folder / "lake"))
        self.there: list[dict[str, Row]] = [{} for _ in range(BUCKETS)]
        self.ts = 0

    def table(self, database: int = 0) -> ResultTable:
        return ResultTable(self.storage, VIEW, SCHEMA, database)

    def put(self, bucket: int, rows: Mapping[str, Row | None]) -> None:
        self.groups.put(bucket, rows)
        self.there[bucket] |= {group: row for group, row in rows.items() if row is not None}
        for group in [group for group, row in rows.items() if row is None]:
            self.there[bucket].pop(group, None)

    def write(self, table: ResultTable, buckets: Sequence[int]) -> HistoryPoint:
        self.ts += 1
        point = HistoryPoint(self.ts, 7)
        table.write(self.spark, self.groups.rows(), buckets, f"token-{self.ts}", point)
        return point

    def delta(self) -> DeltaTable:
        return DeltaTable(self.storage.uri("views/v"), storage_options=dict(self.storage.options))

    def files(self) -> dict[str, int]:
        """The files of each bucket, by their names."""
        actions = pa.table(self.delta().get_add_actions()).to_pylist()
        return {each["path"]: each["num_records"] for each in actions}

    def check(self) -> None:
        rows = [tuple(row.values()) for row in self.delta().to_pyarrow_table().to_pylist()]
        expected = [row for bucket in self.there for row in bucket.values()]
        assert sorted(rows, key=repr) == sorted(expected, key=repr)
        assert sum(self.files().values()) == len(rows)


@pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.long)])
def scene(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Scene:
    if request.param == "folder":
        return Scene(spark, tmp_path)
    bucket: S3Bucket = request.getfixturevalue("s3_bucket")
    return Scene(spark, tmp_path, Storage(bucket.folder(), dict(bucket.env)))


def test_only_buckets_that_changed_are_written(scene: Scene) -> None:
    made = scene.table()
    assert (made.point, made.is_ours, made.version) == (None, False, 1)
    scene.put(0, {"x:1": ("x", 1, 5, None), "%:%": (None, None, 1, "u")})
    scene.put(2, {"y:%": ("y", None, 1, "")})
    point = scene.write(made, [0])
    assert (made.point, made.is_ours, made.version) == (point, True, 1)
    scene.check()
    files = scene.files()
    assert sorted(path.partition("/")[0] for path in files) == ["bucket-0000", "bucket-0002"]
    scene.put(0, {"%:%": (None, None, 2, None), "x:1": None, "new:3": ("new", 3, 1, "v")})
    scene.put(1, {"z:1": ("z", 1, 1, None)})
    point = scene.write(made, [1, 0])
    scene.check()
    kept = files.keys() & scene.files().keys()
    assert [path.partition("/")[0] for path in kept] == ["bucket-0002"], "the others were not touched"
    again = scene.table()
    assert (again.point, again.is_ours, again.version) == (point, True, 1)
    scene.put(2, {"y:%": None})
    point = scene.write(again, [2])
    scene.check()
    assert len(scene.files()) == 2, "an empty bucket has no file"
    assert scene.table().point == point


def test_a_table_that_is_as_it_was_records_how_far_it_is(scene: Scene) -> None:
    made = scene.table()
    point = scene.write(made, range(BUCKETS))
    scene.check()
    assert (scene.files(), made.point) == ({}, point)
    later = HistoryPoint(point.ts + 10, 7)
    made.is_at(later)
    assert made.point == scene.table().point == later


def test_who_comes_second_is_told(scene: Scene) -> None:
    scene.put(0, {"x:1": ("x", 1, 5, None)})
    scene.write(scene.table(), [0])
    one, *others = [scene.table() for _ in range(3)]
    scene.put(0, {"x:1": ("x", 1, 6, None)})
    point = scene.write(one, [0])
    for other, buckets in zip(others, ([0], [1]), strict=True):
        with pytest.raises(TableTaken, match="another job wrote to this table"):
            scene.write(other, buckets)
    scene.check()
    assert scene.table().point == point


def test_files_that_somebody_put_together_are_replaced(scene: Scene) -> None:
    """Any client of the lake may do that."""
    made = scene.table()
    for bucket in range(BUCKETS):
        scene.put(bucket, {f"x:{bucket}": ("x", bucket, 1, None)})
    scene.write(made, range(BUCKETS))
    scene.delta().optimize.compact()
    assert len(scene.files()) == 1
    scene.check()
    scene.put(0, {"x:0": ("x", 0, 2, None)})
    scene.write(made, [0])
    scene.check()
    scene.delta().optimize.compact()
    scene.put(1, {"x:1": None})
    scene.write(scene.table(), [1])
    scene.check()


def test_another_definition_takes_the_place_of_the_first(scene: Scene) -> None:
    scene.put(0, {"x:1": ("x", 1, 5, None)})
    scene.write(scene.table(), [0])
    view = View("v", ViewSource("stream", "s"), "select c, count(*) as n from source group by c", ("c",))
    schema = pa.schema([("c", pa.string()), ("n", pa.int64())])
    made = ResultTable(scene.storage, view, schema)
    assert (made.is_ours, made.version) == (False, 2)
    scene.groups = ShownGroups(scene.folder / "other", 2, schema)
    scene.there = [{}, {}]
    scene.put(1, {"z": ("z", 1)})
    scene.write(made, [])
    assert (made.is_ours, made.version) == (True, 2)
    scene.check()
    scene.put(1, {"z": ("z", 2)})
    scene.write(made, [1])
    scene.check()
    assert scene.table().version == 3
    assert not scene.table().is_ours


def test_another_definition_may_have_the_same_columns(scene: Scene) -> None:
    scene.put(0, {"x:1": ("x", 1, 5, None)})
    scene.write(scene.table(), [0])
    view = View("v", ViewSource("stream", "other"), VIEW.sql, VIEW.key)
    made = ResultTable(scene.storage, view, SCHEMA)
    scene.put(0, {"x:1": None})
    scene.put(1, {"y:1": ("y", 1, 5, None)})
    scene.write(made, [])
    assert (made.is_ours, made.version, ResultTable(scene.storage, view, SCHEMA).version) == (True, 2, 2)
    scene.check()


def test_values_of_any_type_are_in_it(spark: SparkSession, tmp_path: Path) -> None:
    values = {
        "at": (pa.timestamp("us", "UTC"), datetime(1, 1, 1, tzinfo=UTC)),
        "day": (pa.date32(), date(2026, 3, 1)),
        "flag": (pa.bool_(), True),
        "small": (pa.int8(), -1),
        "exact": (pa.decimal128(38, 10), Decimal("-0.0000000001")),
        "number": (pa.float64(), 0.1),
    }
    schema = pa.schema([(name, kind) for name, (kind, _) in values.items()])
    row = tuple(value for _, value in values.values())
    groups = ShownGroups(tmp_path, 1, schema)
    groups.put(0, {"a": row, "b": tuple(None for _ in row)})
    made = ResultTable(find_storage(str(tmp_path)), VIEW, schema)
    made.write(spark, groups.rows(), [0], "token", HistoryPoint(1, 1))
    found = DeltaTable(str(tmp_path / "views/v")).to_pyarrow_table()
    assert found.schema == schema
    assert found.to_pylist() == [dict(zip(values, row, strict=True)), dict.fromkeys(values)]


def test_a_table_of_another_database_is_left_alone(scene: Scene) -> None:
    scene.write(scene.table(1), [0])
    assert scene.table(1).is_ours
    with pytest.raises(TableUnusable, match="was made from database 1, and now it is 0"):
        scene.table()


def test_old_files_go_and_the_point_stays(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "VIEW_VACUUM_S", -1.0)
    scene = Scene(spark, tmp_path)
    made = scene.table()
    scene.write(made, [0])
    for number in range(12):
        scene.put(number % BUCKETS, {f"x:{number}": ("x", number, 1, None)})
        point = scene.write(made, [number % BUCKETS])
        assert made.point == scene.table().point == point
    scene.check()
    log = [each.name for each in (tmp_path / "lake/views/v/_delta_log").iterdir()]
    assert any("checkpoint" in name for name in log)


def test_a_table_that_is_somebody_elses_is_left_alone(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "views" / "v"), pa.table({"a": [1]}))
    with pytest.raises(TableUnusable, match="did not make"):
        open_result(find_storage(str(tmp_path)), "v")
