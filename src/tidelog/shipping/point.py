"""What a shipper is told of the journal: how far it is durable, and what else a manifest says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidelog.ids import Ts
from tidelog.journal.control import Epoch
from tidelog.journal.durability import BlobExtent, Visible
from tidelog.journal.journal import Journal


class ShipPoint(NamedTuple):
    """A moment of a journal up to which everything is durable."""

    durable: Visible
    extents: Sequence[BlobExtent]
    """Bytes of blob files that records up to here refer to, since the last point."""
    epochs: Sequence[Epoch]
    """All that are known, oldest first."""
    closed_ts: Ts
    """Nothing at or below it is still to come."""
    clock_bound: Ts


def point_of(journal: Journal) -> ShipPoint:
    """The one of now. For the owner's thread, between transactions."""
    writer = journal.writer
    durable = writer.durable
    closed_ts = durable.ts
    if journal.leads and durable.ts >= writer.last_ts:
        journal.hlc.catch_up()  # so that the next ts lies above this moment
        closed_ts = max(durable.ts, journal.hlc.last)
    extents = writer.take_blob_extents(durable.cycle)
    return ShipPoint(durable, extents, tuple(journal.epochs), closed_ts, journal.hlc.bound)
