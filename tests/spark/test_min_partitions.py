"""`minPartitions`: at least so many tasks, which read everything once, and the same tasks if a batch is repeated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from tests.cli.directories import fill
from tests.days.days_of_events import DAY_1, JOBSET, on
from tests.integration.server_process import ServerProcess
from tests.spark.conftest import Peer
from tests.spark.in_process import micro_batches, reader, rows_between
from tests.spark.shipped_copies import CopyPlace, place
from tests.spark.test_feed_micro_batches import set_values
from tests.spark.test_shipped_journal import put
from tests.spark.test_shipped_streams import Streams, shipped
from tidelog import limits
from tidelog.days import Writer, compress_day
from tidelog.spark.options import BadOption
from tidelog.spark.source.pieces import cut_evenly, pieces_of
from tidelog.system.disk import SystemDisk

__all__ = ["place", "shipped"]
pytestmark = pytest.mark.xdist_group("spark")

ALL = ReadAllAvailable()


def rows(made: Any, parts: list[Any]) -> list[dict[str, Any]]:
    return [row for part in parts for batch in made.read(part) for row in batch.to_pylist()]


@given(st.lists(st.integers(0, 1000), max_size=8), st.integers(1, 50))
def test_ranges_are_cut_into_enough_pieces(sizes: list[int], wanted: int) -> None:
    pieces = pieces_of(sizes, wanted)
    assert sum(pieces) >= min(wanted, sum(sizes))
    assert sum(pieces) < wanted + len(sizes)
    for size, count in zip(sizes, pieces, strict=True):
        cuts = list(cut_evenly(1, size, count))
        assert [number for first, last in cuts for number in range(first, last + 1)] == list(range(1, size + 1))
        assert max((last - first for first, last in cuts), default=0) - min(
            (last - first for first, last in cuts), default=0
        ) in (0, 1)


def test_bad_numbers(tide: Peer) -> None:
    for wanted in (0, limits.SPARK_PARTITIONS_MAX + 1, "many"):
        with pytest.raises(BadOption, match=f"minPartitions='{wanted}'"):
            reader(stream="s", url=tide.url, minPartitions=wanted)


# --- streams ----------------------------------------------------------------------------------------------------------


def test_streams_as_a_batch(peer: Peer) -> None:
    for number in range(60):
        peer.client.xadd("s:1", {"tag": "t", "entry": str(number)}, id=f"{number + 1}-0")
    peer.client.xadd("s:2", {"tag": "t", "entry": "60"}, id="7-0")
    made = reader(stream="s:*", url=peer.url, minPartitions=7)
    parts = made.partitions()
    assert 7 <= len(parts) <= 9
    assert [int(row["entry"]) for row in rows(made, parts)] == list(range(61))
    many = reader(stream="s:*", url=peer.url, minPartitions=7, partition_rows=2)
    assert len(many.partitions()) >= 30


def test_more_partitions_than_entries(tide: Peer) -> None:
    tide.fill("s", 3)
    assert len(reader(stream="s", url=tide.url, minPartitions=100).partitions()) == 3


def test_streams_without_end(peer: Peer) -> None:
    for number in range(40):
        peer.client.xadd("s:1", {"tag": "t", "entry": str(number)}, id=f"{number + 1}-0")
        peer.client.xadd("s:2", {"tag": "t", "entry": str(number)}, id=f"{number + 1}-0")
    made = micro_batches(stream="s:*", url=peer.url, minPartitions=6)
    start = made.initialOffset()
    end = made.latestOffset(start, ALL)
    parts = made.partitions(start, end)
    assert len(parts) >= 6
    found = rows(made, parts)
    for stream in ("s:1", "s:2"):
        assert [int(row["entry"]) for row in found if row["stream"] == stream] == list(range(40))
    peer.fill("s:1", 10)
    again = micro_batches(stream="s:*", url=peer.url, minPartitions=6)
    repeated = again.partitions(again.initialOffset(), end)
    assert [(part.stream, part.first, part.last) for part in repeated] == [
        (part.stream, part.first, part.last) for part in parts
    ]


def test_a_stream_of_a_copy(place: CopyPlace, shipped: Streams) -> None:
    """Node files are divided, and what follows them is replayed by as few tasks as before."""
    for stream in ("orders:2", "orders:1", "b"):
        options: dict[str, Any] = {"stream": stream, "from": place.url, **place.options}
        few = reader(**options)
        made = reader(**options, minPartitions=4)
        parts = made.partitions()
        assert sum(not part.nodes for part in parts) == sum(not part.nodes for part in few.partitions())
        assert len(parts) >= 4 or stream == "b"
        assert len(few.partitions()) < 4
        assert rows(made, parts) == rows(few, few.partitions())


# --- feeds ------------------------------------------------------------------------------------------------------------


def in_order(found: list[dict[str, Any]]) -> list[tuple[int, int, int, bytes]]:
    return sorted((row["shard"], row["ts"], row["seq"], row["key"]) for row in found)


@pytest.mark.parametrize("value_bytes", [10, 50_000])
def test_a_feed_is_cut_by_time(tmp_path: Path, value_bytes: int) -> None:
    """A small one, of a single frame, and one of many frames."""
    with ServerProcess(tmp_path / "data", "--shards", "2") as server, server.client() as client:
        url = f"redis://127.0.0.1:{server.port}"
        for number in range(200):
            client.set(f"k{number}", b"x" * value_bytes)
        whole = reader(feed="*", url=url)
        expected = in_order(rows(whole, whole.partitions()))
        assert len(expected) == 200
        made = reader(feed="*", url=url, minPartitions=9)
        parts = made.partitions()
        assert len(parts) >= 9
        assert in_order(rows(made, parts)) == expected
        endless = micro_batches(feed="*", url=url, minPartitions=9)
        start = endless.initialOffset()
        end = endless.latestOffset(start, ALL)
        cut = endless.partitions(start, end)
        assert len(cut) >= 9
        assert in_order(rows(endless, cut)) == expected
        client.set("later", "x")
        again = micro_batches(feed="*", url=url, minPartitions=9)
        repeated = again.partitions(start, end)
        assert [(part.shard, part.since, part.until) for part in repeated] == [
            (part.shard, part.since, part.until) for part in cut
        ]
        later = again.latestOffset(end, ALL)
        assert [row["key"] for row in rows_between(again, end, later)] == [b"later"]


def test_a_feed_of_a_copy(place: CopyPlace) -> None:
    shipped = place.shipped()
    shipped.begin()
    put(shipped, *(f"k{number}" for number in range(50)))
    shipped.ship()
    made = micro_batches(**{"feed": "*", "from": place.url, "minPartitions": 8, **place.options})
    start = made.initialOffset()
    end = made.latestOffset(start, ALL)
    parts = made.partitions(start, end)
    assert len(parts) >= 8
    assert {row["key"].decode() for row in rows(made, parts)} == {f"k{number}" for number in range(50)}
    assert len(rows(made, parts)) == 50


def test_values_are_read_by_shard(tide: Peer) -> None:
    """They cannot be divided further: a scan cannot begin in the middle."""
    set_values(tide.client, "1")
    assert len(reader(feed="*", url=tide.url, initial="true", minPartitions=9).partitions()) == 1


# --- days and journals ------------------------------------------------------------------------------------------------


def test_days(peer: Peer) -> None:
    writer = Writer(peer.client, JOBSET)
    for day in (1, 2, 3):
        writer.write(on(day, range(40)))
    compress_day(peer.client, JOBSET, DAY_1, 1)
    assert len(reader(days="queue/jobs", url=peer.url).partitions()) == 1
    made = reader(days="queue/jobs", url=peer.url, min_partitions=6)
    parts = made.partitions()
    assert len(parts) >= 6
    expected = [str(message.id) for day in (1, 2, 3) for message in on(day, range(40))]
    assert [row["id"] for row in rows(made, parts)] == expected


def test_a_journal(tmp_path: Path) -> None:
    folder = str(tmp_path / "data")
    fill(SystemDisk(), folder, sidecars=True)
    few = reader(journal=folder)
    made = reader(journal=folder, minPartitions=len(few.partitions()) + 3)
    assert len(made.partitions()) >= len(few.partitions()) + 3
    assert rows(made, made.partitions()) == rows(few, few.partitions())


# --- through Spark ----------------------------------------------------------------------------------------------------


def test_spark_gets_as_many_tasks(spark: SparkSession, tide: Peer) -> None:
    tide.fill("s", 100)
    frame = spark.read.format("tidelog").option("url", tide.url).option("minPartitions", 5).load("stream:s")
    assert frame.rdd.getNumPartitions() == 5
    assert frame.count() == 100
