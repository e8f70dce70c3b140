"""Inputs: lines as they come, and the entries of a group, acknowledged once written."""

from __future__ import annotations

import io
import os
from typing import Any

import pytest

from tests.days.days_of_events import JOBSET, MAY_MS, at, everything
from tidelog import limits
from tidelog.days.inputs import StreamInput, json_lines
from tidelog.days.message import EventId, Message, json_of_message
from tidelog.days.writer import Writer
from tidelog.errors import BadMessage

MESSAGES = [at(1, number) for number in range(5)]
LINES = "".join(f"{json_of_message(message)}\n" for message in MESSAGES).encode()


class Pieces(io.BytesIO):
    """Bytes that come a few at a time."""

    def __init__(self, data: bytes, at_once: int) -> None:
        super().__init__(data)
        self._at_once = at_once

    def read1(self, size: int | None = -1, /) -> bytes:
        return super().read(self._at_once)


@pytest.mark.parametrize("at_once", [1, 7, 100, 10_000])
@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n \n\n"])
def test_lines_are_read_however_they_come(at_once: int, end: bytes) -> None:
    batches = list(json_lines(Pieces(LINES.rstrip(b"\n") + end, at_once)))
    assert [message for batch in batches for message in batch] == MESSAGES
    assert all(batches)


def test_a_line_in_a_pipe_is_given_out_at_once() -> None:
    ours, theirs = os.pipe()
    os.write(theirs, LINES[: LINES.index(b"\n") + 5])
    with os.fdopen(ours, "rb") as source:
        batches = json_lines(source)
        assert next(batches) == MESSAGES[:1]
        os.close(theirs)
        with pytest.raises(BadMessage, match="line 2"):
            next(batches)


@pytest.mark.parametrize("bad", [b"{}", b"\xff", b"nonsense", b'{"id": "1-1"}'])
def test_a_bad_line_is_named_and_what_came_before_it_is_given_out(bad: bytes) -> None:
    lines = LINES.splitlines()
    batches = json_lines(io.BytesIO(b"\n".join([*lines[:2], b"", bad, *lines[2:]])))
    assert next(batches) == MESSAGES[:2]
    with pytest.raises(BadMessage, match="line 4: not a message"):
        next(batches)


def test_a_line_without_end_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DAYS_LINE_BYTES_MAX", 1000)
    with pytest.raises(BadMessage, match="line 1: it has more than 1000 bytes"):
        list(json_lines(Pieces(b" " * 5000, 100)))


# --- streams ----------------------------------------------------------------------------------------------------------


def fill(server: Any, numbers: range) -> None:
    for number in numbers:
        message = at(1, number)
        server.xadd("source", {"event": message.event}, id=str(message.id))


def copy(server: Any, source: StreamInput, *, wait_s: float = 0.0) -> int:
    delivery = source.read(wait_s)
    result = Writer(server, JOBSET).write(delivery.messages)
    source.acknowledge(delivery)
    return result.written


def test_entries_become_messages_and_are_acknowledged(any_server: Any) -> None:
    fill(any_server, range(5))
    source = StreamInput(any_server, b"source", "days", "one", count=3)
    assert [copy(any_server, source) for _ in range(3)] == [3, 2, 0]
    assert everything(any_server) == MESSAGES
    assert any_server.xpending("source", "days")["pending"] == 0
    fill(any_server, range(5, 6))
    assert copy(any_server, source, wait_s=5) == 1


def test_entries_may_bring_their_own_id_and_time(server: Any) -> None:
    server.xadd("source", {"event": "{}", "id": "7-3", "timestamp_ms": MAY_MS})
    copy(server, StreamInput(server, b"source", "days", "one"))
    assert everything(server) == [Message(EventId(7, 3), MAY_MS, b"{}")]


def test_a_consumer_that_was_killed_goes_on_where_it_was(any_server: Any) -> None:
    fill(any_server, range(5))
    killed = StreamInput(any_server, b"source", "days", "one", count=2)
    Writer(any_server, JOBSET).write(killed.read().messages)  # written, and not acknowledged
    again = StreamInput(any_server, b"source", "days", "one", count=2)
    assert [copy(any_server, again) for _ in range(4)] == [0, 2, 1, 0]
    assert everything(any_server) == MESSAGES
    assert any_server.xpending("source", "days")["pending"] == 0


def test_entries_whose_reply_got_lost_come_before_those_after_them(any_server: Any) -> None:
    source = StreamInput(any_server, b"source", "days", "one", count=2)
    assert copy(any_server, source) == 0
    fill(any_server, range(5))
    any_server.xreadgroup("days", "one", {"source": ">"}, count=2)  # a client that asks again has had this happen
    assert [copy(any_server, source) for _ in range(4)] == [2, 2, 1, 0]
    assert everything(any_server) == MESSAGES
    assert any_server.xpending("source", "days")["pending"] == 0


def test_what_a_crashed_consumer_left_is_taken_over(any_server: Any) -> None:
    fill(any_server, range(5))
    StreamInput(any_server, b"source", "days", "crashed").read()
    patient = StreamInput(any_server, b"source", "days", "other", claim_idle_ms=3_600_000)
    assert copy(any_server, patient) == 0
    other = StreamInput(any_server, b"source", "days", "other", claim_idle_ms=0)
    assert copy(any_server, other) == 5
    assert everything(any_server) == MESSAGES
    assert any_server.xpending("source", "days")["pending"] == 0


BAD: list[tuple[dict[str, Any], str]] = [
    ({"else": "x"}, "it has no field event"),
    ({"event": "{}", "id": "x"}, "is not an id"),
    ({"event": "{}", "id": "0-0"}, "must be larger than 0-0"),
    ({"event": "{}", "timestamp_ms": "soon"}, "is not a whole number of ms"),
    ({"event": "{}", "timestamp_ms": "1_0"}, "is not a whole number of ms"),
    ({"event": "{}", "timestamp_ms": "9" * 15}, "not a time before the year 10000"),
]


def test_entries_that_are_no_messages_go_to_the_late_ones_and_the_rest_goes_on(any_server: Any) -> None:
    fill(any_server, range(2))
    for number, (values, _) in enumerate(BAD):
        any_server.xadd("source", values, id=f"{at(1, 1).id.ms}-{number + 1}")
    fill(any_server, range(2, 5))
    source = StreamInput(any_server, b"source", "days", "one")
    delivery = source.read()
    writer = Writer(any_server, JOBSET)
    assert writer.write(delivery.messages) == (5, 0, 0)
    for _ in range(2):  # killed before they were acknowledged, they come again, and are kept once
        assert writer.set_aside(delivery.bad) == (0, 0, len(BAD))
    source.acknowledge(delivery)
    assert everything(any_server) == MESSAGES
    assert any_server.xpending("source", "days")["pending"] == 0
    late = [values for _, values in any_server.xrange(JOBSET.late)]
    assert [each[b"entry"].decode() for each in late] == [f"{at(1, 1).id.ms}-{n + 1}" for n in range(len(BAD))]
    for found, (values, reason) in zip(late, BAD, strict=True):
        assert reason in found[b"reason"].decode()
        assert found[b"stream"] == b"source"
        assert all(found[name.encode()] == value.encode() for name, value in values.items())
    assert source.read().entry_ids == []
