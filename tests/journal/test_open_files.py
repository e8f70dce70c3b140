"""The files of a writer: when the names of segments are durable."""

from __future__ import annotations

from tests.journal.machine import FOLDER, Machine
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.open_files import OpenFiles
from tidelog.testing.disk import SimulatedDisk

SHARD = f"{FOLDER}/shard-0"


def opened() -> tuple[SimulatedDisk, OpenFiles]:
    disk = SimulatedDisk()
    for folder in (FOLDER, SHARD):
        disk.make_folder(folder)
    disk.sync_folder("/")
    disk.sync_folder(FOLDER)
    return disk, OpenFiles(disk)


def test_a_segment_is_made_when_the_name_of_the_one_before_is_durable() -> None:
    disk, files = opened()
    files.get(SHARD, f"{SHARD}/journal-0.dj0")
    files.get(SHARD, f"{SHARD}/journal-1.dj0")
    disk.crash("lose_all")
    assert disk.list(SHARD) == ["journal-0.dj0"]


def test_also_while_an_fsync_is_under_way() -> None:
    disk, files = opened()
    files.get(SHARD, f"{SHARD}/journal-0.dj0")
    files.begin_sync(with_files=True)
    files.get(SHARD, f"{SHARD}/journal-1.dj0")
    disk.crash("lose_all")
    assert disk.list(SHARD) == ["journal-0.dj0"]


def test_an_fsync_has_what_was_written_since_the_last_one() -> None:
    disk, files = opened()
    first = files.get(SHARD, f"{SHARD}/journal-0.dj0")
    assert files.begin_sync(with_files=False) == ([], [SHARD])
    assert files.begin_sync(with_files=True) == ([(f"{SHARD}/journal-0.dj0", first)], [])
    assert files.begin_sync(with_files=True) == ([], [])
    files.end_sync()
    files.close()
    assert disk.open_paths == []


def test_under_never_names_become_durable_in_the_background() -> None:
    machine = Machine(shards=1, policy=FsyncPolicy.NEVER, frames_per_segment=1)
    while len(machine.segments()) < 2:
        machine.write((0, b"k", bytes(200)))
    assert machine.journal.writer.sync_is_due(10**12)
    machine.journal.writer.sync(everything=False)
    machine.disk.crash("lose_all")
    assert len(machine.segments()) == 2
