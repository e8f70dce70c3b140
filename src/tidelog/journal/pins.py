"""Snapshots that somebody reads file by file, and that must stay meanwhile: a full sync sends one as it lies on disk.

Snapshots are removed by the thread that makes them, and pinned by the owner of the journal. Either claims a snapshot
first, in one step (`dict.setdefault`): what is claimed for removal is no longer given out, and what is pinned stays. A
snapshot that became too many while it was pinned goes with the next removal.

As long as it stays, no segment goes that it does not cover. A reader that goes on with the journal after it keeps that
by a holder of its own. The node files that it lists are pinned with it, and are read up to the lengths that it lists.

A snapshot that was found to be damaged is not given out again. It stays on disk until a newer one takes its place, or
one of the same moment.
"""

from __future__ import annotations

import logging
from typing import Final

from tidelog.errors import Corruption, DataDirectoryError, InternalError
from tidelog.ids import Ts
from tidelog.journal.layout import shard_folder
from tidelog.journal.node_files import NodeFiles
from tidelog.journal.node_format import inner_path
from tidelog.journal.segment import list_segments
from tidelog.journal.snapshot import Snapshot, list_snapshot_paths, open_snapshot, remove_snapshot, snapshot_ts
from tidelog.journal.snapshot_nodes import check_length
from tidelog.ports import Disk, File

_LOG: Final = logging.getLogger("tidelog")
_ATTEMPTS_MAX: Final = 3
"""A snapshot goes only when there is a newer one: whoever finds none of those that were listed looks again."""


class _Claim:
    """What a snapshot is claimed for."""

    __slots__ = ("is_removal", "pins")

    def __init__(self, *, is_removal: bool) -> None:
        self.is_removal = is_removal
        self.pins = 0


class SnapshotPins:
    """Who may remove the snapshots of a data directory, and when."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder
        self._claims: dict[str, _Claim] = {}
        """By path."""
        self.node_files: NodeFiles | None = None
        """Those of the directory; None: nobody removes any."""
        self.damaged: set[str] = set()
        """The paths of those that were found to be damaged; whoever replaces one takes its path out, on any thread."""

    def pin(self, until: Ts | None = None) -> PinnedSnapshot | None:
        """The newest snapshot that stays and can be read; None: there is none. For the owner's thread.

        `until`: rather the newest of those that are not younger than this, if there is one and the journal goes on
        from there.
        """
        for _ in range(_ATTEMPTS_MAX):
            paths = list_snapshot_paths(self._disk, self._folder)
            if until is not None:  # those that are too young come last, newest first
                paths.sort(key=lambda path: (snapshot_ts(path) <= until, snapshot_ts(path)))
            for path in reversed(paths):
                if path in self.damaged:
                    continue
                try:
                    pinned = self._pin(path)
                    if pinned is None:
                        continue
                    if until is None or snapshot_ts(path) > until or self._is_followed(pinned.snapshot):
                        return pinned
                    pinned.release()
                except (Corruption, DataDirectoryError) as error:
                    self.distrust(path, str(error))
        return None

    def _is_followed(self, snapshot: Snapshot) -> bool:
        """Whether all of the journal after a snapshot is there. Erasing sees to that; hands that tidy up do not."""
        for shard, lsn in enumerate(snapshot.point.lsns):
            segments = list_segments(self._disk, shard_folder(self._folder, shard))
            if segments and segments[0] > lsn:
                _LOG.warning(
                    "a newer snapshot is taken than %s, and leaves a gap: shard %d has no journal from lsn %d to %d",
                    snapshot.path,
                    shard,
                    lsn,
                    segments[0],
                )
                return False
        return True

    def distrust(self, path: str, problem: str) -> None:
        """Give it out no more. For the owner's thread."""
        if path not in self.damaged:
            _LOG.error("the snapshot %s is damaged, and used no more: %s", path, problem)
            self.damaged.add(path)

    def _pin(self, path: str) -> PinnedSnapshot | None:
        claim = self._claims.setdefault(path, _Claim(is_removal=False))
        if claim.is_removal:
            return None
        claim.pins += 1
        try:
            if self._disk.exists(path):  # it may have gone before it was claimed
                return PinnedSnapshot(self, self._disk, open_snapshot(self._disk, path))
        except BaseException:
            self._release(path)
            raise
        self._release(path)
        return None

    def _release(self, path: str) -> None:
        claim = self._claims[path]
        claim.pins -= 1
        if not claim.pins:
            del self._claims[path]

    def remove_old(self, kept: int) -> None:
        """Remove the oldest but so many, and those that are pinned. On any thread; not beside another removal."""
        for path in list_snapshot_paths(self._disk, self._folder)[:-kept]:
            if self._claims.setdefault(path, _Claim(is_removal=True)).is_removal:
                try:
                    remove_snapshot(self._disk, path)
                finally:
                    del self._claims[path]


class PinnedSnapshot:
    """A snapshot that stays until it is released."""

    def __init__(self, pins: SnapshotPins, disk: Disk, snapshot: Snapshot) -> None:
        self._pins: SnapshotPins | None = pins
        self._disk = disk
        self.snapshot = snapshot
        listed = snapshot.point.node_files
        self._node_paths = {inner_path(each): check_length(disk, snapshot, each) for each in listed}
        """Where the node files that it lists lie, by the paths that they would have inside of it."""
        nodes = [(inner_path(each), each.length) for each in listed]
        self.files = sorted(_list_files(disk, snapshot.path, "") + nodes)
        """Paths inside of it, and their sizes, or what is needed of them; in order."""
        self._pinned = [] if pins.node_files is None else pins.node_files.pin(listed)

    def open(self, name: str) -> File:
        """One of the files, for reading; the caller closes it."""
        if self._pins is None:
            raise InternalError(f"{self.snapshot.path} was released")
        return self._disk.open(self._node_paths.get(name) or f"{self.snapshot.path}/{name}", "read")

    def release(self) -> None:
        """It may go. Releasing twice is fine."""
        pins, self._pins = self._pins, None
        if pins is not None:
            pins._release(self.snapshot.path)
            for file in self._pinned:
                file.pins -= 1


def _list_files(disk: Disk, path: str, prefix: str) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    for name in disk.list(path):
        if name.startswith("shard-"):
            found += _list_files(disk, f"{path}/{name}", f"{prefix}{name}/")
            continue
        file = disk.open(f"{path}/{name}", "read")
        try:
            found.append((f"{prefix}{name}", file.size()))
        finally:
            file.close()
    return sorted(found)
