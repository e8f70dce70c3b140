"""A server for all tests of a module that read feeds, emptied before each of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.server_process import ServerProcess


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("server") / "data") as made:
        yield made


@pytest.fixture
def redis(server: ServerProcess) -> Iterator[Any]:
    made = server.client(protocol=3)
    made.flushall()
    yield made
    made.close()


def url_of(server: ServerProcess) -> str:
    return f"redis://127.0.0.1:{server.port}"


def now(redis: Any) -> int:
    """The ts of now: what has become visible."""
    ts: int = redis.execute_command("FEED", "POSITION")[0][1]
    return ts
