"""How large a batch of `readStream` is: at most so many rows and bytes, at least so many rows, and for how long at most
it waits for them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

from tests.integration.server_process import ServerProcess
from tests.spark.conftest import Peer
from tests.spark.in_process import micro_batches, rows_between
from tests.spark.shipped_copies import CopyPlace, place
from tests.spark.test_feed_micro_batches import set_values
from tests.spark.test_shipped_journal import put
from tidelog import limits
from tidelog.spark.options import BadOption, Options
from tidelog.spark.source.batch_bounds import BatchBounds, take_bounds

__all__ = ["place"]
pytestmark = pytest.mark.xdist_group("spark")

ALL = ReadAllAvailable()


@pytest.fixture(autouse=True)
def nothing_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each question is asked of the server."""
    monkeypatch.setattr(limits, "SPARK_POLL_S", 0.0)
    monkeypatch.setattr(limits, "SPARK_SCAN_S", 0.0)
    monkeypatch.setattr(limits, "COPY_POLL_S", 0.0)


def fill(peer: Peer, stream: str, count: int, size_bytes: int) -> None:
    for _ in range(count):
        peer.client.xadd(stream, {"tag": "t", "entry": "x" * size_bytes})


def batch_sizes(made: Any) -> list[int]:
    """How many rows each batch has, until there is nothing left."""
    sizes: list[int] = []
    at = made.initialOffset()
    while (end := made.latestOffset(at, made.getDefaultReadLimit())) != at:
        sizes.append(len(rows_between(made, at, end)))
        at = end
        assert len(sizes) < 100
    return sizes


# --- options ----------------------------------------------------------------------------------------------------------


def test_what_spark_is_told_and_what_counts() -> None:
    bounds = take_bounds(
        Options({"minRowsPerBatch": "2", "maxRowsPerBatch": "9", "maxTriggerDelay": "5s"}), older="old"
    )
    assert bounds == BatchBounds(9, None, 2, 5.0)
    assert bounds.default_limit() == ReadMaxRows(9)
    assert bounds.within(bounds.default_limit()) == bounds
    assert bounds.within(ReadMaxRows(3)) == BatchBounds(3, None, 2, 5.0)
    assert bounds.within(ALL) == BatchBounds()
    assert BatchBounds(None, 7, 2).default_limit() == ReadMaxBytes(7)
    assert BatchBounds(None, None, 2).default_limit() == ReadMinRows(2)
    assert BatchBounds().default_limit() == ALL
    assert take_bounds(Options({"old": "4"}), older="old") == BatchBounds(4)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"maxTriggerDelay": "5s"}, "maxTriggerDelay says how long to wait for minRowsPerBatch: give both"),
        ({"minRowsPerBatch": "5", "maxRowsPerBatch": "4"}, "minRowsPerBatch=5 contradicts maxRowsPerBatch=4"),
        ({"maxRowsPerBatch": "5", "old": "5"}, "maxRowsPerBatch and old contradict each other"),
        ({"maxBytesPerTrigger": "0"}, "maxBytesPerTrigger='0': give a number from 1"),
    ],
)
def test_bounds_that_make_no_sense(given: dict[str, str], says: str) -> None:
    with pytest.raises(BadOption, match=says):
        take_bounds(Options(given), older="old")


# --- bytes ------------------------------------------------------------------------------------------------------------


def test_batches_of_a_stream_have_about_so_many_bytes(peer: Peer) -> None:
    fill(peer, "s", 100, 1000)
    sizes = batch_sizes(micro_batches(stream="s", url=peer.url, maxBytesPerTrigger=30_000))
    assert sum(sizes) == 100
    assert all(24 <= size <= 30 for size in sizes[:3])


def test_an_entry_that_is_larger_than_a_batch_is_one(peer: Peer) -> None:
    fill(peer, "s", 3, 50_000)
    assert batch_sizes(micro_batches(stream="s", url=peer.url, maxBytesPerTrigger=10)) == [1, 1, 1]


def test_bytes_are_shared_by_the_streams_of_a_pattern(peer: Peer) -> None:
    for stream, count in (("s:1", 60), ("s:2", 60), ("s:3", 5)):
        fill(peer, stream, count, 1000)
    made = micro_batches(stream="s:*", url=peer.url, maxBytesPerTrigger=45_000)
    start = made.initialOffset()
    end = made.latestOffset(start, made.getDefaultReadLimit())
    rows = rows_between(made, start, end)
    found = {stream: sum(row["stream"] == stream for row in rows) for stream in ("s:1", "s:2", "s:3")}
    assert found["s:3"] == 5
    assert all(14 <= found[stream] <= 21 for stream in ("s:1", "s:2"))
    assert sum(batch_sizes(made)) == 125


def test_rows_and_bytes_hold_together(peer: Peer) -> None:
    fill(peer, "s", 40, 1000)
    assert batch_sizes(micro_batches(stream="s", url=peer.url, maxBytesPerTrigger=10**6, maxRowsPerBatch=15)) == [
        15,
        15,
        10,
    ]
    sizes = batch_sizes(micro_batches(stream="s", url=peer.url, maxBytesPerTrigger=12_000, maxRowsPerBatch=15))
    assert max(sizes) <= 12
    assert sum(sizes) == 40


def test_a_feed_takes_about_so_many_bytes_of_the_journal(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", "--shards", "2") as server, server.client() as client:
        for number in range(400):
            client.mset({f"k{number}-{each}": "x" * 100_000 for each in range(2)})
        made = micro_batches(feed="*", url=f"redis://127.0.0.1:{server.port}", maxBytesPerTrigger=20_000_000)
        sizes = batch_sizes(made)
    assert sum(sizes) == 800
    assert len(sizes) >= 4
    assert max(sizes) * 100_000 <= 24_000_000


# --- too few rows -----------------------------------------------------------------------------------------------------


@pytest.fixture(params=["stream", "feed"])
def source(request: pytest.FixtureRequest, tide: Peer) -> tuple[dict[str, Any], Callable[[int], None]]:
    """What is read, and how rows are added to it."""
    if request.param == "stream":
        return {"stream": "s", "start": "earliest"}, lambda count: tide.fill("s", count)
    return {"feed": "key:k", "start": "latest"}, lambda count: set_values(tide.client, *map(str, range(count)))


def test_a_batch_waits_for_enough_rows(tide: Peer, source: Any) -> None:
    target, add = source
    made = micro_batches(url=tide.url, minRowsPerBatch=10, maxTriggerDelay="10 min", **target)
    limit, at = made.getDefaultReadLimit(), made.initialOffset()
    assert limit == ReadMinRows(10)
    assert made.latestOffset(at, limit) == at
    add(6)
    assert made.latestOffset(at, limit) == at
    add(6)
    end = made.latestOffset(at, limit)
    assert len(rows_between(made, at, end)) == 12
    add(3)
    assert made.latestOffset(end, limit) == end
    later = made.latestOffset(end, ALL)  # of the trigger `once`
    assert len(rows_between(made, end, later)) == 3


def test_a_batch_waits_only_so_long(tide: Peer, source: Any) -> None:
    target, add = source
    made = micro_batches(url=tide.url, minRowsPerBatch=1000, maxTriggerDelay="1500ms", **target)
    limit, at = made.getDefaultReadLimit(), made.initialOffset()
    for _ in range(2):  # also the second time: the time begins anew with each batch
        assert made.latestOffset(at, limit) == at
        add(2)
        begun = time.monotonic()
        while (end := made.latestOffset(at, limit)) == at:
            assert time.monotonic() - begun < 30
            time.sleep(0.05)
        assert time.monotonic() - begun >= 1.4
        assert len(rows_between(made, at, end)) == 2
        at = end


def test_what_is_available_now_is_read_at_once(tide: Peer, source: Any) -> None:
    target, add = source
    made = micro_batches(url=tide.url, minRowsPerBatch=1000, **target)
    at = made.initialOffset()
    add(2)
    made.prepareForTriggerAvailableNow()
    assert len(rows_between(made, at, made.latestOffset(at, made.getDefaultReadLimit()))) == 2


def test_a_plain_redis_waits_as_well(plain: Peer) -> None:
    made = micro_batches(stream="s:*", url=plain.url, minRowsPerBatch=10, maxRowsPerBatch=11)
    limit, at = made.getDefaultReadLimit(), made.initialOffset()
    plain.fill("s:1", 4)
    plain.fill("s:2", 5)
    assert made.latestOffset(at, limit) == at
    plain.fill("s:3", 5)
    end = made.latestOffset(at, limit)
    assert len(rows_between(made, at, end)) == 11


def test_a_copy_waits_for_enough_records(place: CopyPlace) -> None:
    shipped = place.shipped()
    shipped.begin()
    put(shipped, "one", "two")
    shipped.ship()
    made = micro_batches(**{"feed": "*", "from": place.url, "minRowsPerBatch": 6, **place.options})
    limit, at = made.getDefaultReadLimit(), made.initialOffset()
    assert made.latestOffset(at, limit) == at
    put(shipped, *(f"k{number}" for number in range(6)))
    shipped.ship()
    end = made.latestOffset(at, limit)
    assert len(rows_between(made, at, end)) == 8


def test_a_query_waits_and_goes_on_after_a_restart(
    spark: SparkSession, tide: Peer, tmp_path: Path, checkpoint: str
) -> None:
    tide.fill("s", 30)
    source = spark.readStream.format("tidelog").schema("entry string").option("url", tide.url)
    frame = source.option("minRowsPerBatch", 100).option("maxTriggerDelay", "3s").load("stream:s")
    writer = frame.writeStream.format("parquet").option("checkpointLocation", checkpoint)
    batches = Path(checkpoint, "commits")
    for number, first in enumerate((30, 200)):
        begun = time.monotonic()
        query = writer.start(str(tmp_path / "out"))
        try:
            while not (batches / str(2 * number)).exists():
                assert time.monotonic() - begun < 60
                assert query.exception() is None
                time.sleep(0.05)
            assert time.monotonic() - begun >= 3
            tide.fill("s", 120, first=first)
            begun = time.monotonic()
            while not (batches / str(2 * number + 1)).exists():
                assert time.monotonic() - begun < 60
                time.sleep(0.05)
        finally:
            query.stop()
        tide.fill("s", 50, first=150 + first)
    assert spark.read.parquet(str(tmp_path / "out")).count() == 30 + 120 + 50 + 120
