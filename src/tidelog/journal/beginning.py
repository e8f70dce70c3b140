"""Whether a journal has everything since there was nothing, so that it shows any moment without a snapshot.

A segment of lsn 0 does not prove that. A directory that was restored, or filled by a full sync, begins with a snapshot
and counts its lsns anew from there. It is known by the erased-through ts, by that snapshot as long as it is there, and
by its first epoch, which names the transaction before lsn 0.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from tidelog.errors import Corruption
from tidelog.hlc import read_stored_ts
from tidelog.ids import Ts
from tidelog.journal.control import Epoch
from tidelog.journal.layout import ERASED, shard_folder
from tidelog.journal.segment import list_segments
from tidelog.journal.snapshot import list_snapshot_paths, open_snapshot
from tidelog.ports import Disk


def has_beginning(disk: Disk, folder: str, shard_count: int) -> bool:
    """Whether the files of a data directory reach back to its first transaction. `Corruption`: that cannot be told."""
    if disk.exists(f"{folder}/{ERASED}"):
        stored = read_stored_ts(disk, folder, ERASED)
        if stored is not None and stored.ts:
            return False
    points = []
    for path in list_snapshot_paths(disk, folder):
        with contextlib.suppress(Corruption):
            points.append(open_snapshot(disk, path).point)
    if any(point.ts and not any(point.lsns) for point in points):
        return False  # it was restored, and began with this
    for shard in range(shard_count):
        segments = list_segments(disk, shard_folder(folder, shard))
        if segments[0] > 0 if segments else any(point.lsns[shard] for point in points):
            return False
    return True


def before_first_lsn(epochs: Iterable[Epoch]) -> Ts:
    """The last transaction before lsn 0, which no journal has; 0: there was none, as far as these epochs tell."""
    return max((epoch.last_ts for epoch in epochs if not any(epoch.lsns)), default=Ts(0))
