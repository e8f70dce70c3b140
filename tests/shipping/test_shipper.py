"""What is shipped can be had back, at any moment; and of two shippers, one stops."""

from __future__ import annotations

from random import Random

import pytest

from tests.shipping.copies import FOLDER, Shipped, fetched, objects, restored, succeeded
from tests.store.changes import run, state
from tidelog import limits
from tidelog.errors import DataDirectoryError, ShippingError, ShippingFenced, ShippingGap
from tidelog.ids import Lsn, Ts
from tidelog.journal.segment import journal_name, list_segments, remove_segment
from tidelog.ports import ObjectStore
from tidelog.shipping.lineage import ShippedExtent, ShippedFile
from tidelog.shipping.moments import covered_moments
from tidelog.shipping.point import point_of
from tidelog.shipping.shipper import Shipper
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.object_store import SimulatedBucket

__all__ = ["objects"]


def test_every_manifest_shows_its_moment(objects: ObjectStore) -> None:
    shipped = Shipped(objects)
    shipped.begin()
    numbers = []
    for count in range(12):
        shipped.change(9)
        numbers.append(shipped.ship())
        if count == 5:
            shipped.save()

    for number in numbers[::3]:
        manifest = shipped.log.get(number)
        assert manifest is not None
        assert restored(objects, manifest) == shipped.at(manifest.lineages[-1].ts)


def test_any_moment_between_is_shown(objects: ObjectStore) -> None:
    shipped = Shipped(objects)
    shipped.begin()
    shipped.change(60)
    shipped.save()
    shipped.change(40)
    shipped.ship()

    for ts in list(shipped.states)[::17]:
        assert restored(objects, shipped.newest, ts) == shipped.at(ts)


def test_moments_that_are_not_covered_are_refused(objects: ObjectStore) -> None:
    shipped = Shipped(objects)
    shipped.begin()
    shipped.change(5)
    shipped.ship()

    last = covered_moments(shipped.newest)[-1].last
    with pytest.raises(DataDirectoryError, match=r"not covered.*moments from 0 \(the beginning\) to"):
        restored(objects, shipped.newest, Ts(last + 1))


def test_whales_are_shipped_before_their_records(objects: ObjectStore) -> None:
    shipped = Shipped(objects, shards=1)
    shipped.begin()
    for number in range(6):
        run(shipped.store, [b"SET", b"whale%d" % number, shipped.rng.randbytes(3000)])
        shipped.change()
        shipped.ship()

    assert restored(objects, shipped.newest) == state(shipped.store)


def test_a_directory_that_is_lost_goes_on_from_the_copy(objects: ObjectStore) -> None:
    shipped = Shipped(objects)
    shipped.begin()
    shipped.change(30)
    shipped.save()
    shipped.change(30)
    shipped.ship()
    manifest = shipped.newest

    disk, store = fetched(objects, manifest)

    assert state(store) == state(shipped.store)
    assert store.journal.meta.database_id == manifest.database_id
    assert len(store.journal.epochs) == 2
    assert store.journal.hlc.last > manifest.clock_bound

    successor = Shipper(disk, FOLDER, store.journal.meta, objects, shipped.clock)
    store.journal.writer.note_blob_extents()
    successor.take_over(point_of(store.journal))
    successor.ship(point_of(store.journal))
    assert [lineage.name for lineage in successor.lineages] == [manifest.lineages[-1].name]


def test_a_shipper_that_was_replaced_stops(objects: ObjectStore) -> None:
    shipped = Shipped(objects)
    shipped.begin()
    shipped.change(5)
    shipped.ship()
    disk, store = fetched(objects, shipped.newest)
    store.journal.writer.note_blob_extents()
    successor = Shipper(disk, FOLDER, store.journal.meta, objects, shipped.clock)
    successor.take_over(point_of(store.journal))
    newest = shipped.newest.number

    shipped.change(5)
    with pytest.raises(ShippingFenced, match="another server"):
        shipped.ship()
    with pytest.raises(ShippingFenced):
        shipped.ship()
    assert shipped.newest.number == newest

    successor.ship(point_of(store.journal))
    again = Shipper(shipped.disk, FOLDER, shipped.journal.meta, objects, shipped.clock)
    with pytest.raises(ShippingError, match="gone on with database"):
        again.take_over(point_of(shipped.journal))


def test_a_segment_that_is_gone_is_a_gap(objects: ObjectStore) -> None:
    shipped = Shipped(objects, shards=1)
    shipped.begin()
    shipped.change(3)
    shipped.ship()
    shipped.change(200)
    shipped.store.save()
    shipped.change(200)
    shipped.store.save()
    for name in shipped.disk.list(f"{FOLDER}/shard-0")[:-2]:
        if name.startswith("journal-"):
            shipped.disk.remove(f"{FOLDER}/shard-0/{name}")

    with pytest.raises(ShippingGap):
        shipped.ship()


def test_small_objects_become_one_and_full_segments_few(objects: ObjectStore) -> None:
    shipped = Shipped(objects, shards=1)
    shipped.begin()
    for _ in range(70):
        shipped.change(4)
        shipped.ship()
        while shipped.shipper.work():
            pass
    shipped.clock.advance(11_000_000)
    shipped.ship()

    lineage = shipped.newest.lineages[-1]
    *full, last = (len(lineage.files[path].extents) for path in sorted(lineage.files) if ".dj0" in path)
    assert len(full) >= 1
    assert set(full) == {1}
    assert last <= limits.SHIPPED_MERGED_COUNT
    assert restored(objects, shipped.newest) == state(shipped.store)


def test_a_lineage_whose_beginning_failed_begins_once_more() -> None:
    """Without the files that say what a directory is, nothing could be restored from it."""
    client = SimulatedBucket(SimulatedClock(), Random(1)).client()
    shipped = Shipped(client)
    shipped.journal.writer.note_blob_extents()
    shipped.shipper.take_over(point_of(shipped.journal))
    client.fail("put", name_contains="meta", times=1)
    with pytest.raises(OSError, match="simulated"):
        shipped.shipper.begin(None)
    assert not shipped.shipper.is_begun
    shipped.shipper.begin(None)
    shipped.change(5)
    shipped.ship()
    assert restored(client, shipped.newest) == state(shipped.store)


def test_no_moment_that_is_said_to_be_over_comes_again(objects: ObjectStore) -> None:
    shipped = Shipped(objects)
    shipped.begin()
    shipped.change(5)
    shipped.clock = shipped.journal.hlc._clock  # that of the server
    shipped.clock.advance(3600_000_000)
    shipped.shipper._fence.made_us = -(1 << 60)
    shipped.ship()
    manifest = shipped.newest
    assert manifest.clock_bound >= manifest.closed_ts > manifest.lineages[-1].ts


def test_journal_that_was_erased_before_anything_was_shipped_is_a_gap(objects: ObjectStore) -> None:
    """The snapshot that a lineage begins with may be older than all that is left of the journal."""
    shipped = Shipped(objects, shards=1)
    shipped.journal.writer.write()
    assert shipped.journal.writer.note_blob_extents()
    shipped.shipper.take_over(point_of(shipped.journal))
    shipped.store.save()
    shipped.shipper.begin(shipped.journal.pin_snapshot())
    shipped.change(200)
    shipped.journal.writer.sync()
    for first in list_segments(shipped.disk, f"{FOLDER}/shard-0")[:-1]:
        remove_segment(shipped.disk, f"{FOLDER}/shard-0", first)
    with pytest.raises(ShippingGap):
        shipped.ship()


def erase_before(shipped: Shipped, snapshot_ts: Ts) -> None:
    """Remove the journal that a snapshot covers, as hands do that tidy up: older snapshots stay."""
    pinned = shipped.journal.pin_snapshot()
    assert pinned.snapshot.point.ts == snapshot_ts
    folder = f"{FOLDER}/shard-0"
    segments = list_segments(shipped.disk, folder)
    first = max(each for each in segments if each < pinned.snapshot.point.lsns[0])
    pinned.release()
    assert first > 0
    for segment in segments:
        if segment < first:
            remove_segment(shipped.disk, folder, segment)


def with_two_snapshots(objects: ObjectStore) -> tuple[Shipped, Ts, Ts]:
    shipped = Shipped(objects, shards=1)
    moments = []
    for count in (60, 200):
        shipped.change(count)
        shipped.store.save()
        moments.append(shipped.journal.newest_snapshot.point.ts)
    shipped.change(5)
    return shipped, *moments


def take_over(shipped: Shipped) -> None:
    shipped.journal.writer.write()
    assert shipped.journal.writer.note_blob_extents()
    shipped.journal.writer.sync()
    shipped.shipper.take_over(point_of(shipped.journal))


def ship_all(shipped: Shipped) -> None:
    shipped.ship()
    while shipped.shipper.work():
        pass
    shipped.shipper.put_manifest()


def test_an_older_snapshot_counts_only_if_the_journal_goes_on_from_it(
    objects: ObjectStore, caplog: pytest.LogCaptureFixture
) -> None:
    """It would leave no gap, and shipping would never get past what was erased after it."""
    shipped, older, newer = with_two_snapshots(objects)
    pinned = shipped.journal.pin_snapshot(older)
    assert pinned.snapshot.point.ts == older
    pinned.release()
    erase_before(shipped, newer)
    take_over(shipped)

    shipped.shipper.begin(shipped.journal.pin_snapshot(older))
    ship_all(shipped)

    assert "leaves a gap: shard 0 has no journal from lsn" in caplog.text
    assert list(shipped.newest.lineages[-1].snapshots) == [newer]
    assert restored(objects, shipped.newest) == state(shipped.store)


def test_a_snapshot_from_before_the_journal_of_a_lineage_is_not_wanted(objects: ObjectStore) -> None:
    """The one that the lineage begins with was found to be damaged, and the next that is given out is an older one."""
    shipped, older, newer = with_two_snapshots(objects)
    take_over(shipped)
    first = shipped.journal.pin_snapshot()
    shipped.shipper.begin(first)
    shipped.ship()
    shipped.shipper.close()
    shipped.journal.distrust_snapshot(first.snapshot.path, "its sectors cannot be read")

    pinned = shipped.journal.pin_snapshot()
    assert (first.snapshot.point.ts, pinned.snapshot.point.ts) == (newer, older)
    assert not shipped.shipper.wants(pinned.snapshot.point)

    shipped.change(5)
    shipped.save()
    assert restored(objects, shipped.newest) == state(shipped.store)


def test_a_first_round_that_was_cut_off_and_erased_begins_once_more(objects: ObjectStore) -> None:
    shipped = Shipped(objects, shards=1)
    take_over(shipped)
    shipped.shipper.begin(None)
    shipped.shipper.put_manifest()  # as in the middle of a long round
    shipped.shipper.give_up_lease()
    shipped.change(200)
    shipped.store.save()
    erase_before(shipped, shipped.journal.newest_snapshot.point.ts)

    take_over(shipped)
    shipped.shipper.begin(shipped.journal.pin_snapshot())
    ship_all(shipped)

    assert [len(each.snapshots) for each in shipped.newest.lineages] == [1]
    assert restored(objects, shipped.newest) == state(shipped.store)


def test_bytes_that_were_dropped_in_the_middle_are_shipped_again(objects: ObjectStore) -> None:
    """A server before has shipped them, and what follows them, and no manifest came to count them: this server has
    others in the place of the first, and the same that follow."""
    shipped = Shipped(objects, shards=1)
    shipped.begin()
    shipped.change(5)
    shipped.ship()
    lineage = shipped.shipper.lineages[-1]
    counted = lineage.ts, lineage.cycle, lineage.lsns, lineage.ends
    for _ in range(2):
        shipped.change(5)
        shipped.ship()
    [path] = [path for path in lineage.files if "journal-" in path]
    file = lineage.files[path]
    shipped.shipper._archive.set_file(lineage, path, file.minus(file.extents[-2]))
    lineage.ts, lineage.cycle, lineage.lsns, lineage.ends = counted

    shipped.change(5)
    shipped.ship()
    assert restored(objects, shipped.newest) == state(shipped.store)


def test_nothing_is_restorable_before_the_first_snapshot_is_there(objects: ObjectStore) -> None:
    """All of the journal is: it shows nothing without what it goes on from."""
    shipped = Shipped(objects)
    shipped.change(30)
    shipped.store.save()
    shipped.begin()
    shipped.change(5)
    shipped.ship()
    shipper, durable_ts = shipped.shipper, shipped.journal.writer.durable_ts
    assert (shipper.shipped_ts, shipper.archive.restorable_ts) == (durable_ts, 0)
    with pytest.raises(DataDirectoryError, match="first snapshot is still being shipped"):
        restored(objects, shipped.newest)

    while shipper.work():
        pass
    assert shipper.archive.restorable_ts == 0, "no manifest says so yet"
    number = shipped.ship()
    assert shipper.archive.restorable_ts == durable_ts, "it does not wait for something new, or for a beat"
    assert restored(objects, shipped.newest) == state(shipped.store)
    assert shipped.ship() == number


def test_after_a_takeover_the_lineage_before_is_what_can_be_restored(objects: ObjectStore) -> None:
    shipped = Shipped(objects)
    shipped.begin()
    shipped.change(30)
    shipped.save()
    successor = succeeded(shipped, finishes=False)
    before_ts = shipped.journal.writer.durable_ts
    successor.change(5)
    successor.ship()
    assert len(successor.newest.lineages) == 2
    assert successor.shipper.shipped_ts > before_ts
    assert successor.shipper.archive.restorable_ts == before_ts

    while successor.shipper.work():
        pass
    successor.ship()
    assert successor.shipper.archive.restorable_ts == successor.shipper.shipped_ts


def test_segments_that_another_server_began_are_not_there(objects: ObjectStore) -> None:
    """One that was cut off has shipped them, and no manifest came to count them; this server ends its own elsewhere."""
    shipped = Shipped(objects, shards=1)
    shipped.begin()
    shipped.change(5)
    shipped.ship()
    lineage = shipped.shipper.lineages[-1]
    path = f"shard-0/{journal_name(Lsn(lineage.lsns[0] + 2))}"
    objects.put(f"{shipped.newest.database_id}/of-another", [b"bytes"])
    extent = ShippedExtent(0, 5, "of-another", "a digest")
    shipped.shipper._archive.set_file(lineage, path, ShippedFile((extent,)))
    shipped.shipper.put_manifest()
    assert path in shipped.newest.lineages[-1].files

    take_over(shipped)
    shipped.change(9)
    shipped.ship()
    assert path not in shipped.newest.lineages[-1].files
    assert restored(objects, shipped.newest) == state(shipped.store)
