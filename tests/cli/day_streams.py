"""A server with day streams for the command line, and messages as lines."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from tests.days.servers import Servers
from tidelog.days.jobset import JobSet
from tidelog.days.message import message_of_json
from tidelog.days.writer import Writer

KINDS: Final = (
    "tidelog",
    pytest.param("redis", marks=pytest.mark.long),
    pytest.param("cluster", marks=pytest.mark.long),
)
"""Which server it is makes no difference to a command: `tests/days` tries all of them."""


class DaysServer:
    """One of the servers, empty, as the command line knows it and as a client."""

    def __init__(self, servers: Servers, kind: str) -> None:
        self.redis: Any = servers.client(kind)
        self.options = ["--url", f"redis://127.0.0.1:{servers.port(kind)}"]
        if kind == "cluster":
            self.options.append("--cluster")

    def put(self, queue: str, jobset: str, lines: list[dict[str, Any]]) -> None:
        """Write what `events put` would write of these lines, without a process for it."""
        Writer(self.redis, JobSet(queue, jobset)).write([message_of_json(json.dumps(each)) for each in lines])

    def close(self) -> None:
        self.redis.close()


def line(ms: int, event: Any = None, *, timestamp_ms: int | None = None, seq: int = 0) -> dict[str, Any]:
    return {
        "id": f"{ms}-{seq}",
        "timestamp_ms": ms if timestamp_ms is None else timestamp_ms,
        "event": {"at": ms} if event is None else event,
    }


def text_of(lines: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(each) + "\n" for each in lines)
