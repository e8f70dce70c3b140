"""Exactly once: a driver is killed with SIGKILL, Java and all, under load and again and again; each row is there once.

Once, or 20 times with `--long`. When the kill strikes is drawn from a seed; where it finds the driver is up to the
machine. The test says how often it was inside of a batch.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Final

import pytest
from pyspark.sql import SparkSession

from tests.integration.server_process import ServerProcess, environment
from tests.spark import followed_query
from tests.spark.followed_query import checkpoint
from tests.spark.in_process import read
from tests.spark.load import Load

pytestmark = pytest.mark.xdist_group("spark")

QUERIES: Final = ("entries", "changes")
KILLS, KILLS_LONG = 1, 20
BATCH_S_MAX: Final = 120.0
"""How long a driver may take to begin its first batch."""
SPARKS_OWN: Final = "java.lang.IllegalStateException: Illegal size"
"""Two queries of one session meet, rarely, in a collection of Spark's that one of them is just writing: a query then
ends by itself. It goes on from its checkpoint like one that was killed."""
LOG_BYTES: Final = 20_000
KILL_S_MAX: Final = 2.0
"""It is killed at most so long after that."""


class EntriesLoad(Load):
    """Writes entries and keys, in transactions over both shards, until it is told to stop."""

    def __init__(self, server: ServerProcess) -> None:
        super().__init__(server)
        self.values: list[str] = []
        self.entries = 0

    def _write(self) -> None:
        words = [word for n in range(10) for word in ("t", f"entry {self.entries + n}")]
        self._client.execute_command("TWRITE", "log", "ENTRIES", *words)
        self.entries += 10
        first = len(self.values)
        together = {f"k{(first + n) % 37}": f"value {first + n}" for n in range(6)}
        self._client.mset(together)
        self.values += together.values()


@contextmanager
def driver(url: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The queries in a process of their own; leaving the block kills it, with all that it has started."""
    variables = environment()
    root = str(Path(__file__).parents[2])
    variables["PYTHONPATH"] = os.pathsep.join([variables["PYTHONPATH"], root])
    with (folder / "driver.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, str(Path(followed_query.__file__)), url, str(folder)],
            env=variables,
            cwd=folder,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):  # it ended by itself, with all that it had started
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)


def newest(folder: Path, name: str, log: str) -> int:
    """The newest batch in a log of Spark's; -1: there is none."""
    found = [int(path.name) for path in (checkpoint(folder, name) / log).glob("*") if path.name.isdigit()]
    return max(found, default=-1)


def wait_until(is_so: Callable[[], bool], process: subprocess.Popen[bytes], folder: Path) -> None:
    deadline = time.monotonic() + BATCH_S_MAX
    while not is_so():
        if process.poll() is not None:
            log = (folder / "driver.log").read_text()
            assert SPARKS_OWN in log[-LOG_BYTES:], log[-3000:]
            return
        assert time.monotonic() < deadline, "no batch has begun"
        time.sleep(0.02)


def run_and_kill(url: str, folder: Path, rng: Random, numbers: Counter[str]) -> None:
    """Both queries get something done, and soon after it all ends."""
    before = {name: newest(folder, name, "commits") for name in QUERIES}
    with driver(url, folder) as process:
        wait_until(lambda: all(newest(folder, name, "commits") > before[name] for name in QUERIES), process, folder)
        time.sleep(KILL_S_MAX * rng.random() ** 2)
    numbers["kills"] += 1
    for name in QUERIES:
        numbers[f"inside a batch of {name}"] += newest(folder, name, "offsets") > newest(folder, name, "commits")


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_each_row_is_there_once_however_often_the_driver_is_killed(
    spark: SparkSession, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    rng, numbers = Random(1), Counter[str]()
    kills = KILLS_LONG if pytestconfig.getoption("--long") else KILLS
    with ServerProcess(tmp_path / "data", "--shards", "2", has_flight=True) as server:
        url = f"redis://127.0.0.1:{server.port}"
        with EntriesLoad(server) as load:
            for _ in range(kills):
                run_and_kill(url, tmp_path, rng, numbers)
        for query in followed_query.start(spark, url, tmp_path, availableNow=True):
            assert query.awaitTermination(300)
            assert query.exception() is None
        entries = [(row.offset, row.entry) for row in spark.read.parquet(str(tmp_path / "entries")).collect()]
        changes = [tuple(row) for row in spark.read.parquet(str(tmp_path / "changes")).drop("batch").collect()]
        history = read(feed="prefix:k", url=url).select(["shard", "ts", "seq", "key", "value"]).to_pylist()
    print(f"{dict(numbers)}, {len(entries)} entries, {len(changes)} changes")
    assert sorted(entries) == [(n + 1, f"entry {n}") for n in range(load.entries)]
    assert sorted(row[-1] for row in changes) == sorted(load.values)
    assert sorted(changes) == sorted(
        (row["shard"], row["ts"], row["seq"], row["key"].decode(), row["value"].decode()) for row in history
    )
    inside = sum(count for name, count in numbers.items() if name.startswith("inside"))
    assert inside or kills < KILLS_LONG, "no kill was inside of a batch"
