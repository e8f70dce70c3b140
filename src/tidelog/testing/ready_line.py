"""The line that `tidelog serve` prints when it is ready, read by whoever has started it with `--port auto`."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_PLACE: Final = re.compile(r"(redis|http|grpc)(?:s|\+tls)?://\S+:([0-9]+)(?=[ ,])")


class ReadyPorts(NamedTuple):
    """The ports of a server; 0: it has none of that kind."""

    redis: int
    http: int
    flight: int


def read_ports(line: str) -> ReadyPorts:
    """The ports that a ready line tells; a line that is none is a ValueError."""
    if not line.startswith("tidelog: ready on "):
        raise ValueError(f"not the line of a server that is ready: {line!r}")
    found = {kind: int(port) for kind, port in _PLACE.findall(line.partition(", data in ")[0] + ",")}
    return ReadyPorts(found.get("redis", 0), found.get("http", 0), found.get("grpc", 0))
