"""The two servers that the benchmarks compare: how each is started, waited for, measured and stopped.

`start` gives a running process and its port; the caller decides which folder it works in, so that a benchmark can start
a server twice over the same data. Neither makes snapshots or rewrites its log by itself: both only append.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.peers import start_peer, stop_peer
from tidelog.testing.ready_line import ReadyPorts, read_ports

NAMES = ("tidelog", "redis")
START_S_MAX = 600.0
"""How long a server may take to load what there is ..."""
STOP_S_MAX = 60.0
"""... and to stop in order."""


def encode(*words: bytes) -> bytes:
    """A command as clients send it."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


class Server:
    """One of the two, running."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], ports: ReadyPorts) -> None:
        self.name = name
        self.port, self.http_port, self.flight_port = ports
        """The last two are 0 if it has none."""
        self._process = process
        self.pid = process.pid

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port))

    def ask(self, *words: bytes) -> bytes:
        """The first line of the reply."""
        with self.connect() as connection:
            connection.sendall(encode(*words))
            return connection.makefile("rb").readline().rstrip()

    def is_ready(self) -> bool:
        """Everything is loaded, whether or not it wants a password."""
        return self.ask(b"PING").startswith((b"+PONG", b"-NOAUTH"))

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

    def kill(self) -> None:
        """At once, as in a crash."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """In order if it does so in time; in any case it is gone then."""
        stop_peer(self._process, STOP_S_MAX)


def _start_redis(folder: str, fsync: str, password: str, *, has_log: bool) -> Server:
    settings = {
        "bind": "127.0.0.1",
        "dir": folder,
        "save": "",
        "daemonize": "no",
        "appendonly": "yes" if has_log else "no",
        "appendfsync": fsync,
        "aof-use-rdb-preamble": "no",
        "auto-aof-rewrite-percentage": 0,
        "requirepass": password,
    }
    words = ["redis-server", *(word for key, value in settings.items() for word in (f"--{key}", str(value)))]
    process, ports = start_peer(
        lambda ports: [*words, "--port", str(ports[0])],
        lambda process, ports: Server("redis", process, ReadyPorts(ports[0], 0, 0)).is_ready(),
        start_s_max=START_S_MAX,
    )
    return Server("redis", process, ReadyPorts(ports[0], 0, 0))


def _start_tidelog(python: str, folder: str, fsync: str, *more: str) -> Server:
    words = [python, "-m", "tidelog.cli", "serve", "--port", "auto", *more, "--data", f"{folder}/data"]
    process = subprocess.Popen([*words, "--fsync", fsync], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        with process.stdout as lines:  # it prints one line, when everything is loaded
            ready = lines.readline().decode()
    except BaseException:
        stop_peer(process)
        raise
    if not ready:
        raise SystemExit(f"tidelog did not start: it ended with {process.wait(60)}")
    return Server("tidelog", process, read_ports(ready))


@contextmanager
def running(
    name: str,
    folder: str,
    fsync: str = "everysec",
    *,
    has_http: bool = False,
    has_flight: bool = False,
    password: str = "",
    keeps_snapshots: bool = False,
    ship_to: str = "",
    python: str = sys.executable,
    options: Sequence[str] = (),
) -> Iterator[Server]:
    """A server of that name over that folder, ready to answer; only a Tidelog has HTTP or Flight.

    One that keeps snapshots: a Tidelog makes them by itself, a Redis has no log and starts from the last one.
    `python` is the interpreter that has Tidelog: another one may have another version. A Tidelog has more `options`.
    """
    Path(folder).mkdir(parents=True, exist_ok=True)
    if name == "redis":
        server = _start_redis(folder, fsync, password, has_log=not keeps_snapshots)
    else:
        more = ["--http-port", "auto" if has_http else "0", "--flight-port", "auto" if has_flight else "0"]
        if not keeps_snapshots:
            more += ["--snapshot-after", "0"]
        if ship_to:
            more += ["--ship-to", ship_to]
        if password:
            Path(f"{folder}/password").write_text(password)
            Path(f"{folder}/password").chmod(0o600)
            more += ["--requirepass-file", f"{folder}/password"]
        server = _start_tidelog(python, folder, fsync, *more, *options)
    try:
        yield server
    finally:
        server.stop()


def write_rows(rows: Iterable[dict[str, Any]], as_json: bool, line: str) -> None:
    """Print rows as JSON lines, or each as `line` formatted with its fields."""
    for row in rows:
        sys.stdout.write((json.dumps(row) if as_json else line.format(**row)) + "\n")
