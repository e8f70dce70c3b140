"""Copies in a folder and on S3, for tests of the commands that make and read them."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.command_line import ENVIRONMENT
from tests.integration.s3_server import S3Bucket
from tests.shipping.copies import FOLDER, Shipped, succeeded
from tests.store.changes import open_store, state
from tidelog.cli.output.values import time_of
from tidelog.journal.frame import Geometry
from tidelog.journal.journal import Settings
from tidelog.ports import ObjectStore
from tidelog.store.store import Store
from tidelog.system.disk import SystemDisk
from tidelog.system.ship_store import open_ship_store
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk

KEY = bytes(range(32))


class Place(NamedTuple):
    """Where a copy is kept. Commands of this process and of others find their way by the environment."""

    url: str
    key_file: str | None = None

    @property
    def objects(self) -> ObjectStore:
        return open_ship_store(self.url, self.key_file)

    @property
    def key(self) -> tuple[str, ...]:
        return () if self.key_file is None else ("--ship-key-file", self.key_file)


@pytest.fixture(params=["folder", "s3", "encrypted"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """An empty one."""
    if request.param == "folder":
        return Place(str(tmp_path / "copy"))
    if request.param == "encrypted":
        file = tmp_path / "key"
        file.write_bytes(KEY)
        file.chmod(0o600)
        return Place(f"file://{tmp_path}/copy", str(file))
    bucket: S3Bucket = request.getfixturevalue("s3_bucket")
    for name, value in bucket.env.items():
        monkeypatch.setitem(os.environ, name, value)
        monkeypatch.setitem(ENVIRONMENT, name, value)
    return Place(bucket.folder())


def shipped_history(objects: ObjectStore) -> Shipped:
    """Two lineages, with snapshots and what was written after them; returns the last that shipped."""
    first = Shipped(objects)
    first.begin()
    first.change(60)
    first.save()
    first.change(40)
    first.ship()
    second = succeeded(first)
    second.change(50)
    second.save()
    return second


def ship_another_database(objects: ObjectStore) -> str:
    """Beside the first one; returns its id."""
    disk = SimulatedDisk()
    settings = Settings(geometry=Geometry(frame_bytes=4096, frames_per_segment=4))
    store = Store.open(disk, FOLDER, SimulatedClock(), settings, lambda: 5, random.Random(5))
    shipped = Shipped(objects, store=store, disk=disk)
    shipped.begin()
    shipped.change(5)
    shipped.ship()
    return shipped.newest.database_id


def found(folder: Path) -> dict[object, object]:
    """The state of a directory that was restored."""
    store = open_store(SystemDisk(), 1, str(folder))
    try:
        return dict(state(store))
    finally:
        store.journal.close()


def iso(ts: int) -> str:
    time = time_of(ts)
    assert time is not None
    return time
