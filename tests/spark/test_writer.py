"""Rows that become entries: which columns they have, and that each is written once, however often a task is tried."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, LongType, StringType, StructField, StructType

from tests.spark.conftest import Peer
from tidelog import limits
from tidelog.errors import ClientError
from tidelog.spark.options import BadOption, Target
from tidelog.spark.source.data_source import TidelogSource
from tidelog.spark.source.stream.writing import AppendCalls, BatchAppender, EntryEncoder, progress_key


@pytest.fixture(scope="module")
def failing(spark: SparkSession) -> str:
    """The same source, of which the first attempt of each task fails when it has written everything."""

    # Made in here, so that they travel to the executors as they are: these cannot import the tests.
    class FailingAppender(BatchAppender):
        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            done = BatchAppender.write(self, iterator)
            context = TaskContext.get()
            if context is None or context.attemptNumber() == 0:
                raise RuntimeError("planted: it is written and the task fails")
            return done

    class FailingSource(TidelogSource):
        @classmethod
        def name(cls) -> str:
            return "tidelog_failing"

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
            target = Target(self._given, ["stream"])
            return FailingAppender(target.name, target.options, schema)

    spark.dataSource.register(FailingSource)
    return FailingSource.name()


# --- through Spark ----------------------------------------------------------------------------------------------------


def test_a_task_that_is_retried_writes_once(spark: SparkSession, failing: str, peer: Peer) -> None:
    count = 3 * limits.SPARK_CALL_ROWS + 7
    frame = spark.range(count, numPartitions=1).selectExpr("'t' AS tag", "concat('entry ', id) AS entry")
    frame.write.format(failing).option("url", peer.url).option("stream", "out").mode("append").save()
    assert peer.entries("out") == [b"entry %d" % number for number in range(count)]


def test_rows_with_fields_are_retried_too(spark: SparkSession, failing: str, tide: Peer) -> None:
    count = 2 * limits.SPARK_CALL_ROWS
    frame = spark.range(count, numPartitions=1).selectExpr("id", "id % 2 = 0 AS even", "nullif(id, 1) AS maybe")
    frame.write.format(failing).option("url", tide.url).mode("append").save("stream:out")
    found = tide.call("XRANGE", "out", "-", "+")
    assert [fields[b"id"] for _, fields in found] == [b"%d" % number for number in range(count)]
    assert found[0][1] == {b"id": b"0", b"even": b"true", b"maybe": b"0"}
    assert found[1][1] == {b"id": b"1", b"even": b"false"}


def test_a_batch_that_is_done_again_writes_nothing_new(
    spark: SparkSession, tide: Peer, tmp_path: Path, checkpoint: str
) -> None:
    """What a crash between the write and Spark's own commit leaves: the batch is in the log and not committed."""
    tide.fill("in", 4000)
    source = spark.readStream.format("tidelog").schema("tag binary, entry binary").option("url", tide.url)
    frame = source.option("max_rows_per_trigger", 2000).option("partition_rows", 500).load("stream:in")

    def run() -> None:
        writer = frame.writeStream.format("tidelog").option("url", tide.url).option("stream", "out")
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination(60)

    run()
    expected = sorted(b"entry %d" % number for number in range(4000))
    assert sorted(tide.entries("out")) == expected
    assert sorted(path.name for path in Path(checkpoint, "commits").glob("[0-9]*")) == ["0", "1"]
    for path in Path(checkpoint, "commits").glob("*1*"):
        path.unlink()
    tide.fill("in", 10, first=4000)
    run()
    assert sorted(tide.entries("out")) == sorted([*expected, *(b"entry %d" % n for n in range(4000, 4010))])


def test_rows_say_where_they_go(spark: SparkSession, tide: Peer) -> None:
    frame = spark.range(10, numPartitions=2).selectExpr("concat('s', id % 2) AS stream", "string(id) AS entry")
    frame.write.format("tidelog").option("url", tide.url).mode("append").save()
    assert sorted(tide.entries("s0")) == [b"0", b"2", b"4", b"6", b"8"]
    assert sorted(tide.entries("s1")) == [b"1", b"3", b"5", b"7", b"9"]
    writer = frame.write.format("tidelog").option("url", tide.url)
    with pytest.raises(Exception, match="rows can only be appended: give mode"):
        writer.mode("overwrite").save()
    with pytest.raises(Exception, match="drop the column `stream`"):
        writer.mode("append").save("stream:out")


# --- rows -------------------------------------------------------------------------------------------------------------


def fields(**types: Any) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (fields(entry=LongType()), "column entry is bigint: cast it"),
        (fields(entry=BinaryType(), price=LongType()), "column 'price' does not fit beside a column `entry`"),
        (fields(prices=ArrayType(LongType())), "column prices is array<bigint>"),
        (fields(), "there is nothing to write"),
    ],
)
def test_rows_that_cannot_be_entries(schema: StructType, says: str) -> None:
    with pytest.raises(BadOption, match=says):
        EntryEncoder(schema, "out")


def test_nulls_are_refused_where_they_mean_nothing() -> None:
    with pytest.raises(ClientError, match="column entry has nulls"):
        list(EntryEncoder(fields(entry=StringType()), "out").entries(pa.record_batch({"entry": pa.array(["a", None])})))
    with pytest.raises(ClientError, match="only nulls"):
        list(EntryEncoder(fields(a=StringType()), "out").entries(pa.record_batch({"a": pa.array(["a", None])})))


# --- calls ------------------------------------------------------------------------------------------------------------


@pytest.fixture(params=[True, False], ids=["producer", "beside"])
def by_producer(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def write(peer: Peer, batch: int, entries: range, *, by_producer: bool, size: int = 0) -> int:
    client = type(peer.client)(port=peer.client.connection_pool.connection_kwargs["port"])
    with client:
        calls = AppendCalls(client, "spark:q:0", batch, has_fields=False, by_producer=by_producer)
        for number in entries:
            calls.add(b"out", [b"t", b"%d" % number + bytes(size)])
        calls.end()
    return calls.count


def test_calls_that_are_made_again_change_nothing(
    tide: Peer, by_producer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SPARK_CALL_ROWS", 10)
    assert write(tide, 0, range(25), by_producer=by_producer) == 3
    assert write(tide, 0, range(25), by_producer=by_producer) == 3
    assert write(tide, 1, range(25, 30), by_producer=by_producer) == 1
    write(tide, 1, range(25, 30), by_producer=by_producer)
    assert tide.entries("out") == [b"%d" % number for number in range(30)]


def test_calls_that_the_server_has_forgotten(tide: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps what some thousand calls got; older ones were written all the same."""
    monkeypatch.setattr(limits, "SPARK_CALL_ROWS", 1)
    count = 3 * limits.PRODUCER_SEQS_KEPT
    for _ in range(2):
        write(tide, 0, range(count), by_producer=True)
    assert tide.call("TINFO", "out")[b"length"] == count


def test_a_call_is_bounded_in_bytes(tide: Peer) -> None:
    assert write(tide, 0, range(5), by_producer=True, size=limits.SPARK_CALL_BYTES // 2) == 3


def test_a_task_that_was_cut_short_goes_on(tide: Peer, by_producer: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SPARK_CALL_ROWS", 10)
    write(tide, 0, range(20), by_producer=by_producer)
    write(tide, 0, range(45), by_producer=by_producer)
    assert tide.entries("out") == [b"%d" % number for number in range(45)]


def test_the_progress_lies_in_the_slot_of_the_stream() -> None:
    assert progress_key(b"orders") == b"tidelog:written:{orders}:orders"
    assert progress_key(b"a{tag}b") == b"tidelog:written:{tag}:a{tag}b"
