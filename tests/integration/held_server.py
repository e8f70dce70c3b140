"""A server whose loading a test holds up, for as long as it likes."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.integration.server_process import STOP_S_MAX, environment
from tests.integration.slow_loading_server import COMMAND
from tidelog.server.listener import bind_tcp

WAIT_S_MAX: Final = 30.0


def free_port() -> int:
    """One that nobody has at the moment: a server that is not ready cannot be asked which it has chosen."""
    [bound] = bind_tcp("127.0.0.1", 0)
    with bound:
        return int(bound.getsockname()[1])


class HeldServer:
    """A process that serves and does not get on with loading until it is let go."""

    def __init__(self, data: Path, *arguments: str, http: bool = False, flight: bool = False) -> None:
        self._hold = data.parent / f"{data.name}.hold"
        self._hold.touch()
        self.port = free_port()
        self.http_port, self.flight_port = (free_port() if has else 0 for has in (http, flight))
        ports = ["--port", f"{self.port}", "--http-port", f"{self.http_port}", "--flight-port", f"{self.flight_port}"]
        self.process = subprocess.Popen(
            [*COMMAND, "--data", str(data), *ports, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(HOLD=str(self._hold)),
            cwd=data.parent,
        )
        deadline = time.monotonic() + WAIT_S_MAX
        while not self._hold.with_suffix(".held").exists():
            assert time.monotonic() < deadline, "it never began to load"
            assert self.process.poll() is None, self.process.communicate()[1]
            time.sleep(0.01)

    def client(self, **options: Any) -> Any:
        return redis.Redis(port=self.port, socket_timeout=30, retry=Retry(NoBackoff(), 0), **options)

    def let_go(self) -> str:
        """Let it load; returns its ready line."""
        self._hold.unlink()
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def wait(self) -> tuple[int, str]:
        """Its exit status and what it complained of."""
        _, errors = self.process.communicate(timeout=STOP_S_MAX)
        return self.process.returncode, errors

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=STOP_S_MAX)


@contextmanager
def held(data: Path, *arguments: str, http: bool = False, flight: bool = False) -> Iterator[HeldServer]:
    made = HeldServer(data, *arguments, http=http, flight=flight)
    try:
        yield made
    finally:
        made.close()
