"""A Redis with a replica."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from benchmarks.peers import stop_peer
from tests.conformance.redis_oracle import start_redis


@pytest.fixture
def with_replica(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """The ports of a Redis and of its replica."""
    master, port = start_redis(tmp_path)
    replica, replica_port = start_redis(tmp_path)
    try:
        with redis.Redis(port=port) as client:
            client.config_set("repl-diskless-sync-delay", 0)
        with redis.Redis(port=replica_port) as client:
            client.replicaof("127.0.0.1", port)
        yield port, replica_port
    finally:
        stop_peer(replica)
        stop_peer(master)


async def linked(port: int) -> None:
    """Until a replica has confirmed something to the master at a port."""
    with redis.Redis(port=port) as client:
        while True:
            client.set("a write", "to confirm")
            if client.wait(1, 100):
                return
            await asyncio.sleep(0.02)
