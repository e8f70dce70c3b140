"""One very long stream: whether a read in its middle, and eviction, cost what they cost in a short one.

    python -m benchmarks.large_stream [--entries N] [--folder DIR] [--json]

Goals: a read in the middle costs at most 1.5 times what it costs in a stream of 10,000 entries; evicting half of the
entries takes less than a second. Resident memory is reported.

Entries of 20 bytes are appended by TWRITE ... ENTRIES of 1000, through the command, its transaction and the journal
(`fsync` as `never`), in this process. Sealed nodes are compressed as the server would, when it has the time.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.servers import write_rows
from tidelog.commands.families import command_table
from tidelog.engine.dispatch import find_command, run_command
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.journal import Settings
from tidelog.resp.encoder import ErrorReply, encode
from tidelog.store.store import Store
from tidelog.streams.stream import Stream
from tidelog.system.clock import SystemClock
from tidelog.system.disk import SystemDisk

TABLE = command_table()
SMALL = 10_000
BATCH = 1000
READS = 2000
READ_COUNT = 10
LINE = "{benchmark:<34} {figure:>16,} {unit:<10} goal: {goal}"


class Commands:
    """A store in this process."""

    def __init__(self, folder: str) -> None:
        self.store = Store.open(
            SystemDisk(),
            folder,
            SystemClock(),
            Settings(policy=FsyncPolicy.NEVER),
            new_epoch_id=lambda: 1,
            random=random.Random(1),
        )

    def call(self, *words: bytes) -> bytes:
        transaction = self.store.begin()
        reply = run_command(find_command(TABLE, words), transaction, words)
        self.store.commit(transaction)
        if isinstance(reply, ErrorReply):
            raise SystemExit(reply.message)
        return encode(reply, 2)

    def cool(self) -> None:
        """Write to disk what the server would."""
        cooling = self.store.cooling
        assert cooling is not None
        while (job := cooling.take()) is not None:
            job.run()
            cooling.finish(job)

    def stream(self, key: bytes) -> Stream:
        found = self.store.database(0).find(key)
        assert isinstance(found, Stream)
        return found


def fill(commands: Commands, key: bytes, count: int, *, compresses: bool) -> None:
    rng = random.Random(7)
    batches = [[word for _ in range(BATCH) for word in (b"t", rng.randbytes(10).hex().encode())] for _ in range(16)]
    began = time.monotonic()
    for number in range(count // BATCH):
        commands.call(b"TWRITE", key, b"ENTRIES", *batches[number % len(batches)])
        commands.store.journal.writer.write()
        if compresses and number % 100 == 99:
            commands.cool()
            if number % 10_000 == 9999:
                rate = (number + 1) * BATCH / (time.monotonic() - began)
                sys.stderr.write(f"\r{(number + 1) * BATCH:,} entries, {rate:,.0f} a second ")
    sys.stderr.write("\n" if compresses else "")


def read_us(commands: Commands, key: bytes, first: int, last: int) -> float:
    """A read of a few entries at random places: the median, in µs."""
    rng = random.Random(3)
    took = []
    for _ in range(READS):
        words = (b"TREAD", key, b"%d" % rng.randrange(first, last), b"%d" % READ_COUNT)
        start = time.perf_counter()
        commands.call(*words)
        took.append(time.perf_counter() - start)
    return statistics.median(took) * 1e6


def resident_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise SystemExit("no VmRSS")


def run(entries: int, folder: str | None) -> Iterator[dict[str, object]]:
    base = tempfile.mkdtemp(prefix="tidelog-bench-", dir=folder)
    try:
        commands = Commands(f"{base}/data")
        fill(commands, b"small", SMALL, compresses=False)
        before = resident_bytes()
        began = time.perf_counter()
        fill(commands, b"large", entries, compresses=True)
        rate = entries / (time.perf_counter() - began)
        taken = resident_bytes() - before
        # Around the middle, so that what is read is in the cache of opened nodes in both, as it is for a reader.
        middle = entries // 2
        small = read_us(commands, b"small", SMALL // 2 - 2000, SMALL // 2 + 2000)
        large = read_us(commands, b"large", middle - 2000, middle + 2000)
        cold = read_us(commands, b"large", 1, entries - READ_COUNT)
        start = time.perf_counter()
        commands.call(b"TEVICT", b"large", b"%d" % middle)
        evicted_s = time.perf_counter() - start
        commands.store.journal.close()
    finally:
        shutil.rmtree(base)
    yield {"benchmark": "entries", "figure": entries, "unit": "", "goal": "-"}
    yield {"benchmark": "appended and compressed", "figure": round(rate), "unit": "entries/s", "goal": "-"}
    yield {"benchmark": "resident memory", "figure": taken, "unit": "bytes", "goal": "-"}
    yield {"benchmark": "memory of an entry", "figure": round(taken / entries, 1), "unit": "bytes", "goal": "-"}
    yield {"benchmark": "read of 10, 10,000 entries", "figure": round(small, 2), "unit": "us", "goal": "-"}
    yield {"benchmark": "read of 10, in the middle", "figure": round(large, 2), "unit": "us", "goal": "-"}
    yield {"benchmark": "ratio of the two", "figure": round(large / small, 2), "unit": "", "goal": "at most 1.5"}
    yield {"benchmark": "read of 10, anywhere, compressed", "figure": round(cold, 2), "unit": "us", "goal": "-"}
    yield {"benchmark": "eviction of half", "figure": round(evicted_s, 3), "unit": "s", "goal": "less than 1"}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="One very long stream.")
    parser.add_argument("--entries", type=int, default=100_000_000)
    parser.add_argument("--folder", help="where the journal is written [default: the system's temporary folder]")
    parser.add_argument("--json", action="store_true", help="JSON lines instead of a table")
    options = parser.parse_args(arguments)
    write_rows(run(options.entries, options.folder), options.json, LINE)


if __name__ == "__main__":
    main()
