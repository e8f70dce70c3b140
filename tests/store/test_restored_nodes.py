"""A restore of streams whose nodes lie in node files: they come along, to their shards, a few at a time."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.store.changes import open_store, run, state
from tests.store.cold import KEYS, HotWatch, fill, listed, made, node_paths
from tidelog import limits
from tidelog.errors import Corruption
from tidelog.ids import ShardId, Ts
from tidelog.journal.node_files import NodeFiles
from tidelog.journal.node_format import LostNode, inner_path
from tidelog.journal.snapshot import newest_snapshot
from tidelog.store.backup import copy_newest_snapshot
from tidelog.store.restore import Restored, restore
from tidelog.store.store import Store
from tidelog.streams.stream import Stream
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk


def restored(disk: SimulatedDisk, source: str, target: str = "/new", **options: Any) -> Restored:
    return restore(disk, Store(SimulatedClock(), random.Random(7)), source, target, **options)


class Filled:
    """A directory with cold nodes, two snapshots and a journal behind them, and its state at three moments."""

    def __init__(self, shards: int = 2) -> None:
        self.disk = SimulatedDisk()
        store = made(self.disk, shards)
        self.states = [(store.journal.writer.written_ts, state(store))]
        fill(store, 1, prefix=b"later")
        run(store, [b"XTRIM", KEYS[0], b"MAXLEN", b"=", b"200"])
        run(store, [b"COPY", KEYS[1], b"copied"])
        run(store, [b"RENAME", KEYS[2], b"renamed"])
        store.save()
        self.states.append((store.journal.writer.written_ts, state(store)))
        fill(store, 1, prefix=b"last")
        run(store, [b"XTRIM", b"copied", b"MAXLEN", b"=", b"70"])
        store.journal.writer.write()
        self.states.append((store.journal.writer.written_ts, state(store)))
        store.journal.close()
        self.disk.kill()

    @property
    def last(self) -> tuple[Ts, object]:
        return self.states[-1]


def in_right_shards(store: Store) -> bool:
    """Whether every cold node lies in a file of the shard of its stream."""
    return all(
        node.place is None or node.place.file.shard == store.owners[slot]
        for slot in range(len(store.owners))
        for part in store.database(0).buckets(slot)
        for stream in part.values()
        if isinstance(stream, Stream)
        for node in stream.sealed
    )


@pytest.mark.parametrize(("old", "new"), [(1, 3), (3, 2), (2, None), (2, 1)])
def test_into_any_number_of_shards(old: int, new: int | None) -> None:
    filled = Filled(old)
    disk = filled.disk
    result = restored(disk, "/data", shard_count=new)
    assert result.ts == filled.last[0]
    disk.crash("lose_all")
    for path in node_paths(disk):
        disk.remove(path)
    store = open_store(disk, 2, "/new")
    assert state(store) == filled.last[1]
    assert in_right_shards(store)
    cold = [node.is_cold for key in (KEYS[0], b"renamed") for node in store.database(0).find(key).sealed]  # type: ignore[union-attr]
    assert any(cold)
    assert result.size_bytes > sum(each.length for each in listed(disk, "/new")) > 0


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_moment(index: int) -> None:
    filled = Filled()
    ts, expected = filled.states[index]
    assert restored(filled.disk, "/data", until=ts, shard_count=3).ts == ts
    assert state(open_store(filled.disk, 3, "/new")) == expected


@pytest.mark.parametrize("is_backup", [True, False])
def test_from_a_snapshot_alone(is_backup: bool) -> None:
    filled = Filled()
    disk = filled.disk
    snapshot = newest_snapshot(disk, "/data")
    assert snapshot is not None
    source = "/backup" if is_backup else snapshot.path
    if is_backup:
        copy_newest_snapshot(disk, "/data", "/backup")
    restored(disk, source, shard_count=1)
    assert state(open_store(disk, 1, "/new")) == filled.states[1][1]


def test_nodes_are_copied_a_few_at_a_time_and_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "COOLED_AT_ONCE_BYTES", 3000)
    filled = Filled()
    sizes: list[int] = []
    append = NodeFiles.append

    def watched(files: NodeFiles, shard: ShardId, nodes: list[bytes]) -> object:
        sizes.append(sum(map(len, nodes)))
        return append(files, shard, nodes)

    monkeypatch.setattr(NodeFiles, "append", watched)
    restored(filled.disk, "/data", shard_count=3)
    assert len(sizes) > 2
    assert max(sizes) < 6000
    store = open_store(filled.disk, 3, "/new")
    assert state(store) == filled.last[1]


def test_what_history_seals_becomes_cold_as_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "NODE_ENTRIES_MAX", 20)
    monkeypatch.setattr(limits, "REPLAY_SPILL_BYTES", 20_000)
    disk = SimulatedDisk()
    store = open_store(disk, 2)
    for number in range(1200):
        run(store, [b"XADD", KEYS[number % 2], b"*", b"n", b"%d" % number, b"data", bytes(300)])
    known = state(store)
    total = sum(node.size_bytes for key in KEYS[:2] for node in store.database(0).find(key).sealed)  # type: ignore[union-attr]
    store.journal.close()
    target = Store(SimulatedClock(), random.Random(7))
    watch = HotWatch(monkeypatch, KEYS[:2])
    restore(disk, target, "/data", "/new", shard_count=3)
    assert 0 < watch.most < total / 3
    assert state(open_store(disk, 3, "/new")) == known


def test_a_damaged_node_makes_an_older_snapshot_take_over() -> None:
    filled = Filled()
    disk = filled.disk
    needed = listed(disk)[0]
    disk.flip_bit(f"/data/{inner_path(needed)}", 8 * (needed.length - 200))
    newest = newest_snapshot(disk, "/data")
    assert newest is not None
    copy = disk.clone(3)
    result = restored(disk, "/data")
    assert len(result.damaged) == 1
    assert "checksum of a node" in result.damaged[0]
    assert state(open_store(disk, 2, "/new")) == filled.last[1]
    with pytest.raises(Corruption):
        restored(copy, newest.path)
    assert not copy.exists("/new/meta.json")


def test_lost_nodes_stay_lost_and_others_come() -> None:
    disk = SimulatedDisk()
    store = made(disk)
    assert store.cooling is not None
    stream = store.database(0).find(KEYS[0])
    assert isinstance(stream, Stream)
    [place] = store.cooling.files.append(stream.sealed[0].place.file.shard, [LostNode(500)])  # type: ignore[union-attr]
    stream.sealed[0].move(place)
    run(store, [b"SET", b"k", b"v"])
    store.save()
    store.journal.close()
    result = restored(disk, "/data", shard_count=1)
    assert result.lost_nodes == 1
    again = open_store(disk, 1, "/new").database(0).find(KEYS[0])
    assert isinstance(again, Stream)
    with pytest.raises(Corruption, match="lost"):
        again.sealed[0].read()
    assert again.sealed[1].read().num_rows
