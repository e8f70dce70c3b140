"""The audit of node files: every damage is named with its place, and with the entries that cannot be read."""

from __future__ import annotations

import random

import pytest

from tests.store.changes import open_store, run
from tests.store.cold import KEYS, fill, listed, made, node_paths
from tests.streams.cold_nodes import cool
from tidelog.journal.node_format import examine_nodes
from tidelog.journal.snapshot import list_snapshot_paths
from tidelog.journal.verify import VerifyReport, verify
from tidelog.store.backup import copy_newest_snapshot
from tidelog.store.type_table import operation_table
from tidelog.testing.disk import SimulatedDisk


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    made(disk).journal.close()
    disk.kill()
    return disk


def audit(disk: SimulatedDisk, folder: str = "/data") -> VerifyReport:
    return verify(disk, folder, operation_table())


def places(disk: SimulatedDisk, path: str) -> list[tuple[int, int]]:
    file = disk.open(path, "read")
    found = [(each.position, each.size) for each in examine_nodes(file, file.size())]
    file.close()
    return found


def test_sound_nodes_are_counted(disk: SimulatedDisk) -> None:
    report = audit(disk)
    assert report.is_sound
    assert (report.nodes, report.lost_nodes, report.notes) == (6, 0, [])


def test_every_kind_of_damage_is_named(disk: SimulatedDisk) -> None:
    path = node_paths(disk)[0]
    [first, second, *_] = places(disk, path)
    for bit in (8 * (first[0] + 20), 8 * first[0], 8 * (first[0] + 3), 8 * (first[0] + 5)):
        hurt = disk.clone(1)
        hurt.flip_bit(path, bit)
        report = audit(hurt)
        assert (report.problems[0].path, report.problems[0].position) == (path, first[0])
        assert "entries 1 to 150 of stream" in report.problems[0].problem
        assert report.refusal is None
        assert not [each for each in report.problems if each.position == second[0]], "the others are looked up"


def test_a_missing_file_keeps_a_server_from_starting(disk: SimulatedDisk) -> None:
    path = node_paths(disk)[0]
    disk.remove(path)
    report = audit(disk)
    assert [each.path for each in report.problems] == [path]
    assert report.refusal is report.problems[0]


def test_an_older_snapshot_needs_its_nodes_too() -> None:
    disk = SimulatedDisk()
    store = made(disk)
    assert store.cooling is not None
    store.cooling.files.close()
    for key in KEYS:
        run(store, [b"DEL", key])
    run(store, [b"SET", b"k", b"v"])
    store.save()
    store.journal.close()
    assert listed(disk) == ()
    path = node_paths(disk)[0]
    disk.flip_bit(path, 8 * 50)
    report = audit(disk)
    assert [each.path for each in report.problems] == [path]
    assert report.refusal is None
    assert len(list_snapshot_paths(disk, "/data")) == 2


def test_files_that_nobody_needs_are_told_of(disk: SimulatedDisk) -> None:
    store = open_store(disk, 2)
    fill(store, 1)
    cool(store)
    store.journal.close()
    report = audit(disk)
    assert report.is_sound
    assert [note[:28] for note in report.notes] == ["no snapshot needs shard-0/no", "no snapshot needs shard-1/no"]


def test_a_backup_is_audited_with_its_nodes(disk: SimulatedDisk) -> None:
    copy_newest_snapshot(disk, "/data", "/backup")
    report = audit(disk, "/backup")
    assert (report.is_sound, report.nodes) == (True, 6)
    [path, _] = node_paths(disk, "/backup")
    disk.flip_bit(path, 8 * 100)
    assert [each.path for each in audit(disk, "/backup").problems] == [path]


@pytest.mark.parametrize("seed", range(20))
def test_any_flipped_bit_that_matters_is_found(seed: int, disk: SimulatedDisk) -> None:
    draw = random.Random(seed)
    path = draw.choice(node_paths(disk))
    position, size = draw.choice(places(disk, path))
    disk.flip_bit(path, draw.randrange(8 * position, 8 * (position + 8 + size)))
    assert not audit(disk).is_sound
