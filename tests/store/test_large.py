"""Pieces of large strings, and whether two lists of them make the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidelog import limits
from tidelog.store.large import Piece, is_same, join, size_of, whole, zeros


@given(st.binary(min_size=10, max_size=100), st.integers(0, 10), st.integers(0, 10), st.binary(max_size=20))
def test_pieces_are_joined_in_order(source: bytes, start: int, end: int, more: bytes) -> None:
    pieces = [Piece(source, start, max(start, end)), whole(more), *zeros(5)]
    assert join(pieces) == source[start:end] + more + bytes(5)
    assert size_of(pieces) == len(join(pieces))


def test_a_whole_string_alone_is_itself() -> None:
    source = bytes(1000)
    assert join([whole(source)]) is source
    assert join([Piece(source, 0, 999)]) == bytes(999)


def test_zeros_are_any_number() -> None:
    for count in (0, 1, limits.MIB, 3 * limits.MIB + 7):
        assert size_of(zeros(count)) == count
        assert join([*zeros(count), whole(b"x")]) == bytes(count) + b"x"
    assert zeros(-7) == []


def test_large_pieces_are_the_same_only_if_they_are_the_same_object() -> None:
    large = bytes(limits.STAGED_BYTES_MIN)
    other = bytes(bytearray(limits.STAGED_BYTES_MIN))
    small = [whole(bytes([1, 2])), whole(large)]
    assert is_same(small, [whole(bytes(bytearray([1, 2]))), whole(large)])
    assert not is_same(small, [whole(bytes([1, 2])), whole(other)])
    assert not is_same(small, small[:1])
    assert not is_same([Piece(large, 0, 5)], [Piece(large, 0, 6)])
