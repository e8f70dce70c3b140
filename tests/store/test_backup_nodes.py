"""Backups of streams whose nodes lie in node files: the files come along, whole, whatever the server does meanwhile."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest

from tests.store.changes import change, open_store, run
from tests.store.cold import KEYS, fill, listed, made, node_paths
from tidelog import limits
from tidelog.errors import Corruption
from tidelog.journal.snapshot import list_snapshot_paths, open_snapshot
from tidelog.journal.snapshot_nodes import check_lengths, prove_nodes
from tidelog.store.backup import copy_newest_snapshot, copy_snapshot
from tidelog.testing.disk import SimulatedDisk


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    store = made(disk)
    store.journal.close()
    disk.kill()
    return disk


def in_shards(disk: SimulatedDisk, folder: str) -> dict[str, bytes]:
    return {path.removeprefix(folder): disk.read_file(path) for path in node_paths(disk, folder)}


def test_a_backup_has_the_nodes_and_survives_a_crash(disk: SimulatedDisk) -> None:
    moves: list[tuple[int, int]] = []
    backup = copy_newest_snapshot(disk, "/data", "/backup", lambda done, total: moves.append((done, total)))
    disk.crash("lose_all")
    assert in_shards(disk, "/backup") == in_shards(disk, "/data") != {}
    assert backup.size_bytes > sum(each.length for each in listed(disk))
    assert moves[-1][0] == moves[-1][1] > 0
    for path in node_paths(disk):
        disk.remove(path)
    prove_nodes(disk, open_snapshot(disk, "/backup"))
    assert not disk.exists("/backup.partial")


def test_a_file_that_may_grow_is_copied_as_far_as_it_is_needed(disk: SimulatedDisk) -> None:
    for path in node_paths(disk):
        disk.write_file(path, disk.read_file(path) + b"what came later")
    copy_newest_snapshot(disk, "/data", "/backup")
    lengths = sorted(each.length for each in listed(disk))
    assert sorted(len(data) for data in in_shards(disk, "/backup").values()) == lengths
    disk.flip_bit(node_paths(disk)[0], 800)
    prove_nodes(disk, open_snapshot(disk, "/backup"))


def test_a_full_file_is_linked_where_that_is_possible(disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "NODE_FILE_BYTES_MAX", 100)
    used = disk.used_bytes
    before = disk.bytes_read_by_path.copy()
    copy_newest_snapshot(disk, "/data", "/linked")
    assert all(disk.bytes_read_by_path[path] == before.get(path, 0) for path in node_paths(disk) if path in before)
    disk.fail("link", errno.EXDEV, times=None)
    copy_newest_snapshot(disk, "/data", "/copied")
    assert in_shards(disk, "/copied") == in_shards(disk, "/linked")
    disk.flip_bit(node_paths(disk)[0], 8 * 100)
    with pytest.raises(Corruption):
        prove_nodes(disk, open_snapshot(disk, "/linked"))
    prove_nodes(disk, open_snapshot(disk, "/copied"))
    assert disk.used_bytes > used


def test_damage_is_found_before_it_counts(disk: SimulatedDisk) -> None:
    path = node_paths(disk)[1]
    disk.flip_bit(path, 8 * (len(disk.read_file(path)) - 100))
    with pytest.raises(Corruption, match="checksum of a node") as found:
        copy_newest_snapshot(disk, "/data", "/backup")
    assert found.value.path.startswith("/backup.partial/shard-1/nodes-")
    assert not disk.exists("/backup")
    assert not disk.exists("/backup.partial")


def test_a_file_that_goes_with_its_snapshot_meanwhile_gives_way_to_the_next(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server drops the streams, makes more snapshots and removes what nobody needs, between two files."""
    old = node_paths(disk)
    calls = 0

    def copy(
        disk: SimulatedDisk, snapshot: object, target: str, on_progress: Callable[[int, int], None] | None
    ) -> object:
        nonlocal calls
        calls += 1
        is_over = False

        def move_on(_done: int, _total: int) -> None:
            nonlocal is_over
            if calls == 1 and not is_over:
                is_over = True
                store = open_store(disk, 2)
                for key in KEYS:
                    run(store, [b"DEL", key])
                for seed in range(6):
                    change(store, random.Random(seed))
                    store.save()
                store.journal.close()
                open_store(disk, 2).journal.close()

        return copy_snapshot(disk, snapshot, target, move_on)  # type: ignore[arg-type]

    monkeypatch.setattr("tidelog.store.backup.copy_snapshot", copy)
    backup = copy_newest_snapshot(disk, "/data", "/backup")
    assert calls == 2
    assert not [path for path in old if disk.exists(path)]
    assert f"{backup.ts:016x}" in list_snapshot_paths(disk, "/data")[-1]


def test_a_backup_of_a_backup_of_what_went_on(disk: SimulatedDisk) -> None:
    copy_newest_snapshot(disk, "/data", "/first")
    store = open_store(disk, 2)
    fill(store)
    store.save()
    store.journal.close()
    copy_newest_snapshot(disk, "/data", "/second")
    first, second = open_snapshot(disk, "/first"), open_snapshot(disk, "/second")
    check_lengths(disk, first)
    check_lengths(disk, second)
    assert len(second.point.node_files) > len(first.point.node_files)
    copy_snapshot(disk, first, "/third")
    assert in_shards(disk, "/third") == in_shards(disk, "/first")
