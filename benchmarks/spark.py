"""Events into Spark: from Tidelog, from plain Redis and from Parquet files, in one run, as ratios.

    python -m benchmarks.spark [--events N] [--rounds N] [--cores 1,2] [--tests scan,...] [--warm] [--json]
    python -m benchmarks.spark --case shipped --events 10000000

Goals: ten times the rows a second of Redis, and at most twice the time of Parquet; out of a copy, 1.3 times.

    count      how many rows: all columns come to Spark, which does not look at them (Parquet has it in its footers)
    scan       every column of a stream, each summed up
    named      three of them, as strings: what a schema is for
    write      every column into Parquet with zstd
    journal    records of journal files, one SET each, as many as a tenth of the events; nothing of Redis's to compare
    shipped    every column of a stream, as `scan`, out of a copy in a folder (--ship-to) and without the server

Redis is read as one writes it by hand: redis-py with hiredis in mapInArrow, four ranges of ids, pages of 10,000 that
become one Arrow batch each. Parquet is what Spark wrote of the same rows. Both servers have the events in memory;
Tidelog's nodes are compressed before it begins, as history is, unless `--warm` is given. Each number of cores has a
session of its own (`local[N]`); the servers take what they need beside it. Events are JSON of jobs, of about 250
bytes. After a round that warms up, the best of the rounds counts.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from benchmarks.loads import Link
from benchmarks.servers import NAMES, Server, encode, running, write_rows
from benchmarks.spark_job import Task
from tidelog.shipping.manifest_log import ManifestLog, database_ids
from tidelog.system.object_store import open_object_store

STREAM = "jobs"
FIRST_MS = 1_700_000_000_000
GAP_MS = 7
AT_ONCE = 1000
COLD_S_MAX = 600.0
TESTS = ("count", "scan", "named", "write", "journal", "shipped")
WITHOUT_REDIS = frozenset(["journal", "shipped"])
SHIPPED_S_MAX = 600.0
SHARE_OF_RECORDS = 10
LINE = (
    "{benchmark:<8} {cores} cores  tidelog {tidelog:>10,} rows/s  redis {redis:>10,}  parquet {parquet:>10,}  "
    "x redis {ratio:>6}  time / parquet {time_ratio:>5}"
)


def job(number: int, rng: random.Random) -> bytes:
    """What happened to a job."""
    at = FIRST_MS + GAP_MS * number
    fields = {
        "job": f"{rng.getrandbits(64):016x}",
        "trace": f"{rng.getrandbits(96):024x}",
        "kind": rng.choice(["resize", "transcode", "index", "mail", "invoice"]),
        "state": rng.choice(["queued", "started", "finished", "failed"]),
        "queue": f"q{rng.randrange(16)}",
        "worker": f"worker-{rng.randrange(400)}.eu-{rng.randrange(3)}.internal",
        "attempt": rng.randrange(1, 4),
        "at": at,
        "took_ms": rng.randrange(60_000),
        "input": f"s3://uploads/{rng.getrandbits(32):08x}/{rng.getrandbits(32):08x}.bin",
    }
    return json.dumps(fields).encode()


def fill(server: Server, events: list[bytes]) -> None:
    """The events as each server takes them best."""
    with Link(server) as link:
        for start in range(0, len(events), AT_ONCE):
            run = events[start : start + AT_ONCE]
            if server.name == "tidelog":
                link.call(b"TWRITE", STREAM.encode(), b"ENTRIES", *(word for each in run for word in (b"job", each)))
                continue
            ids = (b"%d-0" % (FIRST_MS + GAP_MS * number) for number in range(start, start + len(run)))
            link.send(
                b"".join(
                    encode(b"XADD", STREAM.encode(), identity, b"tag", b"job", b"entry", each)
                    for identity, each in zip(ids, run, strict=True)
                )
            )
            for _ in run:
                link.receive()


def wait_until_cold(server: Server) -> None:
    """Until the nodes of the stream are compressed."""
    deadline = time.monotonic() + COLD_S_MAX
    with Link(server) as link:
        while time.monotonic() < deadline:
            reply = link.call(b"TINFO", STREAM.encode())
            facts = dict(zip(reply[::2], reply[1::2], strict=True))
            if facts[b"nodes"] - facts[b"cold-nodes"] <= 2:
                return
            time.sleep(0.2)
    raise SystemExit("the stream was not compressed")


def wait_until_shipped(server: Server, url: str) -> None:
    """Until the copy has everything, with a snapshot of it."""
    objects = open_object_store(url)
    deadline = time.monotonic() + SHIPPED_S_MAX
    with Link(server) as link:
        while b"shipping_lag_us:0\r" not in link.call(b"INFO", b"shipping"):
            if time.monotonic() > deadline:
                raise SystemExit("the copy stays behind")
            time.sleep(0.2)
        link.call(b"BGSAVE")
    [database_id] = database_ids(objects)
    log = ManifestLog(objects, database_id)
    while time.monotonic() < deadline:
        manifest = log.newest()
        if manifest is not None and (newest := manifest.lineages[-1]).ts and newest.ts in newest.snapshots:
            return
        time.sleep(0.5)
    raise SystemExit("no snapshot of everything was shipped")


def make_records(folder: str, events: list[bytes]) -> int:
    """A data directory with a record for each of some events; how many."""
    chosen = events[: max(len(events) // SHARE_OF_RECORDS, 1)]
    with running("tidelog", folder) as server:
        for start in range(0, len(chosen), AT_ONCE):
            run = chosen[start : start + AT_ONCE]
            server.send_all(
                (encode(b"SET", b"job:%d" % (start + index), each) for index, each in enumerate(run)), len(run)
            )
    return len(chosen)


def measure(master: str, task: Task) -> Iterator[tuple[str, dict[str, float]]]:
    """The seconds of each source for each test, in a session of its own."""
    command = [sys.executable, "-m", "benchmarks.spark_job", master, json.dumps(asdict(task))]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"{master} failed")
    for line in done.stdout.splitlines():
        found = json.loads(line)
        yield found["test"], found["seconds"]


def run(
    count: int, rounds: int, cores: list[int], tests: tuple[str, ...], *, is_warm: bool
) -> Iterator[dict[str, object]]:
    rng = random.Random(250)
    events = [job(number, rng) for number in range(count)]
    base = tempfile.mkdtemp(prefix="tidelog-bench-")
    try:
        with ExitStack() as stack:
            names = ("tidelog",) if WITHOUT_REDIS.issuperset(tests) else NAMES
            copy = f"{base}/shipped" if "shipped" in tests else ""
            servers = {
                name: stack.enter_context(running(name, f"{base}/{name}", has_flight=True, ship_to=copy))
                for name in names
            }
            for server in servers.values():
                fill(server, events)
            records = make_records(f"{base}/written", events) if "journal" in tests else 0
            if not is_warm:
                wait_until_cold(servers["tidelog"])
            if copy:
                wait_until_shipped(servers["tidelog"], copy)
            task = Task(
                tidelog_port=servers["tidelog"].port,
                redis_port=servers["redis"].port if "redis" in servers else 0,
                data=str(Path(base, "written", "data")),
                folder=base,
                stream=STREAM,
                ids=(FIRST_MS, FIRST_MS + GAP_MS * (count - 1)),
                rounds=rounds,
                tests=tests,
                copy=copy,
            )
            del events
            for number in cores:
                for test, seconds in measure(f"local[{number}]", task):
                    yield row(test, number, records if test == "journal" else count, seconds)
    finally:
        shutil.rmtree(base)


def row(test: str, cores: int, count: int, seconds: dict[str, float]) -> dict[str, object]:
    speeds = {name: round(count / taken) for name, taken in seconds.items()}
    ours = seconds["tidelog"]
    return {
        "benchmark": test,
        "cores": cores,
        "tidelog": speeds["tidelog"],
        "redis": speeds.get("redis", 0),
        "parquet": speeds["parquet"],
        "ratio": round(seconds["redis"] / ours, 2) if "redis" in seconds else 0,
        "time_ratio": round(ours / seconds["parquet"], 2),
        "load": round(os.getloadavg()[0], 1),
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Events into Spark, beside Redis and Parquet.")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", default="1,2")
    parser.add_argument("--tests", "--case", default=",".join(TESTS))
    parser.add_argument("--warm", action="store_true", help="do not wait until the stream is compressed")
    parser.add_argument("--json", action="store_true", help="JSON lines instead of a table")
    options = parser.parse_args(arguments)
    cores = [int(each) for each in options.cores.split(",")]
    tests = tuple(options.tests.split(","))
    write_rows(run(options.events, options.rounds, cores, tests, is_warm=options.warm), options.json, LINE)


if __name__ == "__main__":
    main()
