"""One Spark session, one Tidelog and one Redis for all tests of this folder.

A session takes seconds to start, so all tests that need it run in the same process (`tests/conftest.py` sees to it).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis
from pyspark.sql import SparkSession

from benchmarks.peers import stop_peer
from tests.conformance.redis_oracle import start_redis
from tests.integration.server_process import ServerProcess


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two tasks at a time, each tried three times. Nothing registers the data source: Spark finds it."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    from tidelog.spark import session

    quick: Any = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    made = session("tests", "local[2,3]", spark_sql_shuffle_partitions=2, **quick)
    yield made
    made.stop()


class Peer(NamedTuple):
    """A server that streams are read from and written to."""

    url: str
    client: redis.Redis
    is_tidelog: bool

    def call(self, *words: Any) -> Any:
        link: Any = self.client
        return link.execute_command(*words)

    def fill(self, stream: str, count: int, first: int = 0) -> None:
        """Entries `entry 0` to `entry count-1` with tags `t0` …; on Redis as the fields that mean the same."""
        numbers = range(first, first + count)
        if self.is_tidelog:
            for start in range(first, first + count, 1000):
                pairs = ((b"t%d" % n, b"entry %d" % n) for n in numbers[start - first : start - first + 1000])
                self.call("TWRITE", stream, "ENTRIES", *(word for pair in pairs for word in pair))
            return
        pipeline = self.client.pipeline(transaction=False)
        for number in numbers:
            pipeline.xadd(stream, {"tag": f"t{number}", "entry": f"entry {number}"})
        pipeline.execute()

    def entries(self, stream: str) -> list[bytes]:
        """The entries of a stream, in order."""
        return [fields[b"entry"] for _, fields in self.call("XRANGE", stream, "-", "+")]


@pytest.fixture(scope="session")
def tidelog_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("tidelog") / "data", has_flight=True) as running:
        yield running


@pytest.fixture(scope="session")
def redis_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    process, port = start_redis(tmp_path_factory.mktemp("redis"))
    yield port
    stop_peer(process)


@pytest.fixture
def tide(tidelog_process: ServerProcess) -> Iterator[Peer]:
    """A Tidelog that is empty."""
    with tidelog_process.client() as client:
        client.flushall()
        yield Peer(f"redis://127.0.0.1:{tidelog_process.port}", client, True)


@pytest.fixture
def plain(redis_port: int) -> Iterator[Peer]:
    """A Redis that is empty."""
    with redis.Redis(port=redis_port) as client:
        client.flushall()
        yield Peer(f"redis://127.0.0.1:{redis_port}", client, False)


@pytest.fixture(params=["tidelog", "redis"])
def peer(request: pytest.FixtureRequest) -> Peer:
    """Each of them."""
    found: Peer = request.getfixturevalue("tide" if request.param == "tidelog" else "plain")
    return found


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")
