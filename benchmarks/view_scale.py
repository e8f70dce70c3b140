"""Views over many rows: what building one costs, and what a batch of changes costs, beside a small source.

    python -m benchmarks.view_scale [--source stream|prefix] [--rows 500000,50000000] [--bursts N] [--changes N]
                                    [--driver-memory 1g] [--json]

A source is filled with so many rows: entries of a stream, whose nodes lie on disk by then, or hashes. Two views are
built by `tidelog pipeline view --continuous`: counts, sums and averages by group, and min, max and count(distinct) by
group. Then come bursts of changes, one after the other: new rows, and as many that are deleted. The time of a burst is
that from its last write until a hash of each view has it. The peer is the same with the smallest source: what a batch
costs must depend on what changed, so the ratio of the two should be 1.

Goal: at most 1.5 times the time with 500,000 rows, with a driver of 1 GB.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import redis

from benchmarks.pipeline import job, take_replies
from benchmarks.servers import Server, encode, running, write_rows

LINE: Final = (
    "{source:<7} {rows:>12,} rows  built in {built_s:>7} s  state {state_mb:>7} MB  burst of {changes:,}: median "
    "{burst_s} s, worst {worst_s} s  x smallest {ratio}"
)
AT_ONCE: Final = 1000
PIPELINED: Final = 20
GROUPS: Final = 1000
POLL_S: Final = 0.01
PATIENCE_S: Final = 3600.0
VIEWS: Final = """
[views.sums]
source = "{source}"
sql = '''
select kind, count(*) as n, sum(cast(amount as double)) as total, avg(cast(amount as double)) as mean,
max(cast(burst as bigint)) as burst from source group by kind'''
key = ["kind"]

[views.ends]
source = "{source}"
sql = '''
select kind, min(cast(amount as double)) as low, max(cast(amount as double)) as high,
count(distinct customer) as customers, max(cast(burst as bigint)) as burst from source group by kind'''
key = ["kind"]
"""


def row(number: int, burst: int, rng: random.Random) -> dict[bytes, bytes]:
    return {
        b"kind": b"k%d" % (number % GROUPS),
        b"amount": b"%d.%02d" % (rng.randrange(5000), rng.randrange(100)),
        b"customer": b"c%d" % rng.randrange(100_000),
        b"burst": b"%d" % burst,
    }


class Source:
    """Rows that are written and deleted."""

    def __init__(self, server: Server, kind: str) -> None:
        self.server = server
        self.kind = kind
        self.name = "stream:events" if kind == "stream" else "prefix:order:"
        self._rng = random.Random(1)
        self._next = 0
        self._oldest = 0

    def fill(self, rows: int) -> None:
        with self.server.connect() as connection:
            for start in range(0, rows, AT_ONCE * PIPELINED):
                commands = []
                for at in range(start, min(rows, start + AT_ONCE * PIPELINED), AT_ONCE):
                    commands += self._new(min(AT_ONCE, rows - at), 0)
                connection.sendall(b"".join(encode(*words) for words in commands))
                take_replies(connection, len(commands))

    def burst(self, changes: int, number: int) -> int:
        """New rows, and as many that go. Returns a group that has a new one."""
        commands = self._new(changes // 2, number) + self._gone(changes // 2)
        with self.server.connect() as connection:
            connection.sendall(b"".join(encode(*words) for words in [(b"MULTI",), *commands, (b"EXEC",)]))
            take_replies(connection, len(commands) + 2)
        return (self._next - 1) % GROUPS

    def _new(self, count: int, burst: int) -> list[tuple[bytes, ...]]:
        rows = [row(self._next + number, burst, self._rng) for number in range(count)]
        self._next += count
        if self.kind == "stream":
            entries = [word for each in rows for word in (b"event", _json(each))]
            return [(b"TWRITE", b"events", b"ENTRIES", *entries)]
        first = self._next - count
        return [
            (b"HSET", b"order:%d" % (first + number), *(word for pair in each.items() for word in pair))
            for number, each in enumerate(rows)
        ]

    def _gone(self, count: int) -> list[tuple[bytes, ...]]:
        self._oldest += count
        if self.kind == "stream":
            return [(b"TEVICT", b"events", b"%d" % (self._oldest + 1))]
        return [(b"DEL", *(b"order:%d" % number for number in range(self._oldest - count, self._oldest)))]


def _json(fields: dict[bytes, bytes]) -> bytes:
    return b"{%b}" % b",".join(b'"%b":"%b"' % pair for pair in fields.items())


def measure(kind: str, rows: int, bursts: int, changes: int, memory: str) -> dict[str, Any]:
    with (
        tempfile.TemporaryDirectory(prefix="tidelog-bench-") as folder,
        running("tidelog", f"{folder}/data", has_flight=True) as server,
    ):
        source = Source(server, kind)
        source.fill(rows)
        views = Path(folder, "views.toml")
        views.write_text(VIEWS.format(source=source.name))
        began = time.monotonic()
        url = f"redis://127.0.0.1:{server.port}"
        words = ["pipeline", "view", "--url", url, "--file", str(views), "--to", f"{folder}/lake", "--continuous"]
        with (
            job(*words, "--conf", f"spark.driver.memory={memory}"),
            redis.Redis(port=server.port) as client,
        ):
            wait_for(client, range(min(GROUPS, rows)), 0)
            built_s = time.monotonic() - began
            took = []
            for number in range(1, bursts + 1):
                group = source.burst(changes, number)
                began = time.monotonic()
                wait_for(client, [group], number)
                took.append(time.monotonic() - began)
        size = sum(each.stat().st_size for each in Path(folder, "lake").rglob("*") if each.is_file())
    took = took[len(took) // 4 :]  # Java compiles what the first ones run
    return {
        "source": kind,
        "rows": rows,
        "built_s": round(built_s, 1),
        "state_mb": round(size / 1e6),
        "changes": changes,
        "burst_s": round(statistics.median(took), 2),
        "worst_s": round(max(took), 2),
    }


def wait_for(client: redis.Redis, groups: Sequence[int], burst: int) -> None:
    """Wait until hashes of both views have a burst."""
    deadline = time.monotonic() + PATIENCE_S
    wanted = b"%d" % burst
    for view in ("sums", "ends"):
        for group in groups:
            while client.hget(f"view:{view}:k{group}", "burst") != wanted:
                if time.monotonic() > deadline:
                    raise SystemExit(f"view {view} has no burst {burst} after {PATIENCE_S} s")
                time.sleep(POLL_S)


def run(kinds: Sequence[str], sizes: Sequence[int], bursts: int, changes: int, memory: str) -> Iterator[dict[str, Any]]:
    for kind in kinds:
        smallest = None
        for rows in sorted(sizes):
            found = measure(kind, rows, bursts, changes, memory)
            smallest = smallest or found["burst_s"]
            yield {**found, "ratio": round(found["burst_s"] / smallest, 2)}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.view_scale", description=__doc__)
    parser.add_argument("--source", default="stream,prefix")
    parser.add_argument("--rows", default="500000,5000000")
    parser.add_argument("--bursts", type=int, default=20)
    parser.add_argument("--changes", type=int, default=1000)
    parser.add_argument("--driver-memory", default="1g")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(argv)
    sizes = [int(each) for each in given.rows.split(",")]
    rows = run(given.source.split(","), sizes, given.bursts, given.changes, given.driver_memory)
    write_rows(rows, given.json, LINE)


if __name__ == "__main__":
    main()
