"""A full sync takes the place of what a data directory held.

    DIR/sync/             a data directory in the making: snapshot, journal behind it, meta.json
    DIR/sync/complete     all of it is there and durable: from here on it counts, whatever happens
    DIR/sync/moving       all that was there before has been moved to DIR/replaced/

    complete   what was there before is moved out    ┐ each step can be repeated: a crash leaves the marker, and the
    moving     what has landed is moved in           │ next start goes on (`finish_replacement`)
               `replaced/` is set aside or removed   ┘
    (none)     it is done

Only history is replaced. What belongs to the server stays: its lock, its clock, its role, and what was set aside.
"""

from __future__ import annotations

from typing import Final

from tidelog.journal import layout
from tidelog.journal.layout import read_json, write_json
from tidelog.ports import Disk

_COMPLETE: Final = "complete"
_MOVING: Final = "moving"
_HISTORY: Final = (layout.META, layout.ERASED, layout.HOLDERS, layout.SNAPSHOTS)


def _is_history(name: str) -> bool:
    return name in _HISTORY or name.startswith("shard-")


def mark_complete(disk: Disk, folder: str, *, keeps_old: bool) -> None:
    """All of `sync/` is durable: it takes the place of what is there. `keeps_old`: that is set aside, not removed."""
    write_json(disk, f"{folder}/{layout.SYNC}/{_COMPLETE}", {"keeps_old": keeps_old})


def is_replacing(disk: Disk, folder: str) -> bool:
    sync = f"{folder}/{layout.SYNC}"
    return any(disk.exists(f"{sync}/{marker}") for marker in (_COMPLETE, _MOVING))


def finish_replacement(disk: Disk, folder: str) -> str | None:
    """Replace what is there, if a full sync has landed; returns where the old is kept, if it is. Call it before
    anything of the directory is read, and with nobody else in it: it takes the lock."""
    if not is_replacing(disk, folder):
        return None
    lock = layout.lock_directory(disk, folder)
    try:
        return _replace(disk, folder)
    finally:
        lock.release()


def _replace(disk: Disk, folder: str) -> str | None:
    sync, replaced = f"{folder}/{layout.SYNC}", f"{folder}/{layout.REPLACED}"
    complete, moving = f"{sync}/{_COMPLETE}", f"{sync}/{_MOVING}"
    if disk.exists(complete):
        disk.make_folder(replaced)
        for name in filter(_is_history, disk.list(folder)):
            disk.rename(f"{folder}/{name}", f"{replaced}/{name}")
        disk.sync_folder(replaced)
        disk.sync_folder(folder)
        disk.rename(complete, moving)
        disk.sync_folder(sync)
    keeps_old = read_json(disk, moving)["keeps_old"]
    for name in filter(_is_history, disk.list(sync)):
        disk.rename(f"{sync}/{name}", f"{folder}/{name}")
    disk.sync_folder(folder)
    disk.sync_folder(sync)
    kept = None
    if keeps_old:
        kept = _set_aside(disk, folder, replaced)
    elif disk.exists(replaced):
        remove_folder(disk, replaced)
    disk.sync_folder(folder)
    remove_folder(disk, sync, last=_MOVING)
    disk.sync_folder(folder)
    return kept


def _set_aside(disk: Disk, folder: str, replaced: str) -> str | None:
    if not disk.exists(replaced):
        return None
    number = 1
    while disk.exists(f"{folder}/set-aside-{number}"):
        number += 1
    disk.rename(replaced, f"{folder}/set-aside-{number}")
    return f"{folder}/set-aside-{number}"


def remove_folder(disk: Disk, path: str, last: str = "") -> None:
    """Remove a folder with all that is in it; one name goes when everything else has gone."""
    for name in disk.list(path):
        if name != last:
            _remove(disk, f"{path}/{name}")
    disk.sync_folder(path)
    if last:
        disk.remove(f"{path}/{last}")
    disk.remove(path)


def _remove(disk: Disk, path: str) -> None:
    try:
        disk.remove(path)
    except OSError:  # a folder that is not empty
        remove_folder(disk, path)
