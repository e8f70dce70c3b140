"""The hot path may do only what the general path would: the same replies, the same state, the same history."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from tidelog.commands.all import command_table
from tidelog.commands.dispatch import find_command, run_command
from tidelog.journal.frame import Geometry
from tidelog.journal.journal import Settings
from tidelog.resp.encoder import OK, encode
from tidelog.server.hot import SET_NAMES, HotPath
from tidelog.store.store import Store
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk
from tidelog.types.hash import hset

TABLE = command_table()


class Side:
    """A store of its own, driven by one of the two paths."""

    def __init__(self, shards: int) -> None:
        self.disk, self.clock = SimulatedDisk(1), SimulatedClock()
        self.shards = shards
        self.store = self.opened()

    def opened(self) -> Store:
        settings = Settings(geometry=Geometry(frame_bytes=4096, frames_per_segment=8), shard_count=self.shards)
        return Store.open(self.disk, "/data", self.clock, settings, new_epoch_id=lambda: 1, random=random.Random(1))

    def general(self, arguments: Sequence[bytes], protocol: int) -> bytes:
        transaction = self.store.begin()
        reply = run_command(find_command(TABLE, arguments), transaction, arguments)
        self.store.commit(transaction)
        return encode(reply, protocol)

    def state(self) -> dict[bytes, Any]:
        database = self.store.database(0)
        return {key: (database.find(key), database.expiries.get(key)) for key in database.all_keys()}


def random_command(rng: random.Random) -> list[bytes]:
    key = rng.choice([b"k%d", b"{t}%d", b"h%d"]) % rng.randrange(8)
    number = rng.choice([b"5", b"007", b"-3", b"999999999999999999", b"9223372036854775807", b"x", b""])
    return rng.choice(
        [
            [b"SET", key, rng.choice([number, rng.randbytes(rng.choice([1, 100, 200]))])],
            [b"set", key, b"v"],
            [b"SET", key, b"v", b"PX", b"1000"],
            [b"GET", key],
            [b"INCR", key],
            [b"HSET", key, b"f%d" % rng.randrange(3), b"v"],
            [b"HGET", key, b"f%d" % rng.randrange(3)],
            [b"DEL", key],
            [b"PEXPIRE", key, b"500"],
            [b"GET"],
        ]
    )


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("seed", range(8))
def test_hot_and_general_agree(seed: int, shards: int, protocol: int) -> None:
    rng = random.Random(seed)
    ours, theirs = Side(shards), Side(shards)
    path = HotPath(ours.store, 0, protocol)
    hot = path.commands()
    taken = 0
    for _ in range(120):
        commands = [
            command for command in (random_command(rng) for _ in range(rng.randrange(1, 12))) if len(command) > 1
        ]
        at = 0
        while at < len(commands):
            arguments = commands[at]
            done = path.set_run(commands, at) if arguments[0] in SET_NAMES else 0
            if done:
                taken += 1
                replies = [theirs.general(each, protocol) for each in commands[at : at + done]]
                assert replies == [OK] * done
                at += done
                continue
            handler = hot.get(arguments[0])
            reply = handler(arguments) if handler is not None else None
            if reply is None:
                reply = ours.general(arguments, protocol)
            assert reply == theirs.general(arguments, protocol), arguments
            at += 1
        for side in (ours, theirs):
            side.clock.advance(rng.choice([0, 50_000, 600_000]) if side is ours else 0)
        theirs.clock.set_wall(ours.clock.wall_us())
        assert ours.state() == theirs.state()
    assert taken or shards > 1, "runs of SET were exercised"
    expected = ours.state()
    ours.store.journal.close()
    ours.store = ours.opened()
    assert ours.state() == expected, "and the journal has it all"


def test_a_refusal_reaches_the_hot_path() -> None:
    side = Side(1)
    hot = HotPath(side.store, 0, 2).commands()
    assert hot[b"SET"]([b"SET", b"a", b"1"]) == OK
    side.store.journal.writer.refusal = RuntimeError("no space")
    assert hot[b"SET"]([b"SET", b"a", b"2"]) is None
    assert hot[b"INCR"]([b"INCR", b"a"]) is None
    assert hot[b"HSET"]([b"HSET", b"h", b"f", b"v"]) is None
    assert HotPath(side.store, 0, 2).set_run([[b"SET", b"a", b"2"], [b"SET", b"b", b"2"]], 0) == 0
    assert side.store.database(0).find(b"a") == b"1"


def test_a_watch_sees_what_the_hot_path_changes() -> None:
    class Watcher:
        watched: set[tuple[int, bytes]] = set()  # noqa: RUF012
        is_dirty = False

    side, watcher = Side(1), Watcher()
    transaction = side.store.begin()
    transaction.run(hset(b"h", [b"f", b"v"]))
    side.store.commit(transaction)
    side.store.watch(watcher, 0, b"h")
    hot = HotPath(side.store, 0, 2).commands()
    hot[b"SET"]([b"SET", b"other", b"1"])
    assert not watcher.is_dirty
    hot[b"HSET"]([b"HSET", b"h", b"f", b"w"])
    assert watcher.is_dirty
