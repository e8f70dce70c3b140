"""A task reads the frames of a snapshot that have its slots: nothing is missing, whatever was written meanwhile."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.store.changes import DATABASES, open_store, plain, state
from tidelog import limits
from tidelog.ids import SLOT_COUNT, Lsn
from tidelog.journal.operation import Val
from tidelog.journal.source import ShardSource
from tidelog.spark.copies.address import HistoryAddress
from tidelog.spark.copies.moment import PastMoment, find_moment
from tidelog.spark.copies.past_shard import past_shard
from tidelog.spark.copies.wanted_keys import WantedKeys
from tidelog.store.slots import slot_of
from tidelog.store.store import Store
from tidelog.system.disk import SystemDisk
from tidelog.types.hash import hset
from tidelog.types.set import sadd

pytestmark = pytest.mark.xdist_group("spark")
State = dict[tuple[int, bytes], Any]
KINDS = {
    "strings": [1, 0, 0, 0],
    "hashes": [0, 1, 1, 0],
    "both": [5, 1, 1, 1],
    "few strings": [1, 30, 10, 1],
    "strings that expire": [0, 0, 0, 1],
}


def put(store: Store, rng: random.Random, weights: list[int]) -> None:
    key = b"key%d" % rng.randrange(3000)
    transaction = store.begin(rng.choice(DATABASES))
    kind = rng.choices(range(4), weights)[0]
    if kind in (0, 3):
        value = rng.randbytes(rng.choice([3, 30, 300]))
        transaction.run([Val([(key, value)], 10**13 + rng.randrange(10**6) if kind == 3 else None)])
    elif kind == 1:
        place = b"h" + key
        transaction.run(hset(place, [word for _ in range(rng.choice([1, 9])) for word in (rng.randbytes(4), b"v")]))
    else:
        transaction.run(sadd(b"s" + key, [rng.randbytes(2)]))
    store.commit(transaction)


def saved(folder: str, shards: int, weights: list[int], seed: int) -> tuple[PastMoment, State]:
    """A directory with a snapshot that was made while the store went on, and its state at that moment."""
    rng = random.Random(seed)
    store = open_store(SystemDisk(), shards, folder)
    for _ in range(4000):
        put(store, rng, weights)
    store.journal.writer.write()
    expected = state(store)
    capture = store.begin_capture()
    assert capture is not None
    while not capture.is_done:
        for _ in range(rng.randrange(200)):
            if not capture.is_done:
                capture.step()
        for _ in range(rng.randrange(6)):
            put(store, rng, weights)
    store.journal.writer.write()
    snapshot = store.journal.finish_snapshot(capture.snapshot)
    store.end_capture()
    store.journal.close()
    return find_moment(HistoryAddress(folder), snapshot.point.ts), expected


def keys_of(moment: PastMoment, wanted: WantedKeys) -> State:
    found: State = {}
    for shard in range(len(moment.slots)):
        with past_shard(moment, shard, wanted) as past:
            for key, value, expire_ms in past.values():
                found[wanted.database, key] = plain(value), expire_ms
    return found


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("kinds", KINDS)
def test_any_slots_are_all_there(tmp_path: Path, shards: int, kinds: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RECORD_MEMBERS_MAX", 7)
    monkeypatch.setattr(limits, "STAGED_BYTES_MIN", 250)
    moment, expected = saved(str(tmp_path / "data"), shards, KINDS[kinds], seed=shards)
    rng = random.Random(5)
    for _ in range(25):
        first = rng.randrange(SLOT_COUNT)
        last = min(SLOT_COUNT - 1, first + rng.choice([0, 10, 500, 4000]))
        database = rng.choice(DATABASES)
        wanted = WantedKeys(database, first_slot=first, last_slot=last)
        its = {
            each: value for each, value in expected.items() if each[0] == database and first <= slot_of(each[1]) <= last
        }
        assert keys_of(moment, wanted) == its
    for database, key in rng.sample(sorted(expected), 10):
        found = keys_of(moment, WantedKeys(database, among=frozenset([key])))
        assert found == {(database, key): expected[database, key]}


def test_few_frames_are_read_for_few_slots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RECORD_MEMBERS_MAX", 7)  # others are too large for the frames
    moment, _ = saved(str(tmp_path / "data"), 1, KINDS["strings"], seed=1)
    read: list[int] = []
    original = ShardSource.read

    def counted(source: ShardSource, segment: Lsn, start: int, end: int) -> bytes:
        data = original(source, segment, start, end)
        read.append(len(data) if "snapshot" in source.folder else 0)
        return data

    monkeypatch.setattr(ShardSource, "read", counted)
    keys_of(moment, WantedKeys(0))
    everything = sum(read)
    read.clear()
    keys_of(moment, WantedKeys(0, first_slot=8000, last_slot=8100))
    assert sum(read) < everything / 2
