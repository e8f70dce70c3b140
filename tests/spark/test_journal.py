"""Files of a journal as rows: each record once, only what is proved, and no frame read that need not be."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import fsspec
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import EqualTo, Filter, GreaterThanOrEqual, In, LessThan
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from tests.cli.directories import GEOMETRY, SHARDS, Written, fill, first_segment, flip_bit
from tests.integration.server_process import ServerProcess
from tests.spark.conftest import Peer
from tests.spark.in_process import reader
from tests.spark.ordered_journal import KEYS, write_ordered, write_pairs
from tidelog.errors import Corruption, DataDirectoryError
from tidelog.journal.operation import DEL, VAL, decode_items
from tidelog.spark.remote_disk import RemoteDisk
from tidelog.spark.source.journal.kind import JournalFileReader, JournalPart, ReadCounts
from tidelog.spark.source.journal.rows import SCHEMA
from tidelog.store.type_table import operation_table
from tidelog.system.disk import SystemDisk

TABLE = operation_table()


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "data")


@pytest.fixture
def written(folder: str) -> list[Written]:
    return fill(SystemDisk(), folder, sidecars=True)


def read(
    folder: str, filters: list[Filter] | None = None, schema: StructType | None = None, **options: Any
) -> tuple[list[dict[str, Any]], ReadCounts]:
    made = reader(schema, filters, journal=folder, **options).reader
    assert isinstance(made, JournalFileReader)
    counts = ReadCounts()
    batches = (batch for part in made.partitions() for batch in made.read_counted(cast(JournalPart, part), counts))
    return [row for batch in batches for row in batch.to_pylist()], counts


def expected(written: list[Written]) -> Iterator[tuple[int, int, int, str, bytes | None, bytes | None]]:
    for record in written:
        kind = TABLE.get(record.opcode)
        name = kind.name if kind is not None else f"0x{record.opcode:02x}"
        pairs: list[tuple[bytes | None, bytes | None]] = [(None, None)]
        if record.opcode == VAL:
            pairs = [*TABLE.decode(VAL, record.payload, None).pairs]
        elif record.opcode == DEL:
            pairs = [(key, None) for key in decode_items(record.payload)]
        for key, value in pairs:
            yield record.shard, record.lsn, record.ts, name, key, value


def places(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in ("shard", "lsn", "ts", "op", "key", "value")) for row in rows]


# --- through Spark ----------------------------------------------------------------------------------------------------


def test_what_a_server_wrote_through_spark(spark: SparkSession, tidelog_process: ServerProcess, tide: Peer) -> None:
    tide.client.mset({"user:1": "ada", "user:2": "grace"})
    tide.client.set("user:3", "edsger", pxat=1_900_000_000_000)
    tide.client.hset("user:hash", "field", "value")
    tide.client.delete("user:2")
    tide.fill("orders", 10)
    source = (
        spark.read.format("tidelog")
        .option("prefix", "user:")
        .schema("op string, key string, value string, expire timestamp")
    )
    frame = source.load(f"journal:{tidelog_process.data}").where("key is not null")
    assert spark.read.format("tidelog").load(f"journal:{tidelog_process.data}").schema == SCHEMA
    found = [(row.op, row.key, row.value) for row in frame.collect()]
    assert found == [
        ("val", "user:1", "ada"),
        ("val", "user:2", "grace"),
        ("val", "user:3", "edsger"),
        ("hset", "user:hash", None),
        ("del", "user:2", None),
    ]
    (row,) = frame.where("key = 'user:3'").collect()
    assert row.expire == datetime.fromtimestamp(1_900_000_000, UTC).replace(tzinfo=None)


# --- rows -------------------------------------------------------------------------------------------------------------


def test_every_record_is_there_once(folder: str, written: list[Written]) -> None:
    found, counts = read(folder)
    assert places(found) == list(expected(written))
    assert counts.records == len(written)
    by_place = {(record.shard, record.lsn): record for record in written}
    payloads = {place: record.payload for place, record in by_place.items()}
    for row in found:
        record = by_place[row["shard"], row["lsn"]]
        assert row["database"] == record.database
        assert row["payload"] == payloads.pop((row["shard"], row["lsn"]), None)
        assert row["expire"] == (
            None if record.expire_ms is None else datetime.fromtimestamp(record.expire_ms / 1000, UTC)
        )


def test_a_record_that_names_many_keys_has_its_payload_once(folder: str) -> None:
    write_pairs(folder, 400)
    found, _ = read(folder)
    assert [row["key"] for row in found] == [b"key:%d" % number for number in range(400)]
    assert [row["payload"] is None for row in found] == [False, *[True] * 399]


@pytest.mark.parametrize("frames", [1, 3, 1000])
def test_parts_cover_a_journal_however_it_is_cut(folder: str, written: list[Written], frames: int) -> None:
    parts = reader(journal=folder, partition_frames=frames).partitions()
    assert len(parts) > SHARDS
    found, _ = read(folder, partition_frames=frames)
    assert places(found) == list(expected(written))


def test_only_what_is_asked_for_is_made(folder: str, written: list[Written]) -> None:
    schema = StructType([StructField("lsn", LongType()), StructField("op", StringType())])
    found, _ = read(folder, schema=schema)
    assert [(row["lsn"], row["op"]) for row in found] == [
        (record.lsn, kind.name if (kind := TABLE.get(record.opcode)) else f"0x{record.opcode:02x}")
        for record in written
    ]
    assert list(found[0]) == ["lsn", "op"]


def test_one_shard_and_a_snapshot(folder: str) -> None:
    written = fill(SystemDisk(), folder, snapshot=True)
    found, _ = read(f"{folder}/shard-1")
    assert {row["shard"] for row in found} == {1}
    (snapshot,) = Path(folder, "snapshots").iterdir()
    assert read(str(snapshot))[1].records > 0
    assert len(written) > 0


def test_what_no_mark_vouches_for_is_left_out(folder: str) -> None:
    written = fill(SystemDisk(), folder, shards=1)
    path = max(Path(folder, "shard-0").glob("journal-*.dj0"))
    path.write_bytes(path.read_bytes()[:-300])
    found, _ = read(folder)
    assert 0 < len(found) < len(list(expected(written)))
    assert places(found) == list(expected(written))[: len(found)]


def test_damage_ends_it_unless_it_may_be_left_out(folder: str, written: list[Written]) -> None:
    disk = SystemDisk()
    flip_bit(disk, f"{folder}/{first_segment(0)}", GEOMETRY.frame_bytes + 100)
    with pytest.raises(Corruption, match="frame 1"):
        read(folder)
    found, counts = read(folder, skip_damage="true")
    assert 0 < counts.records < len(written)
    assert set(places(found)) < set(expected(written))


def test_a_damaged_beginning_is_damage_too(folder: str) -> None:
    written = fill(SystemDisk(), folder, shards=1)
    flip_bit(SystemDisk(), f"{folder}/{first_segment(0)}", 0)
    with pytest.raises(Corruption, match="frame 0"):
        read(folder)
    found, _ = read(folder, skip_damage="true")
    assert set(places(found)) < set(expected(written))
    assert found


def test_what_is_no_journal(tmp_path: Path) -> None:
    with pytest.raises(DataDirectoryError, match="is not a data directory"):
        read(str(tmp_path))


# --- what need not be read --------------------------------------------------------------------------------------------


def test_a_time_reads_only_its_frames(folder: str, written: list[Written]) -> None:
    ts = sorted(record.ts for record in written)
    since, until = ts[len(ts) // 2], ts[len(ts) // 2 + 20]
    _, all_counts = read(folder)
    wanted = [record for record in written if since <= record.ts <= until]
    for found, counts in (
        read(folder, since=since, until=until, partition_frames=1),
        read(folder, [GreaterThanOrEqual(("ts",), since), LessThan(("ts",), until + 1)], partition_frames=1),
    ):
        assert places(found) == list(expected(wanted))
        assert counts.bytes < all_counts.bytes / 3


def test_a_key_reads_only_frames_that_may_have_it(folder: str, written: list[Written]) -> None:
    key = next(row[4] for row in expected(written) if row[4] is not None and row[4].isascii())
    assert key is not None
    _, all_counts = read(folder)
    everywhere = {row[:4] for row in expected(written) if row[4] is None}
    for found, counts in (
        read(folder, key=key.decode()),
        read(folder, [EqualTo(("key",), key)]),
        read(folder, [In(("key",), (key, b"nobody"))]),
    ):
        rows = [row for row in places(found) if row[4] is not None]
        assert rows == [row for row in expected(written) if row[4] == key]
        assert {row[:4] for row in places(found) if row[4] is None} <= everywhere
        assert counts.bytes <= all_counts.bytes


def test_sidecars_spare_frames(folder: str) -> None:
    """Keys that come one after the other: each frame has its own."""
    write_ordered(folder)
    schema = StructType([StructField("key", BinaryType())])
    found, all_counts = read(folder, schema=schema)
    assert [row["key"] for row in found] == KEYS
    for (found, counts), expected_keys in (
        (read(folder, schema=schema, key=KEYS[700].decode()), [KEYS[700]]),
        (read(folder, schema=schema, prefix="key:0010"), [key for key in KEYS if key.startswith(b"key:0010")]),
    ):
        assert [row["key"] for row in found] == expected_keys
        assert counts.bytes < all_counts.bytes / 4
    for path in Path(folder, "shard-0").glob("sidecar-*"):
        path.unlink()
    assert read(folder, schema=schema, key=KEYS[700].decode())[1].bytes >= all_counts.bytes


# --- object stores ----------------------------------------------------------------------------------------------------


def test_files_that_lie_elsewhere(folder: str, written: list[Written]) -> None:
    files = fsspec.filesystem("memory")
    files.put(folder, "/backup", recursive=True)
    try:
        found, _ = read("memory://backup", partition_frames=2)
        assert places(found) == list(expected(written))
        disk = RemoteDisk(files)
        assert disk.list("/backup") == SystemDisk().list(folder)
        with pytest.raises(OSError, match="this disk is read-only"):
            disk.remove("/backup/meta.json")
        with pytest.raises(FileNotFoundError):
            disk.open("/backup/nothing", "read")
    finally:
        files.rm("/backup", recursive=True)
