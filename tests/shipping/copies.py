"""A store that ships itself, by hand, and what can be had back from its copy."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.s3_server import S3Bucket
from tests.store.changes import change, open_store, state
from tidelog.ids import Ts
from tidelog.journal.frame import Geometry
from tidelog.journal.journal import Settings
from tidelog.ports import ObjectStore
from tidelog.shipping.fetch import fetch_directory, write_restored
from tidelog.shipping.manifest import Manifest
from tidelog.shipping.manifest_log import ManifestLog
from tidelog.shipping.moments import lineage_at
from tidelog.shipping.point import point_of
from tidelog.shipping.shipped_disk import ShippedDisk
from tidelog.shipping.shipper import Shipper
from tidelog.store.restore import restore
from tidelog.store.store import Store
from tidelog.system.object_store import open_object_store
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk

State = dict[Any, Any]
FOLDER = "/data"


@pytest.fixture(params=["folder", "s3"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """An empty object store."""
    if request.param == "folder":
        return open_object_store(str(tmp_path / "objects"))
    bucket: S3Bucket = request.getfixturevalue("s3_bucket")
    return open_object_store(bucket.folder(), bucket.options)


def run_all(jobs: Iterable[Callable[[], None]]) -> None:
    for job in jobs:
        job()


class Shipped:
    """A store with its shipper, and its state after each of its transactions."""

    def __init__(
        self,
        objects: ObjectStore,
        shards: int = 2,
        *,
        store: Store | None = None,
        seed: int = 1,
        disk: SimulatedDisk | None = None,
    ) -> None:
        self.objects = objects
        self.disk = disk or SimulatedDisk()
        self.rng = random.Random(seed)
        self.clock = SimulatedClock()
        self.store = store or open_store(self.disk, shards)
        self.states: dict[Ts, State] = {}
        self.shipper = Shipper(self.disk, FOLDER, self.store.journal.meta, objects, self.clock)

    @property
    def journal(self) -> Any:
        return self.store.journal

    @property
    def log(self) -> ManifestLog:
        return ManifestLog(self.objects, self.journal.meta.database_id)

    @property
    def newest(self) -> Manifest:
        found = self.log.newest()
        assert found is not None
        return found

    def begin(self) -> None:
        self.journal.writer.write()
        assert self.journal.writer.note_blob_extents()
        self.shipper.take_over(point_of(self.journal))
        if not self.shipper.is_begun:
            self.shipper.begin(self.journal.pin_snapshot())

    def change(self, count: int = 1) -> None:
        for _ in range(count):
            change(self.store, self.rng)
            self.journal.writer.write()
            self.states[self.journal.writer.written_ts] = state(self.store)

    def ship(self) -> int:
        """A round of all that was changed; returns the number of its manifest."""
        self.journal.writer.sync()
        self.shipper.ship(point_of(self.journal))
        return self.shipper.manifest_number

    def save(self) -> None:
        """A snapshot, which is shipped at once."""
        self.store.save()
        pinned = self.journal.pin_snapshot()
        assert pinned is not None
        self.shipper.give(pinned)
        self.ship()
        while self.shipper.work():
            pass
        self.clock.advance(11_000_000)
        self.ship()

    def at(self, ts: Ts) -> State:
        return [found for when, found in self.states.items() if when <= ts][-1]


def restored(objects: ObjectStore, manifest: Manifest, at: Ts | None = None) -> State:
    """The state that a restore makes."""
    lineage, until = lineage_at(manifest, at)
    store = Store(SimulatedClock(), random.Random(1))
    source = ShippedDisk(objects, manifest.database_id, lineage, "/shipped")
    restore(SimulatedDisk(), store, "/shipped", "/new", until=until, source_disk=source)
    return state(store)


def fetched(objects: ObjectStore, manifest: Manifest) -> tuple[SimulatedDisk, Store]:
    """A server that goes on with the database."""
    disk = SimulatedDisk()
    lineage, _ = lineage_at(manifest, None)
    fetch_directory(disk, FOLDER, objects, manifest, lineage, run_all)
    settings = Settings(geometry=Geometry(frame_bytes=4096, frames_per_segment=4), shard_count=lineage.shard_count)
    return disk, Store.open(disk, FOLDER, SimulatedClock(), settings, lambda: 77, random.Random(5))


def succeeded(shipped: Shipped, *, finishes: bool = True) -> Shipped:
    """Another server takes over from the copy, with files of its own, and so with a lineage of its own.

    `finishes`: with the snapshot that its lineage begins with; otherwise the next one leaves a gap.
    """
    manifest, disk = shipped.newest, SimulatedDisk()
    lineage, until = lineage_at(manifest, None)
    source = ShippedDisk(shipped.objects, manifest.database_id, lineage, "/shipped")
    made = Store(SimulatedClock(), random.Random(1))
    restore(disk, made, "/shipped", FOLDER, until=until, source_disk=source, database_id=manifest.database_id)
    write_restored(disk, FOLDER, manifest)
    settings = Settings(geometry=Geometry(frame_bytes=4096, frames_per_segment=4))
    store = Store.open(disk, FOLDER, SimulatedClock(), settings, lambda: 88, random.Random(8))
    successor = Shipped(shipped.objects, store=store, disk=disk, seed=9)
    successor.states = {ts: found for ts, found in shipped.states.items() if ts <= until}
    successor.begin()
    successor.ship()
    while finishes and successor.shipper.work():
        pass
    return successor


__all__ = ["FOLDER", "Shipped", "fetched", "objects", "restored", "run_all", "succeeded"]
