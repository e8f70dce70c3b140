"""Segments: the files of a shard's folder.

    journal-<first lsn, 16 hex digits>.dj0    at most 64 frames
    blob-<the same>.bin                       its whales, if it has any
    sidecar-<the same>.idx                    what its sealed frames hold (`sidecar`); can be made anew

A segment is known by its first lsn. Lsns are dense over segments, so a missing one shows as a gap between names and
heads. A record never spans two segments.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Final, NamedTuple

from tidelog.ids import Lsn
from tidelog.ports import Disk

_JOURNAL: Final = re.compile(r"journal-([0-9a-f]{16})\.dj0")
_OWNED: Final = re.compile(r"(?:journal-([0-9a-f]{16})\.dj0|blob-([0-9a-f]{16})\.bin|sidecar-([0-9a-f]{16})\.idx)")


class FilePosition(NamedTuple):
    """A place in a shard's files. Positions of one shard compare in the order of the journal."""

    segment: Lsn
    """The first lsn of the segment."""
    at: int
    """Bytes from the start of its file."""


def journal_name(first: Lsn) -> str:
    return f"journal-{first:016x}.dj0"


def blob_name(first: Lsn) -> str:
    return f"blob-{first:016x}.bin"


def sidecar_name(first: Lsn) -> str:
    return f"sidecar-{first:016x}.idx"


def segment_file_names(first: Lsn) -> tuple[str, str, str]:
    """All files that a segment may have, its journal file last."""
    return sidecar_name(first), blob_name(first), journal_name(first)


def list_segments(disk: Disk, folder: str) -> list[Lsn]:
    """The first lsns of the segments in a folder, in order."""
    found = [_JOURNAL.fullmatch(name) for name in disk.list(folder)]
    return sorted(Lsn(int(match[1], 16)) for match in found if match)


def segment_bytes(disk: Disk, folder: str, first: Lsn) -> tuple[int, int]:
    """How large a segment's journal file and its blob file are."""
    sizes = []
    for name in (journal_name(first), blob_name(first)):
        path = f"{folder}/{name}"
        sizes.append(0)
        if disk.exists(path):
            file = disk.open(path, "read")
            sizes[-1] = file.size()
            file.close()
    return sizes[0], sizes[1]


def segment_holding(segments: list[Lsn], lsn: Lsn) -> int:
    """The index of the segment that holds `lsn`, or would; -1 if it lies before all of them."""
    return bisect_right(segments, lsn) - 1


def remove_segment(disk: Disk, folder: str, first: Lsn) -> None:
    """Remove a segment and what lies beside it; the caller syncs the folder.

    The journal file goes last: as long as it is there, so is all that belongs to it, or a crash here is repeated.
    """
    for name in segment_file_names(first):
        path = f"{folder}/{name}"
        if disk.exists(path):
            disk.remove(path)


def owner_of(name: str) -> Lsn | None:
    """The first lsn of the segment that a file name belongs to; None for a name that is not ours."""
    match = _OWNED.fullmatch(name)
    return Lsn(int(next(group for group in match.groups() if group), 16)) if match else None
