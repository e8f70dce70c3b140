"""Copies that Spark reads: a store that ships itself, to a folder or to S3, with what it was at each of its moments."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.integration.s3_server import S3Bucket
from tests.shipping.copies import FOLDER, Shipped
from tidelog.ids import Ts
from tidelog.journal.frame import Geometry
from tidelog.journal.journal import Settings
from tidelog.ports import ObjectStore
from tidelog.shipping.fetch import write_restored
from tidelog.shipping.shipped_disk import ShippedDisk
from tidelog.shipping.shipper import Shipper
from tidelog.store.restore import restore
from tidelog.store.store import Store
from tidelog.streams.stream import Stream
from tidelog.system.object_store import open_object_store
from tidelog.testing.disk import SimulatedDisk
from tidelog.types.hash_value import Hash
from tidelog.types.list_value import List
from tidelog.types.set_value import Set
from tidelog.types.zset_value import ZSet

Rows = set[tuple[bytes, str, bytes | None, bytes | None, int | None]]
"""Key, type, field, value and expiry in ms."""


class CopyPlace(NamedTuple):
    """Where a copy goes, and the options with which Spark reads it."""

    url: str
    storage: Mapping[str, str]
    env: Mapping[str, Any] = {}
    """For a server that ships there."""

    @property
    def options(self) -> dict[str, Any]:
        """Of the source."""
        return {f"storage.{name}": value for name, value in self.storage.items()}

    def objects(self) -> ObjectStore:
        return open_object_store(self.url, self.storage)

    def shipped(self, shards: int = 2, seed: int = 1) -> Recorded:
        return Recorded(self.objects(), shards, seed=seed)


class Recorded(Shipped):
    """A store with its shipper, and the rows of its state after each of its transactions."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.rows: dict[Ts, dict[int, Rows]] = {}

    def change(self, count: int = 1) -> None:
        for _ in range(count):
            super().change()
            self.note()

    def settle(self) -> None:
        """Ship what is large: the snapshot that a lineage begins with."""
        self.ship()
        while self.shipper.work():
            pass
        self.clock.advance(11_000_000)
        self.ship()

    def note(self) -> None:
        self.rows[self.journal.writer.written_ts] = {number: rows_of(self.store, number) for number in (0, 3)}

    def rows_at(self, ts: int, database: int = 0) -> Rows:
        """Without keys that have expired."""
        [*_, found] = [rows for when, rows in self.rows.items() if when <= ts]
        return {row for row in found[database] if row[4] is None or row[4] > ts // 1000}


def succeed(lost: Recorded, until: Ts | None = None) -> Recorded:
    """The machine is lost: another server goes on from the copy, with files of its own, so as a new lineage."""
    manifest, disk = lost.newest, SimulatedDisk()
    lineage = manifest.lineages[-1]
    source = ShippedDisk(lost.objects, manifest.database_id, lineage, "/shipped")
    at = min(lineage.ts, until or lineage.ts)
    empty = Store(lost.clock, random.Random(1))
    restore(disk, empty, "/shipped", FOLDER, until=at, source_disk=source, database_id=manifest.database_id)
    write_restored(disk, FOLDER, manifest)
    settings = Settings(geometry=Geometry(frame_bytes=4096, frames_per_segment=4), shard_count=lineage.shard_count)
    store = Store.open(disk, FOLDER, lost.store._clock, settings, lambda: 77, random.Random(5))
    made = Recorded(lost.objects, store=store, seed=9)
    made.disk, made.clock, made.rows = disk, lost.clock, dict(lost.rows)
    made.shipper = Shipper(disk, FOLDER, store.journal.meta, lost.objects, lost.clock)
    return made


def rows_of(store: Store, number: int) -> Rows:
    """What the kind `state` should make of a database; written down a second time."""
    database = store.database(number)
    found: Rows = set()
    for key in database.all_keys() if database.size else ():
        value: Any = database.find(key)
        when = database.expiries.get(key)
        if isinstance(value, bytes):
            found.add((key, "string", None, value, when))
        elif isinstance(value, Stream):
            found.add((key, "stream", None, b"%d,%d" % (value.first, value.last), when))
            if value.rule is not None:
                found.add((key, "stream", b"config", b"%d,%d,%d" % value.rule, when))
        elif isinstance(value, Hash):
            found |= {(key, "hash", field, its, when) for field, its in value.fields().items()}
        elif isinstance(value, Set):
            found |= {(key, "set", member, b"1", when) for member in value}
        elif isinstance(value, ZSet):
            found |= {(key, "zset", member, b"%.17g" % score, when) for score, member in value}
        elif isinstance(value, List):
            elements = [_json(element) for element in value]
            found.add(
                (key, "list", None, json.dumps(elements, ensure_ascii=False, separators=(",", ":")).encode(), when)
            )
    return found


def _json(element: bytes) -> Any:
    import base64

    try:
        return element.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(element).decode()}


@pytest.fixture(params=["folder", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> CopyPlace:
    """An empty object store."""
    if request.param == "folder":
        return CopyPlace(str(tmp_path / "objects"), {})
    bucket: S3Bucket = request.getfixturevalue("s3_bucket")
    return CopyPlace(bucket.folder(), bucket.options, bucket.env)


def state_rows(table: Any) -> Rows:
    return {
        (
            row["key"],
            row["type"],
            row["field"],
            row["value"],
            None if row["expire"] is None else round(row["expire"].timestamp() * 1000),
        )
        for row in table.to_pylist()
    }
