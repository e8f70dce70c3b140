"""A Redis that a Sentinel watches: one with two replicas, so that one is left to confirm what another took over."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import redis

from benchmarks.peers import start_peer, stop_peer
from tests.conformance.redis_oracle import REDIS_SERVER, Socket, is_this_redis, start_redis

READY_S_MAX: Final = 60.0


def start_sentinel(folder: Path, port: int) -> tuple[subprocess.Popen[bytes], int]:
    """A Sentinel that alone decides over the server at a port."""

    def command(ports: list[int]) -> list[str]:
        settings = folder / f"sentinel-{ports[0]}.conf"
        settings.write_text(
            f"port {ports[0]}\nbind 127.0.0.1\ndir {folder}\n"
            f"sentinel monitor orders 127.0.0.1 {port} 1\nsentinel down-after-milliseconds orders 1000\n"
            "sentinel failover-timeout orders 5000\n"
        )
        return [REDIS_SERVER, str(settings), "--sentinel"]

    def answers(process: subprocess.Popen[bytes], ports: list[int]) -> bool:
        if not is_this_redis(process, ports):
            return False
        peer = Socket(ports[0])
        try:
            return b"name=orders,status=ok" in peer.call([b"INFO", b"sentinel"])
        finally:
            peer.close()

    process, ports = start_peer(command, answers)
    return process, ports[0]


class WatchedRedis:
    """Its replicas are linked."""

    def __init__(self, folder: Path) -> None:
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        """By port."""
        self._sentinel: subprocess.Popen[bytes] | None = None
        try:
            ports = [self._start(folder) for _ in range(3)]
            for port in ports[1:]:
                self._call(port, "REPLICAOF", "127.0.0.1", ports[0])
            self._wait(lambda: self._confirms(ports[0], 2))
            self._sentinel, self._sentinel_port = start_sentinel(folder, ports[0])
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        return f"redis+sentinel://127.0.0.1:{self._sentinel_port}/orders"

    def fail_over(self, parted: Callable[[], None] | None = None) -> None:
        """Kill the master, wait until a replica has taken over, and start it again as the replica of that one.

        `parted`: what is written while this runs is lost.
        """
        self._wait(lambda: self._knows(2))  # it takes a while until one that was started again is trusted
        port = self._master_port()
        replicas = [each for its, each in self._processes.items() if its != port]
        if parted is not None:
            for each in replicas:
                each.send_signal(signal.SIGSTOP)  # or they would be back at once
            self._call(port, "CLIENT KILL", "TYPE", "replica")
            parted()
        process = self._processes[port]
        process.kill()
        process.wait()
        for each in replicas:
            each.send_signal(signal.SIGCONT)
        self._wait(lambda: self._master_port() != port)
        self._wait(lambda: self._confirms(self._master_port(), 1))
        self._processes[port] = subprocess.Popen(process.args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def close(self) -> None:
        for process in (self._sentinel, *self._processes.values()):
            if process is not None:
                process.send_signal(signal.SIGCONT)
                stop_peer(process)

    def _start(self, folder: Path) -> int:
        process, port = start_redis(folder)
        self._processes[port] = process
        self._call(port, "CONFIG SET", "repl-diskless-sync-delay", 0)
        return port

    def _master_port(self) -> int:
        _, port = self._call(self._sentinel_port, "SENTINEL GET-MASTER-ADDR-BY-NAME", "orders")
        return int(port)

    @staticmethod
    def _confirms(port: int, count: int) -> bool:
        """Whether so many replicas get what a master writes. They call themselves linked some time before that."""
        with redis.Redis(port=port, socket_timeout=10, single_connection_client=True) as client:
            client.set("a write", "to confirm")
            return bool(client.wait(count, 1000) >= count)

    def _knows(self, count: int) -> bool:
        """Whether so many replicas could take over."""
        found = self._call(self._sentinel_port, "SENTINEL REPLICAS", "orders")
        good = [each for each in found if each["flags"] == "slave" and each["master-link-status"] == "ok"]
        return len(good) >= count

    @staticmethod
    def _call(port: int, *words: Any) -> Any:
        with redis.Redis(port=port, socket_timeout=10, decode_responses=True) as client:
            return client.execute_command(*words)

    @staticmethod
    def _wait(is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + READY_S_MAX
        while True:
            try:
                if is_so():
                    return
            except redis.ConnectionError:
                pass
            assert time.monotonic() < deadline, "the servers did not come to that"
            time.sleep(0.05)
