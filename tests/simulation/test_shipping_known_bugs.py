"""Bugs that another tool for copies of this kind had, each as a case of its own."""

from __future__ import annotations

from random import Random

import pytest

from tests.shipping.copies import Shipped, fetched, restored
from tests.store.changes import run, state
from tidelog import limits
from tidelog.errors import ObjectGone
from tidelog.ports import ObjectStore
from tidelog.shipping.manifest_log import ManifestLog
from tidelog.shipping.point import point_of
from tidelog.shipping.shipper import Shipper
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.object_store import SimulatedBucket


@pytest.fixture
def bucket() -> SimulatedBucket:
    return SimulatedBucket(SimulatedClock(), Random(1))


def work(shipper: Shipper) -> None:
    while shipper.work():
        pass


def test_any_moment_can_be_restored_after_small_objects_were_made_large(
    bucket: SimulatedBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restore looked for the small object of its moment, and found a large one that went on after it."""
    monkeypatch.setattr(limits, "SHIPPED_MERGED_COUNT", 2)
    shipped = Shipped(bucket.client())
    shipped.begin()
    for _ in range(12):
        shipped.change(8)
        shipped.ship()
        work(shipped.shipper)
    shipped.clock.advance(11_000_000)
    shipped.ship()
    for _ in range(2):  # a day later the small ones are gone
        shipped.clock.advance(limits.SHIP_NOTICE_US + limits.SHIP_SWEEP_US)
        work(shipped.shipper)
        shipped.ship()
    assert shipped.shipper._upkeep.deleted_count > 5
    for ts in list(shipped.states)[::5]:
        assert restored(bucket.client(), shipped.newest, ts) == shipped.at(ts)


def test_what_a_restored_server_writes_is_shipped(bucket: SimulatedBucket) -> None:
    """A restored database forgot how far it was shipped, took new changes for old ones, and skipped them."""
    shipped = Shipped(bucket.client())
    shipped.begin()
    shipped.change(40)
    shipped.ship()
    objects: ObjectStore = bucket.client()
    disk, store = fetched(objects, shipped.newest)
    log = ManifestLog(objects, store.journal.meta.database_id)
    for count in range(3):
        # Each life of it is a takeover, from what it finds.
        shipper = Shipper(disk, "/data", store.journal.meta, objects, shipped.clock)
        store.journal.writer.write()
        assert store.journal.writer.note_blob_extents()
        store.journal.writer.sync()
        shipper.take_over(point_of(store.journal))
        run(store, [b"SET", b"after", b"%d" % count])
        run(store, [b"SET", b"whale", bytes(5000 + count)])
        store.journal.writer.write()
        store.journal.writer.sync()
        shipper.ship(point_of(store.journal))
        manifest = log.newest()
        assert manifest is not None
        assert restored(objects, manifest) == state(store)


def test_a_restore_that_is_under_way_finds_its_files_for_a_day(
    bucket: SimulatedBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention deleted what a restore had listed, and was about to read."""
    monkeypatch.setattr(limits, "SHIPPED_MERGED_COUNT", 2)
    shipped = Shipped(bucket.client(), seed=3)
    shipped.shipper = Shipper(
        shipped.disk, "/data", shipped.journal.meta, shipped.objects, shipped.clock, keep_us=limits.HOUR_US
    )
    shipped.begin()
    shipped.change(60)
    shipped.save()
    began, expected = shipped.newest, state(shipped.store)
    for _ in range(11):  # everything that the manifest names is replaced, or too old, by now
        shipped.clock.advance(2 * limits.HOUR_US)
        shipped.change(60)
        shipped.save()
    assert restored(bucket.client(), began) == expected
    for _ in range(20):
        shipped.clock.advance(2 * limits.HOUR_US)
        shipped.change(5)
        shipped.save()
    with pytest.raises(ObjectGone):
        restored(bucket.client(), began)
