"""A snapshot that refers to nodes in node files, read through Spark's source: every node is a row, in some task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from tests.spark.in_process import read, reader
from tests.store.cold import KEYS, NODE_ENTRIES, made, node_paths
from tidelog import limits
from tidelog.errors import Corruption
from tidelog.spark.source.journal.rows import SCHEMA
from tidelog.store.backup import copy_newest_snapshot
from tidelog.store.type_table import operation_table
from tidelog.system.disk import SystemDisk

pytestmark = pytest.mark.xdist_group("spark")


@pytest.fixture
def folder(tmp_path: Path) -> str:
    made(SystemDisk(), 2, str(tmp_path / "data")).journal.close()
    return str(tmp_path / "data")


def snapshot_of(folder: str) -> str:
    [name] = SystemDisk().list(f"{folder}/snapshots")
    return f"{folder}/snapshots/{name}"


def nodes(target: str, **options: Any) -> list[tuple[bytes, int, int]]:
    """Keys and offsets of the nodes in rows."""
    found = []
    table = operation_table()
    for row in read(journal=target, **options).to_pylist():
        assert row["op"] != "nodes"
        if row["op"] == "node":
            node = table.decode(0x54, row["payload"], None).node
            assert node.read().num_rows == NODE_ENTRIES
            found.append((row["key"], node.first_offset, node.last_offset))
    return sorted(found)


def expected() -> list[tuple[bytes, int, int]]:
    spans = ((1, NODE_ENTRIES), (NODE_ENTRIES + 1, 2 * NODE_ENTRIES))
    return sorted((key, *span) for key in KEYS for span in spans)


@pytest.mark.parametrize("is_backup", [True, False])
def test_every_node_is_a_row(folder: str, is_backup: bool) -> None:
    target = snapshot_of(folder)
    if is_backup:
        target = f"{folder}-backup"
        copy_newest_snapshot(SystemDisk(), folder, target)
    assert nodes(target) == expected()
    assert nodes(f"file://{target}") == expected()


def test_tasks_share_many_nodes(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target = snapshot_of(folder)
    plain = len(reader(journal=target).partitions())
    others = read(StructType([SCHEMA["op"]]), journal=target).to_pylist()
    monkeypatch.setattr(limits, "SPARK_NODES_BYTES", 2000)
    assert len(reader(journal=target).partitions()) > 2 * plain
    assert nodes(target) == expected()
    assert sorted(map(str, read(StructType([SCHEMA["op"]]), journal=target).to_pylist())) == sorted(map(str, others))


def test_nodes_are_not_read_unless_they_are_wanted(folder: str) -> None:
    for path in node_paths(SystemDisk(), folder):
        Path(path).write_bytes(b"x")
    keys = read(StructType([SCHEMA["op"], SCHEMA["key"]]), journal=snapshot_of(folder)).to_pylist()
    assert len([row for row in keys if row["op"] == "node"]) == len(expected())


def test_damage_ends_it_unless_it_may_be_left_out(folder: str) -> None:
    path = Path(node_paths(SystemDisk(), folder)[0])
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    path.write_bytes(data)
    with pytest.raises(Corruption, match="checksum of a node"):
        nodes(snapshot_of(folder))
    assert len(nodes(snapshot_of(folder), skip_damage="true")) == len(expected()) - 1
