"""Two queries that follow a server into files, as a program that can be killed.

    python followed_query.py URL FOLDER

    stream:log     through Spark's own file sink, which knows its files by batch
    feed:prefix:k  through foreachBatch, which overwrites the folder of its batch

Both are exactly once if the source gives a batch that is done again the same rows.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery


def start(spark: SparkSession, url: str, folder: Path, **trigger: Any) -> list[StreamingQuery]:
    source = spark.readStream.format("tidelog").option("url", url)
    entries = source.schema("offset long, entry string").option("max_rows_per_trigger", 20_000).load("stream:log")
    source = spark.readStream.format("tidelog").option("url", url)
    changes = source.schema("shard int, ts long, seq int, key string, value string").load("feed:prefix:k")

    def write_batch(frame: DataFrame, batch_id: int) -> None:
        frame.write.mode("overwrite").parquet(str(folder / "changes" / f"batch={batch_id}"))

    to_files = entries.writeStream.format("parquet").option("path", str(folder / "entries"))
    queries = []
    for name, writer in (("entries", to_files), ("changes", changes.writeStream.foreachBatch(write_batch))):
        writer = writer.option("checkpointLocation", str(checkpoint(folder, name)))
        queries.append((writer.trigger(**trigger) if trigger else writer).start())
    return queries


def checkpoint(folder: Path, name: str) -> Path:
    return folder / f"{name}.checkpoint"


if __name__ == "__main__":
    from tidelog.spark import session

    made = session("followed", "local[2]")
    for query in start(made, sys.argv[1], Path(sys.argv[2])):
        query.awaitTermination()
