"""The backlog of a client: in which order and in which pieces commands come out of it."""

from __future__ import annotations

import pytest

from tidelog import limits
from tidelog.resp.decoder import RequestDecoder
from tidelog.resp.exact import RequestLimits
from tidelog.server.backlog import Backlog


def made(received: bytes = b"") -> Backlog:
    backlog = Backlog(RequestDecoder(RequestLimits()))
    backlog.received += received
    return backlog


def test_a_piece_at_a_time() -> None:
    backlog = made(b"PING\r\n" * 10)
    assert [len(backlog.take(20)) for _ in range(3)] == [3, 3, 4]
    assert (backlog.is_empty, backlog.take(20)) == (True, [])


def test_what_was_put_back_comes_first_and_alone() -> None:
    backlog = made(b"ECHO 3\r\n")
    backlog.put_back([[b"ECHO", b"2"]])
    backlog.put_back([[b"ECHO", b"1"]])
    assert backlog.take(100) == [[b"ECHO", b"1"], [b"ECHO", b"2"]]
    assert not backlog.is_empty
    assert backlog.take(100) == [[b"ECHO", b"3"]]
    assert backlog.is_empty


def test_a_transaction_over_two_pieces_is_run_as_a_whole() -> None:
    backlog = made(b"PING\r\nMULTI\r\nINCR a\r\nINCR b\r\nEXEC\r\nPING\r\n")
    assert backlog.take(20) == [[b"PING"]]
    assert backlog.commands == [[b"MULTI"]]
    assert [words[0] for words in backlog.take(100)] == [b"MULTI", b"INCR", b"INCR", b"EXEC", b"PING"]


def test_a_transaction_that_never_ends_is_run_too() -> None:
    backlog = made(b"MULTI\r\nINCR a\r\n")
    assert [words[0] for words in backlog.take(100)] == [b"MULTI", b"INCR"]


def test_many_short_lines_are_not_decoded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DECODED_COMMANDS_MAX", 100)
    backlog = made(b"a\n" * 250)
    taken = []
    while not backlog.is_empty:
        taken.append(len(backlog.take(1000)))
    assert (max(taken), sum(taken)) == (100 + 1, 250)


@pytest.mark.parametrize("nothing", [b"\n", b"*0\r\n"])
def test_many_empty_lines_are_not_decoded_at_once(monkeypatch: pytest.MonkeyPatch, nothing: bytes) -> None:
    monkeypatch.setattr(limits, "DECODED_COMMANDS_MAX", 100)
    backlog = made(nothing * 250 + b"PING\n")
    assert [backlog.take(2000) for _ in range(3)] == [[], [], [[b"PING"]]]
    assert backlog.is_empty


def test_no_more_is_decoded_while_short_lines_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DECODED_COMMANDS_MAX", 100)
    decoder = RequestDecoder(RequestLimits())
    backlog = Backlog(decoder)
    backlog.received += b"a\n" * 5000
    taken = 0
    while not backlog.is_empty:
        taken += len(backlog.take(1000))
        assert decoder.buffered_bytes <= 1000
    assert taken == 5000


def test_clearing() -> None:
    backlog = made(b"PING\r\n")
    backlog.put_back([[b"PING"]])
    backlog.clear()
    assert backlog.is_empty
