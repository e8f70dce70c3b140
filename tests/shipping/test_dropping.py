"""What a shipper does with node files that are not on its disk any more."""

from __future__ import annotations

from contextlib import nullcontext
from random import Random

import pytest

from tests.shipping.copies import FOLDER, Shipped, objects, run_all
from tests.store.changes import run, state
from tidelog import limits
from tidelog.ids import ShardId, Ts
from tidelog.journal.frame import Geometry
from tidelog.journal.journal import Settings
from tidelog.ports import ObjectStore
from tidelog.shipping.block_cache import BlockCache
from tidelog.shipping.dropping import drop_file, may_drop
from tidelog.shipping.fetch import LeftBehind, fetch_directory
from tidelog.shipping.moments import lineage_at
from tidelog.shipping.point import point_of
from tidelog.shipping.remote_blocks import RemoteBlocks
from tidelog.shipping.remote_file import RemoteNodeFile, remote_files
from tidelog.shipping.shipper import Shipper
from tidelog.shipping.tiered_disk import TieredDisk
from tidelog.store.store import Store
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk
from tidelog.testing.object_store import SimulatedBucket

__all__ = ["objects"]


@pytest.fixture(autouse=True)
def small_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "NODE_ENTRIES_MAX", 10)
    monkeypatch.setattr(limits, "HOT_NODES_KEPT", 0)


def tiered(disk: SimulatedDisk, objects: ObjectStore) -> TieredDisk:
    cache = BlockCache(disk, f"{FOLDER}/history-cache", limits.MIB, nullcontext())
    return TieredDisk(
        disk, RemoteBlocks(lambda _url, _is_sealed: objects, cache, SimulatedClock(), nullcontext()), FOLDER
    )


def opened(disk: TieredDisk) -> Store:
    settings = Settings(geometry=Geometry(frame_bytes=4096, frames_per_segment=4), shard_count=1)
    return Store.open(disk, FOLDER, SimulatedClock(), settings, lambda: 77, Random(5))


class Tiered(Shipped):
    """A store with a stream of cold nodes, whose files can go."""

    def __init__(self, objects: ObjectStore) -> None:
        super().__init__(objects, shards=1)
        self.tiered = tiered(self.disk, objects)
        self.begin()
        for number in range(60):
            run(self.store, [b"TWRITE", b"s", b"tag", b"entry %d" % number])
        self.save_cold()

    def save_cold(self) -> None:
        cooling = self.store.cooling
        assert cooling is not None
        while (job := cooling.take()) is not None:
            job.run()
            cooling.finish(job, stay_open=False)
        self.journal.writer.write()
        self.save()
        for pinned in self.shipper.gone:
            pinned.release()
        self.shipper.gone.clear()

    def drop(self, before: Ts | None = None) -> int:
        assert self.store.cooling is not None
        files = self.store.cooling.files
        if ShardId(0) in files._open:
            files._end(ShardId(0))
        found = self.shipper.copied_files(self.journal.writer.last_ts if before is None else before)
        old = {} if found is None else found.old
        dropped = 0
        for file in files:
            shipped = old.get(file.path.removeprefix(f"{FOLDER}/"))
            if shipped is not None and may_drop(file, shipped):
                remote = RemoteNodeFile("/objects", False, self.journal.meta.database_id, shipped.size, shipped.extents)
                drop_file(self.disk, file.path, remote, self.objects)
                file.is_remote = True
                file.disk = self.tiered
                dropped += 1
        return dropped


def node_objects(objects: ObjectStore, database_id: str) -> list[str]:
    return [each.name for each in objects.list(f"{database_id}/nodes/")]


def test_a_file_goes_once_a_snapshot_that_is_old_enough_is_in_the_copy(objects: ObjectStore) -> None:
    shipped = Tiered(objects)
    expected = state(shipped.store)
    ts = shipped.journal.newest_snapshot.point.ts
    assert shipped.drop(Ts(ts - 1)) == 0
    shipped.shipper._archive._named_snapshots.clear()  # as if no manifest said so yet
    assert shipped.drop() == 0
    shipped.shipper.put_manifest()
    assert shipped.drop() == 1
    assert state(shipped.store) == expected


def test_a_shipper_that_begins_anew_puts_nothing_twice(objects: ObjectStore) -> None:
    shipped = Tiered(objects)
    expected = state(shipped.store)
    assert shipped.drop() == 1
    shipped.journal.close()
    before = node_objects(objects, shipped.journal.meta.database_id)

    disk = shipped.tiered
    store = opened(disk)
    assert state(store) == expected
    store.save()
    shipper = Shipper(disk, FOLDER, store.journal.meta, objects, shipped.clock)
    store.journal.writer.note_blob_extents()
    shipper.take_over(point_of(store.journal))
    run(store, [b"SET", b"k", b"v"])
    store.journal.writer.write()
    store.journal.writer.sync()
    shipper.ship(point_of(store.journal))
    assert node_objects(objects, store.journal.meta.database_id) == before
    path = next(iter(remote_files(shipped.disk, FOLDER, 1)))
    assert path in shipper.lineages[-1].files


def test_what_is_only_in_the_copy_stays_there_for_as_long_as_it_is_needed(objects: ObjectStore) -> None:
    shipped = Tiered(objects)
    shipped.shipper._keep_us = 1
    shipped.shipper._upkeep.keep_us = 1
    assert shipped.drop() == 1
    path = next(iter(remote_files(shipped.disk, FOLDER, 1)))
    run(shipped.store, [b"DEL", b"s"])
    for _ in range(6):
        shipped.change(3)
        shipped.clock.advance(2 * limits.SHIP_NOTICE_US)
        shipped.save_cold()
    listed = [each.node_files for each in shipped.shipper.lineages[-1].snapshots.values()]
    assert not any(f"{each.id:016x}" in path for files in listed for each in files), "no snapshot needs it"
    assert path in shipped.shipper.lineages[-1].files
    before = len(node_objects(objects, shipped.journal.meta.database_id))
    assert before

    shipped.tiered.remove(f"{FOLDER}/{path}")
    for _ in range(6):
        shipped.change(3)
        shipped.clock.advance(2 * limits.SHIP_NOTICE_US)
        shipped.save_cold()
    assert path not in shipped.shipper.lineages[-1].files
    assert len(node_objects(objects, shipped.journal.meta.database_id)) < before


def test_a_lazy_restore_leaves_node_files_where_they_are(objects: ObjectStore) -> None:
    shipped = Tiered(objects)
    run(shipped.store, [b"SET", b"k", b"v"])
    shipped.journal.writer.write()
    shipped.ship()
    manifest = shipped.newest
    lineage, _ = lineage_at(manifest, None)
    whole, lazy = SimulatedDisk(), SimulatedDisk()
    size = fetch_directory(whole, FOLDER, objects, manifest, lineage, run_all)
    less = fetch_directory(lazy, FOLDER, objects, manifest, lineage, run_all, left=LeftBehind("/objects", False))
    assert 0 < less < size
    assert len(remote_files(lazy, FOLDER, 1)) == 1
    store = opened(tiered(lazy, objects))
    assert state(store) == state(shipped.store)
    assert store.journal.meta.database_id == manifest.database_id


def test_files_in_another_copy_are_shipped_from_there(objects: ObjectStore) -> None:
    shipped = Tiered(objects)
    shipped.ship()
    lineage, _ = lineage_at(shipped.newest, None)
    disk = SimulatedDisk()
    fetch_directory(disk, FOLDER, objects, shipped.newest, lineage, run_all, left=LeftBehind("/objects", False))
    other = SimulatedBucket(SimulatedClock(), Random(1)).client("other")
    on = tiered(disk, objects)
    store = opened(on)
    run(store, [b"SET", b"k", b"v"])
    store.journal.writer.write()
    store.save()
    shipper = Shipper(on, FOLDER, store.journal.meta, other, shipped.clock)
    store.journal.writer.note_blob_extents()
    store.journal.writer.sync()
    shipper.take_over(point_of(store.journal))
    if not shipper.is_begun:
        shipper.begin(store.journal.pin_snapshot())
    shipper.ship(point_of(store.journal))
    while shipper.work():
        pass
    assert node_objects(other, store.journal.meta.database_id)
