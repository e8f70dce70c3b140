"""A long reply is sent in pieces that are parts of its strings, and in order with what goes before and behind it."""

from __future__ import annotations

import pytest

from tests.server.test_connection import World, in_loop, turns
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


@in_loop
async def test_no_piece_of_a_long_reply_overtakes_its_beginning(world: World) -> None:
    session, transport = world.connect()
    count = limits.LATER_ENTRIES_MIN
    session.data_received(b"TWRITE k ENTRIES" + b" tag entry" * count + b"\r\n")
    await turns()
    transport.take()
    session.data_received(b"TREAD k 1 %d\r\n" % count)
    session.pause_writing()  # replies of an earlier turn are many ...
    session.resume_writing()  # ... and are taken before the end of this one
    assert transport.take() == b""
    session.waiting_turns = 1  # it has another, which waits for an fsync
    await turns(20)
    session.resume_writing()
    assert transport.take() == b"*%d\r\n" % count
    session.waiting_turns = 0
    session.send(b"")
    await turns(50)
    assert transport.take().count(b"\r\nentry\r\n") == count


@in_loop
async def test_what_ends_a_connection_comes_behind_the_long_reply_that_it_waited_for(world: World) -> None:
    (waiting, transport), (writing, _) = world.connect(), world.connect()
    count = limits.LATER_ENTRIES_MIN
    waiting.data_received(b"TREAD k 1 %d BLOCK 0\r\n*1\r\nno string\r\n" % count)
    await turns()
    writing.data_received(b"TWRITE k ENTRIES" + b" tag entry" * count + b"\r\n")
    await turns(50)
    entries, error = transport.take().split(b"-ERR Protocol error")
    assert entries.startswith(b"*%d\r\n*3\r\n:1\r\n" % count)
    assert entries.count(b"\r\nentry\r\n") == count
    assert (error[-2:], transport.is_closed) == (b"\r\n", True)
