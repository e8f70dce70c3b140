"""flit: the document's examples, the sizes at their boundaries, and nothing read past the end."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidelog.ids import U64_MAX
from tidelog.journal import flit

NUMBERS = st.integers(0, U64_MAX)
BOUNDARIES = [(2 ** (7 * size), size) for size in range(1, 9)]
"""The first number that does not fit `size` bytes."""


@pytest.mark.parametrize(
    ("number", "encoded"),
    [
        (0, "01"),  # the document: flushdb has no payload, encoded as 0x1
        (9, "13"),  # the document: `set foo bar` has a payload of 9
        (1, "03"),
        (127, "ff"),
        (128, "02 02"),
        (16383, "fe ff"),
        (16384, "04 00 02"),
        (2**21, "08 00 00 02"),
        (2**56 - 1, "80 ff ff ff ff ff ff ff"),
        (2**56, "00 00 00 00 00 00 00 00 01"),
        (U64_MAX, "00 ff ff ff ff ff ff ff ff"),
    ],
)
def test_known_encodings(number: int, encoded: str) -> None:
    assert flit.encode(number) == bytes.fromhex(encoded)
    assert flit.decode(bytes.fromhex(encoded), 0) == (number, len(bytes.fromhex(encoded)))


@given(NUMBERS, st.binary(max_size=12), st.binary(max_size=12))
@example(U64_MAX, b"", b"")
def test_what_is_encoded_is_decoded_wherever_it_stands(number: int, before: bytes, after: bytes) -> None:
    encoded = flit.encode(number)
    assert flit.decode(before + encoded + after, len(before)) == (number, len(before) + len(encoded))


@given(NUMBERS)
def test_the_trailing_zeros_of_the_first_byte_say_how_many_bytes_follow(number: int) -> None:
    encoded = flit.encode(number)
    trailing_zeros = next((bit for bit in range(8) if encoded[0] >> bit & 1), 8)
    assert len(encoded) == 1 + trailing_zeros


@pytest.mark.parametrize(("first_larger", "size"), BOUNDARIES)
def test_sizes_change_at_powers_of_128(first_larger: int, size: int) -> None:
    assert len(flit.encode(first_larger - 1)) == flit.size_of(first_larger - 1) == size
    assert len(flit.encode(first_larger)) == flit.size_of(first_larger) == size + 1


@given(NUMBERS)
def test_size_of_is_the_size_of_the_encoding(number: int) -> None:
    assert flit.size_of(number) == len(flit.encode(number)) <= flit.SIZE_MAX


@given(NUMBERS, st.data())
def test_a_cut_encoding_is_an_index_error(number: int, data: st.DataObject) -> None:
    encoded = flit.encode(number)
    kept = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(IndexError):
        flit.decode(encoded[:kept], 0)


def test_a_number_of_more_than_64_bits_is_refused() -> None:
    with pytest.raises(OverflowError):
        flit.encode(U64_MAX + 1)


@given(st.binary(max_size=12), st.integers(0, 12))
def test_any_bytes_are_a_number_or_an_index_error(data: bytes, position: int) -> None:
    try:
        number, end = flit.decode(data, position)
    except IndexError:
        return
    assert 0 <= number <= U64_MAX
    assert position < end <= len(data)
