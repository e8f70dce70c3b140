"""Of two servers that ship a database one stops, however long it was stopped, and whatever it finds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random

import pytest

from tests.shipping.copies import Shipped, fetched, restored
from tests.store.changes import state
from tidelog import limits
from tidelog.errors import ShippingError, ShippingFenced
from tidelog.ports import Chunk
from tidelog.shipping.fence import lease_name, lease_number
from tidelog.shipping.manifest import FORMAT, manifest_name, pack
from tidelog.shipping.shipper import Shipper
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.object_store import SimulatedBucket, SimulatedObjectStore

HOUR_US = limits.HOUR_US


class Rivals:
    """A server, and one that takes over from it."""

    def __init__(self) -> None:
        self.clock = SimulatedClock()
        self.bucket = SimulatedBucket(self.clock, Random(1))
        self.client = self.bucket.client("first")
        self.first = self._with_clock(Shipped(self.client, 1))
        self.first.begin()
        self.first.change(10)
        self.first.ship()
        self.first.save()
        self.second: Shipped

    def _with_clock(self, shipped: Shipped) -> Shipped:
        shipped.clock = self.clock
        shipped.shipper = Shipper(shipped.disk, "/data", shipped.journal.meta, shipped.objects, self.clock)
        return shipped

    def take_over(self) -> None:
        self.second = self.restored("second")
        self.second.begin()

    def restored(self, name: str) -> Shipped:
        disk, store = fetched(self.bucket.client("fetches"), self.first.newest)
        return self._with_clock(Shipped(self.bucket.client(name), store=store, disk=disk, seed=2))

    def lead(self, hours: int) -> None:
        """The second server ships, and tidies up."""
        for _ in range(hours):
            self.second.change(1)
            self.second.ship()
            while self.second.shipper.work():
                pass
            self.clock.advance(HOUR_US)
            self.second.ship()

    def check(self) -> None:
        """The copy is what the second server has made it, and goes on."""
        self.second.change(1)
        self.second.ship()
        assert restored(self.bucket.client("reads"), self.second.newest) == state(self.second.store)
        self.bucket.check()

    @property
    def database_id(self) -> str:
        database_id: str = self.first.journal.meta.database_id
        return database_id

    def is_there(self, number: int) -> bool:
        return f"{self.database_id}/{manifest_name(number)}" in self.bucket.names()


def test_leases_have_names() -> None:
    assert lease_number(lease_name(77)) == 77
    assert lease_number("manifest-000000000000004d") is None


def test_a_server_that_wakes_up_after_days_ships_and_deletes_nothing() -> None:
    rivals = Rivals()
    last = rivals.first.shipper.manifest_number
    rivals.take_over()
    rivals.lead(hours=60)
    assert not rivals.is_there(last + 2), "manifests go"
    assert rivals.is_there(last + 1), "not the one that the first server tries to put"
    count = len(rivals.bucket.history)

    rivals.first.change(1)
    with pytest.raises(ShippingFenced):
        rivals.first.ship()
    with pytest.raises(ShippingFenced):
        rivals.first.shipper.work()
    assert len(rivals.bucket.history) == count + 1, "an object with new bytes, which nothing refers to"
    rivals.check()


def stopped_inside(rivals: Rivals, moment: str) -> Callable[[str, str, str], None]:
    """Lets a put of a manifest by the first server last for days, in which the second one takes over."""

    def watch(operation: str, name: str, when: str) -> None:
        if operation == "put" and "/manifest-" in name and when == moment:
            rivals.client.watch = None
            rivals.take_over()
            rivals.lead(hours=60)

    return watch


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_server_that_is_stopped_inside_of_a_put_ships_nothing_after_it(moment: str) -> None:
    rivals = Rivals()
    rivals.first.change(1)
    rivals.client.watch = stopped_inside(rivals, moment)
    with pytest.raises(ShippingFenced):
        rivals.first.ship()
    with pytest.raises(ShippingFenced):
        rivals.first.ship()
    rivals.check()


def test_a_manifest_that_was_put_unnoticed_before_a_takeover_stays() -> None:
    """Its server tries its number again."""
    rivals = Rivals()
    rivals.first.change(1)
    rivals.client.fail("put", "after", name_contains="/manifest-")
    with pytest.raises(OSError, match="simulated"):
        rivals.first.ship()
    rivals.first.change(1)
    rivals.client.watch = stopped_inside(rivals, "before")
    with pytest.raises(ShippingFenced):
        rivals.first.ship()
    rivals.check()


def test_a_takeover_that_lasts_for_days_comes_too_late() -> None:
    """The number that it has chosen was put since, and deleted: it is no takeover's."""
    rivals = Rivals()
    rivals.take_over()
    third = rivals.restored("third")
    number = rivals.second.shipper.manifest_number + 1

    def watch(operation: str, name: str, when: str) -> None:
        if operation == "put" and name.endswith(lease_name(number)):
            third.objects.watch = None  # type: ignore[attr-defined]
            rivals.lead(hours=60)
            assert not rivals.is_there(number)

    third.objects.watch = watch  # type: ignore[attr-defined]
    with pytest.raises(ShippingError, match="took too long"):
        third.begin()
    with pytest.raises(ShippingFenced):
        third.ship()
    rivals.check()


@pytest.mark.parametrize("stops", ["advance", "step_wall"])
def test_after_an_hour_a_shipper_looks_first(stops: str) -> None:
    """Machines that sleep stop one of the clocks."""
    rivals = Rivals()
    listed: list[str] = []
    rivals.client.watch = lambda operation, name, when: listed.append(operation)
    rivals.first.change(1)
    rivals.first.ship()
    assert "list" not in listed
    getattr(rivals.clock, stops)(HOUR_US + 1)
    rivals.first.change(1)
    rivals.first.ship()
    assert listed.count("list") > 0
    rivals.client.watch = None
    getattr(rivals.clock, stops)(HOUR_US + 1)
    rivals.client.fail("list")
    rivals.first.change(1)
    with pytest.raises(OSError, match="simulated"):
        rivals.first.ship()
    rivals.clock.advance(limits.SHIP_BEAT_US)
    rivals.first.ship()
    assert restored(rivals.client, rivals.first.newest) == state(rivals.first.store)


UNREADABLE = {
    "nothing of ours": b"of somebody else",
    "newer": pack({"format": FORMAT + 1, "lease": 0}),
    "without a lease": pack({"format": FORMAT}),
}


@pytest.mark.parametrize("data", UNREADABLE.values(), ids=UNREADABLE.keys())
@pytest.mark.parametrize("is_late", [False, True])
def test_a_manifest_that_cannot_be_read_is_of_somebody_else(data: bytes, is_late: bool) -> None:
    rivals = Rivals()
    number = rivals.first.shipper.manifest_number + 1
    rivals.bucket.client("newer").put(f"{rivals.database_id}/{manifest_name(number)}", [data])
    if is_late:
        rivals.clock.advance(2 * HOUR_US)
    for _ in range(3):
        rivals.first.change(1)
        with pytest.raises(ShippingFenced):
            rivals.first.ship()
    assert not rivals.is_there(number + 1)


def test_a_manifest_that_cannot_be_fetched_is_looked_at_again() -> None:
    rivals = Rivals()
    rivals.client.fail("put", "after", name_contains="/manifest-")
    rivals.client.fail("get", name_contains="/manifest-")
    for _ in range(2):
        with pytest.raises(OSError, match="simulated"):
            rivals.first.shipper.put_manifest()
    rivals.first.shipper.put_manifest()
    assert restored(rivals.client, rivals.first.newest) == state(rivals.first.store)


class Overwriting(SimulatedObjectStore):
    """A store that does not know of conditions."""

    def put(self, name: str, chunks: Sequence[Chunk]) -> None:
        with suppress(FileExistsError):
            super().put(name, chunks)


def test_nothing_is_shipped_to_a_store_that_lets_a_name_be_put_twice() -> None:
    bucket = SimulatedBucket(SimulatedClock(), Random(1))
    shipped = Shipped(Overwriting(bucket, "client"), 1)
    for _ in range(2):
        with pytest.raises(ShippingError, match="put twice: it ignores If-None-Match"):
            shipped.begin()
    assert not any("/manifest-" in name for name in bucket.names())
