"""A full sync takes the place of what was there, whatever happens meanwhile."""

from __future__ import annotations

from random import Random

import pytest

from tidelog.journal.frame import Geometry
from tidelog.journal.journal import Settings
from tidelog.journal.replacement import finish_replacement, is_replacing, mark_complete
from tidelog.store.store import Store
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedCrash, SimulatedDisk

DATA = "data"


def opened(disk: SimulatedDisk, folder: str = DATA, shards: int = 1) -> Store:
    settings = Settings(Geometry(4096, 4), shards)
    return Store.open(disk, folder, SimulatedClock(), settings, lambda: 5, Random(1))


def fill(disk: SimulatedDisk, folder: str, shards: int, value: bytes) -> None:
    store = opened(disk, folder, shards)
    for number in range(20):
        transaction = store.begin()
        transaction.set_plain(b"key%d" % number, value)
        store.commit(transaction)
        if number == 10:
            store.journal.writer.write()
            store.save()
    store.journal.close()


def value_of(store: Store) -> bytes:
    found = store.database(0).peek(b"key7")
    assert isinstance(found, bytes)
    return found


def landed(*, keeps_old: bool) -> SimulatedDisk:
    """A directory with two shards, in which another one with three has landed."""
    disk = SimulatedDisk(3)
    fill(disk, DATA, 2, b"old")
    fill(disk, f"{DATA}/sync", 3, b"new")
    disk.sync_folder(DATA)
    mark_complete(disk, DATA, keeps_old=keeps_old)
    return disk


@pytest.mark.parametrize("keeps_old", [False, True])
def test_what_has_landed_takes_the_place_of_what_was_there(keeps_old: bool) -> None:
    disk = landed(keeps_old=keeps_old)
    kept = finish_replacement(disk, DATA)
    assert kept == (f"{DATA}/set-aside-1" if keeps_old else None)
    store = opened(disk, shards=3)
    assert (value_of(store), store.journal.meta.shard_count) == (b"new", 3)
    store.journal.close()
    assert not {"sync", "replaced"} & set(disk.list(DATA))
    if keeps_old:
        assert value_of(opened(disk, f"{DATA}/set-aside-1", 2)) == b"old"


@pytest.mark.parametrize("keeps_old", [False, True])
def test_a_replacement_that_was_cut_short_goes_on(keeps_old: bool) -> None:
    undisturbed = landed(keeps_old=keeps_old)
    before = undisturbed.operations
    finish_replacement(undisturbed, DATA)
    operations = undisturbed.operations - before
    assert operations > 10
    for crash_at in range(1, operations + 1):
        disk = landed(keeps_old=keeps_old)
        disk.crash_after(crash_at)
        try:
            finish_replacement(disk, DATA)
        except SimulatedCrash:
            disk.crash()
            disk.clear_faults()
            finish_replacement(disk, DATA)
        else:
            disk.clear_faults()
        store = opened(disk, shards=3)
        assert value_of(store) == b"new"
        store.journal.close()
        assert not is_replacing(disk, DATA)
        if keeps_old:
            assert value_of(opened(disk, f"{DATA}/set-aside-1", 2)) == b"old"


def test_nothing_happens_before_all_has_landed() -> None:
    disk = SimulatedDisk(3)
    fill(disk, DATA, 2, b"old")
    fill(disk, f"{DATA}/sync", 3, b"new")
    assert finish_replacement(disk, DATA) is None
    assert value_of(opened(disk, shards=2)) == b"old"
