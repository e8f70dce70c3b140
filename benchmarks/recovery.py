"""Recovery beside Redis: how long a server takes to start over a log of many small writes.

    python -m benchmarks.recovery [--writes N] [--keys N] [--pipelines 1,16] [--rounds N] [--folder DIR] [--json]

Goal: 1.0, as fast as Redis loads an AOF (without an RDB preamble) with the very same writes.

The writes are SETs of 16-byte keys, drawn at random from `--keys`, and values of 12 to 28 bytes. The journal is written
by the server's own hot path without its sockets, a run as long as the pipeline at a time, and one write to the file for
every turn, in which each of 50 connections had its say. The AOF is the text that Redis appends for the same SETs in the
same order.

The time runs from the start of the process until it answers PING, so it includes what a process needs to come up at
all. Rounds alternate between the two and the median counts; the files come from the page cache.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.servers import NAMES, encode, running, write_rows
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.journal import Settings
from tidelog.server.hot import HotPath
from tidelog.store.store import Store
from tidelog.system.clock import SystemClock
from tidelog.system.disk import SystemDisk

CONNECTIONS = 50
"""A turn of the server's loop runs what each of them has sent."""
LINE = (
    "{benchmark:<16} pipeline {pipeline:>3}  {writes:>10,} writes  tidelog {tidelog_s:>7.2f} s  redis {redis_s:>7.2f} s"
    "  ratio {ratio:>5}"
)


def commands(writes: int, keys: int, pipeline: int) -> Iterator[list[list[bytes]]]:
    """The same writes each time, in runs as long as a pipeline."""
    draw = random.Random(2024)
    filler = b"abcdefghijklmnopqrstuvwxyz0123456789"
    for _ in range(writes // pipeline):
        yield [
            [b"SET", b"key:%012d" % int(draw.random() * keys), filler[: 12 + int(draw.random() * 17)]]
            for _ in range(pipeline)
        ]


def write_journal(folder: str, writes: int, keys: int, pipeline: int) -> None:
    Path(folder).mkdir()
    store = Store.open(
        SystemDisk(),
        f"{folder}/data",
        SystemClock(),
        Settings(policy=FsyncPolicy.NEVER),
        new_epoch_id=lambda: 1,
        random=random.Random(1),
    )
    hot = HotPath(store, 0, 2)
    write = store.journal.writer.write
    for number, run in enumerate(commands(writes, keys, pipeline), 1):
        done = 0
        while done < len(run):
            done = hot.set(run, done, [])
        if number % CONNECTIONS == 0:
            write()
    store.journal.close()


def write_aof(folder: str, writes: int, keys: int, pipeline: int) -> None:
    logs = Path(folder) / "appendonlydir"
    logs.mkdir(parents=True)
    name = "appendonly.aof.1.incr.aof"
    (logs / "appendonly.aof.manifest").write_text(f"file {name} seq 1 type i\n")
    with (logs / name).open("wb") as log:
        log.write(encode(b"SELECT", b"0"))
        for run in commands(writes, keys, pipeline):
            log.writelines(encode(*command) for command in run)


def time_start(name: str, folder: str) -> tuple[float, bytes]:
    """Seconds until it is ready, and how many keys it then has."""
    began = time.perf_counter()
    with running(name, folder) as server:
        took = time.perf_counter() - began
        return took, server.ask(b"DBSIZE")


def run(writes: int, keys: int, pipelines: list[int], rounds: int, parent: str | None) -> Iterator[dict[str, object]]:
    for pipeline in pipelines:
        base = tempfile.mkdtemp(prefix="tidelog-bench-", dir=parent)
        try:
            folders = {name: f"{base}/{name}" for name in NAMES}
            write_journal(folders["tidelog"], writes, keys, pipeline)
            write_aof(folders["redis"], writes, keys, pipeline)
            seconds: dict[str, list[float]] = {name: [] for name in NAMES}
            for _ in range(rounds):
                sizes = set()
                for name in NAMES:
                    took, size = time_start(name, folders[name])
                    seconds[name].append(took)
                    sizes.add(size)
                if len(sizes) != 1:
                    raise SystemExit(f"the servers have loaded different numbers of keys: {sizes}")
            ours, theirs = (statistics.median(seconds[name]) for name in NAMES)
            yield {
                "benchmark": "recovery",
                "pipeline": pipeline,
                "writes": writes,
                "tidelog_s": round(ours, 3),
                "redis_s": round(theirs, 3),
                "ratio": round(theirs / ours, 2),
            }
        finally:
            shutil.rmtree(base)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Recovery beside Redis.")
    parser.add_argument("--writes", type=int, default=5_000_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--pipelines", default="1,16")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", help="where the files are written (default: the system's temporary folder)")
    parser.add_argument("--json", action="store_true", help="JSON lines instead of a table")
    options = parser.parse_args(arguments)
    pipelines = [int(each) for each in options.pipelines.split(",")]
    write_rows(run(options.writes, options.keys, pipelines, options.rounds, options.folder), options.json, LINE)


if __name__ == "__main__":
    main()
