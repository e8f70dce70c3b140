"""The files of a journal that counts only once it is whole."""

from __future__ import annotations

import errno

import pytest

from tidelog.ids import Cycle, Lsn, ShardId, Ts
from tidelog.journal.frame import Geometry
from tidelog.journal.new_files import NewFiles
from tidelog.journal.operation import VAL
from tidelog.journal.record import FINISH, TS
from tidelog.journal.scan import ShardScan
from tidelog.journal.segment import FilePosition
from tidelog.journal.shard_writer import ShardState, ShardWriter
from tidelog.journal.source import ShardSource
from tidelog.testing.disk import SimulatedDisk

GEOMETRY = Geometry(1024, 1)


def filled(disk: SimulatedDisk) -> NewFiles:
    """Some segments with blobs, in two batches."""
    disk.make_folder("/made")
    disk.sync_folder("/")
    files = NewFiles(disk)
    shard = ShardWriter(GEOMETRY, 1, ShardState(None, Lsn(7), Ts(0), 0, 0, 0))
    for cycle in (1, 2):
        for number in range(10):
            shard.add(Ts(100 * cycle + number), VAL, TS | FINISH, bytes(600 if number == 5 else 200), None, 0)
        files.put("/made", shard.end_batch(Cycle(cycle), Ts(100 * cycle + 9), Cycle(0), [shard.next_lsn]))
    return files


def test_what_was_synced_is_there_after_a_power_cut() -> None:
    disk = SimulatedDisk()
    files = filled(disk)
    size = sum(len(disk.read_file(f"/made/{name}")) for name in disk.list("/made"))
    assert files.bytes_written == size
    files.sync()
    disk.sync_folder("/made")
    files.close()
    assert disk.open_paths == []
    disk.crash("lose_all")
    scan = ShardScan(ShardSource(disk, "/made", GEOMETRY, ShardId(0)), 1, FilePosition(Lsn(7), 0), Lsn(7))
    assert [found.mark.ends for found in scan.marks()] == [(17,), (27,)]
    assert scan.damage is None
    assert len([name for name in disk.list("/made") if name.startswith("journal-")]) > 2


def test_files_that_are_no_longer_wanted_need_no_fsync() -> None:
    disk = SimulatedDisk()
    files = filled(disk)

    def refuse() -> None:
        raise OSError(errno.ECANCELED, "no longer wanted")

    before = disk.operations
    with pytest.raises(OSError, match="no longer wanted"):
        files.sync(refuse)
    assert disk.operations == before


def test_a_file_that_is_there_already_is_not_written_over() -> None:
    disk = SimulatedDisk()
    filled(disk).close()
    with pytest.raises(FileExistsError):
        NewFiles(disk).make(f"/made/{disk.list('/made')[0]}")
