"""A directory that no server has open is shipped, killed at any moment, and gone on with; the fence holds here too."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from tests.shipping.copies import FOLDER, Shipped, fetched, objects, restored
from tests.store.changes import change, open_store, run, state
from tests.store.cold import fill
from tidelog import limits
from tidelog.errors import DataDirectoryError, ShippingError
from tidelog.ids import Ts
from tidelog.journal.layout import read_file, read_meta, write_all
from tidelog.ports import Chunk, Disk, ObjectStore
from tidelog.shipping.manifest import Manifest
from tidelog.shipping.manifest_log import ManifestLog
from tidelog.shipping.moments import covered_moments, lineage_at
from tidelog.shipping.once import OnceShipping, ShippedOnce
from tidelog.shipping.point import point_of
from tidelog.shipping.shipped_disk import ShippedDisk
from tidelog.shipping.shipper import Shipper
from tidelog.store.restore import restore
from tidelog.store.store import Store
from tidelog.system.counted_store import CountedStore
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk
from tidelog.testing.object_store import SimulatedBucket

__all__ = ["objects"]


class Killed(BaseException):
    """Nobody catches it, as nobody catches a SIGKILL."""


class KillingStore(CountedStore):
    """Kills its user at one of its puts, before or after that had its effect."""

    def __init__(self, store: ObjectStore, at: int) -> None:
        super().__init__(store)
        self._at = at

    def put(self, name: str, chunks: Sequence[Chunk]) -> None:
        is_last = self.requests["put"] == self._at - 1
        if is_last and self._at % 2:
            raise Killed
        super().put(name, chunks)
        if is_last:
            raise Killed


class FailingStore(CountedStore):
    """Every third put fails before it has an effect."""

    def put(self, name: str, chunks: Sequence[Chunk]) -> None:
        self.requests["tried"] += 1
        if self.requests["tried"] % 3 == 0:
            raise TimeoutError("the store did not answer in time")
        super().put(name, chunks)


def filled(shards: int = 2, *, saves: bool = False) -> tuple[SimulatedDisk, object]:
    """A directory as a stopped server leaves it, and its state."""
    disk = SimulatedDisk()
    store = open_store(disk, shards)
    rng = random.Random(4)
    fill(store, 1)
    for number in range(150):
        change(store, rng)
        if saves and number == 100:
            store.save()
    run(store, [b"SET", b"whale", rng.randbytes(50_000)])
    found = state(store)
    store.journal.close()
    return disk, found


def ship(disk: Disk, objects: ObjectStore, sleeps: list[float] | None = None) -> ShippedOnce:
    """What the command does; whoever is killed leaves the directory as it is."""
    store = open_store(disk, 1)
    clock = SimulatedClock()
    shipper = Shipper(disk, FOLDER, store.journal.meta, objects, clock)

    def sleep(seconds: float) -> None:
        if sleeps is not None:
            sleeps.append(seconds)

    try:
        made = OnceShipping(store, shipper, clock, sleep).run()
    except Killed:
        assert isinstance(disk, SimulatedDisk)
        disk.kill()
        raise
    store.journal.close()
    return made


def newest(objects: ObjectStore, disk: Disk) -> Manifest:
    manifest = ManifestLog(objects, read_meta(disk, FOLDER).database_id).newest()
    assert manifest is not None
    return manifest


@pytest.mark.parametrize("saves", [False, True])
def test_everything_is_there_with_a_snapshot(objects: ObjectStore, saves: bool) -> None:
    disk, found = filled(saves=saves)

    made = ship(disk, objects)

    manifest = newest(objects, disk)
    assert restored(objects, manifest) == found
    assert made.snapshot_ts == max(manifest.lineages[-1].snapshots)
    assert (made.begins_ts == 0) is not saves, "without a snapshot, the journal is shipped from its beginning"
    assert made.size > 0


def test_a_second_run_uploads_what_is_new(objects: ObjectStore) -> None:
    disk, _ = filled()
    ship(disk, objects)

    again = ship(disk, objects)
    assert again.size < 200, "a list of objects that are needed no more"
    store = open_store(disk, 1)
    run(store, [b"SET", b"later", b"x"])
    found = state(store)
    store.journal.close()
    more = ship(disk, objects)
    assert more.size < 20_000
    assert len(newest(objects, disk).lineages) == 1
    assert restored(objects, newest(objects, disk)) == found


def test_a_directory_that_was_restored_is_shipped_from_a_snapshot_on(objects: ObjectStore) -> None:
    """Its journal begins at lsn 0, and has nothing of what it was restored from."""
    disk = SimulatedDisk()
    old = open_store(disk, 1, "/old")
    run(old, [b"SET", b"base", b"x"])
    old.save()
    old.journal.close()
    restore(disk, Store(SimulatedClock(), random.Random(1)), "/old", FOLDER)
    store = open_store(disk, 1)
    for key in (b"a", b"b", b"c", b"d"):
        run(store, [b"SET", key, b"y"])
        store.journal.writer.write()
        if key != b"a":
            store.save()  # two are kept, and the one of the last moment lets the journal be shipped from its beginning
    store.journal.close()

    made = ship(disk, objects)

    assert made.begins_ts == made.snapshot_ts
    manifest = newest(objects, disk)
    assert (0, b"base") in restored(objects, manifest)
    with pytest.raises(DataDirectoryError, match="not covered"):
        restored(objects, manifest, Ts(made.begins_ts - 1))


def test_killed_at_any_put_and_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SHIPPED_OBJECT_BYTES_MAX", 5000)
    monkeypatch.setattr(limits, "SHIP_SAVE_S", 0.0)
    monkeypatch.setattr(limits, "SHIP_BEAT_US", 0)
    for saves in (False, True):
        whole = SimulatedBucket(SimulatedClock(), random.Random(1))
        counted = CountedStore(whole.client("whole"))
        ship(filled(saves=saves)[0], counted)
        for at in range(1, counted.requests["put"] + 1, 3):
            disk, found = filled(saves=saves)
            bucket = SimulatedBucket(SimulatedClock(), random.Random(2))
            with pytest.raises(Killed):
                ship(disk, KillingStore(bucket.client("first"), at))
            second = bucket.client("second")
            ship(disk, second)
            assert restored(second, newest(second, disk)) == found
            bucket.check()
            # And the small files that say what a directory is, which come before the first manifest that names any.
            assert data_bytes(bucket) <= data_bytes(whole) + 6000, "one object at most is there twice"


def data_bytes(bucket: SimulatedBucket) -> int:
    """What was uploaded of files; nothing was deleted."""
    client = bucket.client("counts")
    return sum(
        client.size(name)
        for name in bucket.names()
        if not name.split("/")[1].startswith(("manifest", "lease", "base", "going"))
    )


def test_a_store_that_fails_is_tried_again(objects: ObjectStore) -> None:
    disk, found = filled()
    sleeps: list[float] = []

    ship(disk, FailingStore(objects), sleeps)

    assert sleeps
    assert restored(objects, newest(objects, disk)) == found


def test_one_that_is_refused_is_not_tried_again(objects: ObjectStore) -> None:
    class Refusing(CountedStore):
        def put(self, name: str, chunks: Sequence[Chunk]) -> None:
            raise PermissionError("no")

    sleeps: list[float] = []
    with pytest.raises(PermissionError):
        ship(filled()[0], Refusing(objects), sleeps)
    assert sleeps == []


def test_a_server_that_went_on_elsewhere_wins(objects: ObjectStore) -> None:
    disk, _ = filled()
    ship(disk, objects)
    other, store = fetched(objects, newest(objects, disk))
    store.journal.writer.note_blob_extents()
    successor = Shipper(other, FOLDER, store.journal.meta, objects, SimulatedClock())
    successor.take_over(point_of(store.journal))

    with pytest.raises(ShippingError, match="another server has gone on"):
        ship(disk, objects)

    run(store, [b"SET", b"of the other", b"x"])
    store.journal.writer.write()
    store.journal.writer.sync()
    successor.ship(point_of(store.journal))
    assert restored(objects, newest(objects, disk)) == state(store)


def test_an_older_state_of_a_directory_is_refused(objects: ObjectStore) -> None:
    disk, _ = filled()
    older = copied(disk)  # its stop was a clean one, so it has all epochs
    server = Shipped(objects, store=open_store(disk, 1), disk=disk)
    server.begin()
    server.change(5)
    torn = copied(disk)  # ... and this one was copied while the server ran
    server.change(5)
    server.ship()

    for stale in (older, torn):
        with pytest.raises(ShippingError, match="it is an older state"):
            ship(stale, objects)
    server.change(5)
    server.ship()
    assert restored(objects, server.newest) == state(server.store)


def copied(disk: SimulatedDisk) -> SimulatedDisk:
    """Another disk with the same files."""
    other = SimulatedDisk()

    def copy(folder: str) -> None:
        other.make_folder(folder)
        for name in disk.list(folder):
            path = f"{folder}/{name}"
            try:
                disk.list(path)
            except OSError:
                file = other.open(path, "create")
                write_all(file, 0, [read_file(disk, path)])
                file.close()
            else:
                copy(path)

    copy(FOLDER)
    return other


def test_a_server_that_is_started_later_goes_on(objects: ObjectStore) -> None:
    disk, found = filled()
    ship(disk, objects)

    store: Store = open_store(disk, 1)
    assert len(store.journal.epochs) == 1, "the stop was a clean one"
    later = Shipped(objects, store=store, disk=disk)
    later.begin()
    later.change(20)
    later.ship()
    assert len(later.newest.lineages) == 1
    assert restored(objects, later.newest) == state(store) != found


def test_after_a_crash_it_is_recovered_first(objects: ObjectStore) -> None:
    disk = SimulatedDisk()
    store = open_store(disk, 2)
    rng = random.Random(7)
    for _ in range(60):
        change(store, rng)
    store.journal.writer.write()
    store.journal.writer.sync()
    found = state(store)
    change(store, rng)
    disk.kill()

    made = ship(disk, objects)

    assert restored(objects, newest(objects, disk)) == found
    assert made.lineage.startswith("0000000000000001")


def test_a_directory_that_was_restored_covers_nothing_before(objects: ObjectStore) -> None:
    """Its journal begins at lsn 0 all the same: what came before is in its snapshot alone."""
    shipped = Shipped(objects)
    shipped.begin()
    shipped.change(30)
    shipped.ship()
    manifest, disk = shipped.newest, SimulatedDisk()
    lineage, until = lineage_at(manifest, None)
    source = ShippedDisk(objects, manifest.database_id, lineage, "/shipped")
    restore(disk, Store(SimulatedClock(), random.Random(1)), "/shipped", FOLDER, until=until, source_disk=source)

    other = SimulatedBucket(SimulatedClock(), random.Random(1)).client()
    made = ship(disk, other)

    assert made.begins_ts == until
    assert [each.first for each in covered_moments(newest(other, disk))] == [until]
    assert restored(other, newest(other, disk)) == shipped.at(until)
