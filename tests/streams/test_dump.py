"""A whole stream as operations makes the same stream again: as a copy, and in a snapshot on any number of shards."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from tests.store.changes import open_store
from tests.streams.cold_nodes import chilled, cool, node_files
from tests.streams.plain import apply, filled, plain, stream_in
from tidelog import limits
from tidelog.ids import ShardId
from tidelog.store.keyspace import Database
from tidelog.store.store import Store
from tidelog.store.type_table import TypeTable, value_types
from tidelog.streams.dump import copy_operations, kept_operations, stream_operations
from tidelog.streams.group import Consumer, Pending
from tidelog.streams.operations import StreamEvict
from tidelog.streams.stream import RetentionRule, Stream
from tidelog.testing.disk import SimulatedDisk

TYPES = TypeTable(value_types())


def full(count: int = 2500) -> Stream:
    """A stream with everything that a stream can have."""
    stream = filled(count, size=40, kinds=(0, 0, 1))
    stream.append(9000, 0, 1, [b"t"] * 5, [b"e"] * 5)
    stream.evict(20)
    stream.delete([25, 26, count - 1, count + 2])
    group = stream.group(b"g")
    group.last_offset, group.last_id, group.entries_read = 70, 1070 << 64, 50
    group.pending_max, group.dead_letter, group.deliveries_max = 100, b"dead", 3
    group.consumers[b"c"], group.consumers[b"idle"] = Consumer(5, 6), Consumer(7)
    for offset in (60, 61, 30, 31, 62, 33):
        group.add(offset, Pending((1000 + offset) << 64, b"c" if offset > 60 else b"", 9000, 2, 50, 10**6))
    stream.group(b"empty")
    for seq in range(1500):
        stream.remember(b"p%d" % (seq % 3), seq, seq + 1)
    stream.last_id, stream.added_beside = 99999 << 64, 4
    stream.rule = RetentionRule(10**9, 5000, 7)
    return stream


class Databases(NamedTuple):
    """Two of them, beside each other."""

    one: Database
    other: Database


def databases() -> Databases:
    made = Databases(Database(0), Database(1))
    for database in made:
        database.all = made
    return made


def streams() -> dict[bytes, Stream]:
    evicted = filled(30)
    evicted.evict(99)
    return {b"full": full(), b"small": filled(3), b"none": Stream(), b"evicted": evicted, b"exact": filled(2000)}


@pytest.mark.parametrize("name", list(streams()))
def test_a_copy_within_a_shard_is_the_same(name: bytes) -> None:
    stream, (one, other) = streams()[name], databases()
    one.put(b"source", stream)
    apply(one, copy_operations(b"k", stream, b"source", 0))
    apply(other, copy_operations(b"k", stream, b"source", 0))
    for database in (one, other):
        made = stream_in(database)
        assert plain(made) == plain(stream)
        assert all(node is its for node, its in zip(made.sealed, stream.sealed, strict=True))
    before = plain(stream)
    live = stream_in(one)
    live.append(10**6, 0, 0, [b"t"], [b"e"])
    live.evict(live.next)
    live.remember(b"p0", 10**6, 1)
    assert plain(stream) == plain(stream_in(other)) == before


@pytest.mark.parametrize("cold", [0, 1, 2])
@pytest.mark.parametrize("name", list(streams()))
def test_the_operations_make_it_again(name: bytes, cold: int) -> None:
    stream, files = streams()[name], node_files()
    for node in stream.sealed[:cold]:
        chilled(node, files)
    database = Database(0, node_files=files)
    apply(database, stream_operations(b"k", stream))
    assert plain(stream_in(database)) == plain(stream)
    assert not any(node.is_cold for node in stream_in(database).sealed)
    database.remove(b"k")
    apply(database, kept_operations(b"k", stream))
    made = stream_in(database)
    assert plain(made) == plain(stream)
    assert [node.is_cold for node in made.sealed] == [node.is_cold for node in stream.sealed]


def test_what_a_cold_node_has_lost_is_not_in_it() -> None:
    stream, files = filled(1000, size=40), node_files()
    chilled(stream.sealed[0], files)
    stream.delete([1, 2, 500, 998, 999, 1000])
    stream.evict(20)
    database = Database(0, node_files=files)
    apply(database, kept_operations(b"k", stream))
    assert plain(stream_in(database)) == plain(stream)
    assert [node.is_cold for node in stream_in(database).sealed] == [True]
    stream.evict(400)
    apply(database, [StreamEvict(b"k", 400)])
    assert plain(stream_in(database)) == plain(stream)


def test_in_pieces_it_is_as_it_was_when_asked() -> None:
    stream, files = full(), node_files()
    chilled(stream.sealed[0], files)
    database = Database(0, node_files=files)
    before = plain(stream)
    pieces = TYPES.pieces_of(b"k", stream, 77)
    filled(1000, stream=stream)
    stream.group(b"g").remove(60)
    stream.evict(900)
    *operations, expire = pieces
    apply(database, operations)
    assert plain(stream_in(database)) == before
    assert expire.expire_ms == 77


def test_many_pending_entries_are_many_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RECORD_PENDING_MAX", 4)
    stream, database = filled(30), Database(0)
    for offset in range(1, 31):
        stream.group(b"g").add(offset, Pending(offset << 64, b"ab"[offset // 9 % 2 :][:1], 5, 1, 0, 0))
    stream.group(b"g").consumers.update({b"a": Consumer(1), b"b": Consumer(1)})
    for offset, each in stream.group(b"g").pending.items():
        stream.group(b"g").consumers[each.consumer].pending_count += offset > 0
    apply(database, TYPES.operations_of(b"k", stream, None))
    assert plain(stream_in(database)) == plain(stream)


def put(store: Store, key: bytes, stream: Stream) -> None:
    transaction = store.begin()
    transaction.run(TYPES.operations_of(key, stream, None))
    store.commit(transaction)


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("way", ["journal", "snapshot", "both"])
def test_a_restart_has_the_same_streams(shards: int, way: str) -> None:
    disk, made = SimulatedDisk(1), streams()
    store = open_store(disk, shards)
    for key, stream in made.items():
        put(store, key, stream)
    store.journal.writer.write()
    cool(store)
    if way != "journal":
        store.save()
    if way == "both":
        transaction = store.begin()
        transaction.run([StreamEvict(b"full", 1500)])
        store.commit(transaction)
        made[b"full"].evict(1500)
    store.journal.writer.write()
    expected = {key: plain(stream) for key, stream in made.items()}
    disk.kill()
    found = open_store(disk, shards)
    for key in made:
        assert plain(stream_in(found.database(0), key)) == expected[key]
    cold: list[Any] = [node.is_cold for node in stream_in(found.database(0), b"full").sealed]
    assert all(cold) == (way != "journal")
    if shards == 3:
        assert len({found.encode(found.effect_of[StreamEvict], StreamEvict(key, 1))[0][0] for key in made}) > 1
    else:
        assert found.encode(found.effect_of[StreamEvict], StreamEvict(b"full", 1))[0][0] == ShardId(0)
