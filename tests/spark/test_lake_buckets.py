"""Buckets of `current`: which rows lie where, how many there are, and that no one sees them in the rows."""

from __future__ import annotations

import random
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.integration.server_process import ServerProcess
from tests.spark.lake_check import InProcess, address_of, check
from tidelog import limits
from tidelog.spark.delta.storage import find_storage
from tidelog.spark.jobs.job_lease import Stop
from tidelog.spark.lake.buckets import Bucket, bucket_numbers, bucket_of, rows_of_buckets, wanted_count
from tidelog.spark.lake.job import LakeJob, LakeOptions
from tidelog.spark.lake.layout import CHANGES, CURRENT, SCHEMAS
from tidelog.spark.lake.tables import LakeTable
from tidelog.spark.lake.upkeep import vacuum

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(300)]


def test_a_bucket_is_a_hash_that_stays() -> None:
    keys = [b"order:1", b"", b"\xff", b"order:1"]
    numbers = bucket_numbers(pa.chunked_array([keys[:2], keys[2:]]), 8).tolist()
    assert numbers == [zlib.crc32(key) % 8 for key in keys]
    assert bucket_numbers(pa.chunked_array([keys]), 1).tolist() == [0, 0, 0, 0]


def test_rows_are_divided_in_their_order() -> None:
    numbers = bucket_numbers(pa.chunked_array([[b"%d" % n for n in range(100)]]), 4)
    divided = rows_of_buckets(numbers, 4)
    assert sorted(row for rows in divided for row in rows.tolist()) == list(range(100))
    for number, rows in enumerate(divided):
        assert rows.tolist() == sorted(rows.tolist())
        assert set(numbers[rows].tolist()) == {number}


def test_the_path_of_a_file_says_its_bucket() -> None:
    assert bucket_of("part-1.parquet") == Bucket(0, 1)
    assert bucket_of(f"{Bucket(3, 8).folder}part-1.parquet") == Bucket(3, 8)
    assert Bucket(0, 1).folder == ""


@pytest.mark.parametrize(
    ("files", "count", "wanted"),
    [(0, 1, 1), (1, 1, 1), (1.01, 1, 4), (2.1, 1, 8), (3.9, 4, 4), (4.1, 4, 16), (1000, 1, 16), (10**6, 4096, 4096)],
)
def test_buckets_grow_with_the_table(files: float, count: int, wanted: int) -> None:
    assert wanted_count(int(files * limits.LAKE_FILE_BYTES), count) == wanted


@pytest.fixture
def server(tmp_path: Path) -> Any:
    with ServerProcess(tmp_path / "data", "--shards", "2", has_flight=True) as running:
        yield running


def write(client: Any, draw: random.Random, count: int) -> None:
    """Random values, so that files are as large as what is in them."""
    pipeline = client.pipeline(transaction=False)
    for _ in range(count):
        match draw.randrange(8):
            case 0:
                pipeline.delete(b"k:%d" % draw.randrange(300))
            case 1:
                pipeline.hset(b"h:%d" % draw.randrange(50), b"f%d" % draw.randrange(4), draw.randbytes(100))
            case _:
                pipeline.set(b"k:%d" % draw.randrange(300), draw.randbytes(100))
    pipeline.execute()


def counts_of(folder: Path) -> Counter[int]:
    """Of how many buckets files are; each row must lie where its key says."""
    found: Counter[int] = Counter()
    for uri in DeltaTable(str(folder / CURRENT)).file_uris():
        path = Path(uri)
        bucket = bucket_of(str(path.relative_to(folder / CURRENT)))
        keys = pq.read_table(path, partitioning=None).column("key")
        assert set(bucket_numbers(keys, bucket.of).tolist()) <= {bucket.number}
        found[bucket.of] += 1
    return found


def test_a_table_that_grows_is_divided(server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than once, from the one bucket that files of earlier versions have; ranges concern all buckets."""
    folder, draw = tmp_path / "lake", random.Random(7)
    with server.client() as client:
        write(client, draw, 200)
        InProcess(server.port, folder).run()
        assert set(counts_of(folder)) == {1}
        monkeypatch.setattr("tidelog.limits.LAKE_FILE_BYTES", 16_000)
        write(client, draw, 300)
        InProcess(server.port, folder).run()
        write(client, draw, 300)
        InProcess(server.port, folder).run()
        [count] = counts_of(folder)
        assert count >= 4
        check(server.port, client, folder)
        monkeypatch.setattr("tidelog.limits.LAKE_FILE_BYTES", 4_000)
        write(client, draw, 300)
        InProcess(server.port, folder).run()
        [more] = counts_of(folder)
        assert more > count
        check(server.port, client, folder)
        assert DeltaTable(str(folder / CURRENT)).to_pyarrow_table().schema.names == SCHEMAS[CURRENT].names
        client.flushdb()
        write(client, draw, 20)
        InProcess(server.port, folder).run()
        check(server.port, client, folder)


class Killed(BaseException):
    """Nothing after this happens."""


def test_a_job_that_is_killed_while_it_divides_or_folds_leaves_the_table_whole(
    server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that no commit names are removed by vacuum, and by nothing else."""
    folder, draw = tmp_path / "lake", random.Random(9)

    def killed(*_: Any, **__: Any) -> None:
        raise Killed

    with server.client() as client:
        write(client, draw, 200)
        InProcess(server.port, folder).run()
        before = Counter(DeltaTable(str(folder / CURRENT)).file_uris())
        monkeypatch.setattr("tidelog.limits.LAKE_FILE_BYTES", 8_000)
        write(client, draw, 100)
        for method in ("replace", "commit"):
            run = InProcess(server.port, folder)
            run.take()
            with monkeypatch.context() as patch:
                patch.setattr(LakeTable, method, killed)
                with pytest.raises(Killed):
                    run.fold()
            if method == "replace":
                assert Counter(DeltaTable(str(folder / CURRENT)).file_uris()) == before
        last = InProcess(server.port, folder)
        last.run()
        check(server.port, client, folder)
        assert vacuum(last.current.table, 0) > 0
        named = {Path(uri) for uri in DeltaTable(str(folder / CURRENT)).file_uris()}
        assert set((folder / CURRENT).rglob("*.parquet")) == named
        check(server.port, client, folder)


def test_small_files_of_a_bucket_are_put_together(
    server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Passes that only bring new keys add a file each, and rewrite none."""
    monkeypatch.setattr("tidelog.limits.LAKE_BUCKET_FILES_MAX", 3)
    counts = []
    with server.client() as client:
        run = InProcess(server.port, tmp_path / "lake")
        for number in range(9):
            client.set(f"new:{number}", number)
            run.take()
            run.fold()
            counts.append(len(run.current.table.files()))
        check(server.port, client, tmp_path / "lake")
    assert counts == [1, 2, 3, 4, 1, 2, 3, 4, 1]


def test_spark_folds_bucket_by_bucket(
    spark: SparkSession, server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both stages, with a shuffle between them."""
    folder, draw = tmp_path / "lake", random.Random(8)
    monkeypatch.setattr("tidelog.limits.LAKE_FILE_BYTES", 16_000)
    monkeypatch.setattr("tidelog.limits.LAKE_FOLD_TASK_BYTES", 20_000)
    with server.client() as client:
        for _ in range(3):
            write(client, draw, 400)
            LakeJob(address_of(server.port), find_storage(str(folder)), LakeOptions()).run(lambda: spark, Stop())
            check(server.port, client, folder)
    [count] = counts_of(folder)
    assert count >= 4
    assert len(DeltaTable(str(folder / CHANGES)).file_uris()) >= 3
