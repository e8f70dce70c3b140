"""Views as a job leaves them on a server, without any job."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.cli.command_line import Outcome, invoke
from tests.days.servers import Servers


class Kept(NamedTuple):
    """A server, and views as a job leaves them there."""

    url: str
    client: Any

    def put(self, name: str, **rows: dict[str, str]) -> None:
        fields = {
            "state": "done",
            "version": 3,
            "view_rows": len(rows),
            "source_rows": 7,
            "source": "prefix:order:",
            "sql": "select  state,\n count(*) as n from source",
            "key": '["state"]',
            "ts": 5,
            "updated_ms": time.time_ns() // 1_000_000,
        }
        self.client.hset(f"tidelog:pipeline:view:{name}", mapping=fields)
        self.client.sadd("tidelog:pipeline:jobs", f"view:{name}", "view", "lake")
        for key, row in rows.items():
            self.client.hset(f"view:{name}:{key}", mapping=row)

    def view(self, *arguments: str) -> Outcome:
        return invoke("view", *arguments, "--url", self.url)


@pytest.fixture
def kept(servers: Servers) -> Iterator[Kept]:
    client = servers.client("tidelog-RESP2")
    client.flushall()
    yield Kept(f"redis://127.0.0.1:{servers.port('tidelog-RESP2')}", client)
    client.close()
