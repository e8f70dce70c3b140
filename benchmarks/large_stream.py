"""One stream that is larger than memory should be: what it takes, and what it costs those who use it, beside Redis.

    python -m benchmarks.large_stream [--entries N] [--redis-entries N] [--seconds N] [--folder DIR] [--json]

Goals, for a hundred million events of 100 bytes of JSON: less than 600 MB resident, a start in less than 15 s, a
snapshot after 1 % more in less than 5 s, a read in the middle that costs at most 3 times what it costs in a stream of
10,000 entries, half of it evicted in less than a second. While 8 readers scan different parts of it, the 99th
percentile of writers at most doubles against readers of streams in memory.

Both are real servers that are asked through sockets. Tidelog runs with its defaults, so it makes snapshots by itself
while it is filled. Redis runs without a log and starts from its snapshot. It holds everything in memory, so it gets
fewer entries (`--redis-entries`), and its figures are of that many. Events come in commands of a thousand (TWRITE), or
a thousand commands at once (XADD). They repeat after 64,000, which no compression of single nodes notices.
"""

from __future__ import annotations

import argparse
import json
import random
import selectors
import shutil
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import hiredis

from benchmarks.loads import COMPARED_LINE, Link, compared, percentile
from benchmarks.servers import NAMES, Server, encode, running, write_rows
from benchmarks.side_process import SideProcess
from benchmarks.snapshot import is_saving

LARGE, SMALL, WRITTEN = b"large", b"small", b"written"
SMALL_ENTRIES: Final = 10_000
EVENT_BYTES: Final = 100
BATCH: Final = 1000
BATCHES: Final = 64
UNANSWERED_MAX: Final = 8
"""Batches under way."""
SETTLE_S: Final = 5.0
"""Until memory is measured: as long as somebody who looks at it."""
READS: Final = 2000
READ_COUNT: Final = 10
AROUND: Final = 2000
"""Reads in the middle are this far from it at most: the nodes there are in the cache, as they are for a reader."""
SCANNERS: Final = 8
SCAN_COUNT: Final = 100
HOT_ENTRIES: Final = 2000
"""Of a stream that a scanner reads again and again: so few are all in memory."""
WRITERS: Final = 4
PROGRESS_BATCHES: Final = 1000


def events(rng: random.Random) -> Iterator[bytes]:
    """JSON of 100 bytes each, as services write it."""
    number = 0
    while True:
        number += rng.randint(1, 9)
        event = {
            "id": 10**8 + number,
            "user": f"u{rng.randrange(10**6):06d}",
            "kind": rng.choice(("view", "click", "order", "login")),
            "at": 1_700_000_000_000 + number,
            "amount": rng.randrange(10**4),
        }
        text = json.dumps(event, separators=(",", ":"))
        yield f'{text[:-1]},"p":"{"x" * (EVENT_BYTES - len(text) - 7)}"}}'.encode()


class Filler:
    """Appends whole batches to streams of one server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._is_redis = server.name == "redis"
        found = events(random.Random(7))
        self._batches = [[next(found) for _ in range(BATCH)] for _ in range(BATCHES)]

    def fill(self, key: bytes, count: int) -> list[bytes]:
        """Returns the id, or offset, of the first entry of each batch."""
        pieces = [self._encode(key, batch) for batch in self._batches]
        replies_each = BATCH if self._is_redis else 1
        total = count // BATCH
        firsts: list[bytes] = []
        began = time.monotonic()
        with Link(self._server) as link:
            for number in range(total + UNANSWERED_MAX):
                if number < total:
                    link.send(pieces[number % BATCHES])
                if number >= UNANSWERED_MAX:
                    replies = [link.receive() for _ in range(replies_each)]
                    firsts.append(replies[0] if self._is_redis else b"%d" % (len(firsts) * BATCH + 1))
                    self._show_progress(len(firsts), total, began)
        return firsts

    def _encode(self, key: bytes, batch: list[bytes]) -> bytes:
        if self._is_redis:
            return b"".join(encode(b"XADD", key, b"*", b"t", event) for event in batch)
        return encode(b"TWRITE", key, b"ENTRIES", *(word for event in batch for word in (b"t", event)))

    def _show_progress(self, done: int, total: int, began: float) -> None:
        if done % PROGRESS_BATCHES == 0 and sys.stderr.isatty():
            rate = done * BATCH / (time.monotonic() - began)
            end = "\n" if done == total else ""
            sys.stderr.write(f"\r{self._server.name}: {done * BATCH:,} entries, {rate:,.0f} a second {end}")


def read_command(name: str, key: bytes, first: bytes, count: int) -> bytes:
    if name == "redis":
        return encode(b"XRANGE", key, first, b"+", b"COUNT", b"%d" % count)
    return encode(b"TREAD", key, first, b"%d" % count)


def read_us(server: Server, key: bytes, firsts: list[bytes]) -> float:
    """A read of a few entries at places drawn from these: the median, in µs."""
    rng = random.Random(3)
    commands = [read_command(server.name, key, rng.choice(firsts), READ_COUNT) for _ in range(READS)]
    took = []
    with Link(server) as link:
        for command in commands:
            start = time.perf_counter()
            link.send(command)
            link.receive()
            took.append(time.perf_counter() - start)
    return statistics.median(took) * 1e6


def around_middle(server: Server, key: bytes, firsts: list[bytes]) -> list[bytes]:
    """Places in the middle: of single entries, where they can be told without asking."""
    if server.name == "tidelog":
        middle = len(firsts) * BATCH // 2
        return [b"%d" % place for place in range(middle - AROUND, middle + AROUND)]
    near = firsts[len(firsts) // 2 - AROUND // BATCH]
    with Link(server) as link:
        return [entry for entry, _ in link.call(b"XRANGE", key, near, b"+", b"COUNT", b"%d" % (2 * AROUND))]


def save_s(server: Server) -> float:
    """How long a snapshot takes that begins now."""
    while is_saving(server):  # one that it began by itself
        time.sleep(0.05)
    began = time.perf_counter()
    reply = server.ask(b"BGSAVE")
    if not reply.startswith(b"+"):
        raise SystemExit(f"{server.name} answered BGSAVE with {reply!r}")
    while is_saving(server):
        time.sleep(0.02)
    return time.perf_counter() - began


def disk_bytes(folder: str) -> int:
    return sum(path.stat().st_blocks * 512 for path in Path(folder).rglob("*") if path.is_file())


# --- writers beside scanners ---------------------------------------------------------------------------------------


def scan(port: int, scans: list[tuple[bytes, int, int]], pipe: Connection) -> None:
    """A process of its own: each connection reads its part from the first entry to the last, and from the first again.

    Sends back how many entries were read.
    """
    selector = selectors.DefaultSelector()
    positions: dict[Any, int] = {}
    for part in scans:
        connection = socket.create_connection(("127.0.0.1", port))
        selector.register(connection, selectors.EVENT_READ, (part, hiredis.Reader()))
        positions[connection] = part[1]
        connection.sendall(encode(b"TREAD", part[0], b"%d" % part[1], b"%d" % SCAN_COUNT))
    pipe.send(None)
    entries = 0
    while not pipe.poll():
        for ready, _ in selector.select(0.1):
            (key, first, last), reader = ready.data
            asked: Any = ready.fileobj
            reader.feed(asked.recv(1 << 18))
            reply = reader.gets()
            if reply is False:
                continue
            if isinstance(reply, Exception):
                pipe.send(str(reply))
                return
            entries += SCAN_COUNT
            after = positions[asked] + SCAN_COUNT
            positions[asked] = place = after if after + SCAN_COUNT <= last else first
            asked.sendall(encode(b"TREAD", key, b"%d" % place, b"%d" % SCAN_COUNT))
    pipe.send(entries)


def write_closely(port: int, pipe: Connection) -> None:
    """A process of its own: writers that each send an entry when the last was answered. Sends back their latencies."""
    selector = selectors.DefaultSelector()
    command = encode(b"TWRITE", WRITTEN, b"t", b"x" * EVENT_BYTES)
    sent_s: dict[Any, float] = {}
    for _ in range(WRITERS):
        connection = socket.create_connection(("127.0.0.1", port))
        selector.register(connection, selectors.EVENT_READ)
        sent_s[connection] = time.perf_counter()
        connection.sendall(command)
    pipe.send(None)
    latencies: list[float] = []
    while not pipe.poll():
        for ready, _ in selector.select(0.1):
            asked: Any = ready.fileobj
            if not asked.recv(256).startswith(b":"):
                pipe.send("a write was not answered with its offset")
                return
            now_s = time.perf_counter()
            latencies.append(now_s - sent_s[asked])
            sent_s[asked] = now_s
            asked.sendall(command)
    pipe.send(sorted(latencies))


def write_beside(server: Server, scans: list[tuple[bytes, int, int]], seconds: float) -> tuple[float, float, float]:
    """p50 and p99 of the writers in ms, and entries that were scanned a second."""
    with SideProcess(scan, server.port, scans) as scanning, SideProcess(write_closely, server.port) as writing:
        time.sleep(seconds)
        latencies, entries = writing.finish(), scanning.finish()
    for found in (latencies, entries):
        if isinstance(found, str):
            raise SystemExit(found)
    return percentile(latencies, 0.5) * 1e3, percentile(latencies, 0.99) * 1e3, entries / seconds


def measure_writers(server: Server, filler: Filler, entries: int, seconds: float) -> Iterator[dict[str, object]]:
    for number in range(SCANNERS):
        filler.fill(b"hot:%d" % number, HOT_ENTRIES)
    hot = [(b"hot:%d" % number, 1, HOT_ENTRIES) for number in range(SCANNERS)]
    part = entries // SCANNERS
    cold = [(LARGE, number * part + 1, (number + 1) * part) for number in range(SCANNERS)]
    figures = {}
    for name, scans in (("memory", hot), ("disk", cold)):
        p50_ms, p99_ms, per_s = write_beside(server, scans, seconds)
        figures[name] = p99_ms
        what = f"beside {SCANNERS} readers of nodes {'in memory' if name == 'memory' else 'on disk'}"
        yield row(f"{what}: entries scanned", "1/s", per_s)
        yield row(f"{what}: a write, p50", "ms", p50_ms)
        yield row(f"{what}: a write, p99", "ms", p99_ms)
    yield row("p99 of writes beside the two, ratio", "", figures["disk"] / figures["memory"], goal="at most 2")


# --- all of it -----------------------------------------------------------------------------------------------------


def row(what: str, unit: str, ours: float, goal: str = "") -> dict[str, object]:
    return compared("large", what, unit, {"tidelog": ours, "redis": None}, goal=goal)


class Figures:
    """What is measured of both servers."""

    def __init__(self, name: str, entries: int) -> None:
        self.name = name
        self.entries = entries
        self.found: dict[str, float] = {}
        self.more: list[dict[str, object]] = []
        """Rows of Tidelog alone."""

    def measure(self, folder: str, seconds: float) -> None:
        with running(self.name, folder, keeps_snapshots=True) as server:
            self._fill(server)
            save_s(server)
            self.found["disk"] = disk_bytes(folder)
            firsts = Filler(server).fill(LARGE, max(self.entries // 100, BATCH))
            self.found["snapshot"] = save_s(server)
            self._firsts += firsts if self.name == "redis" else []
        began = time.perf_counter()
        with running(self.name, folder, keeps_snapshots=True) as server:
            self.found["start"] = time.perf_counter() - began
            self.found["restarted"] = server.resident_bytes()
            self._read(server)
            if self.name == "tidelog":
                self.more += measure_writers(server, Filler(server), self.entries, seconds)
                self._evict(server)

    def _fill(self, server: Server) -> None:
        filler = Filler(server)
        self._small_firsts = filler.fill(SMALL, SMALL_ENTRIES)
        before = server.resident_bytes()
        began = time.perf_counter()
        self._firsts = filler.fill(LARGE, self.entries)
        self.found["filled"] = self.entries / (time.perf_counter() - began)
        time.sleep(SETTLE_S)
        self.found["resident"] = server.resident_bytes()
        self.found["an entry"] = (server.resident_bytes() - before) / self.entries

    def _read(self, server: Server) -> None:
        small = read_us(server, SMALL, around_middle(server, SMALL, self._small_firsts))
        middle = read_us(server, LARGE, around_middle(server, LARGE, self._firsts))
        self.found["read in the small one"] = small
        self.found["read in the middle"] = middle
        self.found["reads, ratio"] = middle / small
        self.found["read anywhere"] = read_us(server, LARGE, self._firsts)

    def _evict(self, server: Server) -> None:
        began = time.perf_counter()
        server.ask(b"TEVICT", LARGE, b"%d" % (self.entries // 2))
        self.more.append(row("eviction of half", "s", time.perf_counter() - began, goal="less than 1"))


ROWS: Final = (
    ("filled", "filled", "1/s", ""),
    ("resident", "resident memory, 5 s after the last write", "bytes", "less than 600 MB"),
    ("an entry", "memory of an entry", "bytes", ""),
    ("disk", "the data directory, journal included", "bytes", ""),
    ("snapshot", "a snapshot after 1 % more", "s", "less than 5"),
    ("start", "a start", "s", "less than 15"),
    ("restarted", "resident memory after a start", "bytes", "less than 600 MB"),
    ("read in the small one", "a read of 10 in 10,000 entries", "us", ""),
    ("read in the middle", "a read of 10 in the middle of all", "us", ""),
    ("reads, ratio", "ratio of the two", "", "at most 3"),
    ("read anywhere", "a read of 10 anywhere, so mostly from disk", "us", ""),
)


def run(entries: int, redis_entries: int, seconds: float, parent: str | None) -> Iterator[dict[str, object]]:
    measured = {}
    for name, count in zip(NAMES, (entries, redis_entries), strict=True):
        figures = measured[name] = Figures(name, count)
        if count:
            base = tempfile.mkdtemp(prefix="tidelog-bench-", dir=parent)
            try:
                figures.measure(base, seconds)
            finally:
                shutil.rmtree(base)
    yield compared("large", "entries", "", {name: each.entries for name, each in measured.items()})
    for key, what, unit, goal in ROWS:
        yield compared("large", what, unit, {name: each.found.get(key) for name, each in measured.items()}, goal=goal)
    yield from measured["tidelog"].more


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="One very long stream, beside Redis.")
    parser.add_argument("--entries", type=int, default=100_000_000, help="of Tidelog's stream [default: %(default)s]")
    parser.add_argument(
        "--redis-entries", type=int, default=10_000_000, help="of Redis's; 0: none [default: %(default)s]"
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="of writing beside readers [default: %(default)s]")
    parser.add_argument("--folder", help="where the servers' data lies [default: the system's temporary folder]")
    parser.add_argument("--json", action="store_true", help="JSON lines instead of a table")
    options = parser.parse_args(arguments)
    rows = run(options.entries, options.redis_entries, options.seconds, options.folder)
    write_rows(rows, options.json, COMPARED_LINE)


if __name__ == "__main__":
    main()
