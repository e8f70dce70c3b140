"""A long reply is sent in pieces that are parts of its strings."""

from __future__ import annotations

import pytest

from tidelog import limits
from tidelog.resp.encoder import Later
from tidelog.server.long_reply import LongReply


def test_pieces_come_in_order_and_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SENT_PIECE_BYTES", 10)
    reply = LongReply()
    assert reply.is_over
    long, other = bytes(range(25)), b"y" * 20
    assert reply.begin([b"$25\r\n", long, b"\r\n$20\r\n", other, b"\r\n"]) == b"$25\r\n"
    sent: list[memoryview] = []
    reply.messages.append(b"message")
    while not reply.send_piece(sent.append):
        assert not reply.is_over
    assert reply.is_over
    assert b"".join(sent) == long + b"\r\n$20\r\n" + other + b"\r\n"
    assert [len(piece) for piece in sent] == [10, 10, 5, 7, 10, 10, 2]
    assert all(piece.obj is long for piece in sent[:3])
    assert reply.take_messages() == [b"message"]
    assert reply.take_messages() == []


def test_what_is_left_can_be_dropped() -> None:
    reply = LongReply()
    reply.begin([b"$1\r\n", b"x", b"\r\n"])
    reply.messages.append(b"message")
    reply.clear()
    assert reply.is_over
    assert reply.take_messages() == []


class _Entry(Later):
    def __init__(self, data: bytes | None) -> None:
        self._data = data

    def encoded(self) -> bytes:
        if self._data is None:
            raise MemoryError
        return self._data


def test_a_part_is_made_when_those_before_it_are_sent() -> None:
    reply = LongReply()
    reply.begin([b"*3\r\n", b":1\r\n", _Entry(b":2\r\n"), _Entry(None)])
    sent: list[memoryview] = []
    steps = []
    for _ in range(2):
        assert not reply.send_piece(sent.append)
        made: list[bool] = []
        steps.append((reply.is_to_be_made, reply.make(None, made.append), made, reply.is_to_be_made))  # type: ignore[func-returns-value]
    assert b"".join(sent) == b":1\r\n:2\r\n"
    assert steps == [(True, None, [True], False), (True, None, [False], True)]
