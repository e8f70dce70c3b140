"""What a full sync leaves on disk."""

from __future__ import annotations

from typing import Final

import pytest
from crc32c import crc32c

from tidelog.ids import Ts
from tidelog.journal.snapshot import snapshot_path
from tidelog.replication.landing_disk import PROGRESS, LandingDisk
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import CRASH_STYLES, CrashStyle, SimulatedCrash, SimulatedDisk

TS: Final = Ts(1000)
FOLDER: Final = "data"
SYNC: Final = f"{FOLDER}/sync"
FILES: Final = {"meta.json": b"a description", "shard-0/journal": b"some records", "shard-1/journal": b"some more"}


def landed(seed: int) -> tuple[SimulatedDisk, LandingDisk]:
    """A full sync of which some files are whole."""
    disk = SimulatedDisk(seed)
    disk.make_folder(FOLDER)
    disk.sync_folder("")
    landing = LandingDisk(disk, FOLDER, SimulatedClock())
    landing.begin(TS, keeps_files=False)
    for name, data in FILES.items():
        landing.write(TS, name, 0, data)
        landing.end_file(TS, name, len(data))
    landing.write_progress(TS, [(name, len(data), crc32c(data)) for name, data in FILES.items()])
    return disk, landing


def require_what_is_called_whole(disk: SimulatedDisk) -> None:
    for name, data in FILES.items() if disk.exists(f"{SYNC}/{PROGRESS}") else ():
        assert disk.read_file(f"{snapshot_path(SYNC, TS)}/{name}") == data


@pytest.mark.parametrize("style", CRASH_STYLES)
@pytest.mark.parametrize("next_ts", [None, Ts(2000)])
def test_a_removal_that_is_cut_short_leaves_nothing_that_is_called_whole_and_is_not(
    style: CrashStyle, next_ts: Ts | None
) -> None:
    """`next_ts`: of the snapshot that comes instead; None: none does."""
    operations = 0
    while True:
        operations += 1
        disk, landing = landed(operations)
        require_what_is_called_whole(disk)
        disk.crash_after(operations)
        try:
            landing.remove() if next_ts is None else landing.begin(next_ts, keeps_files=True)
        except SimulatedCrash:
            disk.crash(style)
        else:
            break
        require_what_is_called_whole(disk)
    assert operations > 5
    assert not disk.exists(snapshot_path(SYNC, TS))
