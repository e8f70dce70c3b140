"""The journal of one lineage of a copy, as feeds read it: what a manifest says of it, and no more.

Unlike `shipping.copied_journal`, which shows only the lineage that goes on, this is any of them.
Whoever reads it knows which of its transactions count (`runs`).
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.ids import Cycle, Lsn, Ts
from tidelog.journal.control import Epoch
from tidelog.journal.durability import Visible
from tidelog.journal.layout import read_meta
from tidelog.journal.merge import JournalReader
from tidelog.journal.readable import ReadableJournal
from tidelog.journal.snapshot import open_snapshot, snapshot_path
from tidelog.shipping.copied_journal import shown_epochs
from tidelog.shipping.lineage import Lineage
from tidelog.spark.copies.address import ROOT, OpenedCopy


class _ShippedEnd:
    """`HistoryEnd` of a lineage."""

    def __init__(self, visible: Visible) -> None:
        self.visible = visible


class LineageJournal(ReadableJournal):
    """For one thread."""

    def __init__(self, copy: OpenedCopy, name: str) -> None:
        self._shown = disk = copy.disk(name)
        super().__init__(disk, ROOT, read_meta(disk, ROOT), None)
        self._show(copy, copy.lineage(name))

    def advance(self, copy: OpenedCopy, name: str) -> None:
        """The same lineage as a later manifest has it. What was fetched of it stays."""
        lineage = copy.lineage(name)
        self._shown.advance(lineage)
        self._show(copy, lineage)

    def _show(self, copy: OpenedCopy, lineage: Lineage) -> None:
        self._lineage = lineage
        visible = Visible(Cycle(lineage.cycle), lineage.ts, lineage.lsns, lineage.ends)
        self.writer = _ShippedEnd(visible)
        self.epochs = shown_epochs(copy.manifest.epochs, visible)
        self._begins_ts = lineage.begins_ts or Ts(0)
        self._all_epochs: list[Epoch] | None = None

    @property
    def erased_ts(self) -> Ts:
        return self._begins_ts

    def all_epochs(self) -> list[Epoch]:
        """Also those that the manifest names no more, because so many have begun since. The newest snapshot has them,
        and the journal after it."""
        if self._all_epochs is None:
            self._all_epochs = self._read_epochs()
        return self._all_epochs

    def _read_epochs(self) -> list[Epoch]:
        disk, ends, newest = self._disk, self.writer.visible.ends, {epoch.id for epoch in self.epochs}
        points = [ts for ts in self._lineage.snapshots if ts <= self._lineage.ts]
        found: list[Epoch] = []
        lsns: Sequence[Lsn] = (Lsn(0),) * self.meta.shard_count
        if points:
            snapshot = open_snapshot(disk, snapshot_path(ROOT, max(points)))
            found, lsns = snapshot.epochs(disk), snapshot.point.lsns
        if newest.isdisjoint(epoch.id for epoch in found):
            geometry, shard_count = self.meta.geometry, self.meta.shard_count
            reader = JournalReader(disk, ROOT, geometry, shard_count, lambda: ends, on_epoch=found.append)
            try:
                reader.seek_lsns(lsns)
                for _ in reader.read():
                    if found and found[-1].id in newest:
                        break
            finally:
                reader.close()
        known = {epoch.id: epoch for epoch in [*found, *self.epochs]}
        return list(known.values())
