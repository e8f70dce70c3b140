"""What the progress of a query tells of its lag, and that it is right."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from tests.spark.conftest import Peer
from tests.spark.in_process import micro_batches
from tests.spark.shipped_copies import CopyPlace, place
from tests.spark.test_feed_micro_batches import set_values
from tests.spark.test_shipped_journal import put
from tidelog import limits

__all__ = ["place"]
pytestmark = pytest.mark.xdist_group("spark")

ALL = ReadAllAvailable()


@pytest.fixture(autouse=True)
def nothing_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK_POLL_S", "SPARK_SCAN_S", "SPARK_LAG_S", "COPY_POLL_S"):
        monkeypatch.setattr(limits, name, 0.0)


def lag(made: Any) -> tuple[int | None, int | None]:
    found = made.reportLatestOffset()["lag"]
    return found["rows"], found["ms"]


def test_a_stream_tells_rows_and_time(tide: Peer) -> None:
    made = micro_batches(stream="s:*", url=tide.url)
    assert lag(made) == (None, None)
    at = made.latestOffset(made.initialOffset(), ALL)
    assert lag(made) == (0, 0)
    tide.fill("s:1", 10)
    time.sleep(0.5)
    tide.fill("s:2", 3)
    at = made.latestOffset(at, ReadMaxRows(6))
    rows, ms = lag(made)
    assert rows == 7
    assert ms is not None
    assert 500 <= ms < 20_000
    assert made.reportLatestOffset()["newest"] == {"s:1": 11, "s:2": 4}
    made.latestOffset(at, ALL)
    assert lag(made) == (0, 0)


def test_a_plain_redis_tells_the_time(plain: Peer) -> None:
    made = micro_batches(stream="s", url=plain.url)
    plain.fill("s", 10)
    at = made.latestOffset(made.initialOffset(), ReadMaxRows(4))
    time.sleep(0.5)
    rows, ms = lag(made)
    assert rows is None
    assert ms is not None
    assert 500 <= ms < 20_000
    made.latestOffset(at, ALL)
    assert lag(made) == (0, 0)


def test_what_comes_after_the_last_batch_of_available_now_is_told(tide: Peer) -> None:
    made = micro_batches(stream="s", url=tide.url)
    tide.fill("s", 5)
    made.prepareForTriggerAvailableNow()
    tide.fill("s", 2)
    made.latestOffset(made.initialOffset(), ALL)
    assert lag(made)[0] == 2


def test_a_feed_tells_records_and_time(tide: Peer) -> None:
    made = micro_batches(feed="*", url=tide.url, start="latest", minRowsPerBatch=100)
    at = made.initialOffset()
    assert made.latestOffset(at, made.getDefaultReadLimit()) == at
    assert lag(made) == (0, 0)
    time.sleep(4.0)  # the last change is old, but nothing waits
    assert made.latestOffset(at, made.getDefaultReadLimit()) == at
    set_values(tide.client, "1", "2", "3")
    assert made.latestOffset(at, made.getDefaultReadLimit()) == at
    rows, ms = lag(made)
    assert rows == 3
    assert ms is not None
    assert ms < 3900
    end = made.latestOffset(at, ALL)
    assert lag(made) == (0, 0)
    assert made.reportLatestOffset()["newest"] == {
        shard: {name: its for name, its in place.items() if name != "after"} for shard, place in end.items()
    }


def test_a_copy_tells_records(place: CopyPlace) -> None:
    shipped = place.shipped()
    shipped.begin()
    put(shipped, "one", "two")
    shipped.ship()
    made = micro_batches(**{"feed": "*", "from": place.url, **place.options})
    at = made.latestOffset(made.initialOffset(), ALL)
    assert lag(made) == (0, 0)
    put(shipped, "three", "four", "five")
    shipped.ship()
    waiting = micro_batches(**{"feed": "*", "from": place.url, "minRowsPerBatch": 1000, **place.options})
    assert waiting.latestOffset(at, waiting.getDefaultReadLimit()) == at
    rows, ms = lag(waiting)
    assert rows == 3
    assert ms is not None
    assert ms >= 0


class Progress(StreamingQueryListener):
    """Keeps what a listener is told of the first source."""

    def __init__(self) -> None:
        self.lags: list[dict[str, Any]] = []

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        self.lags.append(json.loads(event.progress.sources[0].latestOffset)["lag"])

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        pass


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_what_users_see(spark: SparkSession, tide: Peer, tmp_path: Path, checkpoint: str) -> None:
    tide.fill("s", 500)
    source = spark.readStream.format("tidelog").schema("entry string").option("url", tide.url)
    frame = source.option("maxRowsPerBatch", 200).load("stream:s")
    listener = Progress()
    spark.streams.addListener(listener)
    try:
        writer = frame.writeStream.format("parquet").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
        assert query.awaitTermination(60)
        shown = [progress.sources[0] for progress in query.recentProgress if progress.numInputRows]
        assert [json.loads(each.latestOffset)["lag"]["rows"] for each in shown] == [300, 100, 0]
        assert [json.loads(each.latestOffset)["newest"] for each in shown] == [{"s": 501}] * 3
        last = query.lastProgress
        assert last is not None
        assert json.loads(last["sources"][0]["latestOffset"])["lag"] == {"rows": 0, "ms": 0}
        wait_for(lambda: [each["rows"] for each in listener.lags][:3] == [300, 100, 0])
    finally:
        spark.streams.removeListener(listener)
