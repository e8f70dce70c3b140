"""A server that follows a copy, on a simulated machine: what it goes by, and when its link is up."""

from __future__ import annotations

import random
from typing import Final

import pytest

from tests.shipping.copies import FOLDER, Shipped
from tests.simulation.copy_follower import CopyFollower, FollowingServer
from tests.store.changes import state
from tidelog import limits
from tidelog.journal.journal import Settings
from tidelog.shipping.copy_session import CopySession
from tidelog.shipping.shipper import Shipper
from tidelog.shipping.upkeep import Upkeep
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.loop import SimulatedLoop
from tidelog.testing.network import SimulatedNetwork
from tidelog.testing.object_store import SimulatedBucket

HOUR_US: Final = 3600 * 1_000_000


class FollowedCopy:
    """A store that ships, and a server that follows its copy."""

    def __init__(self) -> None:
        self.clock = SimulatedClock()
        self.bucket = SimulatedBucket(self.clock, random.Random(1))
        self.loop = SimulatedLoop(self.clock)
        self.shipped = Shipped(self.bucket.client("leader"))
        journal = self.shipped.journal
        self.shipped.shipper = Shipper(
            self.shipped.disk, FOLDER, journal.meta, self.shipped.objects, self.clock, keep_us=HOUR_US
        )
        self.shipped.clock = self.clock
        self.objects = self.bucket.client("follower")
        network = SimulatedNetwork(self.loop, 1)
        self.machine = CopyFollower(network, "f", 1, Settings(), self.objects)

    @property
    def server(self) -> FollowingServer:
        return self.machine.following

    def begin(self) -> None:
        self.shipped.begin()
        self.shipped.change(20)
        self.shipped.ship()

    def run(self, seconds: float, *, ships: bool = True) -> None:
        """Let time pass while the leader lives, or does not."""
        for _ in range(round(seconds * 2)):
            self.loop.run(0.5)
            if ships:
                self.shipped.ship()

    def check_level(self) -> None:
        assert self.server.held() == (self.shipped.journal.writer.last_ts, state(self.shipped.store))


def test_a_copy_without_a_snapshot_is_followed_from_its_beginning() -> None:
    copy = FollowedCopy()
    copy.begin()
    assert not copy.shipped.newest.lineages[-1].snapshots
    copy.machine.start()
    copy.run(5)
    copy.check_level()
    assert copy.server.is_linked()
    assert copy.server.replication.own_full_syncs == 1
    copy.shipped.change(5)
    copy.run(3)
    copy.check_level()
    assert copy.server.replication.own_full_syncs == 1


def test_a_restart_fetches_what_was_missed_and_nothing_else() -> None:
    copy = FollowedCopy()
    copy.begin()
    copy.shipped.save()
    copy.machine.start()
    copy.run(5)
    copy.machine.end(copy.machine.kill)
    copy.shipped.change(30)
    copy.shipped.ship()
    copy.machine.start()
    copy.run(5)
    copy.check_level()
    assert copy.server.replication.own_full_syncs == 0


def test_whoever_is_further_behind_than_what_is_kept_fetches_all_of_it(caplog: pytest.LogCaptureFixture) -> None:
    copy = FollowedCopy()
    copy.begin()
    copy.machine.start()
    copy.run(5)
    copy.machine.end(copy.machine.kill)
    for _ in range(3):
        copy.shipped.change(600)
        copy.clock.advance(3 * HOUR_US)
        copy.shipped.save()
    upkeep: Upkeep = copy.shipped.shipper._upkeep
    upkeep.keep_us = 1
    copy.clock.advance(2 * limits.SHIP_SWEEP_US)
    while copy.shipped.shipper.work():
        pass
    copy.clock.advance(limits.SHIP_BEAT_US)
    copy.shipped.ship()
    assert copy.shipped.newest.lineages[-1].first_segments[0] > 0
    copy.machine.start()
    copy.run(5)
    copy.check_level()
    assert copy.server.replication.own_full_syncs == 1
    assert "all of it is fetched again" in caplog.text


def test_a_copy_that_nobody_ships_to_shows_the_link_as_down() -> None:
    copy = FollowedCopy()
    copy.begin()
    copy.machine.start()
    copy.run(5)
    held = copy.server.held()
    copy.run(50, ships=False)
    assert copy.server.is_linked()
    assert copy.server.replication.facts().lag_ms > 40_000
    copy.run(15, ships=False)
    facts = copy.server.replication.facts()
    assert not facts.is_link_up
    assert "no manifest has come for a minute" in facts.link_error
    assert copy.server.held() == held
    assert copy.server.replication.read_refusal is None

    copy.machine.end(copy.machine.kill)  # also after a start it is known to be old, and may be followed all the same
    copy.machine.get_new_disk(7)
    copy.machine.start()
    copy.run(10, ships=False)
    assert not copy.server.is_linked()
    copy.check_level()

    copy.shipped.change(3)
    copy.run(8)
    assert copy.server.is_linked()
    copy.check_level()


def test_a_process_that_slept_for_days_finds_the_newest_manifest() -> None:
    copy = FollowedCopy()
    copy.begin()
    copy.machine.start()
    copy.run(5)
    followed = copy.shipped.shipper.manifest_number
    for _ in range(3):
        copy.clock.advance(limits.SHIP_BEAT_US)
        copy.shipped.change(3)
        copy.shipped.ship()
    for number in range(followed, copy.shipped.shipper.manifest_number):
        copy.objects.delete(f"{copy.shipped.journal.meta.database_id}/manifest-{number:016x}")
    copy.clock.advance(50 * HOUR_US)
    copy.run(10)
    copy.check_level()


def test_a_store_that_fails_for_a_moment_does_not_end_the_link() -> None:
    copy = FollowedCopy()
    copy.begin()
    copy.machine.start()
    copy.run(5)
    copy.objects.fail("read", times=2)
    for _ in range(10):
        copy.run(1)
        assert copy.server.is_linked()
    copy.bucket.is_down = True
    copy.run(20, ships=False)
    assert not copy.server.is_linked()
    assert "the copy cannot be read" in copy.server.replication.facts().link_error
    copy.bucket.is_down = False
    copy.run(10)
    assert copy.server.is_linked()


def test_a_damaged_snapshot_is_not_asked_for_again() -> None:
    copy = FollowedCopy()
    copy.begin()
    copy.shipped.save()
    copy.shipped.change(10)
    copy.shipped.save()
    lineage = copy.shipped.newest.lineages[-1]
    newest = max(lineage.snapshots)
    prefix = copy.shipped.journal.meta.database_id
    for path, file in lineage.files.items():
        if path.startswith(f"snapshots/snapshot-{newest:016x}/shard-0/journal-"):
            name = f"{prefix}/{file.extents[0].object}"
            data = bytearray(copy.bucket.contents(name) or b"")
            data[len(data) // 2] ^= 1
            copy.bucket.damage(name, bytes(data))
    copy.machine.start()
    copy.run(15)
    copy.check_level()
    assert copy.server.replication.own_full_syncs == 1


def test_a_copy_in_a_slow_store_is_followed() -> None:
    copy = FollowedCopy()
    copy.begin()
    copy.machine.start()
    copy.server._copy_worker.seconds = 20  # a step: longer than a leader may take to answer
    copy.run(150)
    assert copy.server.is_linked()
    copy.server._copy_worker.seconds = 0.005
    copy.run(20)
    copy.check_level()


def test_what_a_link_wanted_that_is_over_is_not_done_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    copy = FollowedCopy()
    copy.begin()
    opened: list[CopySession] = []
    monkeypatch.setattr(CopySession, "open", lambda session: opened.append(session))
    monkeypatch.setattr(CopySession, "meet", lambda _session, _hello: b"")
    copy.machine.start()
    worker = copy.server._copy_worker
    worker.seconds = 20
    following = copy.server.replication._following
    assert following is not None
    for _ in range(5):
        copy.run(3)
        assert following._link is not None
        following._link.cut("somebody asked to")
    copy.run(3)
    assert len(worker._waiting) == 6
    copy.run(6 * 20)
    assert len(opened) == 1
