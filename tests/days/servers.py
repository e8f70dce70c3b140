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

from benchmarks.peers import start_peer, stop_peer
from tests.conformance.redis_oracle import REDIS_SERVER, Socket, is_this_redis, start_redis
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
                stop_peer(started[0])


def start_cluster(folder: Path) -> tuple[subprocess.Popen[bytes], int]:
    """A Redis Cluster of one node that has all slots."""
    process, port, _ = start_node(folder, 0, 16383)
    return process, port


def start_two_nodes(folder: Path) -> list[tuple[subprocess.Popen[bytes], int]]:
    """A Redis Cluster of two nodes that share the slots, and send clients on to each other."""
    nodes = [start_node(folder, 0, 8191)]
    try:
        nodes.append(start_node(folder, 8192, 16383))
        clients: list[Any] = [redis.Redis(port=port) for _, port, _ in nodes]
        for number, client in enumerate(clients):
            client.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
        clients[0].execute_command("CLUSTER MEET", "127.0.0.1", *nodes[1][1:])
        deadline = time.monotonic() + START_S_MAX
        while any(client.execute_command("CLUSTER INFO")["cluster_state"] != "ok" for client in clients):
            assert time.monotonic() < deadline, "the nodes did not meet"
            time.sleep(0.02)
        for client in clients:
            client.close()
    except BaseException:
        for process, *_ in nodes:
            stop_peer(process)
        raise
    return [(process, port) for process, port, _ in nodes]


def start_node(folder: Path, first: int, last: int, *options: str) -> tuple[subprocess.Popen[bytes], int, int]:
    """A node with these slots (none if `last` is below `first`), its port, and that of its bus.

    It answers, and it is well if it has all slots.
    """

    def command(ports: list[int]) -> list[str]:
        port, bus_port = map(str, ports)
        return [
            *(REDIS_SERVER, "--port", port, "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""),
            *("--cluster-enabled", "yes", "--cluster-port", bus_port, "--cluster-config-file", f"nodes-{port}.conf"),
            *options,
        ]

    def answers(process: subprocess.Popen[bytes], ports: list[int]) -> bool:
        if not is_this_redis(process, ports):
            return False
        peer = Socket(ports[0])
        try:
            if first <= last and b"cluster_slots_assigned:0\r\n" in peer.call([b"CLUSTER", b"INFO"]):
                peer.call([b"CLUSTER", b"ADDSLOTSRANGE", b"%d" % first, b"%d" % last])
            has_all = (first, last) == (0, 16383)
            return not has_all or b"cluster_state:ok" in peer.call([b"CLUSTER", b"INFO"])
        finally:
            peer.close()

    process, ports = start_peer(command, answers, port_count=2)
    return process, ports[0], ports[1]


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
