"""Commits that add and remove files: what is read afterwards, and what happens if another job was first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from pyspark.sql import SparkSession

from tests.spark.test_lake_storage import KEYS, moto_s3
from tidelog.spark.delta.commit import DeltaFile, FilesCommit, FilesReplaced, paths_of
from tidelog.spark.delta.storage import Storage, find_storage
from tidelog.spark.delta.table import HistoryPoint, open_delta, point_of

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]

SCHEMA = pa.schema([("key", pa.binary()), ("ts", pa.int64())])


@pytest.fixture(params=["folder", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    if request.param == "folder":
        yield find_storage(str(tmp_path))
        return
    with moto_s3(tmp_path) as url:
        yield find_storage("s3://bucket/lake", [*KEYS, f"endpoint_url={url}"])


class Rows:
    """A table whose files have one row each."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.uri = storage.uri("rows")
        self._options = dict(storage.options)
        settings = {"delta.dataSkippingStatsColumns": "ts", "delta.checkpointInterval": "3"}
        DeltaTable.create(self.uri, SCHEMA, configuration=settings, storage_options=self._options)

    def opened(self) -> DeltaTable:
        found = open_delta(self.storage, "rows")
        assert found is not None
        return found

    def file(self, ts: int, folder: str = "") -> DeltaFile:
        files, path = self.storage.files("rows"), f"{folder}part-{ts}.parquet"
        if folder and self.storage.is_local:
            files.create_dir(folder)
        pq.write_table(pa.table({"key": [b"%d" % ts], "ts": [ts]}, schema=SCHEMA), path, filesystem=files)
        stats = {"numRecords": 1, "minValues": {"ts": ts}, "maxValues": {"ts": ts}, "nullCount": {"ts": 0}}
        return DeltaFile(path, files.get_file_info(path).size, {}, json.dumps(stats))

    def make(self, delta: DeltaTable, commit: FilesCommit) -> None:
        commit.make(delta, self.uri, [])

    def held(self) -> list[int]:
        """As a reader finds it that knows nothing of this one."""
        return sorted(self.opened().to_pyarrow_table().column("ts").to_pylist())


def test_files_come_and_go_in_one_step(storage: Storage) -> None:
    """Over more commits than a checkpoint has between it and the next."""
    rows = Rows(storage)
    delta, last = rows.opened(), list[DeltaFile]()
    for ts in range(1, 9):
        file = rows.file(ts, "bucket-0001-of-0008/")
        rows.make(delta, FilesCommit([file], last, HistoryPoint(ts, 7)))
        last = [file]
        assert rows.held() == [ts]
    assert point_of(rows.opened()) == HistoryPoint(8, 7)
    kept = rows.file(9)
    rows.make(delta, FilesCommit([kept], (), HistoryPoint(9, 7)))
    assert rows.held() == [8, 9]
    rows.make(delta, FilesCommit([], [kept, *last]))
    assert rows.held() == []
    assert point_of(rows.opened()) == HistoryPoint(9, 7)
    assert len(rows.opened().vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)) == 9


def test_spark_reads_what_is_there(spark: SparkSession, tmp_path: Path) -> None:
    rows = Rows(find_storage(str(tmp_path)))
    delta, files = rows.opened(), [rows.file(ts, f"bucket-000{ts}-of-0004/") for ts in range(3)]
    rows.make(delta, FilesCommit(files, (), HistoryPoint(3, 7)))
    rows.make(delta, FilesCommit([rows.file(3)], files[:2], HistoryPoint(4, 7)))
    found: Any = spark.read.parquet(*rows.opened().file_uris())
    assert found.columns == ["key", "ts"]
    assert sorted(row["ts"] for row in found.collect()) == [2, 3]


def test_a_commit_that_comes_second_is_tried_again(storage: Storage) -> None:
    rows = Rows(storage)
    first, second = rows.opened(), rows.opened()
    old = [rows.file(1), rows.file(2)]
    rows.make(first, FilesCommit(old, (), HistoryPoint(2, 7)))
    second.update_incremental()
    third = rows.opened()
    rows.make(first, FilesCommit([rows.file(3)], (), HistoryPoint(3, 7)))
    rows.make(second, FilesCommit([rows.file(12)], old))
    assert rows.held() == [3, 12]
    assert point_of(second) == HistoryPoint(3, 7)
    with pytest.raises(FilesReplaced, match=r"part-1\.parquet was replaced by another job"):
        rows.make(third, FilesCommit([rows.file(11)], old[:1]))
    rows.make(first, FilesCommit([rows.file(4)], (), HistoryPoint(4, 7)))
    assert rows.held() == [3, 4, 12]
    assert paths_of(first) == paths_of(rows.opened())


def test_of_two_that_go_on_one_is_refused(storage: Storage) -> None:
    """Both would record the same history; whatever the second one has read is out of date."""
    rows = Rows(storage)
    first, second = rows.opened(), rows.opened()
    rows.make(first, FilesCommit([rows.file(1)], (), HistoryPoint(1, 7)))
    with pytest.raises(CommitFailedError):
        rows.make(second, FilesCommit([rows.file(2)], (), HistoryPoint(2, 7)))
    assert rows.held() == [1]
