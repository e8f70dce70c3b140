"""Memory beside Redis: resident bytes for each key.

    python -m benchmarks.memory [--keys N] [--kinds string,hash,set,zset,list,expiring] [--json]
    python -m benchmarks.memory --keys 100000 --kinds stream,group,pending,producer

Goal: at most 1.2 times what Redis takes.

Both servers start empty and get the same keys over a socket; what counts is how much VmRSS has grown when all are
there, divided by their number. A string has 100 bytes; a hash has four fields, a set, a sorted set or a list four
members; `expiring` are strings that expire within an hour. `--keys` counts keys and not fields.
The second call measures what belongs to streams: a `stream` with one entry of 100 bytes, a `group` of one stream, an
entry that is `pending` in a group, a `producer` with the one entry that it wrote (1000 a stream; Redis has none).
Whatever a server keeps beside the keys (buffers, our ring of the newest records) is in it, so few keys look expensive.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator

from benchmarks.loads import Link
from benchmarks.servers import NAMES, Server, encode, running, write_rows

VALUE_BYTES = 100
MEMBERS = 4
EXPIRY_S = 3600
AT_ONCE = 1000
"""Commands in one piece, so that neither side has to buffer much."""
PRODUCERS = 1000
"""Of each stream."""
SETTLE_S = 0.5
SETTLED_S = 3.0
"""For streams, of which older entries go to disk."""
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


# --- streams ----------------------------------------------------------------------------------------------------


def _stream(number: int) -> bytes:
    return encode(b"XADD", b"stream:%012d" % number, b"*", b"event", b"%0*d" % (VALUE_BYTES, number))


def _group(number: int) -> bytes:
    return encode(b"XGROUP", b"CREATE", b"s", b"group:%012d" % number, b"$", b"MKSTREAM")


def _pending(_: int) -> bytes:
    return encode(b"XREADGROUP", b"GROUP", b"g", b"consumer", b"COUNT", b"1", b"STREAMS", b"s", b">")


def _entries(keys: int) -> Iterator[bytes]:
    """What is there before they are pending."""
    yield encode(b"XGROUP", b"CREATE", b"s", b"g", b"$", b"MKSTREAM")
    for number in range(keys):
        yield encode(b"XADD", b"s", b"*", b"n", b"%d" % number)


def _producer(number: int) -> bytes:
    stream = b"stream:%d" % (number // PRODUCERS)
    return encode(b"TWRITE", stream, b"PRODUCER", b"producer:%012d" % number, b"1", b"ENTRIES", b"", b"")


KINDS: dict[str, Callable[[int], bytes]] = {
    "string": _string,
    "hash": _hash,
    "set": _set,
    "zset": _zset,
    "list": _list,
    "expiring": _expiring,
}
OF_STREAMS: dict[str, Callable[[int], bytes]] = {
    "stream": _stream,
    "group": _group,
    "pending": _pending,
    "producer": _producer,
}


def bytes_each(server: Server, kind: str, keys: int) -> float:
    """Of what belongs to streams."""
    with Link(server) as link:
        if kind == "pending":
            link.send_many(list(_entries(keys)))
            time.sleep(SETTLED_S)
        before = server.resident_bytes()
        for start in range(0, keys, AT_ONCE):
            link.send_many([OF_STREAMS[kind](number) for number in range(start, min(start + AT_ONCE, keys))])
    time.sleep(SETTLED_S)
    return (server.resident_bytes() - before) / keys


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
                if kind == "producer" and name == "redis":
                    taken[name] = 0.0
                    continue
                with running(name, folder) as server:
                    taken[name] = (bytes_a_key if kind in KINDS else bytes_each)(server, kind, keys)
            finally:
                shutil.rmtree(folder)
        ours, theirs = (taken[name] for name in NAMES)
        yield {
            "benchmark": kind,
            "keys": keys,
            "tidelog_bytes": round(ours),
            "redis_bytes": round(theirs),
            "ratio": round(ours / theirs, 2) if theirs else 0,
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
