"""A server for a whole file, clients of it in both versions of the protocol, and a browser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.browser import page
from tests.integration.server_process import ServerProcess

__all__ = ["page"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("server") / "data") as made:
        yield made


@pytest.fixture(params=[2, 3], ids=["RESP2", "RESP3"])
def client(request: pytest.FixtureRequest, server: ServerProcess) -> Iterator[Any]:
    made = server.client(protocol=request.param, decode_responses=True)
    made.flushall()
    yield made
    made.close()
