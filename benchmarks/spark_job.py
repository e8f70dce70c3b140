"""The Spark side of `benchmarks.spark`: one session, which reads the same events from everywhere in turn.

    python -m benchmarks.spark_job MASTER TASK

It is a process of its own because a session cannot change how many cores it has. `TASK` is the JSON of a `Task`;
measured seconds leave as JSON lines. Whatever is read is used: each column ends in a sum or a maximum, or in a file.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import redis
from pyspark.sql import DataFrame, SparkSession

from tidelog.spark import session

SCHEMA = "stream string, offset bigint, id string, timestamp timestamp, ms bigint, seq bigint, tag binary, entry binary"
NAMED = "timestamp timestamp, tag string, entry string"
SUMS = {
    "stream": "sum(length(stream))",
    "offset": "max(offset)",
    "id": "sum(length(id))",
    "timestamp": "max(timestamp)",
    "ms": "max(ms)",
    "seq": "max(seq)",
    "tag": "sum(length(tag))",
    "entry": "sum(length(entry))",
    "shard": "max(shard)",
    "lsn": "max(lsn)",
    "ts": "max(ts)",
    "op": "sum(length(op))",
    "key": "sum(length(key))",
    "value": "sum(length(value))",
}
SAME = ("tag", "entry")
"""Columns that are the same wherever the events come from."""
JOURNAL = "shard int, lsn bigint, ts bigint, timestamp timestamp, op string, key binary, value binary"
PARTITIONS = 4
PAGE = 10_000


@dataclass(frozen=True)
class Task:
    """What there is to read, and how often."""

    tidelog_port: int
    redis_port: int
    data: str
    """Where Tidelog keeps its journal."""
    folder: str
    """For files."""
    stream: str
    ids: tuple[int, int]
    """The first and the last ms of Redis's ids, which are as far apart from each other everywhere."""
    rounds: int
    tests: tuple[str, ...]
    copy: str = ""
    """Where Tidelog ships itself to; "": nowhere."""


# --- plain Redis, as one writes it by hand ----------------------------------------------------------------------------


def from_redis(spark: SparkSession, task: Task) -> DataFrame:
    first, last = task.ids
    step = -(-(last - first + 1) // PARTITIONS)
    bounds = [(low, min(low + step - 1, last)) for low in range(first, last + 1, step)]
    plan = spark.createDataFrame(bounds, "first bigint, last bigint").repartitionByRange(PARTITIONS, "first")
    port, stream = task.redis_port, task.stream

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        client: Any = redis.Redis(port=port, protocol=2)
        client.response_callbacks.clear()  # nothing is made into dicts
        for batch in batches:
            for row in batch.to_pylist():
                start, end = f"{row['first']}", f"{row['last']}"
                while page := client.execute_command("XRANGE", stream, start, end, "COUNT", PAGE):
                    yield _columns(page, stream)
                    start = f"({page[-1][0].decode()}"

    return plan.mapInArrow(read, SCHEMA)


def _columns(page: list[tuple[bytes, list[bytes]]], stream: str) -> pa.RecordBatch:
    ids = pa.array([identity for identity, _ in page], pa.binary()).cast(pa.string())
    halves = pc.split_pattern(ids, "-")
    ms, seqs = (pc.list_element(halves, index).cast(pa.int64()) for index in (0, 1))
    columns = {
        "stream": pa.repeat(pa.scalar(stream), len(page)),
        "offset": pa.nulls(len(page), pa.int64()),
        "id": ids,
        "timestamp": pc.multiply(ms, 1000).cast(pa.timestamp("us", "UTC")),
        "ms": ms,
        "seq": seqs,
        "tag": pa.array([fields[1] for _, fields in page], pa.binary()),
        "entry": pa.array([fields[3] for _, fields in page], pa.binary()),
    }
    return pa.RecordBatch.from_pydict(columns)


# --- the others -------------------------------------------------------------------------------------------------------


def from_tidelog(spark: SparkSession, task: Task, schema: str) -> DataFrame:
    reader = spark.read.format("tidelog").schema(schema).option("url", f"redis://127.0.0.1:{task.tidelog_port}")
    return reader.load(f"stream:{task.stream}")


def from_journal(spark: SparkSession, task: Task) -> DataFrame:
    return spark.read.format("tidelog").schema(JOURNAL).load(f"journal:{task.data}")


def from_copy(spark: SparkSession, task: Task) -> DataFrame:
    return spark.read.format("tidelog").schema(SCHEMA).option("from", task.copy).load(f"stream:{task.stream}")


# --- what is measured -------------------------------------------------------------------------------------------------


def summed(frame: DataFrame) -> tuple[int, ...]:
    """Reads every column of every row."""
    row = frame.selectExpr("count(*)", *(SUMS[name] for name in frame.columns)).collect()[0]
    return (row[0], *(row[1 + frame.columns.index(name)] for name in SAME if name in frame.columns))


def written(frame: DataFrame, path: str) -> tuple[int, ...]:
    """Copies every row to Parquet."""
    frame.write.mode("overwrite").option("compression", "zstd").parquet(path)
    return ()


def named_only(frame: DataFrame) -> DataFrame:
    return frame.selectExpr("timestamp", "cast(tag as string) tag", "cast(entry as string) entry")


def measures(spark: SparkSession, task: Task) -> Iterator[tuple[str, dict[str, Callable[[], tuple[int, ...]]]]]:
    """For each test, how each of the sources does it."""
    events, copy = f"{task.folder}/events", f"{task.folder}/copy"
    written(from_tidelog(spark, task, SCHEMA), events)
    tide, plain, files = from_tidelog(spark, task, SCHEMA), from_redis(spark, task), spark.read.parquet(events)
    named = from_tidelog(spark, task, NAMED)
    if "count" in task.tests:
        yield (
            "count",
            {
                "tidelog": lambda: (tide.count(),),
                "redis": lambda: (plain.count(),),
                "parquet": lambda: (files.count(),),
            },
        )
    if "scan" in task.tests:
        yield (
            "scan",
            {
                "tidelog": lambda: summed(tide),
                "redis": lambda: summed(plain),
                "parquet": lambda: summed(files),
            },
        )
    if "named" in task.tests:
        yield (
            "named",
            {
                "tidelog": lambda: summed(named),
                "redis": lambda: summed(named_only(plain)),
                "parquet": lambda: summed(named_only(files)),
            },
        )
    if "write" in task.tests:
        yield (
            "write",
            {
                "tidelog": lambda: written(tide, copy),
                "redis": lambda: written(plain, copy),
                "parquet": lambda: written(files, copy),
            },
        )
    if "shipped" in task.tests:
        shipped = from_copy(spark, task)
        yield "shipped", {"tidelog": lambda: summed(shipped), "parquet": lambda: summed(files)}
    if "journal" in task.tests:
        records = f"{task.folder}/records"
        journal = from_journal(spark, task)
        written(journal, records)
        yield "journal", {"tidelog": lambda: summed(journal), "parquet": lambda: summed(spark.read.parquet(records))}


def best_seconds(
    sources: dict[str, Callable[[], tuple[int, ...]]], rounds: int
) -> tuple[dict[str, float], set[tuple[int, ...]]]:
    """The sources in turn, as often as asked after one round that does not count; and what they gave."""
    best = dict.fromkeys(sources, float("inf"))
    found = set()
    for number in range(rounds + 1):
        for name, run in sources.items():
            start = time.perf_counter()
            found.add(run())
            if number:
                best[name] = min(best[name], time.perf_counter() - start)
    return best, found


def main(master: str, given: str) -> None:
    fields = json.loads(given)
    task = Task(**{**fields, "ids": tuple(fields["ids"]), "tests": tuple(fields["tests"])})
    spark = session("benchmark", master)
    for test, sources in measures(spark, task):
        seconds, found = best_seconds(sources, task.rounds)
        if len(found) != 1:
            raise SystemExit(f"{test}: the sources gave different rows: {sorted(found)}")
        sys.stdout.write(json.dumps({"test": test, "seconds": seconds}) + "\n")
        sys.stdout.flush()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
