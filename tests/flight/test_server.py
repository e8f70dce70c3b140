"""What the Flight server does around the calls on the loop."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.streams.cold_nodes import chill_all
from tests.streams.plain import filled
from tidelog.errors import CommandError
from tidelog.flight.request import RangeEnd, ReadRequest
from tidelog.flight.server import FlightServer
from tidelog.flight.stream_slice import StreamSlice, make_slice
from tidelog.streams.cold import OPENED


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


def test_cold_nodes_that_an_id_is_looked_up_in_are_read_outside_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = chill_all(filled(5500, size=50))
    node = stream.sealed[2]
    OPENED.clear()
    number = node.last_id - 5
    asked: list[bool] = []

    def read_slice(request: ReadRequest, _first: int | None, left: int | None) -> StreamSlice:
        asked.append(OPENED.fetches)
        first = stream.offset_at_or_after(request.first.number or 0)
        return make_slice(stream, request, first, left)

    def call(work: Callable[[], Any]) -> Any:
        return work()

    service: Any = SimpleNamespace(read_slice=read_slice, settle=lambda: None)
    server: Any = SimpleNamespace(_is_stopping=False, _calls=SimpleNamespace(ask=call, wait=call))
    request = ReadRequest(b"s", first=RangeEnd(number=number))
    part = FlightServer._read_slice(server, service, request, None, None)
    assert asked == [True, True], "the second time it was open"
    assert part.pieces[0].node is node
    OPENED.clear()
    place = node.place
    assert place is not None
    monkeypatch.setattr(place, "crc", place.crc ^ 1)
    with pytest.raises(CommandError, match=r"a part of the stream cannot be read: .*nodes-.*position"):
        FlightServer._read_slice(server, service, request, None, None)
    assert not OPENED.fetches
