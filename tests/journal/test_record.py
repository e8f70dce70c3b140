"""Records: every combination of flags, what may not be, and walking over what is not understood."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import FormatError
from tidelog.journal import record
from tidelog.journal.operation import VAL, encode_pairs
from tidelog.journal.record import BLOB, EXPIRE, FINISH, NEXT_CONT, PADDED, TS, Header

FREE_FLAGS = [a | b | c for a, b, c in product((0, NEXT_CONT), (0, FINISH), (0, BLOB))]
SIZES = [0, 1, 127, 128, 16383, 16384, 70000]


def walk_all(data: bytes) -> list[Header]:
    return list(record.walk(data, 0, len(data)))


@pytest.mark.parametrize("flags", FREE_FLAGS)
@pytest.mark.parametrize("padding", [0, 1, 255])
@pytest.mark.parametrize("ts_relative", [None, 0, 2**32 - 1])
@pytest.mark.parametrize("expire_ms", [None, 0, 2**64 - 1])
def test_every_combination_of_flags_is_walked(
    flags: int, padding: int, ts_relative: int | None, expire_ms: int | None
) -> None:
    encoded = record.encode(7, flags, b"payload", ts_relative=ts_relative, expire_ms=expire_ms, padding=padding)
    (header,) = walk_all(encoded)
    expected = flags
    expected |= TS if ts_relative is not None else 0
    expected |= EXPIRE if expire_ms is not None else 0
    expected |= PADDED if padding else 0
    assert (header.opcode, header.flags) == (7, expected)
    assert header.ts_relative == (-1 if ts_relative is None else ts_relative)
    assert header.expire_ms == (-1 if expire_ms is None else expire_ms)
    assert encoded[header.payload : header.payload_end] == b"payload"
    assert header.end == len(encoded) == header.payload_end + padding
    assert encoded[header.payload_end :] == bytes(padding)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("ts_relative", [None, 5])
def test_payloads_of_every_length_of_flit(size: int, ts_relative: int | None) -> None:
    encoded = record.encode(1, 0, b"x" * size, ts_relative=ts_relative)
    (header,) = walk_all(encoded)
    assert header.payload_end - header.payload == size
    assert header.payload <= record.HEADER_BYTES_MAX
    assert header.end == len(encoded)


def test_set_foo_bar_is_12_bytes_without_a_ts_and_16_with_one() -> None:
    payload = encode_pairs([(b"foo", b"bar")])
    assert len(record.encode(VAL, 0, payload)) == 12
    assert len(record.encode(VAL, 0, payload, ts_relative=1)) == 16


@given(
    st.lists(
        st.tuples(
            st.integers(1, 255),
            st.sampled_from(FREE_FLAGS),
            st.binary(max_size=300),
            st.none() | st.integers(0, 2**32 - 1),
            st.none() | st.integers(0, 2**64 - 1),
            st.integers(0, 255),
        ),
        max_size=8,
    ),
    st.integers(0, 20),
)
def test_a_run_of_records_is_walked_up_to_opcode_0(
    rows: list[tuple[int, int, bytes, int | None, int | None, int]], zeros: int
) -> None:
    data = bytearray()
    expected = []
    for opcode, flags, payload, ts_relative, expire_ms, padding in rows:
        data += record.encode(opcode, flags, payload, ts_relative=ts_relative, expire_ms=expire_ms, padding=padding)
        expected.append((opcode, payload))
    if zeros:
        data += bytes(zeros) + b"\x01 not looked at"
    found = [(each.opcode, bytes(data[each.payload : each.payload_end])) for each in walk_all(bytes(data))]
    assert found == expected


def test_unknown_opcodes_are_walked_over() -> None:
    data = record.encode(0xEE, FINISH, b"of a newer version") + record.encode(VAL, 0, b"known")
    assert [each.opcode for each in walk_all(data)] == [0xEE, VAL]


@pytest.mark.parametrize("bit", [0x40, 0x80])
def test_a_reserved_bit_is_a_format_error_at_its_record(bit: int) -> None:
    good = record.encode(VAL, 0, b"good")
    bad = bytearray(record.encode(VAL, 0, b"bad"))
    bad[1] |= bit
    walked = record.walk(good + bad, 0, len(good + bad))
    assert next(walked).opcode == VAL
    with pytest.raises(FormatError, match=f"reserved bits .* 0x{bit:02x}") as caught:
        next(walked)
    assert caught.value.position == len(good)


@given(st.binary(max_size=40), st.integers(1, 40))
def test_a_record_that_is_cut_is_a_format_error_at_its_start(payload: bytes, missing: int) -> None:
    good = record.encode(VAL, 0, b"good")
    cut = record.encode(VAL, 0, payload, ts_relative=1, expire_ms=2, padding=3)
    data = good + cut[: max(1, len(cut) - missing)]
    walked = record.walk(data, 0, len(data))
    next(walked)
    with pytest.raises(FormatError, match="past the end") as caught:
        next(walked)
    assert caught.value.position == len(good)


def test_a_record_ends_where_it_is_said_to_and_not_where_the_data_does() -> None:
    data = record.encode(VAL, 0, b"payload")
    with pytest.raises(FormatError, match="past the end"):
        list(record.walk(data, 0, len(data) - 1))


@given(st.binary(max_size=200), st.integers(0, 10))
def test_any_bytes_are_walked_or_a_format_error(data: bytes, position: int) -> None:
    at, problem_at = position, None
    try:
        for header in record.walk(data, position, len(data)):
            assert header.start == at
            assert header.start < header.payload <= header.payload_end <= header.end <= len(data)
            at = header.end
    except FormatError as error:
        problem_at = error.position
    assert problem_at in (None, at)


def test_padding_of_more_than_a_byte_can_say_is_refused() -> None:
    with pytest.raises(OverflowError):
        record.encode(VAL, 0, b"", padding=256)
