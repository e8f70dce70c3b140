"""Parts of a feed: the rows say what is to be read, and reading it gives what the feed gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StringType, StructField, StructType

from tests.spark.conftest import Peer
from tests.spark.in_process import micro_batches, reader, rows_between
from tidelog import limits
from tidelog.errors import ClientError
from tidelog.spark.endpoint import take_endpoint
from tidelog.spark.options import BadOption, Options
from tidelog.spark.source.feed.columns import EventColumns
from tidelog.spark.source.feed.parts import parts_of
from tidelog.spark.source.feed.position import explored_feed_server
from tidelog.spark.source.feed.reading import HistoryLost, read_feed
from tidelog.spark.source.feed.spans import spans_of

KEY_AND_VALUE = StructType([StructField("key", StringType()), StructField("value", StringType())])

pytestmark = pytest.mark.xdist_group("spark")


def test_a_task_reads_the_part_that_it_is_given(spark: SparkSession, tide: Peer, checkpoint: str) -> None:
    tide.client.mset({f"part:{n}": f"v{n}" for n in range(100)})
    server = explored_feed_server(take_endpoint(Options({"url": tide.url})))
    spans, columns = spans_of("prefix:part:"), EventColumns(KEY_AND_VALUE)
    found: list[Any] = []

    def read_parts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for part in parts_of(batch):
                yield from read_feed(server, part, spans, columns)

    def take(frame: DataFrame, _batch: int) -> None:
        found.extend(frame.mapInArrow(read_parts, "key string, value string").collect())

    frame = spark.readStream.format("tidelog").option("url", tide.url).load("feedparts:prefix:part:")
    writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint)
    assert writer.trigger(availableNow=True).start().awaitTermination(60)
    values = [(row.key, row.value) for row in found if row.value is not None]  # others have flushed the database before
    assert sorted(values) == sorted((f"part:{n}", f"v{n}") for n in range(100))


def test_a_place_is_where_it_goes_on(tide: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SPARK_POLL_S", 0.0)
    tide.client.set("k", "before")
    shard, ts, epoch = tide.call("FEED", "POSITION")[0]
    tide.client.set("k", "after")
    made = micro_batches(feedparts="key:k", url=tide.url, start=f'{{"ts": {ts}, "epoch": {epoch}}}')
    start = made.initialOffset()
    end = made.latestOffset(start, ReadAllAvailable())
    [row] = rows_between(made, start, end)
    until = end[str(shard)]["ts"]
    expected = {"shard": shard, "since": ts, "until": until, "epoch": epoch, "seen": ts, "is_initial": False}
    assert row == {**expected, "until_epoch": epoch, "manifest": None}
    [part] = parts_of(pa.RecordBatch.from_pylist([row]))
    server = explored_feed_server(take_endpoint(Options({"url": tide.url})))
    columns = EventColumns(KEY_AND_VALUE)
    read = [value for batch in read_feed(server, part, spans_of("key:k"), columns) for value in batch["value"]]
    assert [value.as_py() for value in read] == ["after"]


def test_a_place_of_another_history_is_noticed(tide: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SPARK_POLL_S", 0.0)
    tide.client.set("k", "v")
    _, ts, epoch = tide.call("FEED", "POSITION")[0]
    made = micro_batches(feed="key:k", url=tide.url, start=f'{{"ts": {ts + 10}, "epoch": {epoch - 1}}}')
    start = made.initialOffset()
    while (end := made.latestOffset(start, ReadAllAvailable())) == start:
        tide.client.set("k", "more")
    with pytest.raises(HistoryLost):
        rows_between(made, start, end)


def test_bad_input_is_refused(tide: Peer) -> None:
    for start in ("{", '{"ts": 1}', '{"ts": "x", "epoch": 1}', "{}"):
        with pytest.raises(BadOption, match="give a ts, an ISO time, or"):
            micro_batches(feedparts="*", url=tide.url, start=start)
    with pytest.raises(BadOption, match="give no schema"):
        micro_batches(KEY_AND_VALUE, feedparts="*", url=tide.url)
    with pytest.raises(ClientError, match="a feed that is read in parts cannot be read as a batch"):
        reader(feedparts="*", url=tide.url)
