"""The journal of one lineage of a copy, as feeds read it: what a manifest says of it, and no more.

Unlike `shipping.copied_journal`, which shows only the lineage that goes on, this is any of them, and it never grows.
Whoever reads it knows which of its transactions count (`runs`).
"""

from __future__ import annotations

from tidelog.ids import Cycle, Ts
from tidelog.journal.durability import Visible
from tidelog.journal.layout import read_meta
from tidelog.journal.readable import ReadableJournal
from tidelog.shipping.copied_journal import shown_epochs
from tidelog.spark.copies.address import ROOT, OpenedCopy


class _ShippedEnd:
    """`HistoryEnd` of a lineage."""

    def __init__(self, visible: Visible) -> None:
        self.visible = visible


class LineageJournal(ReadableJournal):
    """For one thread."""

    def __init__(self, copy: OpenedCopy, name: str) -> None:
        lineage = copy.lineage(name)
        disk = copy.disk(name)
        super().__init__(disk, ROOT, read_meta(disk, ROOT), None)
        visible = Visible(Cycle(lineage.cycle), lineage.ts, lineage.lsns, lineage.ends)
        self.writer = _ShippedEnd(visible)
        self.epochs = shown_epochs(copy.manifest.epochs, visible)
        self._begins_ts = lineage.begins_ts or Ts(0)

    @property
    def erased_ts(self) -> Ts:
        return self._begins_ts
