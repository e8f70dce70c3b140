"""What the Flight server does around the calls on the loop."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tidelog.flight.request import ReadRequest
from tidelog.flight.server import FlightServer
from tidelog.flight.stream_slice import StreamSlice


def test_what_is_read_is_settled_before_it_is_handed_out() -> None:
    done: list[str] = []

    def read_slice(*_: Any) -> StreamSlice:
        done.append("read")
        return StreamSlice([], None, None)

    def call(work: Callable[[], Any]) -> Any:
        return work()

    service: Any = SimpleNamespace(read_slice=read_slice, settle=lambda: done.append("settle"))
    server: Any = SimpleNamespace(_is_stopping=False, _calls=SimpleNamespace(ask=call, wait=call))
    assert FlightServer._read_slice(server, service, ReadRequest(b"s"), None, None) == StreamSlice([], None, None)
    assert done == ["read", "settle"]
