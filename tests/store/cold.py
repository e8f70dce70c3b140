"""A data directory with streams whose nodes lie in node files, for tests of what moves, copies and checks it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.store.changes import open_store, run
from tests.streams.cold_nodes import cool
from tidelog.journal.layout import NodeFileLength
from tidelog.journal.loader import Apply, PayloadOf
from tidelog.journal.merge import JournalTransaction
from tidelog.journal.node_format import node_file_id
from tidelog.journal.snapshot import newest_snapshot
from tidelog.ports import Disk
from tidelog.store.cooling import StoreCooling
from tidelog.store.keyspace import Database
from tidelog.store.store import Store
from tidelog.streams.stream import Stream

KEYS = (b"orders", b"clicks", b"trades")
"""Streams of different slots: with two shards, both have some."""
NODE_ENTRIES = 150


def fill(store: Store, nodes: int = 2, keys: tuple[bytes, ...] = KEYS, prefix: bytes = b"") -> None:
    """Append entries to streams, and let them be cold, some nodes each."""
    for _ in range(nodes):
        for key in keys:
            for number in range(NODE_ENTRIES):
                run(store, [b"XADD", key, b"*", b"field", b"%b%b-%d-%d" % (prefix, key, number, number * 7919)])
        cool(store)


def made(disk: Disk, shards: int = 2, folder: str = "/data") -> Store:
    """An open store with cold nodes and a snapshot that refers to them."""
    store = open_store(disk, shards, folder)
    fill(store)
    store.save()
    return store


def listed(disk: Disk, folder: str = "/data") -> tuple[NodeFileLength, ...]:
    """The node files that the newest snapshot lists."""
    snapshot = newest_snapshot(disk, folder)
    assert snapshot is not None
    return snapshot.point.node_files


def node_paths(disk: Disk, folder: str = "/data") -> list[str]:
    """The node files in the shards' folders of a directory, or a backup."""
    return [
        f"{folder}/{shard}/{name}"
        for shard in disk.list(folder)
        if shard.startswith("shard-")
        for name in disk.list(f"{folder}/{shard}")
        if node_file_id(name) is not None
    ]


class HotWatch:
    """Notes how much of the streams of a store is in memory, after every transaction that is replayed into it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, keys: tuple[bytes, ...]) -> None:
        self.most = 0
        spilling = StoreCooling.spilling

        def watched(cooling: StoreCooling, apply: Apply, prepare: Callable[[], None] | None = None) -> Apply:
            run = spilling(cooling, apply, prepare)

            def look(transaction: JournalTransaction, payload_of: PayloadOf) -> None:
                run(transaction, payload_of)
                self.most = max(self.most, hot_bytes(cooling._databases[0], keys))

            return look

        monkeypatch.setattr(StoreCooling, "spilling", watched)


def hot_bytes(database: Database, keys: tuple[bytes, ...]) -> int:
    """What sealed nodes of streams take in memory."""
    streams = [database.find(key) for key in keys]
    return sum(node.size_bytes for stream in streams if isinstance(stream, Stream) for node in stream.sealed)
