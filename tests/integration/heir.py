"""A server that another one takes over from, with a copy of its data: a failover, as clients of both see it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers import free_ports
from tests.integration.server_process import ServerProcess


class Heir:
    """A server, and the port of the one that takes over with a copy of its data."""

    def __init__(self, folder: Path, *, has_flight: bool = False) -> None:
        self._folder = folder
        self._has_flight = has_flight
        [self._port] = free_ports(1)
        self.running = self.first = ServerProcess(folder / "first", has_flight=has_flight)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.first.port},127.0.0.1:{self._port}"

    def client(self) -> Any:
        return self.running.client()

    def copy(self) -> None:
        """What the heir will have."""
        shutil.copytree(self.first.data, self._folder / "heir", ignore=shutil.ignore_patterns("lock"))

    def take_over(self) -> None:
        self.first.kill()
        if not (self._folder / "heir").exists():
            self.copy()
        self.running = ServerProcess(self._folder / "heir", "--port", str(self._port), has_flight=self._has_flight)

    def close(self) -> None:
        for server in (self.first, self.running):
            server.close()


@pytest.fixture
def heir(tmp_path: Path) -> Iterator[Heir]:
    made = Heir(tmp_path)
    yield made
    made.close()
