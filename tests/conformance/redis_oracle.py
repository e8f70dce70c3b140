"""A real Redis beside a Tidelog: every command runs on both, and their replies must be the same.

    def test_sadd(pair: Pair) -> None:
        pair("SADD", "k", 1, "two")                       the same bytes, errors included
        pair("SMEMBERS", "k", order=UNORDERED)            the same members in any order
        pair.same_state()                                 the same keys, values and expiries

`pair` runs a test twice, in RESP2 and in RESP3; `pair2` once, for what does not depend on the protocol. Both start with
an empty database. Redis is one process for all tests of this process; Tidelog is a store on a simulated disk, made anew
for each test (`InProcess`), behind the small interface `Peer`, so that a server on a socket can take its place.

Replies are compared as what they are on the wire: `$2 OK` is not `+OK`, an empty array is no null array and a set is no
array. What is returned to the test is the reply as hiredis decodes it.
"""

from __future__ import annotations

import importlib
import pkgutil
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple, Protocol

import hiredis
import pytest

import tidelog.commands
from benchmarks.peers import start_peer, stop_peer
from tidelog.engine.dispatch import find_command, run_command
from tidelog.engine.table import Command, CommandTable, HandlerKind
from tidelog.errors import CommandError
from tidelog.journal.journal import Settings
from tidelog.resp.encoder import encode, encode_error
from tidelog.store.store import Store
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk

REDIS_SERVER: Final = shutil.which("redis-server") or "redis-server"
REPLY_SECONDS_MAX: Final = 30.0

Argument = bytes | str | int | float


# --- replies on the wire ----------------------------------------------------------------------------------------


class Item(NamedTuple):
    """A decoded reply that remembers what it was: `mark` is the first byte on the wire."""

    mark: str
    value: Any
    """Bytes, a tuple of items (a map: flat), or None for a null."""

    def __repr__(self) -> str:
        if isinstance(self.value, tuple):
            return f"{self.mark}({', '.join(map(repr, self.value))})"
        return f"{self.mark}{self.value!r}"


def parse(data: bytes, at: int = 0) -> tuple[Item, int]:
    """The reply at a position, and the position after it."""
    end = data.index(b"\r\n", at)
    mark, head, at = chr(data[at]), data[at + 1 : end], end + 2
    if mark in "$=":
        size = int(head)
        return (Item(mark, None), at) if size < 0 else (Item(mark, data[at : at + size]), at + size + 2)
    if mark in "*~>%":
        count = int(head) * (2 if mark == "%" else 1)
        if count < 0:
            return Item(mark, None), at
        items = []
        for _ in range(count):
            item, at = parse(data, at)
            items.append(item)
        return Item(mark, tuple(items)), at
    return Item(mark, head), at


Order = Callable[[Item], Any]
"""What of a reply is compared."""


def EXACT(item: Item) -> Any:
    """All of it; only the order of a map is left open."""
    if isinstance(item.value, tuple) and item.mark == "%":
        return UNORDERED(item)
    return item


def UNORDERED(item: Item) -> Any:
    """The items of an array, set or map, in any order; whatever else exactly."""
    if not isinstance(item.value, tuple):
        return item
    return item.mark, sorted(_in_twos(item) if item.mark == "%" else item.value, key=repr)


def UNORDERED_PAIRS(item: Item) -> Any:
    """As `UNORDERED`; a flat array is made of pairs (field and value, member and score)."""
    if not isinstance(item.value, tuple) or item.mark != "*" or any(inner.mark == "*" for inner in item.value):
        return UNORDERED(item)
    return item.mark, sorted(_in_twos(item), key=repr)


def SCAN(item: Item) -> Any:
    """The reply of a scan: a cursor, and items in any order."""
    return [item.mark, item.value[0], UNORDERED(item.value[1])] if item.mark == "*" else item


def SCAN_PAIRS(item: Item) -> Any:
    """The reply of a scan: a cursor, and pairs in any order."""
    return [item.mark, item.value[0], UNORDERED_PAIRS(item.value[1])] if item.mark == "*" else item


def SHAPE(item: Item) -> Any:
    """How many items, and of what kind, but not which: for what is drawn at random."""
    if isinstance(item.value, tuple):
        return item.mark, [SHAPE(inner) for inner in item.value]
    return item if item.mark in "-_" or item.value is None else item.mark


def _in_twos(item: Item) -> list[tuple[Item, Item]]:
    return list(zip(item.value[::2], item.value[1::2], strict=True))


def decode(data: bytes) -> Any:
    """The reply as hiredis has it; an error is a `hiredis.ReplyError`."""
    reader = hiredis.Reader()
    reader.feed(data)
    return reader.gets()


def pack(arguments: Sequence[Argument]) -> list[bytes]:
    """Arguments as bytes; a float is spelled as Python does."""
    return [argument if isinstance(argument, bytes) else str(argument).encode() for argument in arguments]


# --- the two peers ----------------------------------------------------------------------------------------------


class Peer(Protocol):
    """What answers commands."""

    def call(self, arguments: Sequence[bytes]) -> bytes:
        """The bytes of the reply."""

    def reset(self, protocol: int) -> None:
        """No keys, the first database, this protocol."""

    def wait(self, ms: int) -> None:
        """Let time pass."""


class Socket:
    """A peer behind a socket: a Redis, or a Tidelog that runs as a server."""

    def __init__(self, port: int) -> None:
        self._connection = socket.create_connection(("127.0.0.1", port), timeout=REPLY_SECONDS_MAX)
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        self._connection.close()

    def call(self, arguments: Sequence[bytes]) -> bytes:
        parts = [b"*%d\r\n" % len(arguments)]
        parts += [b"$%d\r\n%b\r\n" % (len(argument), argument) for argument in arguments]
        self._connection.sendall(b"".join(parts))
        reader = hiredis.Reader()
        received: list[bytes] = []
        while True:
            data = self._connection.recv(65536)
            if not data:
                raise ConnectionError(f"the connection was closed instead of answering {arguments[0]!r}")
            received.append(data)
            reader.feed(data)
            if reader.gets() is not False:  # False is what an incomplete reply is; `#f` is never a whole reply here
                return b"".join(received)

    def reset(self, protocol: int) -> None:
        for command in ([b"HELLO", b"%d" % protocol], [b"SELECT", b"0"], [b"FLUSHALL"]):
            reply = self.call(command)
            assert not reply.startswith(b"-"), reply

    def wait(self, ms: int) -> None:
        time.sleep(ms / 1000)


def command_rows() -> list[Command]:
    """The rows of every family of commands that there is."""
    rows: list[Command] = []
    for module in pkgutil.iter_modules(tidelog.commands.__path__):
        rows += getattr(importlib.import_module(f"tidelog.commands.{module.name}"), "COMMANDS", [])
    return rows


class InProcess:
    """A store on a simulated disk, without a server. Commands of the kind CONNECTION need one and are not for it."""

    def __init__(self, shard_count: int = 1, seed: int = 0) -> None:
        self._settings = Settings(shard_count=shard_count)
        self._table = CommandTable(command_rows())
        self._random = Random(seed)
        self._protocol = 2
        self.clock = SimulatedClock()
        self.disk = SimulatedDisk()
        self.store: Store
        self._open()

    def _open(self) -> None:
        self.store = Store.open(
            self.disk, "/data", self.clock, self._settings, lambda: self._random.getrandbits(63), self._random
        )

    def call(self, arguments: Sequence[bytes]) -> bytes:
        try:
            row = find_command(self._table, arguments)
        except CommandError as error:
            return encode_error(str(error))
        assert row.kind is not HandlerKind.CONNECTION, f"{row.name} needs a server"
        transaction = self.store.begin()
        reply = encode(run_command(row, transaction, arguments), self._protocol)
        self.store.commit(transaction)
        self.store.journal.writer.write()
        return reply

    def reset(self, protocol: int) -> None:
        self.clock.set_wall(time.time_ns() // 1000)
        self.disk = SimulatedDisk()
        self._protocol = protocol
        self._open()

    def wait(self, ms: int) -> None:
        self.clock.advance(1000 * ms)

    def restart(self) -> None:
        """The process dies; the next one has what the journal has."""
        self.disk.kill()
        self._open()

    def record_count(self) -> int:
        """How many records the journal has: a command that changes nothing adds none."""
        return sum(self.store.journal.writer.written.lsns)


class Pair:
    """A real Redis and a Tidelog that must not differ."""

    def __init__(self, redis: Peer, tidelog: InProcess, protocol: int) -> None:
        self.redis = redis
        self.tidelog = tidelog
        self.protocol = protocol
        self.flush()

    def flush(self) -> None:
        """Both are as new."""
        self.redis.reset(self.protocol)
        self.tidelog.reset(self.protocol)

    def __call__(self, *arguments: Argument, order: Order = EXACT) -> Any:
        """Run a command on both, compare the replies, and return Tidelog's."""
        packed = pack(arguments)
        expected = self.redis.call(packed)
        actual = self.tidelog.call(packed)
        if expected != actual:
            assert order(parse(actual)[0]) == order(parse(expected)[0]), f"{_shown(packed)} (left: Tidelog)"
        return decode(actual)

    def each(self, *arguments: Argument) -> tuple[Any, Any]:
        """Run a command on both without comparing: what Redis replied, and what Tidelog did."""
        packed = pack(arguments)
        return decode(self.redis.call(packed)), decode(self.tidelog.call(packed))

    def records(self, *arguments: Argument, order: Order = EXACT) -> int:
        """Run a command on both, compare the replies, and return how many records it journaled."""
        before = self.tidelog.record_count()
        self(*arguments, order=order)
        return self.tidelog.record_count() - before

    def wait(self, ms: int) -> None:
        """Let time pass on both."""
        self.redis.wait(ms)
        self.tidelog.wait(ms)

    def restart(self) -> None:
        """Restart Tidelog from its journal; Redis stays as it is."""
        self.tidelog.restart()

    def same_state(self, expiry_ms_apart_max: int = 1000) -> None:
        """Both have the same keys with the same values and, but for the time that passed between, expiries."""
        keys = sorted(decode(self.redis.call([b"KEYS", b"*"])))
        database = self.tidelog.store.database(0)
        now_ms = self.tidelog.clock.wall_us() // 1000
        ours = sorted(filter(lambda key: database.expiries.get(key, now_ms + 1) > now_ms, database.all_keys()))
        assert ours == keys
        for key in keys:
            kind = decode(self.redis.call([b"TYPE", key])).decode()
            command, order = _READS[kind]
            self(*(key if word == "KEY" else word for word in command), order=order)
            theirs_ms = decode(self.redis.call([b"PEXPIRETIME", key]))
            ours_ms = database.expiries.get(key, -1)
            assert (ours_ms < 0) == (theirs_ms < 0), key
            assert abs(ours_ms - theirs_ms) <= expiry_ms_apart_max, key


_READS: Final[dict[str, tuple[Sequence[str], Order]]] = {
    "string": (("GET", "KEY"), EXACT),
    "hash": (("HGETALL", "KEY"), UNORDERED_PAIRS),
    "set": (("SMEMBERS", "KEY"), UNORDERED),
    "zset": (("ZRANGE", "KEY", "0", "-1", "WITHSCORES"), EXACT),
    "list": (("LRANGE", "KEY", "0", "-1"), EXACT),
    "stream": (("XRANGE", "KEY", "-", "+"), EXACT),
}
"""Type -> the command that reads all of a value."""


def _shown(arguments: Sequence[bytes]) -> str:
    return " ".join(repr(argument)[1:] for argument in arguments)


# --- a Redis for the tests --------------------------------------------------------------------------------------


def start_redis(folder: Path) -> tuple[subprocess.Popen[bytes], int]:
    """A Redis that answers, and its port."""

    def command(ports: list[int]) -> list[str]:
        return [REDIS_SERVER, "--port", str(ports[0]), "--bind", "127.0.0.1", "--dir", str(folder), "--save", "",
                "--appendonly", "no", "--enable-debug-command", "local"]  # fmt: skip

    process, ports = start_peer(command, is_this_redis)
    return process, ports[0]


def is_this_redis(process: subprocess.Popen[bytes], ports: list[int]) -> bool:
    """Whether it is this process, and not another Redis, that answers."""
    peer = Socket(ports[0])
    try:
        return b"process_id:%d\r\n" % process.pid in peer.call([b"INFO", b"server"])
    finally:
        peer.close()


@pytest.fixture(scope="session")
def redis_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a Redis that only this process uses."""
    process, port = start_redis(tmp_path_factory.mktemp("redis"))
    yield port
    stop_peer(process)


@pytest.fixture
def redis_peer(redis_port: int) -> Iterator[Socket]:
    peer = Socket(redis_port)
    yield peer
    peer.close()


@pytest.fixture(params=[2, 3], ids=["RESP2", "RESP3"])
def pair(request: pytest.FixtureRequest, redis_peer: Socket) -> Pair:
    return Pair(redis_peer, InProcess(), request.param)


@pytest.fixture
def pair2(redis_peer: Socket) -> Pair:
    return Pair(redis_peer, InProcess(), 2)
