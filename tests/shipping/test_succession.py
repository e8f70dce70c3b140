"""Where the history before a takeover ends."""

from __future__ import annotations

from tests.shipping.copies import Shipped, objects, succeeded
from tidelog.ids import Lsn, Ts
from tidelog.journal.control import Epoch
from tidelog.journal.durability import Visible
from tidelog.journal.frame import Geometry
from tidelog.journal.layout import Meta
from tidelog.ports import ObjectStore
from tidelog.shipping.lineage import Lineage
from tidelog.shipping.manifest import Manifest
from tidelog.shipping.point import ShipPoint
from tidelog.shipping.succession import cut_ts, goes_on, journal_begins_ts
from tidelog.testing.disk import SimulatedDisk

__all__ = ["objects"]

FIRST, LOST, MINE, NEXT = (
    Epoch(id_, (Lsn(0),), Ts(last), Ts(last + 1)) for id_, last in ((1, 0), (2, 50), (3, 40), (4, 60))
)


def cut(shipped: tuple[Epoch, ...], ours: tuple[Epoch, ...]) -> Ts | None:
    manifest = Manifest(1, 0, "db", 0, Ts(0), Ts(0), shipped, (), "")
    durable: Visible = None  # type: ignore[assignment]  # it plays no part
    return cut_ts(manifest, ShipPoint(durable, (), ours, Ts(0), Ts(0)))


def test_at_the_first_epoch_that_is_new() -> None:
    assert cut((FIRST,), (FIRST,)) is None
    assert cut((FIRST,), (FIRST, MINE, NEXT)) == 40


def test_a_restored_directory_may_lack_an_epoch_that_had_begun() -> None:
    """All of the history before would end at its very beginning otherwise."""
    assert cut((FIRST, LOST), (FIRST, MINE)) == 40


def test_histories_with_nothing_in_common() -> None:
    assert cut((LOST,), (MINE, NEXT)) == 40


def test_a_directory_that_goes_on_with_a_copy_gives_out_nothing_up_to_the_bound_of_its_clock(
    objects: ObjectStore,
) -> None:
    """Also if history had to be cut out of a lineage, and was not fetched file by file."""
    shipped = Shipped(objects)
    shipped.begin()
    shipped.change(10)
    shipped.ship()
    successor = succeeded(shipped, finishes=False)

    bound = shipped.log.get(shipped.shipper.manifest_number)
    assert bound is not None
    assert bound.clock_bound > shipped.journal.writer.written_ts
    assert successor.journal.epochs[-1].first_ts > bound.clock_bound


def test_where_the_journal_of_a_directory_begins() -> None:
    """One that was restored has lsns of its own, from 0 on."""
    durable: Visible = None  # type: ignore[assignment]
    later = Epoch(9, (Lsn(7),), Ts(90), Ts(91))
    assert journal_begins_ts(ShipPoint(durable, (), (FIRST, later), Ts(0), Ts(0))) == 0
    restored = ShipPoint(durable, (), (FIRST, LOST, later), Ts(0), Ts(0))
    assert journal_begins_ts(restored) == 50

    geometry = Geometry(4096, 4)
    lineage = Lineage("one", geometry, 1, begins_ts=Ts(0), first_segments=(Lsn(0),))
    meta = Meta(geometry, ((0, 16383),))
    assert not goes_on(SimulatedDisk(), "/data", meta, lineage, restored), "it has nothing from before"
