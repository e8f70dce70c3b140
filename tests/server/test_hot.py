"""The hot path may do only what the general path would: the same replies, the same state, the same history."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from tidelog import limits
from tidelog.commands.families import command_table
from tidelog.engine.dispatch import find_command, run_command
from tidelog.engine.hot_commands import HotCommands
from tidelog.errors import CommandError
from tidelog.journal.frame import Geometry
from tidelog.journal.journal import Settings
from tidelog.resp.encoder import OK, QUEUED, ErrorReply, encode
from tidelog.server.hot import HotPath
from tidelog.store.store import Store
from tidelog.streams.stream import Stream
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk
from tidelog.types.hash import hset
from tidelog.types.hash_value import Hash
from tidelog.types.list_value import List
from tidelog.types.set_value import Set
from tidelog.types.zset_value import ZSet

TABLE = command_table()
ONE_SHARD_ONLY = (b"MSET", b"MULTI")
OTHERS = (
    b"XREAD",
    b"XREADGROUP",
    b"TREAD",
    b"XACK",
    b"TACK",
    b"LPUSH",
    b"RPUSH",
    b"LPOP",
    b"RPOP",
    b"BLPOP",
    b"BRPOP",
    b"LRANGE",
    b"LLEN",
)
"""`test_hot_groups` and `test_hot_lists` have them."""
TABLE_NAMES = [row.name.encode() for row in TABLE.rows()]


class Side:
    """A store of its own, driven by one of the two paths."""

    def __init__(self, shards: int) -> None:
        self.disk, self.clock = SimulatedDisk(1), SimulatedClock()
        self.shards = shards
        self.store = self.opened()

    def opened(self) -> Store:
        settings = Settings(geometry=Geometry(frame_bytes=4096, frames_per_segment=8), shard_count=self.shards)
        return Store.open(self.disk, "/data", self.clock, settings, new_epoch_id=lambda: 1, random=random.Random(1))

    def general(self, commands: Sequence[Sequence[bytes]], protocol: int) -> list[bytes]:
        """Replies of the general path, in which a MULTI is one transaction."""
        replies: list[bytes] = []
        transaction, in_multi = self.store.begin(), 0
        for at, arguments in enumerate(commands):
            name = arguments[0].upper()
            if name == b"MULTI":
                in_multi = len(replies) + 1
                replies.append(OK)
            elif name in (b"EXEC", b"DISCARD"):
                inside = replies[in_multi:] if in_multi else []
                queued = [QUEUED] * len(inside)
                replies[in_multi:] = [*queued, b"*%d\r\n" % len(inside), *inside]
                in_multi = 0
            else:
                try:
                    reply = run_command(find_command(TABLE, arguments), transaction, arguments)
                except CommandError as error:
                    reply = ErrorReply(str(error))
                replies.append(encode(reply, protocol))
            if not in_multi or at + 1 == len(commands):
                self.store.commit(transaction)
                transaction = self.store.begin()
        return replies

    def state(self) -> dict[bytes, Any]:
        database = self.store.database(0)
        return {key: (_plain(database.find(key)), database.expiries.get(key)) for key in database.all_keys()}


def _plain(value: Any) -> Any:
    if type(value) is Stream:
        return list(zip(*value.read(1, 10_000), strict=True))
    if isinstance(value, Hash):
        return value.fields()
    return list(value) if isinstance(value, List | Set | ZSet) else value


def random_command(rng: random.Random) -> list[bytes]:
    key = rng.choice([b"k%d", b"{t}%d", b"h%d"]) % rng.randrange(8)
    number = rng.choice([b"5", b"007", b"-3", b"999999999999999999", b"9223372036854775807", b"x", b""])
    value = rng.choice([number, rng.randbytes(rng.choice([1, 100, 200]))])
    return rng.choice(
        [
            [b"SET", key, value],
            [b"set", key, b"v"],
            [b"SET", key, b"v", b"PX", b"1000"],
            [b"GET", key],
            [b"INCR", key],
            [b"HSET", key, b"f%d" % rng.randrange(3), value],
            [b"HGET", key, b"f%d" % rng.randrange(3)],
            [b"MSET", key, value, b"k%d" % rng.randrange(8), b"w", b"m%d" % rng.randrange(3), b"u"],
            [b"MSET", key, value, key],
            [b"DEL", key],
            [b"PEXPIRE", key, b"500"],
            [b"GET"],
            [b"TWRITE", b"s%d" % rng.randrange(2), rng.choice([b"", b"t"]), value],
            [b"TWRITE", b"s0", b"ENTRIES", b"t", value, b"u", value],
            [b"TWRITE", b"s%d" % rng.randrange(2), b"entries", *[b"t", value] * rng.choice([1, 600])],
            [b"TWRITE", b"s0", b"ENTRIES", b"t", value, b"u"],
            [b"TWRITE", b"s0", b"BACKLOG", b"5", b"ENTRIES", b"t", value],
            [b"TWRITE", b"s0"],
            [b"TWRITE", key, b"t", b"e"],
            [b"XADD", b"s%d" % rng.randrange(2), b"*", b"f", value],
            [b"XADD", b"s0", b"*", b"f", value, b"tag", b"t"],
            [b"XADD", b"s0", b"*", b"tag", b"t", b"entry", value],
            [b"XADD", b"s0", b"MAXLEN", b"~", b"100", b"*", b"f", b"v"],
            [b"XADD", b"s0", b"*", b"f"],
        ]
    )


def random_buffer(rng: random.Random) -> list[list[bytes]]:
    """Commands that arrive together: now and then a run of one, now and then a whole transaction."""
    commands = [random_command(rng) for _ in range(rng.randrange(1, 12))]
    kind = rng.randrange(4)
    if kind == 0:
        return [list(rng.choice(commands)) for _ in commands for _ in range(2)]
    if kind == 1:
        inside = [each for each in commands if each[0] in (b"SET", b"GET", b"INCR") and len(each) > 1]
        return [*commands[:2], [b"MULTI"], *inside, [rng.choice([b"EXEC", b"exec", b"DISCARD"])], *commands[2:]]
    return commands


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("seed", [pytest.param(seed, marks=() if seed < 3 else pytest.mark.long) for seed in range(8)])
def test_hot_and_general_agree(seed: int, shards: int, protocol: int) -> None:
    rng = random.Random(seed)
    ours, theirs = Side(shards), Side(shards)
    hot = HotPath(ours.store, 0, protocol).commands()
    taken: Counter[bytes] = Counter()
    for _ in range(200):
        commands = random_buffer(rng)
        at = 0
        while at < len(commands):
            run = hot.get(commands[at][0])
            out: list[bytes] = []
            begun, at = at, run(commands, at, out) if run is not None else at
            if at == begun:
                out = ours.general(commands[at : at + 1], protocol)
                at += 1
            else:
                taken[commands[begun][0]] += at - begun
            assert b"".join(out) == b"".join(theirs.general(commands[begun:at], protocol)), commands[begun:at]
        for side in (ours, theirs):
            side.clock.advance(rng.choice([0, 50_000, 600_000]) if side is ours else 0)
        theirs.clock.set_wall(ours.clock.wall_us())
        assert ours.state() == theirs.state()
    assert (
        min(
            taken[name]
            for name in hot
            if name in TABLE_NAMES and name not in OTHERS and (shards == 1 or name not in ONE_SHARD_ONLY)
        )
        > 5
    )
    expected = ours.state()
    ours.store.journal.close()
    ours.store = ours.opened()
    assert ours.state() == expected, "and the journal has it all"


def run_one(hot: HotCommands, *commands: list[bytes]) -> tuple[int, list[bytes]]:
    """How many of these commands a run takes, and its replies."""
    out: list[bytes] = []
    return hot[commands[0][0]](list(commands), 0, out), out


def test_keys_that_differ_share_a_ts_and_one_that_comes_again_has_its_own() -> None:
    side = Side(1)
    hot = HotPath(side.store, 0, 2).commands()
    before = side.store.journal.writer.written.lsns[0]
    commands = [[b"SET", b"a", b"1"], [b"SET", b"b", b"2"], [b"SET", b"a", b"3"], [b"SET", b"c", b"4"]]
    assert run_one(hot, *commands) == (2, [OK * 2])
    assert run_one(hot, *commands[2:]) == (2, [OK * 2])
    assert run_one(hot, [b"MULTI"], *commands[1:], [b"EXEC"])[0] == 5
    side.store.journal.writer.write()
    assert side.store.journal.writer.written.lsns[0] - before == 3


def test_a_transaction_is_hot_only_if_all_of_it_is_there_and_plain() -> None:
    side = Side(1)
    hot = HotPath(side.store, 0, 2).commands()
    run_one(hot, [b"HSET", b"h", b"f", b"v"])
    plain = [b"SET", b"a", b"1"]
    for block in (
        [[b"MULTI"], plain],
        [[b"MULTI"], plain, [b"INCR", b"h"], [b"EXEC"]],
        [[b"MULTI"], plain, [b"GET", b"h"], [b"EXEC"]],
        [[b"MULTI"], plain, [b"GET", b"a"], [b"EXEC"]],
        [[b"MULTI"], plain, [b"PING"], [b"EXEC"]],
        [[b"MULTI"], plain, [b"DISCARD"]],
        [[b"MULTI", b"x"], plain, [b"EXEC"]],
        [[b"MULTI"], plain, [b"EXEC", b"x"]],
    ):
        assert run_one(hot, *block) == (0, [])
    assert side.store.database(0).find(b"a") is None
    assert run_one(hot, [b"MULTI"], [b"EXEC"]) == (2, [OK + b"*0\r\n"])


def test_replies_of_one_run_are_bounded() -> None:
    side = Side(1)
    hot = HotPath(side.store, 0, 2).commands()
    run_one(hot, [b"SET", b"a", bytes(limits.HOT_VALUE_BYTES_MAX)])
    gets = [[b"GET", b"a"]] * 1000
    taken, out = run_one(hot, *gets)
    assert limits.REPLIES_BYTES_HELD < sum(map(len, out)) < 2 * limits.REPLIES_BYTES_HELD
    assert taken == len(out)


def test_a_refusal_reaches_the_hot_path() -> None:
    side = Side(1)
    hot = HotPath(side.store, 0, 2).commands()
    assert run_one(hot, [b"SET", b"a", b"1"]) == (1, [OK])
    side.store.journal.writer.refusal = RuntimeError("no space")
    for command in ([b"SET", b"a", b"2"], [b"INCR", b"a"], [b"HSET", b"h", b"f", b"v"], [b"MSET", b"a", b"2"]):
        assert run_one(hot, command) == (0, [])
    assert run_one(hot, [b"MULTI"], [b"SET", b"a", b"2"], [b"EXEC"]) == (0, [])
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
    run_one(hot, [b"SET", b"other", b"1"])
    assert not watcher.is_dirty
    run_one(hot, [b"HSET", b"h", b"f", b"w"])
    assert watcher.is_dirty
