"""Streams without end: positions, limits, restarts, and what was lost; on a Tidelog and on a plain Redis."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from tests.spark.conftest import Peer
from tests.spark.in_process import micro_batches, read, rows_between
from tidelog import limits
from tidelog.errors import ClientError
from tidelog.spark.options import BadOption
from tidelog.spark.source.stream.micro_batches import FIRST, shares
from tidelog.spark.source.stream.reading import EntriesLost

ALL = ReadAllAvailable()


@pytest.fixture(autouse=True)
def nothing_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each question is asked of the server."""
    monkeypatch.setattr(limits, "SPARK_POLL_S", 0.0)
    monkeypatch.setattr(limits, "SPARK_SCAN_S", 0.0)


def entries_between(made: Any, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
    return [row["entry"].decode() for row in rows_between(made, start, end)]


# --- through Spark ----------------------------------------------------------------------------------------------------


def run_to_end(frame: DataFrame, folder: Path, checkpoint: str) -> list[int]:
    """Write what there is to files; how many rows each batch had."""
    query = (
        frame.writeStream.format("parquet")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(str(folder))
    )
    query.awaitTermination(60)
    assert query.exception() is None
    return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]


def test_a_query_goes_on_where_it_stopped(spark: SparkSession, peer: Peer, tmp_path: Path, checkpoint: str) -> None:
    peer.fill("s", 2500)
    source = spark.readStream.format("tidelog").schema("entry string").option("url", peer.url)
    frame = source.option("max_rows_per_trigger", 1000).load("stream:s")
    assert run_to_end(frame, tmp_path / "out", checkpoint) == [1000, 1000, 500]
    peer.fill("s", 300, first=2500)
    assert run_to_end(frame, tmp_path / "out", checkpoint) == [300]
    found = [row.entry for row in spark.read.parquet(str(tmp_path / "out")).collect()]
    assert sorted(found) == sorted(f"entry {n}" for n in range(2800))


@pytest.mark.timeout(240)
def test_a_pattern_has_streams_that_come_later(
    spark: SparkSession, peer: Peer, tmp_path: Path, checkpoint: str
) -> None:
    """While the query runs, and while it is stopped."""
    peer.fill("orders-1", 30)
    peer.fill("other", 5)
    assert set(read(stream="orders-*", url=peer.url).column("stream").to_pylist()) == {"orders-1"}
    endless = spark.readStream.format("tidelog").schema("stream string, entry string").option("url", peer.url)
    frame = endless.option("start", "latest").load("stream:orders-*")
    commits = Path(checkpoint, "commits")
    query = frame.writeStream.format("parquet").option("checkpointLocation", checkpoint).start(str(tmp_path / "out"))
    try:
        deadline = time.monotonic() + 60
        while not (commits / "0").exists():  # Spark runs a first batch, even if it is empty
            assert time.monotonic() < deadline
            time.sleep(0.1)
        peer.fill("orders-2", 20)
        while len(list(commits.glob("[0-9]*"))) < 2:
            assert time.monotonic() < deadline
            assert query.exception() is None
            time.sleep(0.1)
    finally:
        query.stop()
    peer.fill("orders-3", 10)
    peer.fill("orders-2", 10, first=20)
    run_to_end(frame, tmp_path / "out", checkpoint)
    found = [(row.stream, row.entry) for row in spark.read.parquet(str(tmp_path / "out")).collect()]
    wanted = [(f"orders-{number}", f"entry {each}") for number, count in ((2, 30), (3, 10)) for each in range(count)]
    assert sorted(found) == sorted(wanted)


def test_a_query_that_runs_sees_what_comes_and_stops_at_a_loss(
    spark: SparkSession, tide: Peer, tmp_path: Path, checkpoint: str
) -> None:
    tide.fill("s:1", 3000)
    frame = spark.readStream.format("tidelog").schema("entry string").option("url", tide.url).load("stream:s:*")
    run_to_end(frame, tmp_path / "out", checkpoint)
    tide.fill("s:1", 5000, first=3000)
    tide.fill("s:2", 10)
    tide.call("TEVICT", "s:1", 5000)
    query = frame.writeStream.format("parquet").option("checkpointLocation", checkpoint).start(str(tmp_path / "out"))
    with pytest.raises(Exception, match="entries 3001 to 5000 of stream 's:1' were evicted"):
        query.awaitTermination(60)


# --- positions --------------------------------------------------------------------------------------------------------


def test_every_entry_is_in_one_batch(peer: Peer) -> None:
    peer.fill("s", 10)
    made = micro_batches(stream="s", url=peer.url)
    positions = [made.initialOffset()]
    found: list[str] = []
    for limit in (ReadMaxRows(3), ReadMaxRows(4), ALL, ALL):
        positions.append(made.latestOffset(positions[-1], limit))
        found += entries_between(made, *positions[-2:])
    assert found == [f"entry {n}" for n in range(10)]
    assert positions[-1] == positions[-2]
    assert made.partitions(*positions[-2:]) == []
    assert entries_between(made, positions[1], positions[2]) == [f"entry {n}" for n in range(3, 7)]


def test_positions_are_offsets_or_ids(tide: Peer, plain: Peer) -> None:
    for peer in (tide, plain):
        peer.client.xadd("s", {"tag": "t", "entry": "e"}, id="5-1")
    assert micro_batches(stream="s", url=tide.url).latestOffset({}, ALL) == {"s": 2}
    assert micro_batches(stream="s", url=plain.url).latestOffset({}, ALL) == {"s": "5-1"}
    with pytest.raises(ClientError, match="it counts ids, but the server is now read by offsets"):
        micro_batches(stream="s", url=tide.url).latestOffset({"s": "5-1"}, ALL)
    with pytest.raises(ClientError, match="it counts offsets, but the server is now read by ids"):
        micro_batches(stream="s", url=plain.url).partitions({"s": 1}, {"s": 2})


@pytest.mark.parametrize(
    ("start", "expected"), [("earliest", [1, 2, 3]), ("latest", []), ("2-0", [2, 3]), ("2-1", [3]), ("2", [2, 3])]
)
def test_where_a_query_begins(peer: Peer, start: str, expected: list[int]) -> None:
    for number in (1, 2, 3):
        peer.client.xadd("s", {"tag": "t", "entry": str(number)}, id=f"{number}-0")
    if start.isdigit() and not peer.is_tidelog:
        with pytest.raises(BadOption, match="without it there are no offsets"):
            micro_batches(stream="s", url=peer.url, start=start)
        return
    made = micro_batches(stream="s", url=peer.url, start=start)
    begin = made.initialOffset()
    found = entries_between(made, begin, made.latestOffset(begin, ALL))
    assert found == [str(number) for number in expected]


def test_an_id_that_is_still_to_come_is_waited_for(peer: Peer) -> None:
    if peer.is_tidelog:
        pytest.skip("it counts offsets, and an id that is still to come has none yet")
    for number in (1, 2):
        peer.client.xadd("s", {"tag": "t", "entry": str(number)}, id=f"{number}-0")
    made = micro_batches(stream="s", url=peer.url, start="5-0")
    begin = made.initialOffset()
    assert made.latestOffset(begin, ALL) == begin
    peer.client.xadd("s", {"tag": "t", "entry": "3"}, id="3-0")
    assert made.latestOffset(begin, ALL) == begin
    peer.client.xadd("s", {"tag": "t", "entry": "5"}, id="5-0")
    end = made.latestOffset(begin, ALL)
    assert entries_between(made, begin, end) == ["5"]
    peer.client.xdel("s", "5-0")
    assert made.latestOffset(end, ALL) == end
    assert made.latestOffset(end, ReadMaxRows(1)) == end


def test_streams_that_come_later_begin_with_their_first_entry(peer: Peer) -> None:
    made = micro_batches(stream="s:*", url=peer.url, start="latest")
    begin = made.initialOffset()
    assert begin == {FIRST: True}
    peer.fill("s:1", 3)
    end = made.latestOffset(begin, ALL)
    assert entries_between(made, begin, end) == ["entry 0", "entry 1", "entry 2"]
    peer.fill("s:2", 2)
    later = made.latestOffset(end, ReadMaxRows(1))
    assert entries_between(made, end, later) == ["entry 0"]
    assert entries_between(made, later, made.latestOffset(later, ALL)) == ["entry 1"]


def test_a_new_stream_that_was_trimmed_before_it_was_seen(tide: Peer) -> None:
    made = micro_batches(stream="s:*", url=tide.url)
    tide.fill("s:1", 3000)
    tide.call("TEVICT", "s:1", 2000)
    end = made.latestOffset({}, ReadMaxRows(600))
    found = entries_between(made, {}, end)
    assert found == [f"entry {n}" for n in range(2000, 2600)]


def test_available_now_ends_where_it_began(peer: Peer) -> None:
    peer.fill("s", 5)
    made = micro_batches(stream="s", url=peer.url)
    begin = made.initialOffset()
    made.prepareForTriggerAvailableNow()
    peer.fill("s", 5)
    end = made.latestOffset(begin, ALL)
    assert len(rows_between(made, begin, end)) == 5
    assert made.latestOffset(end, ALL) == end


def test_limits(tide: Peer) -> None:
    assert isinstance(micro_batches(stream="s", url=tide.url), SupportsTriggerAvailableNow)
    assert isinstance(micro_batches(stream="s", url=tide.url).getDefaultReadLimit(), ReadAllAvailable)
    limit: ReadLimit = micro_batches(stream="s", url=tide.url, max_rows_per_trigger=7).getDefaultReadLimit()
    assert limit == ReadMaxRows(7)


@pytest.mark.parametrize(
    ("available", "most", "expected"),
    [
        ({"a": 10, "b": 10}, 10, {"a": 5, "b": 5}),
        ({"a": 1, "b": 10}, 8, {"a": 1, "b": 7}),
        ({"a": 5, "b": 5, "c": 5}, 2, {"a": 1, "b": 1, "c": 0}),
        ({"a": 2}, 8, {"a": 2}),
        ({}, 8, {}),
    ],
)
def test_rows_are_shared_out_evenly(available: dict[str, int], most: int, expected: dict[str, int]) -> None:
    assert shares(available, most) == expected


def test_the_server_is_not_asked_every_time(tide: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SPARK_POLL_S", 60.0)
    tide.fill("s", 5)
    made = micro_batches(stream="s", url=tide.url)
    assert made.latestOffset({}, ALL) == {"s": 6}
    before = tide.client.info("stats")["total_commands_processed"]
    for _ in range(20):
        assert made.latestOffset({}, ALL) == {"s": 6}
    assert tide.client.info("stats")["total_commands_processed"] - before < 5


# --- loss -------------------------------------------------------------------------------------------------------------


def test_a_loss_ends_a_query_unless_it_may_go_on(tide: Peer) -> None:
    tide.fill("s", 3000)
    tide.call("TEVICT", "s", 2000)
    strict, lenient = (micro_batches(stream="s", url=tide.url, fail_on_loss=word) for word in ("true", "false"))
    with pytest.raises(EntriesLost, match="entries 501 to 2000 of stream 's'"):
        strict.partitions({"s": 501}, {"s": 3001})
    assert len(rows_between(lenient, {"s": 501}, {"s": 3001})) == 1000


def test_a_stream_that_was_deleted_and_begins_anew(tide: Peer) -> None:
    tide.fill("s", 4)
    strict, lenient = (micro_batches(stream="s", url=tide.url, fail_on_loss=word) for word in ("true", "false"))
    end = strict.latestOffset({"s": 100}, ALL)
    with pytest.raises(EntriesLost, match="stream 's' ends at offset 4, and 99 was there before"):
        strict.partitions({"s": 100}, end)
    assert entries_between(lenient, {"s": 100}, end) == [f"entry {n}" for n in range(4)]


def test_the_first_batch_begins_where_it_began_also_after_a_restart(peer: Peer) -> None:
    """Spark asks the new reader for its beginning, and has only the end of the batch from the old one."""
    peer.fill("s", 5)
    made = micro_batches(stream="s", url=peer.url, start="latest")
    begin = made.initialOffset()
    peer.fill("s", 3, first=5)
    end = made.latestOffset(begin, ALL)
    peer.fill("s", 4, first=8)
    restarted = micro_batches(stream="s", url=peer.url, start="latest")
    assert entries_between(restarted, restarted.initialOffset(), end) == [f"entry {number}" for number in (5, 6, 7)]
    later = restarted.latestOffset(end, ALL)
    assert entries_between(restarted, end, later) == [f"entry {number}" for number in (8, 9, 10, 11)]
    assert restarted.latestOffset(later, ALL) == later
