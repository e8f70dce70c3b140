"""Day streams: how much smaller a compressed job set is, and how fast it becomes so.

    python -m benchmarks.days [--events N] [--days N] [--masters 'local[1],local[2]'] [--json]

Goal: on Redis, JSON job events take at least 8 times less memory than hot, and readers get the same ids and bytes as
before. What `tidelog pipeline compress` does to the job set, with all of its reading back and comparing, stands beside
zstd alone: the same bytes in pieces of 4 MB at the same level, on one core, without any server.

Memory is MEMORY USAGE of the streams, every entry counted, and the difference in used_memory when the job set came, and
when its hot streams went. Spark is started and warm before the clock is.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import date
from typing import Any

import pyarrow as pa
import redis

from benchmarks.job_events import job_events
from benchmarks.servers import running
from tidelog import limits
from tidelog.address import ServerAddress
from tidelog.days.batch import ZSTD_LEVEL
from tidelog.days.jobset import JobSet
from tidelog.days.message import DAY_MS, EventId, Message
from tidelog.days.reader import Reader
from tidelog.days.writer import Writer
from tidelog.spark.jobs.compress import CompressJob
from tidelog.spark.jobs.job import run_job
from tidelog.spark.jobs.job_lease import Stop
from tidelog.spark.jobs.lazy_session import LazySession
from tidelog.spark.jobs.pace import Pace

JOBSET = JobSet("reports", "nightly")
FIRST_MS = 1_714_521_600_000
TODAY = date(2024, 6, 30)
SETTLE_S_MAX = 60.0
LINES = {
    "memory": "memory   {events:>10,} events  hot {hot_bytes:>13,} B  compressed {compressed_bytes:>12,} B  "
    "ratio {ratio:>6}  by used_memory {used_memory_ratio:>6}  same ids and bytes: {is_same}",
    "zstd": "zstd     level {level} alone  {mb_per_second:>8} MB/s  ratio {ratio:>6}",
    "compress": "compress {master:<9} {seconds:>7} s  {mb_per_second:>8} MB/s  {of_zstd:>5} of zstd alone",
}


def write(client: Any, events: int, days: int) -> int:
    """Fill the job set; returns the bytes of its events."""
    a_day = -(-events // days)
    size = 0

    def messages() -> Iterator[Message]:
        nonlocal size
        for number, event in enumerate(job_events(events)):
            day, of_day = divmod(number, a_day)
            ms = FIRST_MS + day * DAY_MS + of_day * (DAY_MS // a_day)
            size += len(event)
            yield Message(EventId(ms, 0), ms, event)

    Writer(client, JOBSET).write(messages())
    return size


def digest(client: Any) -> tuple[int, str]:
    """Of everything that a reader gets, in order."""
    found, count = hashlib.blake2b(digest_size=16), 0
    for message in Reader(client, JOBSET).until_now():
        found.update(struct.pack("<QQQQ", *message.id, message.timestamp_ms, len(message.event)))
        found.update(message.event)
        count += 1
    return count, found.hexdigest()


def stream_bytes(client: Any) -> int:
    keys = [stream.key for stream in JOBSET.streams(client.smembers(JOBSET.index))]
    return sum(int(client.memory_usage(key, samples=0)) for key in keys)


def used_memory(client: Any) -> int:
    """When nothing is left to be freed."""
    deadline = time.monotonic() + SETTLE_S_MAX
    while client.info("memory")["lazyfree_pending_objects"] and time.monotonic() < deadline:
        time.sleep(0.05)
    return int(client.info("memory")["used_memory"])


def zstd_alone(events: int) -> dict[str, Any]:
    pieces, piece, size = list[bytes](), list[bytes](), 0
    for event in job_events(events):
        if size + len(event) > limits.DAYS_BATCH_BYTES_MAX:
            pieces.append(b"".join(piece))
            piece, size = [], 0
        piece.append(event)
        size += len(event)
    pieces.append(b"".join(piece))
    codec = pa.Codec("zstd", ZSTD_LEVEL)
    total = sum(map(len, pieces))
    begun = time.perf_counter()
    packed = sum(codec.compress(each).size for each in pieces)
    seconds = time.perf_counter() - begun
    rate = round(total / seconds / 1e6, 1)
    return {"benchmark": "zstd", "level": ZSTD_LEVEL, "mb_per_second": rate, "ratio": round(total / packed, 2)}


def compress(address: ServerAddress, master: str) -> float:
    """Seconds that the job took."""
    spark = LazySession("benchmark", master, {})
    try:
        spark().sparkContext.parallelize(range(8), 8).map(_warm).collect()
        job = CompressJob(address, older_than_days=2, today=TODAY)
        begun = time.perf_counter()
        run_job(job, spark, Stop(), pace=Pace(), on_result=lambda _: None, on_found=lambda *_: None)
        seconds = time.perf_counter() - begun
        if job.total.failed:
            raise SystemExit(f"it failed: {job.total.last_error}")
        return seconds
    finally:
        spark.close()


def _warm(number: int) -> int:
    import tidelog.days.compressor  # noqa: F401 - what a task imports first

    return number


def run(events: int, days: int, masters: list[str]) -> Iterator[dict[str, Any]]:
    folder = tempfile.mkdtemp(prefix="tidelog-bench-")
    try:
        with running("redis", folder) as server, redis.Redis(port=server.port, socket_timeout=60) as link:
            client: Any = link
            client.config_set("appendonly", "no")
            empty = used_memory(client)
            event_bytes = write(client, events, days)
            hot_used, hot_bytes, before = used_memory(client) - empty, stream_bytes(client), digest(client)
            alone = zstd_alone(events)
            yield alone
            hot_keys = list(client.smembers(JOBSET.index))
            for key in hot_keys:
                client.copy(key, b"saved:" + key)
            address = ServerAddress(port=server.port)
            for number, master in enumerate(masters):
                if number:
                    client.delete(*client.smembers(JOBSET.index), JOBSET.index)
                    for key in hot_keys:
                        client.copy(b"saved:" + key, key)
                        client.sadd(JOBSET.index, key)
                used_before = used_memory(client)
                seconds = compress(address, master)
                freed = used_before - used_memory(client)
                after, compressed_bytes = digest(client), stream_bytes(client)
                rate = event_bytes / seconds / 1e6
                yield {
                    "benchmark": "compress",
                    "master": master,
                    "seconds": round(seconds, 2),
                    "mb_per_second": round(rate, 1),
                    "of_zstd": round(rate / alone["mb_per_second"], 2),
                }
                if not number:
                    yield {
                        "benchmark": "memory",
                        "events": before[0],
                        "event_bytes": event_bytes,
                        "hot_bytes": hot_bytes,
                        "compressed_bytes": compressed_bytes,
                        "ratio": round(hot_bytes / compressed_bytes, 2),
                        "used_memory_ratio": round(hot_used / max(1, hot_used - freed), 2),
                        "is_same": before == after,
                    }
    finally:
        shutil.rmtree(folder)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Compressing day streams.")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--days", type=int, default=10)
    parser.add_argument("--masters", default="local[1],local[2]")
    parser.add_argument("--json", action="store_true", help="JSON lines instead of a table")
    options = parser.parse_args(arguments)
    for row in run(options.events, options.days, options.masters.split(",")):
        sys.stdout.write((json.dumps(row) if options.json else LINES[row["benchmark"]].format(**row)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
