"""Broken requests by the thousand, through the decoder and the commands: nothing unforeseen comes out.

Pipelines of commands are mutated, truncated, spiced with huge lengths and wrong types, or replaced by random bytes, cut
anywhere, and run on a store on a simulated disk. Whatever happens: the decoder and the exact decoder agree, but for
what `decoder` says can be hidden from it; only the defined errors come out; every reply can be read back; the journal
gives back the state; and memory does not grow.

`--fuzz-inputs N` tries as many; `test_inputs[7]` runs the eighth part of them again.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from random import Random
from typing import Any, Final

import pytest

from tests.conformance.redis_oracle import parse
from tests.resp.wire import cut, decode_exactly, encode_command
from tests.streams.plain import plain as plain_stream
from tidelog import limits
from tidelog.commands.families import command_table
from tidelog.engine.dispatch import find_command, run_command
from tidelog.engine.table import Command, HandlerKind
from tidelog.errors import CommandError
from tidelog.journal.frame import Geometry
from tidelog.journal.journal import Settings
from tidelog.resp.decoder import RequestDecoder
from tidelog.resp.encoder import ErrorReply, encode, encode_error
from tidelog.resp.exact import RequestLimits
from tidelog.store.store import Store
from tidelog.streams.stream import Stream
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk
from tidelog.types.hash_value import Hash
from tidelog.types.list_value import List
from tidelog.types.set_value import Set
from tidelog.types.zset_value import ZSet

PARTS: Final = 10
INPUTS_A_STORE: Final = 500
BULK_BYTES_MAX: Final = 100_000
"""Small, so that a mutated length or offset costs no time."""

TABLE: Final = command_table()
ROWS: Final = [row for row in TABLE.rows() if row.kind is not HandlerKind.CONNECTION]
SLOW: Final = frozenset(["KEYS", "SCAN", "RANDOMKEY", "FLUSHALL", "FLUSHDB", "DELRANGE", "DELPREFIX"])
"""They look at every slot, or leave nothing to look at."""
WORDS: Final = [b"k1", b"k2", b"{k1}x", b"h", b"s", b"z", b"", b"0", b"1", b"-1", b"2", b"10", b"1.5", b"-inf",
                b"+inf", b"(1", b"[a", b"-", b"+", b"nan", b"9223372036854775807", b"-9223372036854775808",
                b"99999999999999999999", b"EX", b"PX", b"NX", b"XX", b"GT", b"LT", b"CH", b"INCR", b"GET",
                b"KEEPTTL", b"PERSIST", b"WITHSCORES", b"LIMIT", b"COUNT", b"MATCH", b"TYPE", b"BYSCORE", b"BYLEX",
                b"REV", b"WEIGHTS", b"AGGREGATE", b"SUM", b"REPLACE", b"DB", b"*", b"a*", b"[", b"\\", b"a", b"b",
                b"\x00", b"\xff\xfe", b"\r\n", b"*1\r\n$4\r\nPING\r\n", b"x" * 300, b"7" * 30, b"1e400", b"0x1p3",
                b"string", b"2147483648"]  # fmt: skip
SPICES: Final = [b"*1000000000\r\n", b"*1000000\r\n", b"$536870912\r\n", b"$99999999999\r\n", b"*-1\r\n", b"*0\r\n",
                 b"$-1\r\n", b":5\r\n", b"+OK\r\n", b"-ERR\r\n", b"_\r\n", b"#t\r\n", b",1.5\r\n", b"(5\r\n",
                 b"%1\r\n", b"~1\r\n", b">1\r\n", b"|1\r\n", b"=8\r\ntxt:", b"*2\r\n*1000000000\r\n", b"\r\n", b"\r",
                 b"\n", b"PING\r\n", b'"', b"'", b"\x00"]  # fmt: skip
DRAWN: Final = {
    "K": [b"k1", b"k2", b"{k1}x", b"h", b"s", b"z"],
    "H": [b"h", b"k2"],
    "S": [b"s", b"{k1}x"],
    "Z": [b"z", b"k1"],
    "M": [b"a", b"b", b"c", b"", b"7", b"\xff"],
    "I": [b"0", b"1", b"2", b"5", b"-1", b"-2", b"100"],
    "F": [b"0", b"1.5", b"-2", b"1e3", b"inf", b"-inf"],
    "R": [b"0", b"(1", b"-inf", b"+inf", b"2.5", b"100"],
    "X": [b"-", b"+", b"[a", b"(b", b"[c"],
    "T": [b"1", b"50", b"1000", b"100000", b"0", b"-5"],
    "O": [b"NX", b"XX", b"GT", b"LT", b"CH", b"INCR", b"GET", b"KEEPTTL", b"REV", b"BYSCORE", b"BYLEX", b"REPLACE"],
    "W": [b"WITHSCORES", b"WITHVALUES", b"LIMIT"],
}
"""Letter -> what is drawn for it."""
SHAPES: Final = {
    "SET": "K M", "GET": "K", "SETEX": "K T M", "PSETEX": "K T M", "GETEX": "K PX T", "MSET": "K M K M", "MGET": "K K",
    "APPEND": "K M", "INCR": "K", "INCRBY": "K I", "DECRBY": "K I", "INCRBYFLOAT": "K F", "GETRANGE": "K I I",
    "SUBSTR": "K I I", "SETRANGE": "K I M", "DEL": "K K", "EXPIRE": "K T O", "PEXPIRE": "K T", "PEXPIREAT": "K T",
    "RENAME": "K K", "COPY": "K K O", "MOVE": "K I", "SCAN": "0 COUNT T", "KEYS": "M", "HSET": "H M M M M",
    "HINCRBY": "H M I", "HINCRBYFLOAT": "H M F", "HDEL": "H M M", "HGETALL": "H", "HSCAN": "H 0", "HRANDFIELD": "H I W",
    "SADD": "S M M M", "SREM": "S M", "SMEMBERS": "S", "SPOP": "S I", "SRANDMEMBER": "S I", "SINTER": "S S",
    "SINTERCARD": "2 S S LIMIT I", "SUNIONSTORE": "S S S", "SMOVE": "S S M", "SSCAN": "S 0", "ZADD": "Z F M F M",
    "ZINCRBY": "Z F M", "ZREM": "Z M", "ZRANGE": "Z I I W", "ZREVRANGE": "Z I I W", "ZRANGEBYSCORE": "Z R R W",
    "ZREVRANGEBYSCORE": "Z R R", "ZRANGEBYLEX": "Z X X", "ZREVRANGEBYLEX": "Z X X", "ZLEXCOUNT": "Z X X",
    "ZCOUNT": "Z R R", "ZRANGESTORE": "Z Z I I", "ZREMRANGEBYLEX": "Z X X", "ZREMRANGEBYSCORE": "Z R R",
    "ZREMRANGEBYRANK": "Z I I", "ZUNION": "2 Z S W", "ZINTER": "2 Z Z W", "ZDIFF": "2 Z S", "ZINTERCARD": "2 Z S",
    "ZUNIONSTORE": "Z 2 Z S WEIGHTS F F", "ZINTERSTORE": "Z 2 Z S AGGREGATE MAX", "ZDIFFSTORE": "Z 2 Z S",
    "ZMPOP": "1 Z MIN COUNT I", "ZPOPMIN": "Z I", "ZRANDMEMBER": "Z I W", "ZSCAN": "Z 0", "ZSCORE": "Z M",
}  # fmt: skip
"""Command -> arguments that it may do something with."""


# --- inputs -----------------------------------------------------------------------------------------------------


def some_command(rng: Random) -> list[bytes]:
    row = rng.choice(ROWS)
    if row.name in SLOW and rng.random() < 0.9:
        row = rng.choice(ROWS)
    words = [word.encode() for word in row.name.split("|")]
    shape = SHAPES.get(row.name)
    if shape is not None and rng.random() < 0.7:
        return words + [rng.choice(DRAWN.get(name, [name.encode()])) for name in shape.split()]
    least = abs(row.arity) - len(words)
    count = least if row.arity > 0 else least + rng.choice([0, 0, 1, 2, 3, 5])
    if rng.random() < 0.05:
        count += rng.choice([-1, 1])
    return words + [rng.choice(WORDS) for _ in range(max(count, 0))]


def mutated(data: bytes, rng: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 5])):
        at = rng.randrange(len(changed) + 1)
        kind = rng.randrange(6)
        if kind == 0:
            changed[at : at + 1] = rng.randbytes(1)
        elif kind == 1:
            del changed[at : at + rng.choice([1, 2, 10])]
        elif kind == 2:
            changed[at:at] = rng.choice(SPICES)
        elif kind == 3:
            changed[at : at + 4] = rng.choice(SPICES)
        elif kind == 4:
            changed[at:at] = changed[at : at + rng.randrange(30)]
        else:
            changed[at : at + 1] = bytes([rng.choice(b"0123456789*$\r\n -")])
    return bytes(changed)


def some_input(rng: Random) -> bytes:
    data = b"".join(encode_command(some_command(rng)) for _ in range(rng.choice([1, 1, 2, 3, 6])))
    kind = rng.randrange(10)
    if kind < 6:
        return mutated(data, rng)
    if kind == 6:
        return data[: rng.randrange(len(data))]
    if kind == 7:
        return rng.randbytes(rng.randrange(60))
    if kind == 8:
        return b"".join(rng.choices(SPICES, k=rng.randrange(1, 8))) + data
    return data


def some_pieces(data: bytes, rng: Random) -> list[bytes]:
    if rng.random() < 0.5:
        return [data] if data else []
    return cut(data, [rng.randrange(len(data) + 1) for _ in range(rng.choice([1, 2, 20]))])


# --- running them -----------------------------------------------------------------------------------------------


class Machine:
    """A store, and what happens to it."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._clock = SimulatedClock()
        self._disk = SimulatedDisk()
        self._settings = Settings(
            geometry=Geometry(frame_bytes=65536, frames_per_segment=8), shard_count=rng.choice([1, 3])
        )
        self._store = self._open()

    def _open(self) -> Store:
        return Store.open(self._disk, "/data", self._clock, self._settings, lambda: 1, Random(1))

    def run(self, data: bytes) -> None:
        """Decode an input and run its commands, as a connection would."""
        rng = self._rng
        bounds = RequestLimits(bulk_bytes_max=BULK_BYTES_MAX, is_authenticated=rng.random() < 0.9)
        decoder = RequestDecoder(bounds)
        commands: list[list[bytes]] = []
        for piece in some_pieces(data, rng):
            commands += decoder.feed(piece)
        assert (commands, decoder.error) == decode_exactly([data], bounds)
        assert decoder.error is None or decoder.error.startswith("Protocol error: ")
        protocol = rng.choice([2, 3])
        for command in commands:
            assert command
            assert all(type(word) is bytes for word in command)
            check_reply(self._reply(command, protocol))
        self._clock.advance(rng.choice([0, 10, 1000, 100_000]))
        self._store.journal.writer.write()

    def _reply(self, command: list[bytes], protocol: int) -> bytes:
        try:
            row = find_command(TABLE, command)
        except CommandError as error:
            return encode_error(str(error))
        if row.kind is HandlerKind.CONNECTION:
            return b"+OK\r\n"
        return self._run(row, command, protocol)

    def _run(self, row: Command, command: list[bytes], protocol: int) -> bytes:
        transaction = self._store.begin()
        reply = run_command(row, transaction, command)
        if isinstance(reply, ErrorReply):
            assert "internal" not in reply.message, f"{command}: see the log"
        self._store.commit(transaction)
        return encode(reply, protocol)

    def check_restart(self) -> None:
        """The journal gives back the state."""
        before = self._state()
        self._disk.kill()
        self._store = self._open()
        assert self._state() == before

    def _state(self) -> dict[tuple[int, bytes], tuple[Any, int | None]]:
        return {
            (database.number, key): (plain(database.find(key)), database.expiries.get(key))
            for database in self._store.databases
            if database.size
            for key in database.all_keys()
        }


def plain(value: Any) -> Any:
    if isinstance(value, Stream):
        return plain_stream(value)
    if isinstance(value, Hash):
        return value.fields()
    return tuple(value) if isinstance(value, ZSet | List | Set) else value


def check_reply(reply: bytes) -> None:
    """It is one reply, whole."""
    _, end = parse(reply)
    assert end == len(reply), reply


def run_inputs(seed: int, count: int) -> None:
    rng = Random(seed)
    for start in range(0, count, INPUTS_A_STORE):
        machine = Machine(rng)
        for number in range(start, min(start + INPUTS_A_STORE, count)):
            data = some_input(rng)
            try:
                machine.run(data)
            except Exception as error:
                error.add_note(f"seed {seed}, input {number}: {data!r}")
                raise
        machine.check_restart()


@pytest.fixture(autouse=True)
def small_limits() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "BULK_BYTES_MAX", BULK_BYTES_MAX)
        patch.setattr(limits, "DRAWN_MEMBERS_MAX", 1000)
        yield


@pytest.mark.timeout(0)
@pytest.mark.parametrize("part", range(PARTS))
def test_inputs(part: int, pytestconfig: pytest.Config) -> None:
    run_inputs(part, pytestconfig.getoption("--fuzz-inputs") // PARTS)


def test_memory_returns_to_its_level() -> None:
    run_inputs(1000, 500)  # caches fill
    gc.collect()
    tracemalloc.start()
    try:
        run_inputs(1001, 500)
        gc.collect()
        level = tracemalloc.get_traced_memory()[0]
        for seed in (1002, 1003):
            run_inputs(seed, 500)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < level + 500_000
    finally:
        tracemalloc.stop()
