"""What takes longer than a round, in steps of one object: snapshots, full segments, and small objects made one.

A snapshot counts when all of its files are there and the journal has reached it; until then its files lie under
`snapshot-<ts>.partial`. They are in the manifests all the same, so a shipper that is started again goes on with them.

A segment that is full is shipped once more, as few large objects, and so are many small pieces of one that is being
written: a server with few writes would otherwise leave an object for each of them. The bytes stay the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from tidelog import limits
from tidelog.errors import Corruption
from tidelog.ids import Lsn, ShardId, Ts
from tidelog.journal.layout import read_file, shard_folder
from tidelog.journal.node_format import shard_of_inner_path
from tidelog.journal.pins import PinnedSnapshot
from tidelog.journal.segment import blob_name, journal_name, sidecar_name
from tidelog.journal.sidecar import decode_summaries
from tidelog.ports import Disk
from tidelog.shipping.archive import Archive
from tidelog.shipping.dropping import holds
from tidelog.shipping.lineage import NO_FILE, Lineage, ShippedExtent, ShippedFile, snapshot_folder
from tidelog.shipping.uploads import Uploads, stem

_WHOLE: Final = 99
"""The level of extents that are not to be made larger."""


class Bulk:
    """Works for one shipper."""

    def __init__(self, disk: Disk, folder: str, archive: Archive, uploads: Uploads) -> None:
        self._disk = disk
        self._folder = folder
        self._archive = archive
        self._uploads = uploads
        self.snapshot: PinnedSnapshot | None = None
        """The one that is being shipped."""
        self._done: PinnedSnapshot | None = None
        self._needed: set[str] = set()
        """The paths of the snapshot's files ..."""
        self._next = 0
        """... and how many of them are shipped."""
        self._full: deque[str] = deque()
        """Paths of files that are full, and not shipped as such."""
        self._sidecars: deque[tuple[ShardId, Lsn]] = deque()
        """Full segments whose sidecars are not shipped yet: they may still be in the making."""
        self._whole: tuple[str, list[ShippedExtent]] = "", []
        """A full file that is being shipped once more, and what is there of it."""

    def snapshot_bytes_left(self, lineage: Lineage) -> int:
        """What is still to be shipped of the snapshot, if there is one."""
        pinned, left = self.snapshot, 0
        if pinned is not None:
            partial = _partial_folder(pinned.snapshot.point.ts)
            for name, size in pinned.files:
                path = name if shard_of_inner_path(name) is not None else f"{partial}/{name}"
                left += sum(stop - start for start, stop in lineage.file(path).missing(0, size))
        return left

    @property
    def unnamed(self) -> Iterator[str]:
        """Objects that are there, and that no file refers to yet."""
        return (extent.object for extent in self._whole[1])

    def needs(self, path: str) -> bool:
        """Whether a node file belongs to a snapshot that is being shipped."""
        return self.snapshot is not None and path in self._needed

    # --- what there is to do ------------------------------------------------------------------------------------

    def give(self, lineage: Lineage, snapshot: PinnedSnapshot) -> PinnedSnapshot | None:
        """A snapshot to ship, in the place of one that was not finished, which is returned."""
        old, self.snapshot = self.snapshot, snapshot
        self._needed, self._next = {name for name, _ in snapshot.files}, 0
        partial = _partial_folder(snapshot.snapshot.point.ts)
        for path in [path for path in lineage.files if ".partial/" in path and not path.startswith(f"{partial}/")]:
            self._archive.remove_file(lineage, path)
        self._drop_others(lineage, snapshot, partial)
        return old

    def _drop_others(self, lineage: Lineage, snapshot: PinnedSnapshot, partial: str) -> None:
        """What is there of a snapshot of this moment may be of another one: two servers write the same keys in another
        order. Only bytes that are the same are gone on with."""
        sizes = dict(snapshot.files)
        for path in [path for path in lineage.files if path.startswith(f"{partial}/")]:
            name = path.removeprefix(f"{partial}/")
            if name not in sizes:
                self._archive.remove_file(lineage, path)
                continue
            file = snapshot.open(name)
            try:
                same = [each for each in lineage.file(path).extents if holds(file, each)]
            finally:
                file.close()
            if len(same) < len(lineage.file(path).extents):
                self._archive.set_file(lineage, path, ShippedFile(tuple(same)))

    def take_done(self) -> PinnedSnapshot | None:
        done, self._done = self._done, None
        return done

    def drop_snapshot(self) -> PinnedSnapshot | None:
        dropped, self.snapshot = self.snapshot, None
        return dropped

    def sealed(self, lineage: Lineage, shard: ShardId, segment: Lsn) -> None:
        """All of a segment is shipped, and nothing more will be written to it."""
        folder = shard_folder("", shard)[1:]
        for path in (f"{folder}/{journal_name(segment)}", f"{folder}/{blob_name(segment)}"):
            if path in lineage.files and path not in self._full:
                self._full.append(path)
        if (shard, segment) not in self._sidecars:
            self._sidecars.append((shard, segment))

    # --- one step -----------------------------------------------------------------------------------------------

    def step(self, lineage: Lineage) -> bool:
        """Put one object at most; whether something was done."""
        return (
            self._step_snapshot(lineage)
            or self._step_full(lineage)
            or self._step_sidecar(lineage)
            or self._step_small(lineage)
        )

    def _step_snapshot(self, lineage: Lineage) -> bool:
        pinned = self.snapshot
        if pinned is None:
            return False
        point = pinned.snapshot.point
        partial = _partial_folder(point.ts)
        for name, size in pinned.files[self._next :]:
            is_node = shard_of_inner_path(name) is not None
            path = name if is_node else f"{partial}/{name}"
            if is_node and path not in lineage.files:
                self._share(lineage, path, size)
            for start, stop in lineage.file(path).missing(0, size):
                until = min(stop, start + self._uploads.bytes_at_once)
                file = pinned.open(name)
                try:
                    extent = self._uploads.put_bytes(file, start, until, stem(lineage.name, path, start), _WHOLE)
                finally:
                    file.close()
                self._archive.set_file(lineage, path, lineage.file(path).plus(extent))
                return True
            if not size and path not in lineage.files:
                self._archive.set_file(lineage, path, NO_FILE)
            self._next += 1
        if lineage.ts < point.ts:
            return False  # the journal comes first
        for path in [path for path in lineage.files if path.startswith(f"{partial}/")]:
            self._archive.rename_file(lineage, path, snapshot_folder(point.ts) + path.removeprefix(partial))
        lineage.snapshots[point.ts] = point
        if lineage.begins_ts is None:
            lineage.begins_ts = point.ts
        self.snapshot, self._done = None, pinned
        return True

    def _share(self, lineage: Lineage, path: str, size: int) -> None:
        """A node file that another lineage has is not shipped again: one id is one file, wherever it lies."""
        for other in self._archive.lineages:
            if other is not lineage and path in other.files:
                extents = tuple(extent for extent in other.files[path].extents if extent.end <= size)
                self._archive.set_file(lineage, path, ShippedFile(extents))
                return

    def _step_full(self, lineage: Lineage) -> bool:
        while self._full:
            path = self._full[0]
            file = lineage.file(path)
            if self._whole[0] != path:
                self._whole = path, []
            made = self._whole[1]
            start = made[-1].end if made else 0
            if not file.extents or _is_whole(file):
                self._full.popleft()
                continue
            size = file.size
            if start < size:
                until = min(size, start + self._uploads.bytes_at_once)
                name = stem(lineage.name, path, start)
                try:
                    made.append(
                        self._uploads.put_file(self._disk, f"{self._folder}/{path}", start, until, name, _WHOLE)
                    )
                except FileNotFoundError:  # erased here meanwhile: the pieces hold everything, and stay
                    self._full.popleft()
                    self._whole = "", []
                    continue
                return True
            self._archive.set_file(lineage, path, ShippedFile(tuple(made)))
            self._full.popleft()
            self._whole = "", []
            return True
        return False

    def _step_sidecar(self, lineage: Lineage) -> bool:
        """The sidecar of one full segment, if it is complete by now."""
        for _ in range(min(len(self._sidecars), 1)):
            shard, segment = self._sidecars.popleft()
            folder = shard_folder("", shard)[1:]
            path, journal = f"{folder}/{sidecar_name(segment)}", f"{folder}/{journal_name(segment)}"
            local = f"{self._folder}/{path}"
            if path in lineage.files or not self._disk.exists(f"{self._folder}/{journal}"):
                return False
            frames = lineage.file(journal).size // lineage.geometry.frame_bytes
            try:
                data = read_file(self._disk, local) if self._disk.exists(local) else b""
                is_complete = bool(data) and len(decode_summaries(data)) >= frames
            except (Corruption, FileNotFoundError):
                return False  # readers make one anew
            if not is_complete:
                self._sidecars.append((shard, segment))
                return False
            extent = self._uploads.put_file(self._disk, local, 0, len(data), stem(lineage.name, path, 0), _WHOLE)
            self._archive.set_file(lineage, path, ShippedFile((extent,)))
            return True
        return False

    def _step_small(self, lineage: Lineage) -> bool:
        """Make one object of many small ones at the end of a file."""
        for shard, end in enumerate(lineage.ends):
            if end is None:
                continue
            folder = shard_folder("", shard)[1:]
            for path in (f"{folder}/{journal_name(end.segment)}", f"{folder}/{blob_name(end.segment)}"):
                run = _last_run(lineage.file(path), self._uploads.bytes_at_once)
                if run is None:
                    continue
                first, last = run
                name = stem(lineage.name, path, first.position, is_piece=True)
                try:
                    extent = self._uploads.put_file(
                        self._disk, f"{self._folder}/{path}", first.position, last.end, name, first.level + 1
                    )
                except FileNotFoundError:
                    continue
                self._archive.set_file(lineage, path, lineage.file(path).plus(extent))
                return True
        return False


def _partial_folder(ts: Ts) -> str:
    return f"{snapshot_folder(ts)}.partial"


def _is_whole(file: ShippedFile) -> bool:
    """Whether a file is as few objects as it can be."""
    return all(extent.level == _WHOLE for extent in file.extents) or (
        len(file.extents) == 1 and not file.extents[0].position
    )


def _last_run(file: ShippedFile, bytes_max: int) -> tuple[ShippedExtent, ShippedExtent] | None:
    """The first and the last of so many extents of one level, behind each other at the end, that they should be one."""
    extents = file.extents[-limits.SHIPPED_MERGED_COUNT :]
    if len(extents) < limits.SHIPPED_MERGED_COUNT:
        return None
    size, end = 0, extents[0].position
    for extent in extents:
        if extent.level != extents[0].level or extent.position != end:
            return None
        size, end = size + extent.size, extent.end
    return (extents[0], extents[-1]) if size <= bytes_max else None
