"""A data directory, found or made: before anything of its journal is looked at.

A directory has an id of its own, by which servers that replicate from each other tell whether they have the same one.
It is made of the moment and of a number that was drawn, which is also the id of its first epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tidelog.errors import DataDirectoryError
from tidelog.journal import layout
from tidelog.journal.frame import Geometry
from tidelog.journal.layout import Meta
from tidelog.journal.segment import list_segments
from tidelog.ports import Clock, Disk


def find_or_make(
    disk: Disk,
    folder: str,
    geometry: Geometry,
    shard_count: int,
    clock: Clock,
    draw: Callable[[], int],
    database_id: str = "",
) -> Meta:
    """What a directory says of itself; one that is empty is made. It is locked.

    A directory of an earlier version, or one that was restored, gets its id here. So does one that is to be a database
    of its own from now on: the process that decided so may have died before it came to that.
    """
    if disk.exists(f"{folder}/{layout.RESTORING}"):
        raise DataDirectoryError(
            f"{folder} was being filled by a restore that did not finish: run `tidelog restore` on it again (it begins "
            f"anew), or remove the directory"
        )
    if disk.exists(f"{folder}/{layout.META}"):
        disk.sync_folder(folder)  # who made it may have been killed before its name was durable
        meta = layout.read_meta(disk, folder)
        if not meta.database_id and meta.point is None:
            meta = replace(meta, database_id=database_id or new_database_id(clock, draw))
            layout.write_meta(disk, folder, meta)
        elif database_id and meta.database_id != database_id:
            meta = replace(meta, database_id=database_id)
            layout.write_meta(disk, folder, meta)
        return meta
    # A crash while making the directory leaves some of these; anything else is somebody else's.
    ours = {layout.LOCK, layout.SNAPSHOTS, f"{layout.META}.new", layout.ROLE, f"{layout.ROLE}.new"}
    strange = [name for name in disk.list(folder) if name not in ours and not name.startswith("shard-")]
    if strange:
        raise DataDirectoryError(
            f"{folder} is not a data directory of Tidelog and not empty (it has {strange[0]!r}): name another one"
        )
    for name in disk.list(folder):
        if name.startswith("shard-") and list_segments(disk, f"{folder}/{name}"):
            raise DataDirectoryError(f"{folder}/{name} has a journal, but {layout.META} is missing: restore it too")
    return layout.create_directory(disk, folder, geometry, shard_count, database_id or new_database_id(clock, draw))


def new_database_id(clock: Clock, draw: Callable[[], int]) -> str:
    return f"{clock.wall_us():016x}{draw():016x}"
