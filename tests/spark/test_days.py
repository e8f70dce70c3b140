"""Day streams: hot and compressed days in one table, on a Tidelog and on a plain Redis, while days are compressed."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan
from pyspark.sql.types import BinaryType, StructField, StructType

from tests.days.days_of_events import DAY_1, DAY_2, DAY_3, JOBSET, at, everything, on
from tests.spark.conftest import Peer
from tests.spark.in_process import micro_batches, read, reader
from tidelog import limits
from tidelog.days import EventId, JobSet, Message, Writer, compress_day, expire_days
from tidelog.days.batch import pack
from tidelog.errors import ClientError, DayGone
from tidelog.spark.options import BadOption

pytestmark = pytest.mark.xdist_group("spark")


def compress(peer: Peer, day: date, jobset: JobSet = JOBSET, **options: Any) -> None:
    compress_day(peer.client, jobset, day, 1, **options)


def fill(peer: Peer) -> None:
    """Three days: compressed, compressed in several batches, hot."""
    writer = Writer(peer.client, JOBSET)
    for day, count in ((1, 10), (2, 200), (3, 30)):
        writer.write(on(day, range(count)))
    compress(peer, DAY_1)
    compress(peer, DAY_2, batch_bytes_max=300)


def ids(table: Any) -> list[str]:
    found: list[str] = table.column("id").to_pylist()
    return found


def ids_of(made: Any) -> list[str]:
    return [row for part in made.partitions() for batch in made.read(part) for row in ids(batch)]


# --- through Spark ----------------------------------------------------------------------------------------------------


def test_all_days_in_one_table(spark: SparkSession, peer: Peer) -> None:
    fill(peer)
    frame = spark.read.format("tidelog").option("url", peer.url).load("days:queue/jobs")
    rows = sorted(frame.collect(), key=lambda row: row.ms)
    assert [row.id for row in rows] == [str(message.id) for message in everything(peer.client)]
    assert [row.event.encode() for row in rows] == [message.event for message in everything(peer.client)]
    assert {(row.queue, row.jobset) for row in rows} == {("queue", "jobs")}
    assert {(row.day, row.is_compressed) for row in rows} == {(DAY_1, True), (DAY_2, True), (DAY_3, False)}
    assert all(row.timestamp.timestamp() * 1000 == row.ms and row.seq == 0 for row in rows)
    assert frame.filter("day >= '2024-05-02' and get_json_object(event, '$.n') < 3").count() == 6


# --- what is read -----------------------------------------------------------------------------------------------------


def test_events_are_what_was_written(peer: Peer) -> None:
    for day, is_compressed in ((1, True), (2, False)):
        odd = Message(EventId(at(day, 5).id.ms, 7), at(day, 9).timestamp_ms, b'{"late": true}')
        Writer(peer.client, JOBSET).write([at(day, 0, b"\xff\x00"), at(day, 1, "é".encode()), odd])
        if is_compressed:
            compress(peer, DAY_1)
    rows = read(days="queue/jobs", url=peer.url).to_pylist()
    assert [row["is_compressed"] for row in rows] == [True] * 3 + [False] * 3
    for three, day in ((rows[:3], 1), (rows[3:], 2)):
        assert [row["event"] for row in three] == ['{"base64": "/wA="}', "é", '{"late": true}']
        assert [(row["ms"], row["seq"]) for row in three][2] == (at(day, 5).id.ms, 7)
        assert three[2]["timestamp"] == datetime.fromtimestamp(at(day, 9).timestamp_ms / 1000, UTC)
    raw = read(StructType([StructField("event", BinaryType())]), days="queue/jobs", url=peer.url).to_pylist()
    assert [row["event"] for row in raw] == 2 * [b"\xff\x00", "é".encode(), b'{"late": true}']


def test_patterns_name_job_sets(peer: Peer) -> None:
    for queue, jobset in (("a", "x"), ("a", "y_z"), ("b", "x")):
        Writer(peer.client, JobSet(queue, jobset)).write([at(1, 0)])
    for target, expected in (
        ("*/*", [("a", "x"), ("a", "y_z"), ("b", "x")]),
        ("a/*", [("a", "x"), ("a", "y_z")]),
        ("[ab]/x", [("a", "x"), ("b", "x")]),
        ("a/y_z", [("a", "y_z")]),
    ):
        rows = read(days=target, url=peer.url).to_pylist()
        assert sorted((row["queue"], row["jobset"]) for row in rows) == expected
    for conditions, expected in (
        ([EqualTo(("queue",), "a")], [("a", "x"), ("a", "y_z")]),
        ([In(("jobset",), ("x",)), EqualTo(("queue",), "b")], [("b", "x")]),
    ):
        (task,) = reader(filters=list(conditions), days="*/*", url=peer.url).partitions()
        assert sorted((part.queue, part.jobset) for part in task.parts) == expected
    assert reader(days="c/c", url=peer.url).partitions() == []
    assert list(reader(days="c/c", url=peer.url).read(None)) == []


@pytest.mark.parametrize(
    ("options", "filters", "expected"),
    [
        ({"from_day": "2024-05-02"}, [], [(2, 0, 200), (3, 0, 30)]),
        ({"to_day": "2024-05-01"}, [], [(1, 0, 10)]),
        ({"from_id": at(2, 150).id, "to_id": at(3, 4).id}, [], [(2, 150, 200), (3, 0, 5)]),
        ({"to_id": at(1, 4).id.ms}, [], [(1, 0, 5)]),
        ({}, [EqualTo(("day",), DAY_2)], [(2, 0, 200)]),
        ({}, [GreaterThan(("day",), DAY_1), LessThan(("day",), DAY_3)], [(1, 0, 10), (2, 0, 200), (3, 0, 30)]),
        ({}, [EqualTo(("id",), str(at(2, 77).id))], [(2, 77, 78)]),
        ({}, [GreaterThanOrEqual(("ms",), at(3, 20).id.ms)], [(3, 20, 30)]),
        ({}, [GreaterThan(("timestamp",), datetime(2024, 5, 3, tzinfo=UTC))], [(3, 0, 30)]),
    ],
)
def test_which_days_and_ids(
    peer: Peer, options: dict[str, Any], filters: list[Filter], expected: list[tuple[int, int, int]]
) -> None:
    fill(peer)
    found = ids_of(reader(filters=filters, days="queue/jobs", url=peer.url, **options))
    assert found == [str(at(day, number).id) for day, first, end in expected for number in range(first, end)]


def test_a_large_hot_day_is_read_by_several_tasks(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DAYS_PAGE_ENTRIES_MAX", 7)
    monkeypatch.setattr(limits, "DAYS_PAGE_BYTES", 200)
    Writer(peer.client, JOBSET).write(on(1, range(1000)))
    made = reader(days="queue/jobs", url=peer.url, partition_rows=300)
    parts = made.partitions()
    assert len(parts) == 4
    Writer(peer.client, JOBSET).write(on(1, range(1000, 1010)))  # is not in it
    found = [row for part in parts for batch in made.read(part) for row in ids(batch)]
    assert found == [str(message.id) for message in on(1, range(1000))]


def test_small_days_share_a_task(peer: Peer) -> None:
    sets = [JobSet("queue", f"set {number}") for number in range(3)]
    for jobset in sets:
        Writer(peer.client, jobset).write([message for day in range(1, 11) for message in on(day, range(20))])
        for day in range(1, 6):
            compress(peer, date(2024, 5, day), jobset)
    made = reader(days="queue/*", url=peer.url, partition_rows=10_000)
    tasks = made.partitions()
    assert [len(task.parts) for task in tasks] == [10, 10, 10], "a day counts for a thousand rows at least"
    rows = [row for task in tasks for batch in made.read(task) for row in batch.to_pylist()]
    assert len(rows) == 600
    assert [(row["jobset"], row["day"].day) for row in rows] == [
        (jobset.jobset, day) for jobset in sets for day in range(1, 11) for _ in range(20)
    ]
    (task,) = reader(days="queue/*", url=peer.url).partitions()
    assert len(task.parts) == 30
    large = [at(12, number, b"%d" % number + bytes(50)) for number in range(9000)]
    Writer(peer.client, sets[0]).write([*large, *on(13, range(20))])
    tasks = reader(days="queue/set 0", url=peer.url, partition_rows=8000).partitions()
    assert [[part.day.day for part in task.parts] for task in tasks] == [
        [1, 2, 3, 4, 5, 6, 7, 8], [9, 10, 12], [12, 13],
    ]  # fmt: skip


def test_a_key_of_another_type_is_told_and_blocks_no_other_day(peer: Peer) -> None:
    fill(peer)
    for wrong, left in ((JOBSET.hot(DAY_3).key, [DAY_1, DAY_2]), (JOBSET.compressed(DAY_1).key, [DAY_2])):
        peer.client.set(wrong, "x")
        made = reader(days="queue/jobs", url=peer.url, partition_rows=1)
        gone = 0
        for task in made.partitions():
            try:
                list(made.read(task))
            except DayGone:
                gone += 1
        assert gone == 3 - len(left)
        rows = read(days="queue/jobs", url=peer.url, fail_on_loss="false").to_pylist()
        assert sorted({row["day"] for row in rows}) == left


def test_bad_options(tide: Peer) -> None:
    for target in ("queue", "/jobs", "queue/"):
        with pytest.raises(BadOption, match="give QUEUE/JOBSET"):
            reader(days=target, url=tide.url)
    for name, value in (("from_day", "May"), ("from_id", "x")):
        options: dict[str, Any] = {name: value}
        with pytest.raises(BadOption, match=f"{name}='{value}'"):
            reader(days="a/b", url=tide.url, **options)
    with pytest.raises(ClientError, match="cannot be read as a stream"):
        micro_batches(days="a/b")


# --- while days change ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compressed_after", [0, 1, 15, 40])
def test_a_day_that_is_compressed_under_a_task(
    peer: Peer, monkeypatch: pytest.MonkeyPatch, compressed_after: int
) -> None:
    """After so many of its pages."""
    monkeypatch.setattr(limits, "DAYS_PAGE_ENTRIES_MAX", 16)
    monkeypatch.setattr(limits, "DAYS_PAGE_BYTES", 100)
    monkeypatch.setattr(limits, "SPARK_BATCH_ROWS", 1)
    Writer(peer.client, JOBSET).write(on(1, range(500)))
    made = reader(days="queue/jobs", url=peer.url, partition_rows=300)
    found: list[dict[str, Any]] = []
    pages = 0
    parts = made.partitions()
    if not compressed_after:
        compress(peer, DAY_1, batch_bytes_max=200)
    for part in parts:
        for batch in made.read(part):
            found += batch.to_pylist()
            pages += 1
            if pages == compressed_after:
                compress(peer, DAY_1, batch_bytes_max=200)
    assert [row["id"] for row in found] == [str(message.id) for message in on(1, range(500))]
    assert found[-1]["is_compressed"]
    assert found[0]["is_compressed"] == (not compressed_after)


def test_a_day_that_has_both_streams(peer: Peer) -> None:
    """Another program swaps in two steps, and has done the first."""
    Writer(peer.client, JOBSET).write(on(1, range(20)))
    compressed = JOBSET.compressed(DAY_1)
    batch = on(1, range(15))
    peer.client.xadd(compressed.key, {b"batch": pack(batch)}, id=str(batch[-1].id))
    assert ids(read(days="queue/jobs", url=peer.url)) == [str(message.id) for message in on(1, range(20))]
    peer.client.sadd(JOBSET.index, compressed.key)
    rows = read(days="queue/jobs", url=peer.url).to_pylist()
    assert [row["id"] for row in rows] == [str(message.id) for message in on(1, range(20))]
    assert [row["is_compressed"] for row in rows] == [True] * 15 + [False] * 5


def test_a_day_that_is_removed_before_it_was_read(peer: Peer) -> None:
    Writer(peer.client, JOBSET).write(on(1, range(20)))
    strict, lenient = (reader(days="queue/jobs", url=peer.url, fail_on_loss=word) for word in ("true", "false"))
    (part,) = strict.partitions()
    expire_days(peer.client, JOBSET, keep_days=0, today=DAY_3)
    with pytest.raises(DayGone, match="_2024-05-01 was removed before all of it was read"):
        list(strict.read(part))
    assert list(lenient.read(part)) == []


def test_a_day_that_vanished_behind_the_back_of_the_index(peer: Peer) -> None:
    Writer(peer.client, JOBSET).write(on(1, range(20)))
    made = reader(days="queue/jobs", url=peer.url)
    (part,) = made.partitions()
    peer.client.delete(JOBSET.hot(DAY_1).key)
    with pytest.raises(DayGone):
        list(made.read(part))
