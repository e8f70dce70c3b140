"""A server with day streams for the command line, and messages as lines."""

from __future__ import annotations

import json
from typing import Any

from tests.days.servers import Servers


class DaysServer:
    """One of the servers, empty, as the command line knows it and as a client."""

    def __init__(self, servers: Servers, kind: str) -> None:
        self.redis: Any = servers.client(kind)
        self.options = ["--url", f"redis://127.0.0.1:{servers.port(kind)}"]
        if kind == "cluster":
            self.options.append("--cluster")

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
