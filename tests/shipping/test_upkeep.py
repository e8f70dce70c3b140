"""What nothing refers to goes a day after a manifest has said so, and not before; what is needed stays."""

from __future__ import annotations

from random import Random

import pytest

from tests.shipping.copies import Shipped, restored
from tests.store.changes import run, state
from tidelog import limits
from tidelog.ids import Lsn, Ts
from tidelog.journal.layout import SnapshotPoint
from tidelog.shipping.archive import Archive
from tidelog.shipping.lineage import Lineage
from tidelog.shipping.manifest import manifest_number
from tidelog.shipping.moments import covered_moments
from tidelog.shipping.shipper import Shipper
from tidelog.shipping.upkeep import Upkeep
from tidelog.shipping.uploads import Uploads
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.object_store import SimulatedBucket, SimulatedObjectStore

HOUR_US = limits.HOUR_US
DAY_US = 24 * HOUR_US


@pytest.fixture
def bucket() -> SimulatedBucket:
    return SimulatedBucket(SimulatedClock(), Random(1))


@pytest.fixture
def merging(bucket: SimulatedBucket, monkeypatch: pytest.MonkeyPatch) -> tuple[Shipped, SimulatedObjectStore]:
    """A server whose small objects were just made one, so that nothing refers to them."""
    monkeypatch.setattr(limits, "SHIPPED_MERGED_COUNT", 3)
    client = bucket.client()
    shipped = Shipped(client, 1)
    shipped.begin()
    for _ in range(3):
        write(shipped)
        shipped.ship()
    assert pieces(bucket) == 3
    return shipped, client


def write(shipped: Shipped) -> None:
    run(shipped.store, [b"INCR", b"count"])
    shipped.journal.writer.write()


def work(shipped: Shipped) -> None:
    while shipped.shipper.work():
        pass


def pieces(bucket: SimulatedBucket) -> int:
    return sum("/piece-" in name for name in bucket.names())


def test_objects_go_a_day_after_a_manifest_announced_them(
    bucket: SimulatedBucket, merging: tuple[Shipped, SimulatedObjectStore]
) -> None:
    shipped, _ = merging
    work(shipped)
    write(shipped)
    shipped.ship()
    before = pieces(bucket)
    shipped.clock.advance(DAY_US - 1)
    work(shipped)
    assert pieces(bucket) == before
    shipped.clock.advance(1)
    work(shipped)
    assert pieces(bucket) == before - 3
    assert restored(bucket.client(), shipped.newest) == state(shipped.store)


def test_what_no_manifest_has_announced_stays(
    bucket: SimulatedBucket, merging: tuple[Shipped, SimulatedObjectStore]
) -> None:
    """Whoever takes over begins with the newest manifest, which still refers to it."""
    shipped, client = merging
    work(shipped)
    before = pieces(bucket)
    assert before == 3 + 1
    client.fail("put", name_contains="manifest-", times=1000)
    shipped.clock.advance(DAY_US + HOUR_US)
    work(shipped)
    assert pieces(bucket) == before
    assert restored(bucket.client(), shipped.newest) == state(shipped.store)


@pytest.mark.parametrize("damage", [None, b"damaged"])
def test_a_list_of_what_goes_that_cannot_be_read_is_made_again(
    bucket: SimulatedBucket, merging: tuple[Shipped, SimulatedObjectStore], damage: bytes | None
) -> None:
    shipped, _ = merging
    work(shipped)
    write(shipped)
    shipped.ship()
    before = pieces(bucket)
    [name] = [name for name in bucket.names() if "/going." in name]
    if damage is None:
        bucket.client("somebody else").delete(name)
    else:
        bucket.damage(name, damage)
    for _ in range(24):
        shipped.clock.advance(HOUR_US)
        work(shipped)
        shipped.shipper.put_manifest()
    assert pieces(bucket) == before
    for _ in range(3):
        shipped.clock.advance(HOUR_US)
        work(shipped)
        shipped.shipper.put_manifest()
    assert pieces(bucket) < before
    assert not shipped.shipper.upkeep_error


def test_what_expires_leaves_manifests_also_if_nothing_may_be_deleted(
    bucket: SimulatedBucket, merging: tuple[Shipped, SimulatedObjectStore]
) -> None:
    shipped, client = merging
    work(shipped)
    write(shipped)
    shipped.ship()
    client.fail("delete", times=1 << 30, errno=13)
    shipped.clock.advance(DAY_US)
    work(shipped)
    assert shipped.shipper.upkeep_error
    swept_us = shipped.shipper._upkeep._swept_us
    shipped.clock.advance(HOUR_US)
    work(shipped)
    assert shipped.shipper._upkeep._swept_us != swept_us


def test_a_clock_that_is_set_does_not_end_the_day(
    bucket: SimulatedBucket, merging: tuple[Shipped, SimulatedObjectStore]
) -> None:
    shipped, _ = merging
    work(shipped)
    write(shipped)
    shipped.ship()
    before = pieces(bucket)
    work(shipped)
    shipped.clock.step_wall(3 * DAY_US)
    shipped.clock.advance(2 * HOUR_US)
    work(shipped)
    assert pieces(bucket) == before


def test_a_clock_that_is_wrong_for_a_moment_forgets_nothing(bucket: SimulatedBucket) -> None:
    shipped = Shipped(bucket.client(), 1)
    shipped.begin()
    for _ in range(4):
        shipped.change(60)
        shipped.save()
        shipped.clock.advance(3 * HOUR_US)
    shipped.ship()
    first = covered_moments(shipped.newest)[0].first
    shipped.clock.step_wall(400 * DAY_US)
    shipped.clock.advance(2 * HOUR_US)
    work(shipped)
    shipped.clock.step_wall(-400 * DAY_US)
    shipped.clock.advance(11_000_000)
    shipped.ship()
    assert covered_moments(shipped.newest)[0].first == first


def test_the_day_does_not_end_at_a_start_with_a_wrong_clock(
    bucket: SimulatedBucket, merging: tuple[Shipped, SimulatedObjectStore]
) -> None:
    shipped, _ = merging
    work(shipped)
    write(shipped)
    shipped.ship()
    before = pieces(bucket)
    shipped.clock.step_wall(400 * DAY_US)
    shipped.shipper = Shipper(shipped.disk, "/data", shipped.journal.meta, shipped.objects, shipped.clock)
    shipped.begin()
    work(shipped)
    assert pieces(bucket) == before


def test_manifests_go_also_if_the_server_is_started_again_every_few_hours(bucket: SimulatedBucket) -> None:
    shipped = Shipped(bucket.client(), 1)
    for _ in range(16):
        shipped.shipper = Shipper(shipped.disk, "/data", shipped.journal.meta, shipped.objects, shipped.clock)
        shipped.begin()
        work(shipped)
        for _ in range(3):
            write(shipped)
            shipped.ship()
        shipped.clock.advance(5 * HOUR_US)
        work(shipped)
    assert {0, 3, 4} <= numbers_of(bucket), "those of takeovers, and those before them"
    assert not {1, 2, 5, 6} & numbers_of(bucket)
    assert restored(bucket.client(), shipped.newest) == state(shipped.store)


def numbers_of(bucket: SimulatedBucket) -> set[int | None]:
    return {manifest_number(name.partition("/")[2]) for name in bucket.names()}


def lineage_of(name: str, *, ts: int, begins_ts: int | None, snapshots: tuple[int, ...] = ()) -> Lineage:
    lineage = Lineage(name, None, 1, ts=Ts(ts), lsns=(Lsn(0),), ends=(None,), first_segments=(Lsn(0),))  # type: ignore[arg-type]
    lineage.begins_ts = None if begins_ts is None else Ts(begins_ts)
    lineage.snapshots = {Ts(each): SnapshotPoint(Ts(each), (Lsn(0),)) for each in snapshots}
    return lineage


def upkeep_of(bucket: SimulatedBucket, *lineages: Lineage) -> tuple[Archive, Upkeep]:
    archive = Archive(None)
    for each in lineages:
        archive.add(each)
    clock = SimulatedClock()
    client = bucket.client()
    return archive, Upkeep(client, "db", archive, Uploads(client, "db", 0, clock), 30 * DAY_US)


def test_old_history_stays_until_there_is_some_that_is_newer(bucket: SimulatedBucket) -> None:
    old = lineage_of("old", ts=DAY_US, begins_ts=0)
    old.ends_ts = old.ts
    new = lineage_of("new", ts=90 * DAY_US, begins_ts=None)
    archive, upkeep = upkeep_of(bucket, old, new)
    upkeep.step(100 * DAY_US, 100 * DAY_US, 0, 1)
    assert archive.lineages == [old, new]

    new.begins_ts = Ts(90 * DAY_US)
    archive, upkeep = upkeep_of(bucket, old, new)
    upkeep.step(100 * DAY_US, 100 * DAY_US, 0, 1)
    assert archive.lineages == [new]


def test_snapshots_are_thinned_out(bucket: SimulatedBucket) -> None:
    """One every five minutes for ten days is one an hour of the last day, and one a day before."""
    every = range(0, 10 * DAY_US + 1, HOUR_US // 12)
    lineage = lineage_of("one", ts=10 * DAY_US, begins_ts=0, snapshots=tuple(every))
    _, upkeep = upkeep_of(bucket, lineage)
    upkeep.step(10 * DAY_US, 10 * DAY_US, 0, 1)
    assert 9 + 24 <= len(lineage.snapshots) <= 9 + 24 + 2
    assert {0, 10 * DAY_US} < set(lineage.snapshots)
    kept = list(lineage.snapshots)
    upkeep.step(10 * DAY_US, 10 * DAY_US, 2 * HOUR_US, 1)
    assert list(lineage.snapshots) == kept
