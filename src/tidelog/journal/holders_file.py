"""`holders.json`, in which earlier versions kept named holders: in data directories, and in snapshots of them.

Now they are records (`types/hold.py`). A leader that finds the file takes over what it says, and removes it; a follower
leaves it where it is. It is never written.
"""

from __future__ import annotations

from tidelog.errors import Corruption
from tidelog.ids import Ts
from tidelog.journal.layout import HOLDERS, read_json
from tidelog.journal.retention import Holder
from tidelog.ports import Disk


def has_holders_file(disk: Disk, folder: str) -> bool:
    return disk.exists(f"{folder}/{HOLDERS}")


def read_holders_file(disk: Disk, folder: str) -> list[Holder]:
    """What the file says; without one, nothing."""
    path = f"{folder}/{HOLDERS}"
    if not disk.exists(path):
        return []
    try:
        return [
            Holder(
                stored["name"],
                Ts(stored["ts"]),
                stored["moved_us"],
                stored["lapsed"],
                stored.get("epoch", 0),
                Ts(stored.get("seen", 0)),
            )
            for stored in read_json(disk, path)["holders"]
        ]
    except (KeyError, TypeError, AttributeError) as error:
        raise Corruption(f"it does not list holders ({error})", path=path) from None


def remove_holders_file(disk: Disk, folder: str) -> None:
    """For good."""
    disk.remove(f"{folder}/{HOLDERS}")
    disk.sync_folder(folder)
