"""Nobody waits for what a follower receives: real processes, and a disk that takes its time."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
import redis

from tests.integration import slow_disk_server
from tests.integration.server_process import ServerProcess
from tests.integration.test_replication import is_connected
from tests.integration.test_server_large import made
from tests.integration.waiting import wait_until

MIB: Final = 1024 * 1024
SLOW: Final = [sys.executable, "-P", slow_disk_server.__file__, "serve"]


class Asking:
    """A client that asks all the time, and how long it waited at most."""

    def __init__(self, server: ServerProcess) -> None:
        self.longest_s = 0.0
        self.count = 0
        self._is_over = False
        self._client = server.client()
        self._thread = threading.Thread(target=self._ask)

    def __enter__(self) -> Asking:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._thread.join()
        self._client.close()

    def _ask(self) -> None:
        while not self._is_over:
            began_s = time.perf_counter()
            try:
                self._client.get("small")
            except redis.ConnectionError:
                return  # the server loads other data now
            self.longest_s = max(self.longest_s, time.perf_counter() - began_s)
            self.count += 1
            time.sleep(0.001)

    @property
    def is_cut(self) -> bool:
        return not self._thread.is_alive()


def set_multi(client: redis.Redis) -> None:
    with client.pipeline(transaction=True) as queued:
        queued.set("large", made(4 * MIB + 1))
        queued.set("small", "2")
        queued.set("large 2", made(4 * MIB + 2))
        queued.execute()


Command = Callable[[redis.Redis], object]
WRITES: Final[dict[str, tuple[Command, Command]]] = {
    "SET": (lambda client: client.set("large", made(8 * MIB)), lambda client: client.get("large")),
    "MULTI": (set_multi, lambda client: client.mget("large", "small", "large 2")),
    "HSET": (lambda client: client.hset("large", "field", made(8 * MIB)), lambda client: client.hgetall("large")),
    "XADD": (lambda client: client.xadd("large", {"field": made(8 * MIB)}), lambda client: client.xrange("large")),
}
"""Commands that write large values, and those that read them."""


@pytest.mark.parametrize(
    "command", ["SET", "MULTI", *(pytest.param(name, marks=pytest.mark.long) for name in ("HSET", "XADD"))]
)
def test_clients_of_a_follower_go_on_while_a_large_value_arrives(tmp_path: Path, command: str) -> None:
    write, read = WRITES[command]
    with ServerProcess(tmp_path / "a") as leader, leader.client() as writing:
        to = f"127.0.0.1:{leader.port}"
        with ServerProcess(tmp_path / "b", "--replicaof", to, command=SLOW) as follower, follower.client() as reading:
            wait_until(lambda: is_connected(follower))
            writing.set("small", "1")
            assert writing.wait(1, 10_000) == 1
            with Asking(follower) as asking:
                began_s = time.monotonic()
                write(writing)
                assert writing.wait(1, 60_000) == 1
                took_s = time.monotonic() - began_s
            assert took_s > 2.4, "the disk of the follower takes so long for it"
            assert asking.longest_s < 1.2, "a few milliseconds are usual"
            assert asking.count > 10
            assert read(reading) == read(writing)


def test_clients_go_on_while_a_full_sync_is_made_durable(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "a") as leader, leader.client() as writing:
        for number in range(12):
            writing.set(f"key{number}", made(MIB + number))
        with ServerProcess(tmp_path / "b", command=SLOW, SYNC_S="0.7") as server, server.client() as client:
            client.set("small", "1")
            began_s = time.monotonic()
            with Asking(server) as asking:
                client.execute_command("REPLICAOF", "127.0.0.1", leader.port)
                wait_until(lambda: asking.is_cut, 120)
            assert time.monotonic() - began_s > 2.1, "several fsyncs take so long"
            assert asking.longest_s < 0.6, "less than one fsync takes"
            wait_until(lambda: is_connected(server), 60)
        with ServerProcess(tmp_path / "b") as server, server.client() as client:
            wait_until(lambda: is_connected(server))
            assert client.get("key11") == made(MIB + 11)
            assert client.dbsize() == 12
