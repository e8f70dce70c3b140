"""The servers that day streams run on: a Tidelog, a Redis, and a Redis Cluster of one node, each a process of its own.

A test that takes `server` runs on the first two, once in each version of the protocol; one that takes `any_server` also
on the cluster.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import redis
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.retry import Retry

from tests.conformance.redis_oracle import REDIS_SERVER, Socket, free_port, start_redis, stop
from tests.integration.server_process import ServerProcess

START_S_MAX: Final = 20.0
KINDS: Final = ("tidelog-RESP2", "tidelog-RESP3", "redis-RESP2", "redis-RESP3")


class Servers:
    """Started when they are first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tidelog: ServerProcess | None = None
        self._redis: tuple[subprocess.Popen[bytes], int] | None = None
        self._cluster: tuple[subprocess.Popen[bytes], int] | None = None

    def port(self, kind: str) -> int:
        if kind == "cluster":
            self._cluster = self._cluster or start_cluster(self._folder)
            return self._cluster[1]
        if kind.startswith("redis"):
            self._redis = self._redis or start_redis(self._folder)
            return self._redis[1]
        self._tidelog = self._tidelog or ServerProcess(self._folder / "data")
        return self._tidelog.port

    def client(self, kind: str) -> Any:
        """Of an empty server."""
        port = self.port(kind)
        made: Any
        if kind == "cluster":
            made = RedisCluster(host="127.0.0.1", port=port)
        else:
            protocol = 3 if kind.endswith("RESP3") else 2
            made = redis.Redis(port=port, protocol=protocol, socket_timeout=30, retry=Retry(NoBackoff(), 0))
        made.flushall()
        return made

    def close(self) -> None:
        if self._tidelog is not None:
            self._tidelog.close()
        for started in (self._redis, self._cluster):
            if started is not None:
                stop(started[0])


def start_cluster(folder: Path) -> tuple[subprocess.Popen[bytes], int]:
    """A Redis Cluster of one node that has all slots."""
    port, bus_port = free_port(), free_port()
    process = subprocess.Popen(
        [REDIS_SERVER, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", "",
         "--cluster-enabled", "yes", "--cluster-port", str(bus_port), "--cluster-config-file", "nodes.conf"],
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + START_S_MAX
    has_slots = False
    while time.monotonic() < deadline and process.poll() is None:
        try:
            peer = Socket(port)
        except ConnectionError:
            time.sleep(0.01)
            continue
        if not has_slots:
            has_slots = peer.call([b"CLUSTER", b"ADDSLOTSRANGE", b"0", b"16383"]) == b"+OK\r\n"
        is_ready = b"cluster_state:ok" in peer.call([b"CLUSTER", b"INFO"])
        peer.close()
        if is_ready:
            return process, port
        time.sleep(0.01)
    stop(process)
    raise RuntimeError("the cluster did not start")


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    made = Servers(tmp_path_factory.mktemp("servers"))
    yield made
    made.close()


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest, servers: Servers) -> Iterator[Any]:
    made = servers.client(request.param)
    yield made
    made.close()


@pytest.fixture(params=[*KINDS, "cluster"])
def any_server(request: pytest.FixtureRequest, servers: Servers) -> Iterator[Any]:
    made = servers.client(request.param)
    yield made
    made.close()
