"""Batches of a stream: what is read, in which parts, and as which columns; on a Tidelog and on a plain Redis."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)
from pyspark.sql.types import BinaryType, MapType, StringType, StructField, StructType

from tests.integration.server_process import ServerProcess
from tests.spark.conftest import Peer
from tests.spark.in_process import read, reader
from tidelog.errors import ClientError, ServerRefused
from tidelog.spark.source.stream.columns import SCHEMA
from tidelog.spark.source.stream.reading import EntriesLost

# --- through Spark ----------------------------------------------------------------------------------------------------


def test_spark_finds_the_source_and_reads_every_entry_once(spark: SparkSession, tide: Peer) -> None:
    tide.fill("orders", 2500)
    tide.client.xadd("orders", {"amount": "7", "tag": "big"}, id="99999999999999-3")
    frame = spark.read.format("tidelog").option("url", tide.url).option("partition_rows", 1000).load("stream:orders")
    assert frame.schema == SCHEMA
    assert frame.rdd.getNumPartitions() == 3
    rows = sorted(frame.collect(), key=lambda row: int(row.offset))
    assert [row.offset for row in rows] == list(range(1, 2502))
    assert [bytes(row.entry) for row in rows[:-1]] == [b"entry %d" % n for n in range(2500)]
    first, last = rows[0], rows[-1]
    assert (first.stream, bytes(first.tag), first.fields) == ("orders", b"t0", None)
    assert first.id == f"{first.ms}-{first.seq}"
    assert first.timestamp == datetime.fromtimestamp(first.ms / 1000, UTC).replace(tzinfo=None)
    assert (last.id, last.entry, bytes(last.tag)) == ("99999999999999-3", None, b"big")
    assert {bytes(name): bytes(value) for name, value in last.fields.items()} == {b"amount": b"7", b"tag": b"big"}


def test_a_plain_redis_through_spark(spark: SparkSession, plain: Peer) -> None:
    plain.fill("orders", 1500)
    wanted = "entry string, id string, offset long"
    frame = spark.read.format("tidelog").schema(wanted).option("url", plain.url).option("stream", "orders").load()
    rows = frame.orderBy(frame.id.substr(15, 9).cast("long")).collect()
    assert sorted(row.entry for row in rows) == sorted(f"entry {n}" for n in range(1500))
    assert {row.offset for row in rows} == {None}


def test_filters_are_pushed_down_and_nothing_at_all_is_no_error(spark: SparkSession, tide: Peer) -> None:
    tide.fill("a", 3000)
    tide.fill("b", 10)
    frame = spark.read.format("tidelog").option("url", tide.url).option("partition_rows", 500).load("stream:*")
    some = frame.where("stream = 'a' and offset between 1001 and 1600")
    assert some.rdd.getNumPartitions() == 2
    assert some.count() == 600
    assert frame.where("offset > 100000").count() == 0


def test_an_option_that_is_wrong_is_told_by_spark(spark: SparkSession, tide: Peer) -> None:
    frame = spark.read.format("tidelog").option("url", tide.url)
    with pytest.raises(Exception, match="a stream that is read has no option 'ofset': there are database,"):
        frame.option("ofset", 1).load("stream:s").count()
    with pytest.raises(Exception, match="there is no stream 'missing' in database 0 of redis://"):
        spark.read.format("tidelog").option("url", tide.url).load("stream:missing").count()


# --- what is read -----------------------------------------------------------------------------------------------------


def test_ranges_by_offset(tide: Peer) -> None:
    tide.fill("s", 100)
    found = read(stream="s", url=tide.url, from_offset=11, to_offset=20)
    assert found.column("offset").to_pylist() == list(range(11, 21))
    assert read(stream="s", url=tide.url, from_offset=91).num_rows == 10
    assert read(stream="s", url=tide.url, to_offset=5).num_rows == 5


def test_ranges_by_id_and_time(peer: Peer) -> None:
    for ms in (1000, 2000, 3000):
        for seq in (0, 7):
            peer.client.xadd("s", {"tag": "t", "entry": f"{ms}-{seq}"}, id=f"{ms}-{seq}")

    def entries(**options: Any) -> list[str]:
        return [entry.decode() for entry in read(stream="s", url=peer.url, **options).column("entry").to_pylist()]

    assert entries(from_id="1000-1", to_id="2000-0") == ["1000-7", "2000-0"]
    assert entries(from_id="2000", to_id="2000") == ["2000-0", "2000-7"]
    assert entries(from_time="1970-01-01T00:00:01.5Z") == ["2000-0", "2000-7", "3000-0", "3000-7"]
    assert entries(to_time="1970-01-01T00:00:02.999Z") == ["1000-0", "1000-7", "2000-0", "2000-7"]
    made = reader(stream="s", url=peer.url, from_id="3000-1", to_id="3000-2")
    assert [row for part in made.partitions() for batch in made.read(part) for row in batch.to_pylist()] == []


def test_no_offsets_without_flight(plain: Peer) -> None:
    plain.fill("s", 1)
    with pytest.raises(ClientError, match="without it there are no offsets"):
        reader(stream="s", url=plain.url, from_offset=1).partitions()


def test_a_pattern_names_streams_and_nothing_else(peer: Peer) -> None:
    peer.fill("day:1", 5)
    peer.fill("day:2", 6)
    peer.fill("other", 7)
    peer.client.set("day:3", "a string")
    found = read(stream="day:*", url=peer.url)
    names = found.column("stream").to_pylist()
    assert {name: names.count(name) for name in names} == {"day:1": 5, "day:2": 6}
    assert reader(stream="nothing:*", url=peer.url).partitions() == []
    with pytest.raises(ClientError, match="there is a string and no stream 'day:3'"):
        reader(stream="day:3", url=peer.url).partitions()


def test_what_comes_after_planning_is_not_in_a_batch(peer: Peer) -> None:
    peer.fill("s", 10)
    made = reader(stream="s", url=peer.url)
    parts = made.partitions()
    peer.client.xadd("s", {"tag": "t", "entry": "late"}, id="99999999999999-0")
    assert sum(batch.num_rows for part in parts for batch in made.read(part)) == 10


def test_both_servers_give_the_same_rows(tide: Peer, plain: Peer) -> None:
    entries: list[dict[str, str]] = [
        {"tag": "t", "entry": "e"},
        {"entry": "e", "tag": "t"},
        {"a": "1"},
        {"tag": "only"},
        {"tag": "t", "entry": "e", "more": ""},
    ]
    for number, fields in enumerate(entries, 1):
        for peer in (tide, plain):
            peer.client.xadd("s", fields, id=f"{number}-{number}")  # type: ignore[arg-type]
    left, right = (read(stream="s", url=peer.url).drop_columns("offset") for peer in (tide, plain))
    assert left == right
    assert left.column("entry").to_pylist() == [b"e", None, None, None, None]
    assert left.column("fields").to_pylist()[1:3] == [[(b"entry", b"e"), (b"tag", b"t")], [(b"a", b"1")]]


def test_a_schema_of_some_columns_as_strings(peer: Peer) -> None:
    peer.client.xadd("s", {"tag": "t", "entry": "é"}, id="1-1")
    peer.client.xadd("s", {"größe": "7"}, id="1-2")
    wanted = StructType(
        [
            StructField("fields", MapType(StringType(), StringType())),
            StructField("entry", StringType()),
            StructField("tag", BinaryType()),
        ]
    )
    found = read(wanted, stream="s", url=peer.url)
    assert found.to_pylist() == [
        {"fields": None, "entry": "é", "tag": b"t"},
        {"fields": [("größe", "7")], "entry": None, "tag": b""},
    ]


def test_ids_that_no_calendar_knows(peer: Peer) -> None:
    peer.client.xadd("s", {"a": "1"}, id="18446744073709551614-18446744073709551615")
    (row,) = read(stream="s", url=peer.url).to_pylist()
    assert row["id"] == "18446744073709551614-18446744073709551615"
    assert (row["ms"], row["seq"], row["timestamp"]) == (None, None, None)


def test_another_database_and_many_small_nodes(tide: Peer) -> None:
    tide.call("SELECT", 3)
    for number in range(3):
        tide.call("TWRITE", "s", "t", f"e{number}")
    tide.call("SELECT", 0)
    found = read(stream="s", url=f"{tide.url}/3")
    assert found.column("entry").to_pylist() == [b"e0", b"e1", b"e2"]
    assert read(stream="s", url=tide.url, database=3).num_rows == 3


def test_a_password(tmp_path: Path) -> None:
    """From a file on the driver; what travels to the executors has it, and shows it to nobody."""
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    with ServerProcess(tmp_path / "data", "--requirepass-file", str(secret), has_flight=True) as server:
        with server.client(password="s3cret") as client:
            client.xadd("s", {"tag": "t", "entry": "e"})
        url = f"redis://127.0.0.1:{server.port}"
        made = reader(stream="s", url=url, password_file=secret)
        assert sum(batch.num_rows for part in made.partitions() for batch in made.read(part)) == 1
        assert read(stream="s", url=url.replace("//", "//default:s3cret@")).num_rows == 1
        assert "s3cret" not in repr(made.reader._server)
        with pytest.raises(ServerRefused, match="does not let us in: Authentication required"):
            reader(stream="s", url=url).partitions()
        assert server.terminate() == 0


# --- parts and filters ------------------------------------------------------------------------------------------------


def test_parts_cover_a_stream_without_overlap(peer: Peer) -> None:
    pipeline = peer.client.pipeline(transaction=False)
    for number in range(1000):
        pipeline.xadd("s", {"tag": "t", "entry": f"{number}"}, id=f"{1 + number // 3}-{1 + number % 3}")
    pipeline.execute()
    made = reader(stream="s", url=peer.url, partition_rows=300)
    parts = made.partitions()
    assert len(parts) == 4
    found = [entry for part in parts for batch in made.read(part) for entry in batch.column("entry").to_pylist()]
    assert found == [b"%d" % number for number in range(1000)]


MOMENT = datetime(2025, 1, 1, tzinfo=UTC)
MS = int(MOMENT.timestamp() * 1000)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([EqualTo(("offset",), 7)], [7]),
        ([GreaterThan(("offset",), 7), LessThanOrEqual(("offset",), 9)], [7, 8, 9]),
        ([GreaterThanOrEqual(("ms",), MS + 8)], [9, 10]),
        ([LessThan(("timestamp",), MOMENT + timedelta(milliseconds=2))], [1, 2, 3]),
        ([EqualTo(("id",), f"{MS + 4}-0")], [5]),
        ([EqualTo(("stream",), "other")], []),
        ([In(("stream",), ("s", "other")), StringStartsWith(("stream",), "s")], list(range(1, 11))),
        ([StringStartsWith(("stream",), "x")], []),
        ([LessThan(("offset",), -5)], []),
        ([EqualTo(("tag",), b"t"), IsNotNull(("offset",))], list(range(1, 11))),
    ],
)
def test_filters_narrow_what_is_read(tide: Peer, filters: list[Filter], expected: list[int]) -> None:
    for number in range(10):
        tide.client.xadd("s", {"tag": "t", "entry": "e"}, id=f"{MS + number}-0")
    made = reader(None, filters, stream="s", url=tide.url)
    found = [row for part in made.partitions() for batch in made.read(part) for row in batch.to_pylist()]
    assert [row["offset"] for row in found] == expected


def test_a_session_that_pushes_nothing_down(spark: SparkSession, tide: Peer) -> None:
    tide.fill("s", 3)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        frame = spark.read.format("tidelog").option("url", tide.url)
        with pytest.raises(Exception, match="filterPushdown"):
            frame.load("stream:s").count()
        assert frame.option("pushdown", "false").load("stream:s").count() == 3
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


# --- loss -------------------------------------------------------------------------------------------------------------


def test_entries_that_are_evicted_before_they_are_read(tide: Peer) -> None:
    tide.fill("s", 3000)
    made = reader(stream="s", url=tide.url)
    (part,) = made.partitions()
    tide.call("TEVICT", "s", 1000)
    with pytest.raises(EntriesLost, match="entries 1 to 1000 of stream 's' were evicted before they were read"):
        list(made.read(part))
    lenient = reader(stream="s", url=tide.url, fail_on_loss="false")
    assert sum(batch.num_rows for batch in lenient.read(part)) == 2000


def test_a_stream_that_is_deleted_before_it_is_read(tide: Peer) -> None:
    tide.fill("s", 10)
    made = reader(stream="s", url=tide.url)
    (part,) = made.partitions()
    tide.client.delete("s")
    with pytest.raises(EntriesLost, match="stream 's' ends at offset 0, and 10 was there before"):
        list(made.read(part))


def test_entries_that_are_deleted_one_by_one_are_no_loss(tide: Peer) -> None:
    for number in range(1, 6):
        tide.client.xadd("s", {"tag": "t", "entry": "e"}, id=f"{number}-0")
    made = reader(stream="s", url=tide.url)
    (part,) = made.partitions()
    tide.client.xdel("s", "1-0", "3-0")
    found = [row for batch in made.read(part) for row in batch.column("offset").to_pylist()]
    assert found == [2, 4, 5]
