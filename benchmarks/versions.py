"""Two versions of Tidelog beside each other: which commands have become slower.

    python -m benchmarks.versions --before PYTHON [--commands N] [--rounds N] [--case NAME ...] [--json]

Goal: no command below 0.9 of before.

PYTHON is the interpreter of the environment in which the other version is installed, as `bin/build` makes it for
another checkout. One connection sends ready-made commands, a hundred at a time and four such runs under way, over small
values of every type, streams and groups. Old entries lie on disk, in versions which write them there; those of most
cases were just written, and are open in memory still. Cases "from disk" wait until they are closed, and read each node
once: most of what they measure is how nodes are fetched.
Each round empties the server and fills it anew; rounds alternate between the
two versions, and the best of each counts: what disturbs a machine only ever makes it slower.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Final, NamedTuple

from benchmarks.loads import Link
from benchmarks.servers import Server, encode, running, write_rows

AT_ONCE: Final = 100
UNDER_WAY: Final = 4
KEYS: Final = 300
VALUE: Final = b"x" * 20
EVENT: Final = b"x" * 100
CLOSED_AFTER_S: Final = 4.0
"""A node goes to disk within a second or so, and is closed when nobody has read it for up to two more."""
LINE: Final = "{case:<28} before {before_per_s:>9,}/s  after {after_per_s:>9,}/s  ratio {ratio:>5}"

Words = tuple[bytes, ...]


class Case(NamedTuple):
    """What is there, and what is measured."""

    fill: Callable[[int], Iterator[Words]]
    """Given the number of commands that will be measured."""
    measured: Callable[[int], Words]
    """The command with this number."""
    is_from_disk: bool = False
    """Old nodes are closed before they are read, and nothing is read before it counts."""


def _key(number: int) -> bytes:
    return b"key:%d" % (number * 7919 % KEYS)


def _nothing(_: int) -> Iterator[Words]:
    return iter(())


def _strings(_: int) -> Iterator[Words]:
    return ((b"SET", b"key:%d" % number, b"%d" % number) for number in range(KEYS))


def _expiring(_: int) -> Iterator[Words]:
    return ((b"SET", b"key:%d" % number, VALUE, b"EX", b"3600") for number in range(KEYS))


def _hashes(fields: int) -> Callable[[int], Iterator[Words]]:
    pairs = [word for field in range(fields) for word in (b"field:%d" % field, VALUE)]
    return lambda _: ((b"HSET", b"key:%d" % number, *pairs) for number in range(KEYS))


def _sets(members: int, *, is_of_numbers: bool = False) -> Callable[[int], Iterator[Words]]:
    names = [b"%d" % number if is_of_numbers else b"member:%d" % number for number in range(members)]
    return lambda _: ((b"SADD", b"key:%d" % number, *names) for number in range(KEYS))


def _sorted_sets(members: int) -> Callable[[int], Iterator[Words]]:
    pairs = [word for number in range(members) for word in (b"%d" % number, b"member:%d" % number)]
    return lambda _: ((b"ZADD", b"key:%d" % number, *pairs) for number in range(KEYS))


def _lists(_: int) -> Iterator[Words]:
    return ((b"RPUSH", b"key:%d" % number, *[VALUE] * 8) for number in range(KEYS))


def _stream(_: int) -> Iterator[Words]:
    """One of 20,000 entries: most of it is cold if the version knows that, and has been read before."""
    for _ in range(20):
        yield (b"TWRITE", b"s", b"ENTRIES", *(b"t", EVENT) * 1000)


def _entries(count: int) -> Iterator[Words]:
    """Ten for each command."""
    for _ in range(count // 100 + 1):
        yield (b"TWRITE", b"s", b"ENTRIES", *(b"t", EVENT) * 1000)


def _group(count: int) -> Iterator[Words]:
    yield from _entries(count)
    yield (b"TGROUP", b"s", b"g", b"MAXPENDING", b"100000000", b"START", b"1")


def _read_up(_: int) -> Iterator[Words]:
    """A group that has read everything."""
    yield (b"TWRITE", b"s", b"t", EVENT)
    yield (b"TGROUP", b"s", b"g", b"MAXPENDING", b"100000000", b"START", b"2")


def _given_out(count: int) -> Iterator[Words]:
    yield from _group(count)
    for _ in range(count // 1000 + 1):
        yield (b"XREADGROUP", b"GROUP", b"g", b"c", b"COUNT", b"1000", b"STREAMS", b"s", b">")


def _turn(*commands: Callable[[int], Words]) -> Callable[[int], Words]:
    """Commands that take turns with the same key."""
    return lambda number: commands[number % len(commands)](number // len(commands))


CASES: Final[dict[str, Case]] = {
    "SET": Case(_strings, lambda n: (b"SET", _key(n), VALUE)),
    "SET EX": Case(_nothing, lambda n: (b"SET", _key(n), VALUE, b"EX", b"100")),
    "GET": Case(_strings, lambda n: (b"GET", _key(n))),
    "GET, it expires": Case(_expiring, lambda n: (b"GET", _key(n))),
    "INCR": Case(_strings, lambda n: (b"INCR", _key(n))),
    "APPEND": Case(_strings, lambda n: (b"APPEND", _key(n), b"x")),
    "EXPIRE": Case(_strings, lambda n: (b"EXPIRE", _key(n), b"%d" % (1000 + n % 100))),
    "TTL": Case(_expiring, lambda n: (b"TTL", _key(n))),
    "DEL, SET": Case(_strings, _turn(lambda n: (b"DEL", _key(n)), lambda n: (b"SET", _key(n), VALUE))),
    "HSET of 4": Case(_hashes(4), lambda n: (b"HSET", _key(n), b"field:%d" % (n % 4), VALUE)),
    "HSET of 16": Case(_hashes(16), lambda n: (b"HSET", _key(n), b"field:%d" % (n % 16), VALUE)),
    "HSET of 4 that is new": Case(
        _nothing, lambda n: (b"HSET", b"new:%d" % n, b"a", b"1", b"b", VALUE, b"c", b"3", b"d", VALUE)
    ),
    "HGET of 4": Case(_hashes(4), lambda n: (b"HGET", _key(n), b"field:2")),
    "HGET of 16": Case(_hashes(16), lambda n: (b"HGET", _key(n), b"field:%d" % (n % 16))),
    "HGET of 1000": Case(_hashes(1000), lambda n: (b"HGET", _key(n), b"field:%d" % (n % 1000))),
    "HGETALL of 4": Case(_hashes(4), lambda n: (b"HGETALL", _key(n))),
    "HGETALL of 16": Case(_hashes(16), lambda n: (b"HGETALL", _key(n))),
    "HINCRBY": Case(_nothing, lambda n: (b"HINCRBY", _key(n), b"field:%d" % (n % 4), b"1")),
    "HDEL, HSET of 4": Case(
        _hashes(4), _turn(lambda n: (b"HDEL", _key(n), b"field:1"), lambda n: (b"HSET", _key(n), b"field:1", VALUE))
    ),
    "HDEL, HSET of 16": Case(
        _hashes(16), _turn(lambda n: (b"HDEL", _key(n), b"field:9"), lambda n: (b"HSET", _key(n), b"field:9", VALUE))
    ),
    "SADD, SREM of 4": Case(_sets(4), _turn(lambda n: (b"SADD", _key(n), b"m"), lambda n: (b"SREM", _key(n), b"m"))),
    "SADD, SREM of 100": Case(
        _sets(100), _turn(lambda n: (b"SADD", _key(n), b"m"), lambda n: (b"SREM", _key(n), b"m"))
    ),
    "SADD, SREM of numbers": Case(
        _sets(16, is_of_numbers=True), _turn(lambda n: (b"SADD", _key(n), b"99"), lambda n: (b"SREM", _key(n), b"99"))
    ),
    "SISMEMBER of 4": Case(_sets(4), lambda n: (b"SISMEMBER", _key(n), b"member:3")),
    "SISMEMBER of 100": Case(_sets(100), lambda n: (b"SISMEMBER", _key(n), b"member:%d" % (n % 100))),
    "SMEMBERS of 16": Case(_sets(16), lambda n: (b"SMEMBERS", _key(n))),
    "ZADD of 4": Case(_sorted_sets(4), lambda n: (b"ZADD", _key(n), b"%d" % (n % 50), b"member:2")),
    "ZADD of 100": Case(_sorted_sets(100), lambda n: (b"ZADD", _key(n), b"%d" % (n % 50), b"member:%d" % (n % 100))),
    "ZADD of 1000": Case(_sorted_sets(1000), lambda n: (b"ZADD", _key(n), b"%d" % (n % 50), b"member:%d" % (n % 1000))),
    "ZINCRBY of 16": Case(_sorted_sets(16), lambda n: (b"ZINCRBY", _key(n), b"1", b"member:%d" % (n % 16))),
    "ZSCORE of 16": Case(_sorted_sets(16), lambda n: (b"ZSCORE", _key(n), b"member:%d" % (n % 16))),
    "ZRANGE of 16": Case(_sorted_sets(16), lambda n: (b"ZRANGE", _key(n), b"0", b"9")),
    "ZRANGEBYSCORE of 100": Case(_sorted_sets(100), lambda n: (b"ZRANGEBYSCORE", _key(n), b"40", b"50")),
    "LPUSH, RPOP": Case(_lists, _turn(lambda n: (b"LPUSH", _key(n), VALUE), lambda n: (b"RPOP", _key(n)))),
    "LRANGE of 8": Case(_lists, lambda n: (b"LRANGE", _key(n), b"0", b"-1")),
    "LINDEX": Case(_lists, lambda n: (b"LINDEX", _key(n), b"4")),
    "LSET": Case(_lists, lambda n: (b"LSET", _key(n), b"4", VALUE)),
    "TWRITE": Case(_nothing, lambda _: (b"TWRITE", b"s", b"t", EVENT)),
    "TWRITE to many": Case(_nothing, lambda n: (b"TWRITE", _key(n), b"t", EVENT)),
    "XADD": Case(_nothing, lambda _: (b"XADD", b"s", b"*", b"field", EVENT)),
    "TREAD of 10 new ones": Case(_stream, lambda n: (b"TREAD", b"s", b"%d" % (19_001 + n % 900), b"10")),
    "TREAD of 10 old ones": Case(_stream, lambda n: (b"TREAD", b"s", b"%d" % (1 + n * 10 % 19_000), b"10")),
    "TREAD of 10 from disk": Case(_entries, lambda n: (b"TREAD", b"s", b"%d" % (1 + n * 10), b"10"), is_from_disk=True),
    "XRANGE of 10 newest": Case(_stream, lambda _: (b"XREVRANGE", b"s", b"+", b"-", b"COUNT", b"10")),
    "XREADGROUP of 10 new ones": Case(
        _read_up,
        _turn(
            lambda _: (b"TWRITE", b"s", b"ENTRIES", *(b"t", EVENT) * 10),
            lambda _: (b"XREADGROUP", b"GROUP", b"g", b"c", b"COUNT", b"10", b"STREAMS", b"s", b">"),
        ),
    ),
    "XREADGROUP of 10 old ones": Case(
        _group, lambda _: (b"XREADGROUP", b"GROUP", b"g", b"c", b"COUNT", b"10", b"STREAMS", b"s", b">")
    ),
    "XREADGROUP of 10 from disk": Case(
        _group,
        lambda _: (b"XREADGROUP", b"GROUP", b"g", b"c", b"COUNT", b"10", b"STREAMS", b"s", b">"),
        is_from_disk=True,
    ),
    "XREADGROUP of 1 old one": Case(
        _group, lambda _: (b"XREADGROUP", b"GROUP", b"g", b"c", b"COUNT", b"1", b"STREAMS", b"s", b">")
    ),
    "TACK": Case(_given_out, lambda n: (b"TACK", b"s", b"g", b"%d" % (n + 1))),
}


def rate(server: Server, case: Case, count: int) -> float:
    """Commands a second."""
    with Link(server) as link:
        link.call(b"FLUSHALL")
        for words in case.fill(count):
            link.call(*words)
        numbers = range(0, count, AT_ONCE)
        runs = [b"".join(encode(*case.measured(n)) for n in range(first, first + AT_ONCE)) for first in numbers]
        if case.is_from_disk:
            time.sleep(CLOSED_AFTER_S)
        else:
            _take(link, runs[: len(runs) // 10 + 1])
        began = time.perf_counter()
        _take(link, runs)
        return len(runs) * AT_ONCE / (time.perf_counter() - began)


def _take(link: Link, runs: list[bytes]) -> None:
    for number in range(len(runs) + UNDER_WAY):
        if number < len(runs):
            link.send(runs[number])
        if number >= UNDER_WAY:
            for _ in range(AT_ONCE):
                link.receive()


def run(before: str, count: int, rounds: int, names: list[str]) -> Iterator[dict[str, object]]:
    with ExitStack() as stack:
        servers = []
        for python in (before, sys.executable):
            folder = tempfile.mkdtemp(prefix="tidelog-bench-")
            stack.callback(shutil.rmtree, folder)
            servers.append(stack.enter_context(running("tidelog", folder, python=python)))
        for name in names:
            best = [0.0, 0.0]
            for _ in range(rounds):
                for version, server in enumerate(servers):
                    best[version] = max(best[version], rate(server, CASES[name], count))
            yield {
                "benchmark": "versions",
                "case": name,
                "before_per_s": round(best[0]),
                "after_per_s": round(best[1]),
                "ratio": round(best[1] / best[0], 2),
            }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Two versions of Tidelog beside each other.")
    parser.add_argument("--before", required=True, help="the interpreter that has the other version", metavar="PYTHON")
    parser.add_argument("--commands", type=int, default=30_000, help="of each case and round [default: %(default)s]")
    parser.add_argument("--rounds", type=int, default=5, help="[default: %(default)s]")
    parser.add_argument("--case", action="append", choices=list(CASES), metavar="NAME", help="only these")
    parser.add_argument("--json", action="store_true", help="JSON lines instead of a table")
    options = parser.parse_args(arguments)
    names = options.case or list(CASES)
    write_rows(run(options.before, options.commands, options.rounds, names), options.json, LINE)


if __name__ == "__main__":
    main()
