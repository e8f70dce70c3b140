"""The kind `state`: the keyspace as it was at a moment, from a copy or a data directory, without a server."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import In

from tests.spark.in_process import reader
from tests.spark.shipped_copies import CopyPlace, Recorded, Rows, place, rows_of, state_rows
from tests.store.changes import change, open_store, run
from tidelog import limits
from tidelog.errors import DataDirectoryError
from tidelog.ports import ObjectStore
from tidelog.spark.copies import address
from tidelog.spark.copies.address import open_objects
from tidelog.spark.options import BadOption
from tidelog.store.backup import copy_newest_snapshot
from tidelog.store.restore import restore
from tidelog.store.store import Store
from tidelog.system.counted_store import CountedStore
from tidelog.system.disk import SystemDisk
from tidelog.testing.clock import SimulatedClock

__all__ = ["place"]
pytestmark = pytest.mark.xdist_group("spark")


def state(place: CopyPlace, prefix: str = "*", **options: Any) -> Rows:
    made = reader(path=f"state:{prefix}", **{"from": place.url, **place.options, **options})
    found = [batch for part in made.partitions() for batch in made.read(part)]
    rows = [row for batch in found for row in state_rows(batch)]
    assert len(set(rows)) == len(rows), "a row came twice"
    return set(rows)


def busy(shipped: Recorded, changes: int) -> None:
    """Changes, snapshots and rounds in some order."""
    shipped.begin()
    left = changes
    while left > 0:
        count = min(left, shipped.rng.randrange(1, 90))
        shipped.change(count)
        left -= count
        if shipped.rng.random() < 0.3:
            shipped.save()
        else:
            shipped.ship()
    shipped.ship()


@pytest.mark.parametrize(("changes", "count"), [(300, 5), pytest.param(2000, 100, marks=pytest.mark.long)])
def test_any_moment_is_as_the_store_was(place: CopyPlace, changes: int, count: int) -> None:
    shipped = place.shipped()
    busy(shipped, changes)
    moments = random.Random(3).sample(list(shipped.rows), count)
    for ts in moments:
        for database in (0, 3):
            assert state(place, at=ts, database=database) == shipped.rows_at(ts, database)
    assert state(place) == shipped.rows_at(shipped.newest.closed_ts)


def test_tasks_divide_slots_and_keys_are_chosen(place: CopyPlace) -> None:
    shipped = place.shipped()
    busy(shipped, 300)
    ts = random.Random(4).choice(list(shipped.rows)[100:])
    rows = shipped.rows_at(ts)

    assert state(place, at=ts, partition_slots=1500) == rows
    # Keys that were copied from others which are not wanted, or which another task has.
    for prefix in (b"key", b"{tag}", b"key1", b"h"):
        wanted = {row for row in rows if row[0].startswith(prefix)}
        assert state(place, prefix.decode(), at=ts, partition_slots=4000) == wanted
    chosen = {row for row in rows if row[0] in (b"key7", b"{tag}4")}
    options: Any = {"path": "state:*", "from": place.url, "at": ts, **place.options}
    made = reader(filters=[In(("key",), (b"key7", b"{tag}4"))], **options)
    found = [state_rows(batch) for part in made.partitions() for batch in made.read(part)]
    assert set().union(*found) == chosen


def test_a_data_directory_and_a_backup_show_their_moments(tmp_path: Path) -> None:
    store = open_store(SystemDisk(), 2, str(tmp_path / "data"))
    rng, rows, saved = random.Random(8), {}, set()
    for count in range(200):
        change(store, rng)
        store.journal.writer.write()
        rows[store.journal.writer.written_ts] = rows_of(store, 0)
        if count in (60, 140):
            store.save()
            saved = rows_of(store, 0)
    store.journal.writer.sync()

    data = CopyPlace(str(tmp_path / "data"), {})
    for ts in [*list(rows)[::41], None]:
        wanted = rows[[*rows][-1] if ts is None else ts]
        # The clock of this store stands still, so nothing has expired.
        given: dict[str, Any] = {} if ts is None else {"at": ts}
        assert state(data, **given) == wanted
    assert state(data, at=0) == set()
    with pytest.raises(DataDirectoryError, match="ahead of the clock"):
        state(data, at=2**60)

    made = copy_newest_snapshot(SystemDisk(), str(tmp_path / "data"), str(tmp_path / "backup"))
    backup = CopyPlace(str(tmp_path / "backup"), {})
    assert state(backup) == state(backup, at=made.ts) == saved
    for at in (0, made.ts - 1, made.ts + 1):
        with pytest.raises(DataDirectoryError, match="no other moment"):
            state(backup, at=at)
    store.journal.close()


def test_a_directory_that_was_restored_shows_nothing_from_before_its_snapshots(tmp_path: Path) -> None:
    disk, data = SystemDisk(), str(tmp_path / "data")
    store = open_store(disk, 1, str(tmp_path / "old"))
    run(store, [b"SET", b"base", b"x"])
    store.save()
    store.journal.close()
    restore(disk, Store(SimulatedClock(), random.Random(1)), str(tmp_path / "old"), data)
    store = open_store(disk, 1, data)
    run(store, [b"SET", b"a", b"y"])
    store.journal.writer.write()
    ts = store.journal.writer.written_ts
    for key in (b"b", b"c"):
        run(store, [b"SET", key, b"y"])
        store.save()
    store.journal.close()

    assert {row[0] for row in state(CopyPlace(data, {}))} == {b"base", b"a", b"b", b"c"}
    with pytest.raises(DataDirectoryError, match="shows nothing as old as"):
        state(CopyPlace(data, {}), at=ts)


class NotingStore(CountedStore):
    """Notes which bytes are read."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.reads: Counter[tuple[str, int]] = Counter()

    def read(self, name: str, position: int, length: int) -> bytes:
        self.reads[name, position] += 1
        return super().read(name, position, length)


def test_a_task_fetches_each_block_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads the journal twice: first it looks for streams that others were copied from."""
    place = CopyPlace(str(tmp_path / "objects"), {})
    shipped = place.shipped(shards=1)
    shipped.begin()
    shipped.change(60)
    shipped.save()
    shipped.change(200)
    shipped.ship()
    for name, value in (("SHIPPED_BLOCK_BYTES", 1000), ("SHIPPED_BLOCKS_KEPT", 4), ("SPARK_AHEAD_BLOCKS", 0)):
        monkeypatch.setattr(limits, name, value)
    opened: list[NotingStore] = []

    def noting(*given: Any) -> NotingStore:
        opened.append(NotingStore(open_objects(*given)))
        return opened[-1]

    monkeypatch.setattr(address, "open_objects", noting)
    monkeypatch.setattr(address, "_OPENED", type(address._OPENED)())
    given: dict[str, Any] = {"path": "state:*", "from": place.url}
    made = reader(**given)
    [part] = made.partitions()
    for store in opened:
        store.reads.clear()
    assert [row for batch in made.read(part) for row in batch.to_pylist()]
    journal = {key: count for store in opened for key, count in store.reads.items() if "/shard-0/" in key[0]}
    assert len(journal) > 10
    assert set(journal.values()) == {1}


def test_what_cannot_be_shown_is_refused(place: CopyPlace, tmp_path: Path) -> None:
    shipped = place.shipped()
    shipped.begin()
    shipped.change(5)
    shipped.ship()

    with pytest.raises(DataDirectoryError, match="not covered"):
        state(place, at=2**60)
    with pytest.raises(DataDirectoryError, match="no database ffff"):
        state(place, database_id="ffff")
    with pytest.raises(BadOption, match="needs the option from"):
        reader(path="state:x")
    with pytest.raises(BadOption, match="no option 'url'"):
        state(place, url="redis://127.0.0.1")
    with pytest.raises(DataDirectoryError, match="neither a copy nor a data directory"):
        state(CopyPlace(str(tmp_path / "nothing"), {}))
    assert not (tmp_path / "nothing").exists()
