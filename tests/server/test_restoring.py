"""A machine that was lost comes back from a copy: when it may, and what it does while the one before still lives."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random

import pytest

from tests.shipping.copies import FOLDER, Shipped, run_all
from tests.store.changes import open_store, state
from tidelog.errors import ShippingError
from tidelog.journal.frame import Geometry
from tidelog.journal.journal import Settings
from tidelog.ports import ObjectStore
from tidelog.server.configuration import ServerConfig
from tidelog.server.restoring import restore_first
from tidelog.server.ship_target import absolute_place
from tidelog.shipping.fetch import read_restored
from tidelog.store.store import Store
from tidelog.system.ship_store import open_read_store
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk
from tidelog.testing.object_store import SimulatedBucket

CONFIG = ServerConfig(data=FOLDER, restore_from="copy", restore_wait_us=60_000_000)


class Lost:
    """A server that was shipped, and the machine that is to replace it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = SimulatedClock()
        self.bucket = SimulatedBucket(self.clock, Random(1))
        self.shipped = Shipped(self.bucket.client("first"), 1)
        self.shipped.clock = self.clock
        self.shipped.begin()
        self.shipped.change(20)
        self.shipped.ship()
        self.disk = SimulatedDisk()
        self.epochs = 0
        self.on_second: Callable[[], None] = lambda: None
        """Called after each second that is waited for."""
        monkeypatch.setattr(time, "sleep", self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.clock.advance(round(seconds * 1e6))
        self.on_second()

    def ship(self) -> None:
        self.shipped.change(3)
        self.shipped.ship()

    def restore(
        self,
        fetch_all: Callable[[Iterable[Callable[[], None]]], None] = run_all,
        on_fetched: Callable[[int, int], None] = lambda _done, _total: None,
    ) -> None:
        def open_objects(_url: str, _key: str | None, _rate: int) -> ObjectStore:
            return self.bucket.client("second")

        restore_first(CONFIG, self.disk, self.clock, open_objects, fetch_all, on_fetched)

    def take_over(self) -> Shipped:
        self.epochs += 1
        settings = Settings(geometry=Geometry(frame_bytes=4096, frames_per_segment=4))
        store = Store.open(self.disk, FOLDER, self.clock, settings, lambda: 50 + self.epochs, Random(5))
        taken = Shipped(self.bucket.client("second"), store=store, disk=self.disk, seed=2)
        taken.begin()
        return taken


def test_a_server_that_ships_while_its_copy_is_fetched_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = Lost(monkeypatch)
    fetches = 0

    def fetch(jobs: Iterable[Callable[[], None]]) -> None:
        nonlocal fetches
        run_all(jobs)
        fetches += 1
        if fetches == 1:
            lost.ship()

    lost.restore(fetch)
    assert fetches == 2
    restored = read_restored(lost.disk, FOLDER)
    assert restored is not None
    assert restored.manifest == lost.shipped.newest.number
    assert state(lost.take_over().store) == state(lost.shipped.store)


def test_a_server_that_ships_before_the_other_takes_over_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading may take minutes."""
    lost = Lost(monkeypatch)
    lost.restore()
    lost.ship()
    with pytest.raises(ShippingError, match="not the one that this directory was restored from"):
        lost.take_over()
    lost.ship()


def test_a_machine_that_took_over_does_so_again(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = Lost(monkeypatch)
    lost.restore()
    for _ in range(2):
        taken = lost.take_over()
        taken.change(3)
        taken.ship()
        taken.journal.close()


def test_a_directory_that_was_copied_does_not_take_over_from_its_original(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = Lost(monkeypatch)
    lost.shipped.journal.close()
    lost.disk = lost.shipped.disk.clone(1)
    again = Shipped(lost.bucket.client("again"), store=open_store(lost.shipped.disk, 1), disk=lost.shipped.disk, seed=3)
    again.begin()
    again.change(3)
    again.ship()
    with pytest.raises(ShippingError, match="a copy of an older state"):
        lost.take_over()
    again.change(3)
    again.ship()


def test_a_server_that_lives_is_told_of_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lost = Lost(monkeypatch)
    left = 300

    def ship() -> None:
        nonlocal left
        left -= 1
        if left > 0:
            lost.ship()

    lost.on_second = ship
    lost.restore()
    assert 4 <= caplog.text.count("another server still ships") <= 6
    assert "--replicaof" in caplog.text
    assert "--follow-from" in caplog.text
    assert state(lost.take_over().store) == state(lost.shipped.store)


def test_how_far_a_restore_is_shows(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "tidelog")
    lost = Lost(monkeypatch)
    told: list[tuple[int, int]] = []

    def fetch(jobs: Iterable[Callable[[], None]]) -> None:
        for job in jobs:
            lost.clock.advance(11_000_000)
            job()

    lost.restore(fetch, lambda done, total: told.append((done, total)))
    assert [done for done, _ in told] == sorted({done for done, _ in told})
    assert told[0][0] == 0
    assert told[-1] == (told[0][1], told[0][1])
    assert "100 %" in caplog.text


def test_a_folder_that_is_missing_is_a_copy_without_a_database(tmp_path: Path) -> None:
    """It is not made, either: a disk that is not mounted would look like an empty copy from then on."""
    config = ServerConfig(data=FOLDER, restore_from=str(tmp_path / "copy"))
    disk = SimulatedDisk()
    restore_first(config, disk, SimulatedClock(), open_read_store, run_all)
    assert not disk.exists(FOLDER)
    assert list(tmp_path.iterdir()) == []


def test_descriptions_say_where_a_copy_lies_for_any_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute_place("copy") == str(tmp_path / "copy")
    assert absolute_place("/copy") == "/copy"
    assert absolute_place("s3://bucket/copy") == "s3://bucket/copy"
