"""What lies in an object store: files, as runs of bytes that are objects, and lineages of files.

    lineage    a data directory as one server has written it: the same paths, the same bytes
      file       one of its files: extents, in order; between extents a blob file may have holes that nobody reads
        extent     bytes of the file that are one object

Lsns are the same on a leader and on the followers that take over from it, but frames and segments fall differently. So
a server goes on with a lineage only if its own files hold the very bytes that were shipped last; otherwise it begins a
new one, with a snapshot of its own. Of two lineages, the older one is history up to the `ends_ts` that the newer one
gave it when it began: what the older one has beyond was lost in a failover.

A file only grows, and its extents are only ever replaced by one with the same bytes. So whatever a manifest says of a
file stays true.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

from tidelog.ids import Cycle, Lsn, Ts
from tidelog.journal.frame import Geometry
from tidelog.journal.layout import SNAPSHOTS, SnapshotPoint
from tidelog.journal.segment import FilePosition


def new_digest() -> blake2b:
    """What extents are told apart by, and proved.

    Not CRC32C: batches of a journal end with their own, and the CRC of bytes that end so is the same for all of them.
    """
    return blake2b(digest_size=8)


class ShippedExtent(NamedTuple):
    """Bytes of a file that are one object."""

    position: int
    """Where they begin in the file."""
    size: int
    object: str
    """Its name below the database."""
    digest: str
    """Of the bytes (`new_digest`)."""
    level: int = 0
    """How often it was made of smaller ones."""

    @property
    def end(self) -> int:
        return self.position + self.size


class ShippedFile(NamedTuple):
    """What is known of one file."""

    extents: tuple[ShippedExtent, ...]
    """In order; they do not overlap."""

    @property
    def size(self) -> int:
        """Where its last extent ends."""
        return self.extents[-1].end if self.extents else 0

    def missing(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """What is not there of the bytes from `start` to `end`, as starts and ends."""
        for extent in self.extents:
            if extent.end <= start:
                continue
            if extent.position >= end:
                break
            if extent.position > start:
                yield start, extent.position
            start = extent.end
        if start < end:
            yield start, end

    def plus(self, extent: ShippedExtent) -> ShippedFile:
        """With one more extent, in the place of those that it covers."""
        kept = [each for each in self.extents if each.end <= extent.position or each.position >= extent.end]
        return ShippedFile(tuple(sorted([*kept, extent])))

    def minus(self, extent: ShippedExtent) -> ShippedFile:
        """Without one of its extents."""
        return ShippedFile(tuple(each for each in self.extents if each != extent))


NO_FILE = ShippedFile(())


@dataclass(slots=True)
class Lineage:
    """The files of one server, as far as they are shipped."""

    name: str
    """The epoch in which it began, and the lease; also the folder of its journal."""
    geometry: Geometry
    shard_count: int
    begins_ts: Ts | None = None
    """The earliest moment that it can show; 0: the beginning; None: none yet, its first snapshot is not there."""
    ends_ts: Ts | None = None
    """The last moment that is still history; None: there is no newer lineage."""
    ts: Ts = Ts(0)
    """The last transaction in it."""
    cycle: Cycle = Cycle(0)
    lsns: tuple[Lsn, ...] = ()
    """Per shard, the first lsn that is not in it ..."""
    ends: tuple[FilePosition | None, ...] = ()
    """... and where its journal ends. Extents may lie beyond: they count once a later manifest says so."""
    first_segments: tuple[Lsn, ...] = ()
    """Per shard, where its journal begins."""
    snapshots: dict[Ts, SnapshotPoint] = field(default_factory=dict)
    """Those that are there, oldest first."""
    files: dict[str, ShippedFile] = field(default_factory=dict)
    """By their paths in the data directory."""

    def file(self, path: str) -> ShippedFile:
        return self.files.get(path, NO_FILE)

    def objects(self) -> Iterator[str]:
        """The names of all objects that it refers to."""
        for file in self.files.values():
            for extent in file.extents:
                yield extent.object

    @property
    def history_ts(self) -> Ts:
        """The last moment that it can show."""
        return self.ts if self.ends_ts is None else min(self.ts, self.ends_ts)

    @property
    def shown_ts(self) -> Ts:
        """The same for restores; 0: it shows no moment yet, as its first snapshot or its journal is not there."""
        return self.history_ts if self.begins_ts is not None and self.ends else Ts(0)


def snapshot_folder(ts: Ts) -> str:
    """Where a snapshot lies in a data directory."""
    return f"{SNAPSHOTS}/snapshot-{ts:016x}"


def total_bytes(lineages: Iterable[Lineage]) -> int:
    """What their objects hold, each counted once: lineages may share node files."""
    sizes = {extent.object: extent.size for each in lineages for file in each.files.values() for extent in file.extents}
    return sum(sizes.values())
