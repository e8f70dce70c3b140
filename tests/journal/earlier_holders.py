"""`holders.json`, as earlier versions wrote it."""

from __future__ import annotations

from typing import Any

from tidelog.journal.layout import HOLDERS, write_json
from tidelog.journal.retention import Holder
from tidelog.ports import Disk


def write_holders(disk: Disk, folder: str, *holders: Holder) -> None:
    """Put the file into a data directory or a snapshot."""
    write_json(disk, f"{folder}/{HOLDERS}", {"holders": [_members(holder) for holder in holders]})


def _members(holder: Holder) -> dict[str, Any]:
    return {
        "name": holder.name,
        "ts": holder.ts,
        "moved_us": holder.moved_us,
        "lapsed": holder.lapsed,
        **({"epoch": holder.epoch, "seen": holder.seen} if holder.epoch else {}),
    }
