"""The two servers that the benchmarks compare: how each is started, waited for, measured and stopped.

`start` gives a running process and its port; the caller decides which folder it works in, so that a benchmark can start
a server twice over the same data. Neither makes snapshots or rewrites its log by itself: both only append.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("tidelog", "redis")
START_S_MAX = 600.0
"""How long a server may take to load what there is."""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def encode(*words: bytes) -> bytes:
    """A command as clients send it."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


class Server:
    """One of the two, running."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], port: int, flight_port: int = 0) -> None:
        self.name = name
        self.port = port
        self.flight_port = flight_port
        """0: it has none."""
        self._process = process

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port))

    def ask(self, *words: bytes) -> bytes:
        """The first line of the reply."""
        with self.connect() as connection:
            connection.sendall(encode(*words))
            return connection.makefile("rb").readline().rstrip()

    def send_all(self, commands: Iterable[bytes], replies: int) -> None:
        """Send commands in one go; every reply is one line."""
        with self.connect() as connection, connection.makefile("rb") as lines:
            connection.sendall(b"".join(commands))
            for _ in range(replies):
                line = lines.readline()
                if line[:1] not in (b"+", b":"):
                    raise SystemExit(f"{self.name} answered {line!r}")

    def resident_bytes(self) -> int:
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise SystemExit(f"{self.name} has ended")

    def wait(self) -> None:
        """Until it answers PING with PONG: everything is loaded."""
        deadline = time.monotonic() + START_S_MAX
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                if self.ask(b"PING") == b"+PONG":
                    return
            except OSError:
                pass
            time.sleep(0.005)
        raise SystemExit(f"{self.name} did not start")

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(60)


def _command(name: str, folder: str, port: int, fsync: str, flight_port: int) -> list[str]:
    if name == "redis":
        settings = {
            "port": port,
            "bind": "127.0.0.1",
            "dir": folder,
            "save": "",
            "daemonize": "no",
            "appendonly": "yes",
            "appendfsync": fsync,
            "aof-use-rdb-preamble": "no",
            "auto-aof-rewrite-percentage": 0,
        }
        return ["redis-server", *(word for key, value in settings.items() for word in (f"--{key}", str(value)))]
    where = ["--port", str(port), "--http-port", "0", "--flight-port", str(flight_port), "--data", f"{folder}/data"]
    return [sys.executable, "-m", "tidelog.cli", "serve", *where, "--fsync", fsync, "--snapshot-after", "0"]


@contextmanager
def running(name: str, folder: str, fsync: str = "everysec", *, has_flight: bool = False) -> Iterator[Server]:
    """A server of that name over that folder, ready to answer."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    port = free_port()
    flight_port = free_port() if has_flight and name == "tidelog" else 0
    process = subprocess.Popen(_command(name, folder, port, fsync, flight_port), stdout=subprocess.DEVNULL)
    server = Server(name, process, port, flight_port)
    try:
        server.wait()
        yield server
    finally:
        server.stop()


def write_rows(rows: Iterable[dict[str, Any]], as_json: bool, line: str) -> None:
    """Print rows as JSON lines, or each as `line` formatted with its fields."""
    for row in rows:
        sys.stdout.write((json.dumps(row) if as_json else line.format(**row)) + "\n")
