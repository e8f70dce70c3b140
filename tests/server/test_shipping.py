"""A server that ships itself: what it holds while the store is away, and what becomes of mistakes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, cast

import pytest

from tests.store.changes import change
from tidelog import limits
from tidelog.engine.parameters import BadValue
from tidelog.ids import Ts
from tidelog.journal.frame import Geometry
from tidelog.journal.journal import Settings
from tidelog.journal.retention import Holder, RetentionLimits
from tidelog.server.setting_values import read_ship_bandwidth
from tidelog.server.shipping import ServerShipping
from tidelog.server.turns import Turns
from tidelog.shipping.manifest_log import ManifestLog
from tidelog.shipping.shipper import Shipper
from tidelog.store.store import Store
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk
from tidelog.testing.object_store import SimulatedBucket

LAPSE_US = 3600 * 1_000_000


class _Syncing:
    """The part of `Turns` and of its group commit that shipping uses: everything is durable at once."""

    def __init__(self, store: Store) -> None:
        self._writer = store.journal.writer

    @property
    def commit(self) -> _Syncing:
        return self

    async def make_durable(self, _ts: Ts) -> None:
        self.sync_now()

    def sync_now(self) -> None:
        self._writer.write()
        self._writer.sync()


class Served:
    """A store that is shipped, without a server around it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.clock = SimulatedClock()
        self.bucket = SimulatedBucket(self.clock, Random(1))
        self.client = self.bucket.client()
        disk, rng = SimulatedDisk(), Random(1)
        retention = RetentionLimits(bytes_max=0, holder_lapse_us=LAPSE_US, holder_bytes_max=1 << 40)
        settings = Settings(Geometry(frame_bytes=4096, frames_per_segment=2), 1, retention=retention)
        self.store = Store.open(disk, "/data", self.clock, settings, lambda: 1, rng)
        self.rng = rng
        self.journal: Any = self.store.journal
        meta = self.journal.meta
        self.shipping = ServerShipping(
            loop,
            self.journal,
            cast(Turns, _Syncing(self.store)),
            self.clock,
            "memory",
            lambda: Shipper(disk, "/data", meta, self.client, self.clock),
        )

    def change(self, count: int = 200) -> None:
        for _ in range(count):
            change(self.store, self.rng)
            self.journal.writer.write()
        self.journal.writer.sync()

    async def until(self, is_so: Callable[[], object]) -> None:
        for _ in range(400):
            if is_so():
                return
            await asyncio.sleep(0.05)
            self.clock.advance(200_000)
        pytest.fail(f"it never came to that: {self.shipping.facts}")

    async def shipped(self) -> None:
        await self.until(lambda: self.shipping.facts.shipped_ts >= self.journal.writer.durable_ts)

    @property
    def segments(self) -> int:
        return len(self.journal.find_erasable())


def test_a_snapshot_is_not_kept_for_a_store_that_is_away() -> None:
    """As long as it is pinned, no segment after it goes: the disk would fill."""

    async def run() -> None:
        served = Served(asyncio.get_running_loop())
        served.change()
        await served.shipped()
        served.store.save()
        served.journal.remove_old_snapshots()
        served.client.fail("put", name_contains="/snapshots/", times=1 << 30)
        await served.until(lambda: served.shipping._shipper.snapshot is not None)
        served.bucket.is_down = True
        for _ in range(4):
            served.change()
            served.store.save()
            served.journal.remove_old_snapshots()
        await asyncio.sleep(0.3)  # it notices that it is behind
        served.clock.advance(LAPSE_US + 1)
        await served.until(lambda: served.shipping._shipper.snapshot is None)
        served.journal.remove_old_snapshots()
        served.journal.erase()
        served.journal.erase()
        assert served.segments == 0
        assert served.shipping.facts.state == "failing"
        assert served.shipping.facts.lag_us >= LAPSE_US

        served.bucket.is_down = False  # the copy goes on, with a new lineage
        served.client._planned.clear()
        await served.shipped()
        await served.shipping.finish(5)

    asyncio.run(run())


def test_a_copy_is_behind_until_its_first_snapshot_is_there() -> None:
    """A restore would have nothing, although every byte of the journal has been shipped."""

    async def run() -> None:
        served = Served(asyncio.get_running_loop())
        served.change()
        served.store.save()
        served.client.fail("put", name_contains="/snapshots/", times=1 << 30)
        shipper = served.shipping._shipper
        await served.until(lambda: shipper.shipped_ts >= served.journal.writer.durable_ts)
        await served.until(lambda: served.shipping.facts.lag_us > 10_000_000)
        assert served.shipping.facts.shipped_ts == 0

        served.client._planned.clear()
        await served.shipped()
        await served.until(lambda: served.shipping.facts.lag_us == 0)
        await served.shipping.finish(5)

    asyncio.run(run())


def test_a_stop_names_what_was_put_since_the_last_manifest() -> None:
    async def run() -> None:
        served = Served(asyncio.get_running_loop())
        served.change()
        await served.shipped()
        served.store.save()
        shipper = served.shipping._shipper
        log = ManifestLog(served.client, served.journal.meta.database_id)
        for _ in range(400):
            await asyncio.sleep(0.01)  # the clock stands still: no manifest is due
            served.clock.advance(10_000)
            if shipper.lineages[-1].snapshots:
                break
        [ts] = shipper.lineages[-1].snapshots
        await served.shipping.finish(5)
        manifest = log.newest()
        assert manifest is not None
        assert list(manifest.lineages[-1].snapshots) == [ts]
        assert shipper.archive.restorable_ts == served.journal.writer.durable_ts

    asyncio.run(run())


def test_a_server_that_only_tries_to_take_over_does_not_hold_the_journal_for_ever() -> None:
    async def run() -> None:
        served = Served(asyncio.get_running_loop())
        served.bucket.is_down = True
        await served.until(lambda: served.shipping.facts.failures >= 2)
        first = served.journal.holders.get("shipping").moved_us
        failures = served.shipping.facts.failures
        await served.until(lambda: served.shipping.facts.failures >= failures + 2)
        assert served.journal.holders.get("shipping").moved_us == first
        await served.shipping.finish(5)

    asyncio.run(run())


def test_a_mistake_of_ours_does_not_end_shipping_silently(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        served = Served(asyncio.get_running_loop())
        served.change(5)
        await served.shipped()

        def mistaken(*_: object) -> None:
            raise KeyError("a mistake")

        ship = Shipper.ship
        monkeypatch.setattr(Shipper, "ship", mistaken)
        served.change(5)
        await served.until(lambda: served.shipping.facts.state == "failing")
        assert "KeyError" in served.shipping.facts.error
        monkeypatch.setattr(Shipper, "ship", ship)
        await served.shipped()
        await served.shipping.finish(5)

    asyncio.run(run())


def test_snapshots_are_shipped_by_credentials_that_may_not_delete(caplog: pytest.LogCaptureFixture) -> None:
    """They are, for as long as nothing may be deleted; the log says so once."""

    async def run() -> None:
        served = Served(asyncio.get_running_loop())
        served.change()
        await served.shipped()
        shipper: Any = served.shipping._shipper
        shipper._upkeep._deleting = ["what-is-needed-no-more"]
        served.client.fail("delete", times=1 << 30, errno=13)
        for count in (1, 2):
            served.clock.advance(limits.SHIP_UPKEEP_RETRY_US)
            await served.until(lambda count=count: served.shipping.facts.upkeep_failures == count)  # type: ignore[misc]
        assert "needed-no-more" in served.shipping.facts.upkeep_error
        assert (served.shipping.facts.state, served.shipping.facts.failures) == ("shipping", 0)
        for _ in range(2):
            served.store.save()
            served.change(3)
            newest = served.journal.newest_snapshot.point.ts
            await served.until(lambda newest=newest: newest in shipper.lineages[-1].snapshots)  # type: ignore[misc]
        assert shipper._upkeep._swept_us, "what is too old leaves the copy all the same"
        await served.shipping.finish(5)

    asyncio.run(run())
    assert caplog.text.count("needed no more stays") == 1


def test_rounds_go_on_if_a_snapshot_cannot_be_put(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        served = Served(asyncio.get_running_loop())
        served.change()
        await served.shipped()
        served.client.fail("put", name_contains="/snapshots/", times=5)
        served.store.save()
        newest = served.journal.newest_snapshot.point.ts
        await served.until(lambda: served.shipping.facts.failures == 3)
        served.change(3)
        await served.shipped()
        assert served.shipping.facts.state == "shipping"
        assert "/snapshots/" in served.shipping.facts.error
        shipper: Any = served.shipping._shipper
        await served.until(lambda: newest in shipper.lineages[-1].snapshots)
        assert served.shipping.facts.error == ""
        await served.shipping.finish(5)

    asyncio.run(run())
    assert caplog.text.count("/snapshots/") == 1


def test_a_named_feed_called_shipping_is_somebody_else() -> None:
    """Without a holder of its own, the journal would go before it is shipped."""

    async def run() -> None:
        served = Served(asyncio.get_running_loop())
        served.journal.holders._named.by_name["shipping"] = Holder("shipping", Ts(1), 0)
        served.bucket.is_down = True
        await served.until(lambda: served.shipping.facts.failures >= 1)
        assert served.journal.holders.is_passing("shipping")
        await served.shipping.finish(5)

    asyncio.run(run())


@pytest.mark.parametrize(("value", "wanted"), [("0", 0), ("16kb", 16 * 1024), ("1gb", 1 << 30)])
def test_a_bandwidth_lets_manifests_come_in_time(value: str, wanted: int) -> None:
    assert read_ship_bandwidth(value) == wanted
    with pytest.raises(BadValue, match="at least 16kb"):
        read_ship_bandwidth("16383")
