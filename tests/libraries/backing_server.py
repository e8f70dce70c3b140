"""The server behind the libraries: a Tidelog, or a real Redis with the same durability.

A test that fails on Tidelog is run again with `--against redis`. If it fails there too, the test or the library is at
fault.

Both acknowledge a write only after fsync, so a server that is killed has lost nothing that a library was told of. It
comes back on the port that it had: clients know no other.
"""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any, Final, Protocol

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from benchmarks.peers import start_peer, stop_peer
from tests.integration.server_process import ServerProcess

KINDS: Final = ("tidelog", "redis")
STOP_S_MAX: Final = 30.0


class BackingServer(Protocol):
    """What a test knows of its server."""

    port: int

    def kill(self) -> None:
        """End it as a power failure of its process does."""

    def start_again(self) -> None:
        """Start it on what it had written, on the same port."""

    def close(self) -> None: ...


def url_of(server: BackingServer) -> str:
    return f"redis://127.0.0.1:{server.port}/0"


def client_of(server: BackingServer, **options: Any) -> redis.Redis:
    """A client that does not try again: the test should see what fails."""
    options = {"decode_responses": True, "socket_timeout": 30, "retry": Retry(NoBackoff(), 0), **options}
    return redis.Redis(port=server.port, **options)


def waiting_clients(server: BackingServer) -> int:
    """Clients that wait in a command such as BRPOP. A killed one is among them until the server knows of its end."""
    with client_of(server) as client:
        info: Any = client.info("clients")
        return int(info["blocked_clients"])


class TidelogServer:
    """`tidelog serve` as a process of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process = ServerProcess(folder / "data", "--fsync", "always")
        self.port = self._process.port

    def kill(self) -> None:
        self._process.kill()

    def start_again(self) -> None:
        self._process.close()
        self._process = ServerProcess(self._folder / "data", "--fsync", "always", instead_of=self._process)

    def close(self) -> None:
        self._process.close()


class RedisServer:
    """A real `redis-server` that appends to its log with an fsync for every write."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port = 0
        self._process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        settings = {
            "bind": "127.0.0.1",
            "dir": str(self._folder),
            "save": "",
            "appendonly": "yes",
            "appendfsync": "always",
        }
        words = ["redis-server", *(word for name, value in settings.items() for word in (f"--{name}", value))]
        process, ports = start_peer(
            lambda ports: [*words, "--port", str(self.port or ports[0])],
            lambda process, ports: _is_ready(process, self.port or ports[0]),
            log=self._folder / "redis.log",
        )
        self.port = self.port or ports[0]
        return process

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(STOP_S_MAX)

    def start_again(self) -> None:
        self._process = self._started()

    def close(self) -> None:
        stop_peer(self._process)


def _is_ready(process: subprocess.Popen[bytes], port: int) -> bool:
    try:
        with redis.Redis(port=port, retry=Retry(NoBackoff(), 0)) as client:
            info: Any = client.info("server")
            return bool(info["process_id"] == process.pid)
    except redis.RedisError:
        return False


def start_server(kind: str, folder: Path) -> BackingServer:
    return TidelogServer(folder) if kind == "tidelog" else RedisServer(folder)
