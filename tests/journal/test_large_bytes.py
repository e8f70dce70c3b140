"""Large bytes that are made little by little are what they would be otherwise."""

from __future__ import annotations

import sys
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog import limits
from tidelog.journal.large_bytes import GrowingBytes, cut


@given(st.lists(st.binary(max_size=100)))
def test_pieces_become_one(pieces: list[bytes]) -> None:
    growing = GrowingBytes()
    for piece in pieces:
        growing.add(piece)
    assert growing.whole() == b"".join(pieces)


def test_what_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STAGED_BYTES_MIN", 5)
    monkeypatch.setattr(limits, "STAGED_PIECE_BYTES", 3)
    data = bytes(range(20))
    for start in range(20):
        for end in range(start, 24):
            assert cut(data, start, end) == data[start:end]


def test_others_run_while_much_is_cut() -> None:
    data = bytes(200 * limits.MIB)
    cutting = threading.Thread(target=cut, args=(data, 1, len(data)))
    turns, usual_s = 0, sys.getswitchinterval()
    sys.setswitchinterval(0.0005)  # as a server does
    try:
        cutting.start()
        while cutting.is_alive():
            time.sleep(0)
            turns += 1
    finally:
        sys.setswitchinterval(usual_s)
    assert turns > 10
