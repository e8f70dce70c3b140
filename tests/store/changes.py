"""Random changes of a store, and its state as plain values."""

from __future__ import annotations

import random
from typing import Any

from tests.streams.plain import plain as plain_stream
from tidelog.commands.families import command_table
from tidelog.engine.dispatch import find_command, run_command
from tidelog.journal.frame import Geometry
from tidelog.journal.journal import Settings
from tidelog.journal.operation import FlushDb
from tidelog.ports import Disk
from tidelog.store.store import Store
from tidelog.streams.stream import Stream
from tidelog.testing.clock import SimulatedClock
from tidelog.types.hash import hset
from tidelog.types.hash_value import Hash
from tidelog.types.list_value import List
from tidelog.types.set import sadd
from tidelog.types.set_value import Set
from tidelog.types.zset import zadd
from tidelog.types.zset_value import ZSet

TABLE = command_table()
DATABASES = (0, 3)


def open_store(disk: Disk, shards: int, folder: str = "/data", *, leads: bool = True) -> Store:
    return Store.open(
        disk,
        folder,
        SimulatedClock(),
        Settings(geometry=Geometry(frame_bytes=4096, frames_per_segment=4), shard_count=shards),
        new_epoch_id=lambda: 1,
        random=random.Random(1),
        leads=leads,
    )


def state(store: Store) -> dict[tuple[int, bytes], tuple[Any, int | None]]:
    """Every key of every database, as plain values."""
    return {
        (database.number, key): (plain(database.find(key)), database.expiries.get(key))
        for database in store.databases
        if database.size
        for key in database.all_keys()
    }


def plain(value: Any) -> Any:
    if isinstance(value, Stream):
        return plain_stream(value)
    if isinstance(value, Hash):
        return value.fields().copy()
    return tuple(value) if isinstance(value, ZSet | List | Set) else value


def run(store: Store, words: list[bytes]) -> None:
    """One command, as a transaction."""
    transaction = store.begin()
    run_command(find_command(TABLE, words), transaction, words)
    store.commit(transaction)


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
        [b"TWRITE", key, b"tag", rng.randbytes(5)],
        [b"TWRITE", b"t", b"PRODUCER", b"p", b"%d" % rng.randrange(99), b"ENTRIES", *[b"tag", b"entry"] * 400],
        [b"TREAD", rng.choice([key, b"t"]), b"0", b"3", b"GROUP", b"g", b"RETRY", b"10", b"0"],
        [b"TACK", b"t", b"g", b"%d" % rng.randrange(1, 99)],
        [b"TEVICT", b"t", b"-1500"],
        [b"TCONFIG", rng.choice([key, b"t"]), b"MAXBYTES", b"%d" % rng.choice([0, 10**9]), b"BACKLOG", b"7"],
        [rng.choice([b"LPUSH", b"RPUSH"]), b"list", *[rng.randbytes(3)] * rng.choice([1, 2, 700])],
        [rng.choice([b"LPOP", b"RPOP"]), b"list", b"%d" % rng.choice([1, 3, 600])],
        [b"LMOVE", b"list", b"list%d" % rng.randrange(9), b"LEFT", b"RIGHT"],
    ]
    transaction = store.begin(rng.choice(DATABASES))
    arguments = rng.choice(commands)
    run_command(find_command(TABLE, arguments), transaction, arguments)
    drawn = rng.random()
    if drawn < 0.02:
        transaction.run([FlushDb()])
    elif drawn > 0.96:
        ranged = [b"DELPREFIX", key[:-1]] if drawn > 0.98 else [b"DELRANGE", b"h1", b"key3"]
        run_command(find_command(TABLE, ranged), transaction, ranged)
    if rng.random() < 0.6:
        place = b"h%d" % rng.randrange(20)
        if type(transaction.find(place)) in (Hash, type(None)):
            transaction.run(hset(place, [b"f%d" % rng.randrange(5), rng.randbytes(4)]))
        place = b"s%d" % rng.randrange(20)
        if type(transaction.find(place)) in (Set, type(None)):
            transaction.run(sadd(place, [rng.randbytes(1)]))
        place = b"z%d" % rng.randrange(20)
        if type(transaction.find(place)) in (ZSet, type(None)):
            transaction.run(zadd(place, [(rng.random(), rng.randbytes(1))]))
    store.commit(transaction)
