"""Any moment of a copy becomes a new database: what is planned, what is fetched, and what is said if it is gone."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.shipping.copies import Shipped, objects, succeeded
from tests.store.changes import run, state
from tests.store.cold import KEYS, fill
from tidelog import limits
from tidelog.errors import Corruption, DataDirectoryError, ObjectGone
from tidelog.ids import Ts
from tidelog.journal.layout import read_meta
from tidelog.ports import ObjectStore
from tidelog.shipping.moments import covered_moments
from tidelog.shipping.restoring import RestorePlan, plan_restore, restore_shipped
from tidelog.store.store import Store
from tidelog.system.counted_store import CountedStore
from tidelog.system.scratch import ScratchFile
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk
from tidelog.testing.object_store import SimulatedBucket

__all__ = ["objects"]


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few kilobytes are many blocks, of which few are kept."""
    monkeypatch.setattr(limits, "SHIPPED_BLOCK_BYTES", 2000)
    monkeypatch.setattr(limits, "SHIPPED_BLOCKS_KEPT", 8)
    monkeypatch.setattr(limits, "SHIPPED_AHEAD_BLOCKS", 3)
    monkeypatch.setattr(limits, "SHIPPED_HOLE_BYTES", 100)


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[ScratchFile]:
    made = ScratchFile(str(tmp_path))
    assert list(tmp_path.glob("tmp*")) == [], "it has no name, so nothing is left of it"
    yield made
    made.close()


def restored(objects: ObjectStore, plan: RestorePlan, scratch: ScratchFile | None = None) -> Store:
    """By many threads, as the command does."""
    store, disk = Store(SimulatedClock(), random.Random(1)), SimulatedDisk()
    with ThreadPoolExecutor(8) as threads:
        restore_shipped(disk, store, objects, plan, "/new", fetch_ahead=threads.submit, scratch=scratch)
    assert read_meta(disk, "/new").database_id == "", "a database of its own: its first start gives it an id"
    return store


def shipped_long(objects: ObjectStore) -> Shipped:
    shipped = Shipped(objects)
    shipped.begin()
    for _ in range(3):
        shipped.change(60)
        shipped.save()
    shipped.change(40)
    shipped.ship()
    return shipped


def test_any_moment_is_restored_by_many_threads(objects: ObjectStore, small_blocks: None, scratch: ScratchFile) -> None:
    shipped = shipped_long(objects)

    for ts in [*list(shipped.states)[::41], None]:
        plan = plan_restore(shipped.newest, ts)
        assert state(restored(objects, plan, scratch)) == shipped.at(plan.until)


def test_a_moment_of_every_lineage(objects: ObjectStore, small_blocks: None) -> None:
    first = shipped_long(objects)
    second = succeeded(first)
    second.change(50)
    second.ship()
    second.save()
    third = succeeded(second)
    third.change(30)
    third.save()

    covered = covered_moments(third.newest)
    assert len({run.lineage.name for run in covered}) == 3
    for ts in list(third.states)[::23]:
        assert state(restored(objects, plan_restore(third.newest, ts))) == third.at(ts)


def test_a_plan_fetches_nothing_and_says_at_most_what_is_fetched(objects: ObjectStore, scratch: ScratchFile) -> None:
    shipped = shipped_long(objects)
    early, late = list(shipped.states)[5], list(shipped.states)[-1]
    manifest, counted = shipped.newest, CountedStore(objects)

    plans = [plan_restore(manifest, ts) for ts in (early, late)]

    sizes = [sum(part.size for part in plan.parts) for plan in plans]
    assert plans[0].snapshot_ts == 0, "it is older than all snapshots"
    assert plans[1].snapshot_ts == max(manifest.lineages[-1].snapshots)
    assert 0 < sizes[0] < sum(each.size for file in manifest.lineages[-1].files.values() for each in file.extents)
    assert counted.requests.total() == 0
    assert state(restored(counted, plans[1], scratch)) == shipped.at(late)
    others = sum(file.size for path, file in manifest.lineages[-1].files.items() if path.endswith("meta.json"))
    assert counted.bytes_read <= sizes[1] + others, "each block once, and metas of the other snapshots"


def test_of_node_files_only_what_is_needed_is_fetched(
    objects: ObjectStore, small_blocks: None, scratch: ScratchFile
) -> None:
    shipped = Shipped(objects)
    shipped.begin()
    fill(shipped.store, 4)
    run(shipped.store, [b"DEL", KEYS[0]])
    shipped.save()
    manifest, counted = shipped.newest, CountedStore(objects)
    plan = plan_restore(manifest, None)
    sizes = {part.part: part.size for part in plan.parts}
    assert sizes["nodes"] > sizes["snapshot"] > 0

    assert state(restored(counted, plan, scratch)) == state(shipped.store)
    read = counted.bytes_read
    assert read < sum(sizes.values()) - sizes["nodes"] // 6, "a third of the nodes belongs to a stream that is gone"


def test_a_moment_that_is_not_covered_names_those_that_are(objects: ObjectStore) -> None:
    shipped = shipped_long(objects)
    last = covered_moments(shipped.newest)[-1].last

    with pytest.raises(
        DataDirectoryError, match=r"is not covered.* 0 \(the beginning\) to 2023-11-14T22:13:20\."
    ) as told:
        plan_restore(shipped.newest, Ts(last + 1_000_000))
    assert str(last) in str(told.value)


def test_an_object_that_somebody_deleted_is_damage(objects: ObjectStore) -> None:
    shipped = shipped_long(objects)
    plan = plan_restore(shipped.newest, None)
    gone = next(name for name in plan.lineage.objects() if f"snapshots/{plan.snapshot_ts:016x}/shard" in name)
    objects.delete(f"{plan.manifest.database_id}/{gone}")

    with pytest.raises(Corruption, match=r"deleted by something else than Tidelog"):
        restored(objects, plan)


def test_a_restore_that_took_longer_than_the_notice_says_so() -> None:
    clock = SimulatedClock()
    bucket = SimulatedBucket(clock, random.Random(3))
    shipped = Shipped(bucket.client("shipper"), shards=1)
    shipped.begin()
    for _ in range(40):
        shipped.change(4)
        shipped.ship()
    plan = plan_restore(shipped.newest, None)
    for _ in range(4):  # small objects become one, and those that they were are announced, and deleted a day later
        shipped.clock.advance(limits.SHIP_NOTICE_US)
        while shipped.shipper.work():
            pass
        shipped.ship()
    assert shipped.shipper.going_count or not shipped.shipper.work()

    with pytest.raises(ObjectGone, match=r"tidied since manifest .* 24 hours ahead"):
        restored(bucket.client("reader"), plan)


def test_a_moment_before_everything_is_refused() -> None:
    """It was taken for the newest one."""
    shipped = shipped_long(SimulatedBucket(SimulatedClock(), random.Random(1)).client())
    with pytest.raises(DataDirectoryError, match="nothing as old as ts 0"):
        plan_restore(shipped.newest, Ts(0))
    with pytest.raises(DataDirectoryError, match="nothing as old as ts 1"):
        restored(shipped.objects, plan_restore(shipped.newest, Ts(1)))
