"""Copies through Spark itself: the three kinds, an encrypted copy, and a key that nothing shows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.integration.s3_server import S3Bucket
from tests.spark.in_process import reader
from tests.spark.shipped_copies import CopyPlace, Recorded, place, state_rows
from tests.store.changes import run
from tidelog.errors import ClientError, EnvironmentFault
from tidelog.shipping.sealed_store import SealedStore
from tidelog.shipping.sealing_key import parse_key

__all__ = ["place"]
pytestmark = pytest.mark.xdist_group("spark")

KEY = "42" * 32


def written(place: CopyPlace) -> Recorded:
    """An encrypted copy."""
    shipped = Recorded(SealedStore(place.objects(), parse_key(KEY.encode()), os.urandom), 2)
    shipped.begin()
    for number in range(20):
        run(shipped.store, [b"SET", b"user:%d" % number, b"name %d" % number])
        run(shipped.store, [b"TWRITE", b"orders", b"paid", b"order %d" % number])
    shipped.journal.writer.write()
    shipped.note()
    shipped.save()
    run(shipped.store, [b"HSET", b"user:hash", b"field", b"value"])
    run(shipped.store, [b"DEL", b"user:3"])
    run(shipped.store, [b"TWRITE", b"orders", b"placed", b"last"])
    shipped.journal.writer.write()
    shipped.note()
    shipped.ship()
    return shipped


def test_an_encrypted_copy_through_spark(spark: SparkSession, place: CopyPlace, tmp_path: Path) -> None:
    shipped = written(place)
    key_file = tmp_path / "key"
    key_file.write_text(KEY)
    key_file.chmod(0o600)
    source = spark.read.format("tidelog").options(ship_key_file=str(key_file), **place.options)

    state = source.option("from", place.url).schema("key string, field string, value string").load("state:user:")
    [newest, *_] = sorted(shipped.rows, reverse=True)
    wanted = {row for row in shipped.rows[newest][0] if row[0].startswith(b"user:")}
    found = {(row.key, row.field, row.value) for row in state.collect()}
    assert found == {
        (key.decode(), field and field.decode(), value and value.decode()) for key, _, field, value, _ in wanted
    }
    assert [row.value for row in state.where("key = 'user:hash'").collect()] == ["value"]

    orders = source.option("from", place.url).schema("offset bigint, tag string, entry string").load("stream:orders")
    assert [row.entry for row in orders.orderBy("offset").collect()] == [*(f"order {n}" for n in range(20)), "last"]
    assert orders.where("offset > 19").count() == 2

    files = spark.read.format("tidelog").options(ship_key_file=str(key_file), **place.options)
    journal = files.load(f"journal:{place.url}")
    assert journal.where("op = 'hset'").count() == 1

    for frame in (state, orders, journal):
        frame.count()
        query: Any = frame
        plan = query._jdf.queryExecution().toString()
        assert KEY not in plan
        assert "testing-secret" not in plan
    assert KEY not in spark.sparkContext.getConf().toDebugString()


def test_a_key_that_is_missing_or_wrong_is_told(place: CopyPlace, tmp_path: Path) -> None:
    written(place)
    options = {"path": "state:*", "from": place.url, **place.options}
    with pytest.raises(EnvironmentFault, match=r"is encrypted.*ship-key-file"):
        reader(**options)
    wrong = tmp_path / "wrong"
    wrong.write_text("43" * 32)
    with pytest.raises(EnvironmentFault, match="another key"):
        reader(ship_key_file=wrong, **options)
    with pytest.raises(ClientError, match="ship_key_file"):
        reader(ship_key_file=tmp_path / "none", **options)


def test_credentials_come_from_the_environment(s3_bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    place = CopyPlace(s3_bucket.folder(), s3_bucket.options)
    shipped = place.shipped()
    shipped.begin()
    shipped.change(3)
    shipped.ship()
    for name, value in s3_bucket.env.items():
        monkeypatch.setenv(name, value)
    options: dict[str, Any] = {"from": place.url}
    made = reader(path="state:*", **options)
    found = [state_rows(batch) for part in made.partitions() for batch in made.read(part)]
    assert set().union(*found) == shipped.rows_at(shipped.newest.closed_ts)
