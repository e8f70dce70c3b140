"""The journal of a copy, as readers of a journal see it: up to what a manifest calls shipped.

    open      the newest lineage of a manifest: its files through `ShippedDisk`
    advance   a later manifest of the same lineage: more is visible

Only the newest lineage is shown, since only that one goes on. Lsns are the same in all of them, so a follower that has
something of the lineage before goes on in this one, if it reaches back that far. It need not be whole: as long as its
first snapshot is on its way, whoever has what comes before can follow it.

A manifest may name an epoch of which the journal is not shipped yet: it is not shown before that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tidelog.errors import DataDirectoryError
from tidelog.ids import Cycle, Lsn, Ts
from tidelog.journal import layout
from tidelog.journal.beginning import before_first_lsn
from tidelog.journal.control import Epoch
from tidelog.journal.durability import Visible
from tidelog.journal.layout import SnapshotPoint
from tidelog.journal.pins import PinnedSnapshot, SnapshotPins
from tidelog.journal.readable import ReadableJournal
from tidelog.journal.snapshot import SnapshotWriter, snapshot_path
from tidelog.ports import Disk, ObjectStore
from tidelog.shipping.lineage import Lineage
from tidelog.shipping.manifest import Manifest
from tidelog.shipping.shipped_disk import ShippedDisk

_ROOT: Final = "/shipped"


class _ShippedEnd:
    """`HistoryEnd` of a manifest."""

    def __init__(self, visible: Visible) -> None:
        self.visible = visible


class CopiedJournal(ReadableJournal):
    """The newest lineage of one manifest after the other. For one thread."""

    def __init__(self, objects: ObjectStore, manifest: Manifest) -> None:
        """`DataDirectoryError`: there is nothing to be seen yet."""
        lineage = _newest(manifest)
        self._shown = ShippedDisk(objects, manifest.database_id, lineage, _ROOT)
        meta = replace(layout.read_meta(self._shown, _ROOT), database_id=manifest.database_id)
        super().__init__(self._shown, _ROOT, meta, None)
        self._lineage = lineage
        self._end = _ShippedEnd(_visible(lineage))
        self.writer = self._end
        self.epochs = shown_epochs(manifest.epochs, self._end.visible)
        behind_ts = self._end.visible.ts if lineage.begins_ts is None else lineage.begins_ts
        # A directory that was restored counts its lsns anew: an epoch says what came before the first.
        self._begin_ts = max(before_first_lsn(self.epochs), self.find_begin_ts(lineage.lsns, behind_ts))

    @property
    def erased_ts(self) -> Ts:
        return self._begin_ts

    def advance(self, manifest: Manifest) -> bool:
        """Show a later one; false: it goes on with another lineage, so whoever reads has to meet that."""
        lineage, newest = manifest.lineages[-1], self.epochs[-1:]
        if lineage.name != self._lineage.name or lineage.cycle < self._lineage.cycle:
            return False
        visible = _visible(lineage)
        epochs = shown_epochs(manifest.epochs, visible)
        if newest:
            known = [index for index, epoch in enumerate(epochs) if epoch == newest[0]]
            if not known:
                return False
            epochs = epochs[known[0] + 1 :]
        self._lineage = lineage
        self._shown.advance(lineage)
        self._end.visible = visible
        self.epochs += epochs
        return True

    def pin_snapshot(self, scratch: Disk, damaged: set[str]) -> PinnedSnapshot | None:
        """The newest snapshot that is there; None: there is none yet.

        A database that is young has a journal from the beginning on, and no snapshot: then it is an empty one, which is
        made in `scratch`. `damaged`: paths of those that somebody has found so.
        """
        visible = self._end.visible
        pins = SnapshotPins(self._shown, _ROOT)
        pins.damaged = damaged
        pinned = pins.pin(visible.ts)
        if pinned is not None:
            if pinned.snapshot.point.ts <= visible.ts:
                return pinned
            pinned.release()
        return self._pin_empty(scratch) if self._lineage.begins_ts == self._begin_ts == 0 else None

    def _pin_empty(self, scratch: Disk) -> PinnedSnapshot | None:
        zero = (Lsn(0),) * self.meta.shard_count
        first = [epoch for epoch in self.epochs if epoch.lsns == zero]
        if not first:
            return None  # so many starts, and never a snapshot: one will come
        if not scratch.exists(snapshot_path(_ROOT, Ts(0))):
            scratch.make_folder(_ROOT)
            meta = replace(self.meta, point=SnapshotPoint(Ts(0), zero))
            SnapshotWriter(scratch, _ROOT, meta, first).finish()
        return SnapshotPins(scratch, _ROOT).pin()


def _newest(manifest: Manifest) -> Lineage:
    """The lineage that goes on."""
    lineage = manifest.lineages[-1] if manifest.lineages else None
    if lineage is None or not lineage.ends or layout.META not in lineage.files:
        raise DataDirectoryError(f"manifest {manifest.number} has nothing of the server that ships now yet")
    return lineage


def _visible(lineage: Lineage) -> Visible:
    return Visible(Cycle(lineage.cycle), lineage.ts, lineage.lsns, lineage.ends)


def shown_epochs(epochs: Sequence[Epoch], visible: Visible) -> list[Epoch]:
    """Those that had begun by then, as far as the manifest names them."""
    return [
        epoch
        for epoch in epochs
        if epoch.last_ts <= visible.ts and all(a <= b for a, b in zip(epoch.lsns, visible.lsns, strict=True))
    ]
