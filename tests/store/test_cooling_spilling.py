"""Cooling while history is replayed: nodes leave memory as they come, so a start needs no more of it than running."""

from __future__ import annotations

import errno

import pytest

from tests.store.changes import open_store, run, state
from tests.store.cold import HotWatch, hot_bytes, node_paths
from tidelog import limits
from tidelog.store.store import Store
from tidelog.testing.disk import SimulatedDisk

ENTRIES = 1500
ENTRY = bytes(range(256)) * 2
KEYS = (b"orders", b"clicks")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "NODE_ENTRIES_MAX", 20)
    monkeypatch.setattr(limits, "REPLAY_SPILL_BYTES", 40_000)


def appended(disk: SimulatedDisk) -> Store:
    store = open_store(disk, 2)
    for number in range(ENTRIES):
        run(store, [b"XADD", KEYS[number % 2], b"*", b"n", b"%d" % number, b"data", ENTRY])
    return store


def test_a_replay_of_the_journal_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimulatedDisk()
    store = appended(disk)
    known, total = state(store), hot_bytes(store.database(0), KEYS)
    store.journal.close()
    watch = HotWatch(monkeypatch, KEYS)
    again = open_store(disk, 2)
    node_bytes = 20 * (len(ENTRY) + 200)
    bound = limits.REPLAY_SPILL_BYTES + len(KEYS) * (limits.HOT_NODES_KEPT + 1) * node_bytes
    assert 3 * bound < total
    assert 0 < watch.most < bound
    assert state(again) == known
    assert len(node_paths(disk)) == 2


def test_loading_a_snapshot_that_has_its_nodes_inside_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """As versions before this one wrote them."""
    disk = SimulatedDisk()
    store = appended(disk)
    known, total = state(store), hot_bytes(store.database(0), KEYS)
    store.save()
    store.journal.close()
    watch = HotWatch(monkeypatch, KEYS)
    assert state(open_store(disk, 2)) == known
    assert 0 < watch.most < total / 3


def test_a_full_disk_does_not_end_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimulatedDisk()
    store = appended(disk)
    known, total = state(store), hot_bytes(store.database(0), KEYS)
    store.journal.close()
    disk.fail("write", errno.ENOSPC, path_contains="/nodes-", times=None)
    operations = disk.operations
    again = open_store(disk, 2)
    assert state(again) == known
    assert hot_bytes(again.database(0), KEYS) == total
    assert disk.operations - operations < 500, "it is not tried with every transaction"
    disk.clear_faults()
    assert again.cooling is not None
    again.cooling.spill()
    assert hot_bytes(again.database(0), KEYS) < total / 3
    assert state(again) == known


def test_what_a_start_spilled_before_a_crash_goes_with_the_next() -> None:
    disk = SimulatedDisk()
    store = appended(disk)
    known = state(store)
    store.journal.close()
    before = disk.clone()
    open_store(disk, 2)
    spilled = node_paths(disk)
    assert spilled
    disk.kill()
    assert state(open_store(disk, 2)) == known
    assert not set(spilled) & set(node_paths(disk))
    assert state(open_store(before, 2)) == known
