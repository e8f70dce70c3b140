"""Memory beside Redis: resident bytes for each key.

    python -m benchmarks.memory [--keys N] [--kinds string,hash,set,zset,list,expiring] [--json]

Goal: at most 1.2 times what Redis takes.

Both servers start empty and get the same keys over a socket; what counts is how much VmRSS has grown when all are
there, divided by their number. A string has 100 bytes; a hash has four fields, a set, a sorted set or a list four
members; `expiring` are strings that expire within an hour. `--keys` counts keys and not fields.
Whatever a server keeps beside the keys (buffers, our ring of the newest records) is in it, so few keys look expensive.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator

from benchmarks.servers import NAMES, Server, encode, running, write_rows

VALUE_BYTES = 100
MEMBERS = 4
EXPIRY_S = 3600
AT_ONCE = 1000
"""Commands in one piece, so that neither side has to buffer much."""
SETTLE_S = 0.5
LINE = (
    "{benchmark:<8} {keys:>10,} keys  tidelog {tidelog_bytes:>6,} B a key  redis {redis_bytes:>6,} B a key  "
    "ratio {ratio:>5}"
)


def _string(number: int) -> bytes:
    return encode(b"SET", b"key:%012d" % number, b"%0*d" % (VALUE_BYTES, number))


def _hash(number: int) -> bytes:
    words = (word for index in range(MEMBERS) for word in (b"field:%d" % index, b"value:%d" % (number + index)))
    return encode(b"HSET", b"hash:%012d" % number, *words)


def _set(number: int) -> bytes:
    return encode(b"SADD", b"set:%012d" % number, *(b"member:%d" % (number + index) for index in range(MEMBERS)))


def _zset(number: int) -> bytes:
    words = (word for index in range(MEMBERS) for word in (b"%d" % index, b"member:%d" % (number + index)))
    return encode(b"ZADD", b"zset:%012d" % number, *words)


def _list(number: int) -> bytes:
    return encode(b"RPUSH", b"list:%012d" % number, *(b"element:%d" % (number + index) for index in range(MEMBERS)))


def _expiring(number: int) -> bytes:
    value = b"%0*d" % (VALUE_BYTES, number)
    return encode(b"SET", b"key:%012d" % number, value, b"EX", b"%d" % (EXPIRY_S // 2 + number % (EXPIRY_S // 2)))


KINDS: dict[str, Callable[[int], bytes]] = {
    "string": _string,
    "hash": _hash,
    "set": _set,
    "zset": _zset,
    "list": _list,
    "expiring": _expiring,
}


def bytes_a_key(server: Server, kind: str, keys: int) -> float:
    before = server.resident_bytes()
    for start in range(0, keys, AT_ONCE):
        numbers = range(start, min(start + AT_ONCE, keys))
        server.send_all(map(KINDS[kind], numbers), len(numbers))
    time.sleep(SETTLE_S)
    if server.ask(b"DBSIZE") != b":%d" % keys:
        raise SystemExit(f"{server.name} does not have {keys} keys")
    return (server.resident_bytes() - before) / keys


def run(keys: int, kinds: list[str]) -> Iterator[dict[str, object]]:
    for kind in kinds:
        taken = {}
        for name in NAMES:
            folder = tempfile.mkdtemp(prefix="tidelog-bench-")
            try:
                with running(name, folder) as server:
                    taken[name] = bytes_a_key(server, kind, keys)
            finally:
                shutil.rmtree(folder)
        ours, theirs = (taken[name] for name in NAMES)
        yield {
            "benchmark": kind,
            "keys": keys,
            "tidelog_bytes": round(ours),
            "redis_bytes": round(theirs),
            "ratio": round(ours / theirs, 2),
        }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Memory for each key beside Redis.")
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--json", action="store_true", help="JSON lines instead of a table")
    options = parser.parse_args(arguments)
    write_rows(run(options.keys, options.kinds.split(",")), options.json, LINE)


if __name__ == "__main__":
    main()
