"""Copying a snapshot: whole, proved and durable before it has its name."""

from __future__ import annotations

import errno
import random

import pytest

from tests.store.changes import change, open_store
from tidelog.errors import Corruption, DataDirectoryError
from tidelog.journal.snapshot import list_snapshot_paths, open_snapshot
from tidelog.store.backup import copy_newest_snapshot, copy_snapshot
from tidelog.testing.disk import SimulatedDisk


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    store = open_store(disk, 2)
    rng = random.Random(3)
    for _ in range(200):
        change(store, rng)
    store.save()
    store.journal.close()
    return disk


def test_a_backup_is_the_snapshot_and_survives_a_crash(disk: SimulatedDisk) -> None:
    moves: list[tuple[int, int]] = []
    backup = copy_newest_snapshot(disk, "/data", "/backup", lambda done, total: moves.append((done, total)))
    disk.crash("lose_all")
    [path] = list_snapshot_paths(disk, "/data")
    copied, original = open_snapshot(disk, "/backup"), open_snapshot(disk, path)
    copied.check(disk)
    assert copied.meta == original.meta
    assert (backup.ts, backup.keys, backup.shard_count) == (original.point.ts, original.point.keys, 2)
    assert backup.keys
    assert moves[-1][0] == moves[-1][1] > 0
    assert not disk.exists("/backup.partial")


def test_it_never_goes_where_something_is(disk: SimulatedDisk) -> None:
    disk.make_folder("/there")
    with pytest.raises(DataDirectoryError, match="exists already"):
        copy_newest_snapshot(disk, "/data", "/there")
    with pytest.raises(DataDirectoryError, match="does not exist"):
        copy_newest_snapshot(disk, "/data", "/no/where")


@pytest.mark.parametrize("operation", ["create", "write", "sync", "sync_folder", "rename"])
def test_a_failure_leaves_nothing(disk: SimulatedDisk, operation: str) -> None:
    disk.fail(operation, errno.EIO, path_contains="backup")  # type: ignore[arg-type]
    with pytest.raises(OSError, match="EIO"):
        copy_newest_snapshot(disk, "/data", "/backup")
    assert not disk.exists("/backup")
    copy_newest_snapshot(disk, "/data", "/backup")


def test_what_a_killed_one_left_is_replaced(disk: SimulatedDisk) -> None:
    disk.make_folder("/backup.partial")
    disk.make_folder("/backup.partial/shard-0")
    disk.write_file("/backup.partial/shard-0/journal-0000000000000000.dj0", b"half")
    copy_newest_snapshot(disk, "/data", "/backup")
    open_snapshot(disk, "/backup").check(disk)


def test_damage_is_found_before_it_counts(disk: SimulatedDisk) -> None:
    [path] = list_snapshot_paths(disk, "/data")
    disk.flip_bit(f"{path}/shard-1/journal-0000000000000000.dj0", 800)
    with pytest.raises(Corruption):
        copy_newest_snapshot(disk, "/data", "/backup")
    assert not disk.exists("/backup")
    assert not disk.exists("/backup.partial")


def test_one_that_is_dropped_meanwhile_gives_way_to_the_next(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server makes more snapshots between the look at the newest and its copy."""
    first = list_snapshot_paths(disk, "/data")[-1]
    calls = 0

    def copy(*arguments: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 1:
            store = open_store(disk, 2)
            for seed in range(6):
                change(store, random.Random(seed))
                store.save()
            store.journal.close()
        return copy_snapshot(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("tidelog.store.backup.copy_snapshot", copy)
    backup = copy_newest_snapshot(disk, "/data", "/backup")
    assert calls == 2
    assert not disk.exists(first)
    assert f"{backup.ts:016x}" in list_snapshot_paths(disk, "/data")[-1]


def test_without_a_snapshot_there_is_nothing_to_copy() -> None:
    disk = SimulatedDisk()
    open_store(disk, 1).journal.close()
    with pytest.raises(DataDirectoryError, match="has no snapshot"):
        copy_newest_snapshot(disk, "/data", "/backup")
