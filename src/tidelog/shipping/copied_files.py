"""Which node files of a server lie in its copy, and which of them need not be on its disk.

A file has no age of its own: disks have no clock, and a file that was restored is new. Snapshots in the copy tell it.
One from before a moment that lists the file as it is proves that the file is old. One from after it that does not list
it so proves that it is young. Upkeep thins snapshots out, so there may be neither: such a file stays where it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.ids import Ts
from tidelog.journal.layout import SnapshotPoint
from tidelog.journal.node_format import inner_path, shard_of_inner_path
from tidelog.shipping.archive import Archive
from tidelog.shipping.lineage import ShippedFile


@dataclass(frozen=True, slots=True)
class CopiedFiles:
    """Node files that a manifest names, by their paths in the data directory."""

    old: dict[str, ShippedFile]
    """Those that may go from disk."""
    may_stay_away: dict[str, ShippedFile]
    """Those that need not come back."""


def copied_files(archive: Archive, before: Ts) -> CopiedFiles | None:
    """What is known of the files of the lineage that grows; None: no manifest names a snapshot of it yet.

    `before`: what was then as it is, is old.
    """
    lineage = archive.lineages[-1]
    named = archive.named_snapshots(lineage)
    if not named:
        return None
    lengths = [_lengths(point) for point in named]
    newest = lengths[-1]
    late = [each for each, point in zip(lengths, named, strict=True) if point.ts > before]
    proved: dict[str, int] = {}
    for each in archive.lineages:
        for point in archive.named_snapshots(each):
            if point.ts <= before:
                for path, length in _lengths(point).items():
                    proved[path] = max(length, proved.get(path, 0))
    files = CopiedFiles({}, {})
    for path in lineage.files:
        file = None if shard_of_inner_path(path) is None else archive.named_file(lineage, path)
        if file is None or any(file.missing(0, file.size)):
            continue
        needed = newest.get(path)
        if needed is not None and proved.get(path, -1) >= needed:
            files.old[path] = files.may_stay_away[path] = file
        elif needed is None or all(each.get(path, -1) >= needed for each in late):
            files.may_stay_away[path] = file
    return files


def _lengths(point: SnapshotPoint) -> dict[str, int]:
    return {inner_path(each): each.length for each in point.node_files}
