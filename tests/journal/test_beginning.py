"""A journal that begins at lsn 0 has everything only if nothing came before lsn 0."""

from __future__ import annotations

import random

import pytest

from tests.store.changes import open_store, run
from tidelog.errors import Corruption
from tidelog.hlc import TsFile
from tidelog.ids import Ts
from tidelog.journal import layout
from tidelog.journal.beginning import before_first_lsn, has_beginning
from tidelog.journal.snapshot import list_snapshot_paths, remove_snapshot
from tidelog.store.restore import restore
from tidelog.store.store import Store
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk


def written(disk: SimulatedDisk, folder: str, keys: int, *, saves: bool = False) -> Store:
    store = open_store(disk, 2, folder)
    for number in range(keys):
        run(store, [b"SET", b"key%d" % number, b"x" * 500])
        store.journal.writer.write()
    if saves:
        store.save()
    store.journal.close()
    return store


def test_a_new_directory_has_its_beginning() -> None:
    disk = SimulatedDisk()
    store = written(disk, "/data", 30)

    assert has_beginning(disk, "/data", 2)
    assert before_first_lsn(store.journal.epochs) == 0


def test_one_that_was_restored_has_not_even_without_the_snapshot_that_it_began_with() -> None:
    disk = SimulatedDisk()
    old = written(disk, "/old", 30, saves=True)
    restore(disk, Store(SimulatedClock(), random.Random(1)), "/old", "/new")
    assert not has_beginning(disk, "/new", 2)

    store = written(disk, "/new", 30)
    assert before_first_lsn(store.journal.epochs) == old.journal.writer.written_ts
    for path in list_snapshot_paths(disk, "/new"):
        remove_snapshot(disk, path)
    assert not has_beginning(disk, "/new", 2)


def test_one_whose_journal_was_erased_has_not() -> None:
    disk = SimulatedDisk()
    written(disk, "/data", 30)
    erased = TsFile.open(disk, "/data", layout.ERASED)
    erased.store(Ts(5))
    erased.close()

    assert not has_beginning(disk, "/data", 2)


def test_a_damaged_file_proves_nothing() -> None:
    disk = SimulatedDisk()
    written(disk, "/data", 30)
    file = disk.open(f"/data/{layout.ERASED}", "write")
    file.write(0, [b"\xff" * file.size()])
    file.close()

    with pytest.raises(Corruption):
        has_beginning(disk, "/data", 2)
