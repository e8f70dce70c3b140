"""A snapshot shows the store at one moment, whatever happens while it is written."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tidelog import limits
from tidelog.commands.all import command_table
from tidelog.commands.dispatch import find_command, run_command
from tidelog.journal.frame import Geometry
from tidelog.journal.journal import Settings
from tidelog.store.store import Store
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk
from tidelog.types.zset import ZSet

TABLE = command_table()
DATABASES = (0, 3)


def open_store(disk: SimulatedDisk, shards: int) -> Store:
    return Store.open(
        disk,
        "/data",
        SimulatedClock(),
        Settings(geometry=Geometry(frame_bytes=4096, frames_per_segment=4), shard_count=shards),
        new_epoch_id=lambda: 1,
        random=random.Random(1),
    )


def state(store: Store) -> dict[tuple[int, bytes], tuple[Any, int | None]]:
    """Every key of every database, as plain values."""
    return {
        (database.number, key): (plain(database.find(key)), database.expiries.get(key))
        for database in store.databases
        for key in database.all_keys()
    }


def plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, ZSet) else value.copy() if hasattr(value, "copy") else value


def change(store: Store, rng: random.Random) -> None:
    """One random command."""
    key = rng.choice([b"{tag}%d", b"key%d"]) % rng.randrange(60)
    commands: list[list[bytes]] = [
        [b"SET", key, rng.randbytes(rng.randrange(30))],
        [b"SET", key, b"x", b"PX", b"100000"],
        [b"DEL", key],
        [b"RENAME", key, b"key%d" % rng.randrange(60)],
        [b"PEXPIRE", key, b"5000"],
        [b"PERSIST", key],
        [b"INCR", b"n%d" % rng.randrange(9)],
    ]
    transaction = store.begin(rng.choice(DATABASES))
    arguments = rng.choice(commands)
    run_command(find_command(TABLE, arguments), transaction, arguments)
    if rng.random() < 0.02:
        from tidelog.journal.operation import FlushDb

        transaction.run([FlushDb()])
    if rng.random() < 0.6:
        from tidelog.types.hash import Hash, hset
        from tidelog.types.set import Set, sadd

        place = b"h%d" % rng.randrange(20)
        if type(transaction.find(place)) in (Hash, type(None)):
            transaction.run(hset(place, [b"f%d" % rng.randrange(5), rng.randbytes(4)]))
        place = b"s%d" % rng.randrange(20)
        if type(transaction.find(place)) in (Set, type(None)):
            transaction.run(sadd(place, [rng.randbytes(1)]))
    store.commit(transaction)


@pytest.mark.parametrize("is_small", [False, True])
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("seed", range(12))
def test_a_snapshot_equals_the_state_at_its_moment(
    seed: int, shards: int, is_small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_small:  # slots with buckets, and collections that are written in pieces
        monkeypatch.setattr(limits, "SLOT_KEYS_SPLIT", 4)
        monkeypatch.setattr(limits, "RECORD_MEMBERS_MAX", 3)
    rng = random.Random(seed)
    disk = SimulatedDisk(seed)
    store = open_store(disk, shards)
    for _ in range(rng.randrange(400)):
        change(store, rng)
    store.journal.writer.write()
    expected = state(store)
    capture = store.begin_capture()
    assert capture is not None
    while not capture.is_done:
        for _ in range(rng.choice([1, 5, 20])):
            if not capture.is_done:
                capture.step()
        for _ in range(rng.randrange(6)):
            change(store, rng)
    store.journal.writer.write()
    snapshot = store.journal.finish_snapshot(capture.snapshot)
    store.end_capture()

    shown = Store(SimulatedClock(), random.Random(1))
    shown.slots = store.slots
    snapshot.read(disk, shown.replay, lambda _epoch: None)
    assert state(shown) == expected

    final = state(store)
    store.journal.close()
    assert state(open_store(disk, shards)) == final, "the snapshot and the journal after it give everything"
