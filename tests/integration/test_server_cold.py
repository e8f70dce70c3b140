"""Streams that lie on disk: nobody but their reader waits for it, and damage is an error for whoever needs the node."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.integration import slow_nodes_server
from tests.integration.server_process import ServerProcess

WAIT_S_MAX = 30.0
PING_S_MAX = 0.8 * slow_nodes_server.READ_S


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def facts_of(client: redis.Redis, key: str) -> dict[bytes, Any]:
    facts: dict[bytes, Any] = client.execute_command("TINFO", key)  # type: ignore[no-untyped-call]
    return facts


def write(client: redis.Redis, key: str, count: int) -> None:
    """Entries of which all but the last nodes are cold."""
    for number in range(1, count + 1):
        client.execute_command("XADD", key, f"{number}-0", "n", number)  # type: ignore[no-untyped-call]
    wait_for(lambda: int(facts_of(client, key)[b"cold-nodes"]) >= count // 10 - 2)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    command = [sys.executable, "-P", slow_nodes_server.__file__, "serve"]
    with ServerProcess(tmp_path / "data", command=command) as running:
        yield running


def longest_ping_s(client: redis.Redis, during: Callable[[], bool]) -> float:
    longest = 0.0
    while during():
        began = time.monotonic()
        client.ping()
        client.set("k", "v")
        longest = max(longest, time.monotonic() - began)
        time.sleep(0.005)
    return longest


def test_nobody_else_waits_for_the_disk(server: ServerProcess) -> None:
    with server.client() as client, server.client() as other, server.client() as third:
        write(client, "s", 100)
        for words in (
            ["TREAD", "s", "1", "20"],
            ["XRANGE", "s", "31", "+", "COUNT", "5"],
            ["XDEL", "s", "45-0"],
        ):
            thread = threading.Thread(target=client.execute_command, args=words)
            began = time.monotonic()
            thread.start()
            assert longest_ping_s(other, thread.is_alive) < PING_S_MAX
            assert time.monotonic() - began >= slow_nodes_server.READ_S, "it was read from disk"
        with third.pipeline(transaction=True) as multi:
            multi.execute_command("TREAD", "s", "61", "1")
            multi.set("k", "v")
            thread = threading.Thread(target=multi.execute)
            thread.start()
            assert longest_ping_s(other, thread.is_alive) < PING_S_MAX


def test_damage_is_an_error_for_whoever_needs_the_node(server: ServerProcess, tmp_path: Path) -> None:
    with server.client() as client:
        write(client, "s", 50)
        write(client, "t", 50)
        (path,) = (tmp_path / "data" / "shard-0").glob("nodes-*.bin")
        data = bytearray(path.read_bytes())
        data[60] ^= 1  # in the first node
        path.write_bytes(data)
        with pytest.raises(redis.ResponseError, match=r"a part of the stream cannot be read: .*nodes-.*position 16"):
            client.execute_command("TREAD", "s", "1", "1")
        with pytest.raises(redis.ResponseError, match=r"a part of the stream cannot be read: .*nodes-.*position 16"):
            client.eval("return redis.call('TREAD', 's', 1, 1)", 0)
        assert len(client.eval("return redis.call('TREAD', 's', 11, 10)", 0)) == 10
        assert len(client.execute_command("TREAD", "s", "11", "10")) == 10
        assert len(client.execute_command("XRANGE", "t", "-", "+")) == 50
        assert client.ping()
