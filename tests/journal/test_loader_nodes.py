"""A start with node files: what a snapshot lists must be there, and nothing of it is read."""

from __future__ import annotations

import pytest

from tests.store.changes import open_store, state
from tests.store.cold import fill, listed, made, node_paths
from tidelog.errors import Corruption
from tidelog.testing.disk import SimulatedDisk


def contents(disk: SimulatedDisk, folder: str = "/data") -> dict[str, bytes]:
    """Every file below a folder."""
    found = {}
    for name in disk.list(folder):
        path = f"{folder}/{name}"
        try:
            found[path] = disk.read_file(path)
        except IsADirectoryError:
            found |= contents(disk, path)
    return found


def stopped() -> SimulatedDisk:
    disk = SimulatedDisk()
    store = made(disk)
    store.journal.writer.write()
    disk.kill()
    return disk


@pytest.mark.parametrize("damage", ["missing", "shorter"])
def test_a_listed_file_that_is_not_there_is_refused_before_anything_changes(damage: str) -> None:
    disk = stopped()
    path = node_paths(disk)[0]
    if damage == "missing":
        disk.remove(path)
    else:
        disk.write_file(path, disk.read_file(path)[:-8])
    before = contents(disk)
    with pytest.raises(Corruption, match=r"this file of nodes .* needs \d+ bytes of it") as refusal:
        open_store(disk, 2)
    assert refusal.value.path == path
    disk.kill()
    assert contents(disk) | {"/data/lock": b""} == before | {"/data/lock": b""}


def test_what_a_crash_left_behind_the_listed_length_is_left_alone() -> None:
    disk = SimulatedDisk()
    store = made(disk)
    known = state(store)
    disk.kill()
    for path in node_paths(disk):
        disk.write_file(path, disk.read_file(path) + b"\1\2\3torn")
    again = open_store(disk, 2)
    assert state(again) == known
    fill(again)
    again.save()
    assert len(listed(disk)) > 2, "a process begins files of its own"
    known = state(again)
    disk.kill()
    assert state(open_store(disk, 2)) == known


def test_a_start_reads_no_nodes() -> None:
    disk = stopped()
    disk.bytes_read_by_path.clear()
    open_store(disk, 2)
    assert not [path for path in disk.bytes_read_by_path if "/nodes-" in path]
