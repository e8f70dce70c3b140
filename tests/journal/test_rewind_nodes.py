"""A rewind where streams lie in node files: what is set aside stays readable, and what is kept stays whole."""

from __future__ import annotations

import errno
import random

import pytest

from tests.store.changes import open_store, state
from tests.store.cold import fill, made, node_paths
from tidelog.journal.rewind import rewind
from tidelog.journal.snapshot import list_snapshot_paths, open_snapshot
from tidelog.journal.snapshot_nodes import check_lengths, prove_nodes
from tidelog.journal.verify import verify
from tidelog.store.restore import restore
from tidelog.store.store import Store
from tidelog.store.type_table import operation_table
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedCrash, SimulatedDisk


class Past:
    """A directory with a snapshot before, and one after the moment that it goes back to."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        store = made(self.disk)
        store.journal.writer.sync()
        self.since, self.shared = store.journal.writer.written_ts, state(store)
        assert store.cooling is not None
        store.cooling.files.close()
        fill(store, 2, prefix=b"alone")
        store.save()
        self.all = state(store)
        self.epoch = store.journal.epoch_id
        store.journal.close()
        self.disk.kill()


@pytest.mark.parametrize("links", [True, False])
def test_snapshots_that_are_set_aside_keep_their_nodes(links: bool) -> None:
    past = Past()
    disk = past.disk
    if not links:
        disk.fail("link", errno.EPERM, times=None)
    done = rewind(disk, "/data", past.since, past.epoch)
    store = open_store(disk, 2)
    assert state(store) == past.shared
    store.save()
    store.journal.close()
    open_store(disk, 2).journal.close()
    disk.crash("lose_all")
    [aside] = list_snapshot_paths(disk, done.path)
    prove_nodes(disk, open_snapshot(disk, aside))
    restore(disk, Store(SimulatedClock(), random.Random(1)), aside, "/restored")
    assert state(open_store(disk, 2, "/restored")) == past.all
    assert verify(disk, "/data", operation_table()).is_sound


def test_a_crash_at_any_moment_leaves_them() -> None:
    past = Past()
    moment = 0
    while True:
        moment += 7
        disk = past.disk.clone(moment)
        disk.crash_after(moment)
        try:
            rewind(disk, "/data", past.since, past.epoch)
            break
        except SimulatedCrash:
            disk.crash()
        store = open_store(disk, 2)
        assert state(store) in (past.shared, past.all)
        store.journal.close()
        folders = ["/data", *(f"/data/{name}" for name in disk.list("/data") if name.startswith("diverged-"))]
        for folder in folders:
            for path in list_snapshot_paths(disk, folder):
                check_lengths(disk, open_snapshot(disk, path))
    assert moment > 20
    assert node_paths(disk)
