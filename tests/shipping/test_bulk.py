"""What is left of a snapshot that another server began to ship."""

from __future__ import annotations

from random import Random

from tests.shipping.copies import Shipped, restored
from tests.store.changes import state
from tidelog.shipping.bulk import Bulk
from tidelog.shipping.lineage import ShippedFile
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.object_store import SimulatedBucket


def test_a_partial_snapshot_of_the_same_moment_counts_only_if_its_bytes_are_the_same() -> None:
    bucket = SimulatedBucket(SimulatedClock(), Random(1))
    shipped = Shipped(bucket.client(), 1)
    shipped.begin()
    shipped.change(30)
    shipped.ship()
    shipped.store.save()
    pinned = shipped.journal.pin_snapshot()
    assert pinned is not None
    shipper, lineage = shipped.shipper, shipped.shipper.lineages[-1]
    folder = f"snapshots/snapshot-{pinned.snapshot.point.ts:016x}.partial"
    name, size = next((name, size) for name, size in pinned.files if size > 100)
    foreign = shipper._uploads.put("foreign", bytes(100))
    extent = shipper._uploads.put_bytes(pinned.open(name), 0, 100, "x")._replace(object=foreign, digest="0" * 16)
    shipper._archive.set_file(lineage, f"{folder}/{name}", ShippedFile((extent,)))

    shipper.give(pinned)
    while shipper.work():
        pass
    shipped.clock.advance(11_000_000)
    shipped.ship()

    file = lineage.file(f"{folder.removesuffix('.partial')}/{name}")
    assert file.size == size
    assert foreign not in {each.object for each in file.extents}
    assert restored(bucket.client(), shipped.newest) == state(shipped.store)


def test_a_long_list_of_files_is_gone_through_once() -> None:
    """A snapshot may list tens of thousands of node files, most of which are shipped already."""
    bucket = SimulatedBucket(SimulatedClock(), Random(1))
    shipped = Shipped(bucket.client(), 3)
    shipped.begin()
    shipped.change(60)
    shipped.ship()
    shipped.store.save()
    pinned = shipped.journal.pin_snapshot()
    assert pinned is not None
    shipped.shipper.give(pinned)
    bulk: Bulk = shipped.shipper._bulk
    seen = []
    while bulk.snapshot is not None:
        assert bulk.step(shipped.shipper.lineages[-1])
        seen.append(bulk._next)
    assert seen == sorted(seen)
    assert seen[-1] == len(pinned.files)
