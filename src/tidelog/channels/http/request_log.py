"""The log of requests: one line of JSON for each, if it is asked for.

    {"at":"2026-03-01T12:00:00.123Z","request_id":"5f3a-12","client":"127.0.0.1","method":"PUT",
     "path":"/channel/news/message/a1","call":"publish","status":200,"ms":1.25,"bytes":38}

Headers, queries and bodies are never in it: they carry tokens, handles and messages.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final, TextIO

from tidelog.channels.http.call import HttpCall

REQUESTS_LOG: Final = logging.getLogger("tidelog.channels.requests")
_PATH_LENGTH_MAX: Final = 512


def log_requests(stream: TextIO = sys.stderr) -> None:
    """Write a line for each request from now on, to this stream and nowhere else."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(message)s"))
    REQUESTS_LOG.addHandler(handler)
    REQUESTS_LOG.setLevel(logging.INFO)
    REQUESTS_LOG.propagate = False


def log_request(call: HttpCall, name: str, body_bytes: int, seconds: float) -> None:
    """The line of a request that is over, if lines are wanted."""
    if not REQUESTS_LOG.isEnabledFor(logging.INFO) or not REQUESTS_LOG.handlers:
        return
    line = {
        "at": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "request_id": call.request_id,
        "client": call.client,
        "method": call.method,
        "path": call.path[:_PATH_LENGTH_MAX],
        "call": name,
        "status": call.status,
        "ms": round(1000 * seconds, 3),
        "bytes": body_bytes,
    }
    REQUESTS_LOG.info("%s", json.dumps(line, separators=(",", ":")))
