"""Libraries of functions are kept: by the journal, by snapshots and by restores, over any number of shards."""

from __future__ import annotations

import random

import pytest

from tests.feeds.made import Watched
from tests.store.changes import change, open_store
from tidelog.journal.operation import FlushDb
from tidelog.store.libraries import Libraries
from tidelog.store.restore import restore
from tidelog.store.store import Store
from tidelog.store.transaction import InDatabase
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk
from tidelog.types.library import LibDel, LibLoad

LARGE = b"-- " + bytes(range(97, 123)) * 1000
"""More than a quarter of a frame."""


def run(store: Store, *operations: LibLoad | LibDel | FlushDb, database: int = 0) -> None:
    transaction = store.begin(database)
    transaction.run([InDatabase(0, operation) for operation in operations])
    store.commit(transaction)
    store.journal.writer.write()


def test_the_version_grows_with_each_change() -> None:
    libraries = Libraries()
    libraries.put(b"a", b"1")
    libraries.put(b"a", b"2")
    libraries.remove(b"none")
    assert (libraries.codes, libraries.version) == ({b"a": b"2"}, 2)


@pytest.mark.parametrize("shards", [1, 2, 4])
def test_the_journal_and_snapshots_have_them(shards: int) -> None:
    disk, rng = SimulatedDisk(), random.Random(shards)
    store = open_store(disk, shards)
    run(store, LibLoad(b"one", b"#!lua name=one"), LibLoad(b"two", LARGE), database=3)
    run(store, LibDel([b"one"]))
    run(store, FlushDb())
    store.journal.close()
    store = open_store(disk, shards)
    assert store.libraries.codes == {b"two": LARGE}
    store.save()  # nothing else is in it
    store.journal.close()
    store = open_store(disk, shards)
    assert store.libraries.codes == {b"two": LARGE}
    for _ in range(100):
        change(store, rng)
    run(store, LibLoad(b"three", b"3"))
    store.save()
    run(store, LibLoad(b"three", b"4"))
    store.journal.close()
    disk.crash("lose_all")
    store = open_store(disk, shards)
    assert store.libraries.codes == {b"two": LARGE, b"three": b"4"}
    store.journal.close()
    restore(disk, Store(SimulatedClock(), random.Random(1)), "/data", "/new", shard_count=5 - shards)
    assert open_store(disk, 5 - shards, "/new").libraries.codes == store.libraries.codes


def test_a_snapshot_has_them_as_they_were_at_its_moment() -> None:
    disk = SimulatedDisk()
    store = open_store(disk, 2)
    run(store, LibLoad(b"one", b"1"))
    capture = store.begin_capture()
    assert capture is not None
    run(store, LibLoad(b"one", b"2"))
    while not capture.is_done:
        capture.step()
    snapshot = store.journal.finish_snapshot(capture.snapshot)
    store.end_capture()
    shown = Store(SimulatedClock(), random.Random(1))
    shown.slots = store.slots
    snapshot.read(disk, shown.replay, lambda _epoch: None)
    assert shown.libraries.codes == {b"one": b"1"}
    assert store.libraries.codes == {b"one": b"2"}


@pytest.mark.parametrize("shards", [1, 3])
def test_feeds_pass_over_them(shards: int) -> None:
    watched = Watched(shards)
    _, live = watched.watch()
    run(watched.store, LibLoad(b"one", b"1"))
    watched("SET", "k", "v")
    run(watched.store, LibDel([b"one"]))
    watched("SET", "k", "w")
    values = [event[-1] for event in watched.events(live) if event[0] == b"value"]
    assert values == [b"v", b"w"]
    watched.restart()
    _, behind = watched.watch(since=1)
    assert [event[-1] for event in watched.events(behind) if event[0] == b"value"] == [b"v", b"w"]
