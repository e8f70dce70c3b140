"""A `tidelog serve` for tests: a process of its own, on ports of the loopback interface that it chooses itself."""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

import tidelog
from tidelog.testing.ready_line import read_ports

SOURCES: Final = str(Path(tidelog.__file__).parent.parent)
COMMAND: Final = [sys.executable, "-P", "-m", "tidelog.cli", "serve"]
READY_S_MAX: Final = 30.0
STOP_S_MAX: Final = 30.0
ATTEMPTS: Final = 5
RETRY_S: Final = 0.5


def environment(**more: str) -> dict[str, str]:
    """This one without settings of the developer's own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TIDELOG_")}
    return {**kept, "PYTHONPATH": SOURCES, **more}


def is_readable(descriptor: int, seconds: float) -> bool:
    """Whether something comes within so long. Not `select`: the number of a descriptor may be too large for it."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(max(0, 1000 * seconds)))


class ServerProcess:
    """A running server. Leaving the block stops it, whatever it takes."""

    def __init__(
        self,
        data: Path,
        *arguments: str,
        has_http: bool = False,
        has_flight: bool = False,
        command: Sequence[str] = COMMAND,
        instead_of: ServerProcess | None = None,
        **more_environment: str,
    ) -> None:
        """`instead_of`: on the ports of one that has ended, for clients that know no other."""
        self.port, self.http_port, self.flight_port = 0, 0, 0
        self.data = data
        self.errors = data.parent / f"{data.name}.stderr"
        port, http_port, flight_port = "auto", "auto" if has_http else "0", "auto" if has_flight else "0"
        if instead_of is not None:
            port, http_port = str(instead_of.port), str(instead_of.http_port)
        places = ["--port", port, "--http-port", http_port, "--flight-port", flight_port]
        for _ in range(ATTEMPTS):
            with self.errors.open("ab") as errors:
                self.process = subprocess.Popen(
                    [*command, "--data", str(data), *places, *arguments],
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    env=environment(**more_environment),
                    cwd=data.parent,
                )
            self.ready_line = self._wait_until_ready()
            if self.ready_line:
                self.port, self.http_port, self.flight_port = read_ports(self.ready_line)
                return
            # Somebody may have taken the port of one that has ended; anything else fails again, and then for good.
            self.close()
            if instead_of is None or "Address already in use" not in self.stderr:
                break
            time.sleep(RETRY_S)
        raise RuntimeError(f"the server did not start: {self.stderr}")

    def _wait_until_ready(self) -> str:
        assert self.process.stdout is not None
        deadline = time.monotonic() + READY_S_MAX
        line = b""
        while not line.endswith(b"\n") and time.monotonic() < deadline:
            if is_readable(self.process.stdout.fileno(), 0.1):
                more = os.read(self.process.stdout.fileno(), 65536)
                if not more:
                    break
                line += more
        return line.decode().strip() if line.endswith(b"\n") else ""

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def stderr(self) -> str:
        return self.errors.read_text()

    @property
    def resident_bytes(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)
        assert found
        return 1024 * int(found[1])

    def client(self, **options: Any) -> redis.Redis:
        """One that does not try again: what fails should be seen."""
        return redis.Redis(port=self.port, socket_timeout=30, **{"retry": Retry(NoBackoff(), 0), **options})

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def terminate(self) -> int:
        """Stop in order; returns the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_S_MAX)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(STOP_S_MAX)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                self.kill()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
