"""The exact decoder: what it takes, what it refuses and how it says so, and that it keeps no more than has arrived."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.resp.wire import COMMANDS, PLACES, cut, decode_exactly, encode_command
from tidelog import limits
from tidelog.resp.exact import ExactDecoder, RequestLimits, Words

PING = b"*1\r\n$4\r\nPING\r\n"
UNAUTHENTICATED = RequestLimits(is_authenticated=False)


@given(COMMANDS, PLACES)
def test_commands_come_out_wherever_they_are_cut(commands: list[Words], places: list[int]) -> None:
    data = b"".join(map(encode_command, commands))
    assert decode_exactly(cut(data, places)) == (commands, None)


@pytest.mark.parametrize("size", [1, 2, 7, 50, 333, 1000])
@pytest.mark.parametrize("odd", [b"", b"$3\rxoddyy", b"$100001\r\n" + b"x" * 100_001 + b"\r\n"])
def test_a_long_command_in_pieces_of_any_size(size: int, odd: bytes) -> None:
    """Most of its arguments are taken many at a time; one in the middle that is not plain is none of them."""
    half = [b"a" * (number % 40) for number in range(50)]
    words = encode_command(half).partition(b"\r\n")[2]
    middle = {b"": [], b"$3": [b"odd"]}.get(odd[:2], [b"x" * 100_001])
    data = b"*%d\r\n" % (100 + len(middle)) + words + odd + words + PING
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert decode_exactly(pieces) == ([[*half, *middle, *half], [b"PING"]], None)


@pytest.mark.parametrize(
    "data",
    [b"", b"\r\n", b"\n", b"   \r\n", b"*0\r\n", b"*-1\r\n", b"*-9223372036854775808\r\n", b"*0\r\n*0\r\n"],
)
def test_nothing_is_no_command(data: bytes) -> None:
    assert decode_exactly([data + PING]) == ([[b"PING"]], None)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        *(
            (head, "invalid multibulk length")
            for head in [b"*\r\n", b"*x\r\n", b"*1x\r\n", b"* 1\r\n", b"*+1\r\n", b"*01\r\n", b"*-0\r\n", b"*1.0\r\n",
                         b"*2147483648\r\n", b"*1000000000\r\n", b"*9223372036854775808\r\n", b"*1\n$4\r\n"]
        ),
        *(
            (b"*1\r\n" + head, "invalid bulk length")
            for head in [b"$\r\n", b"$x\r\n", b"$-1\r\n", b"$-0\r\n", b"$04\r\n", b"$+4\r\n", b"$4 \r\n",
                         b"$536870913\r\n", b"$9223372036854775807\r\n", b"$9223372036854775808\r\n"]
        ),
        *(
            (b"*1\r\n" + item, f"expected '$', got '{chr(item[0])}'")
            for item in [b":5\r\n", b"+PING\r\n", b"*1\r\n", b"_\r\n", b"#t\r\n", b",1\r\n", b"%1\r\n", b"~1\r\n",
                         b">1\r\n", b"PING\r\n", b"=8\r\n", b"-ERR\r\n", b"(1\r\n", b"\r\n\r\n"]
        ),
        (b"*2\r\n$3\r\nGET\r\n:5\r\n", "expected '$', got ':'"),
        (b"*1\r\n\xff\r\n", "expected '$', got '\udcff'"),
        (b'PING "\r\n', "unbalanced quotes in request"),
        (b"'a'b\n", "unbalanced quotes in request"),
        (b"*" + b"1" * limits.INLINE_BYTES_MAX, "too big mbulk count string"),
        (b"*" + b"1" * limits.INLINE_BYTES_MAX + b"\r\n", "too big mbulk count string"),
        (b"*1\r\n$" + b"1" * limits.INLINE_BYTES_MAX, "too big bulk count string"),
        (b"P" * (limits.INLINE_BYTES_MAX + 1), "too big inline request"),
        (b"P" * (limits.INLINE_BYTES_MAX + 1) + b"\n", "too big inline request"),
    ],
    ids=repr,
)  # fmt: skip
def test_what_is_wrong_is_named_after_what_was_right(data: bytes, problem: str) -> None:
    expected = [[b"PING"], [b"PING"]], f"Protocol error: {problem}"
    assert decode_exactly([PING + PING + data]) == expected
    assert decode_exactly(cut(PING + PING + data, range(200))) == expected


@pytest.mark.parametrize(
    "data", [b"*", b"*1", b"*1\r", b"*1\r\n", b"*1\r\n:", b"*1\r\n:5", b"*1\r\n$4\r\nPING\r", b"*2147483648", b"PING"]
)
def test_what_is_not_complete_is_waited_for(data: bytes) -> None:
    decoder = ExactDecoder(RequestLimits())
    decoder.feed(data)
    assert decoder.take_commands() == []
    assert not decoder.is_idle


def test_line_ends_are_not_looked_at() -> None:
    """As in Redis."""
    assert decode_exactly([b"*1\rX$4\rXPINGXX" + PING]) == ([[b"PING"], [b"PING"]], None)


def test_limits() -> None:
    most = limits.UNAUTHENTICATED_ARGUMENTS_MAX
    assert decode_exactly([encode_command([b"x"] * most)], UNAUTHENTICATED) == ([[b"x"] * most], None)
    assert decode_exactly([PING, b"*%d\r\n" % (most + 1)], UNAUTHENTICATED) == (
        [[b"PING"]],
        "Protocol error: unauthenticated multibulk length",
    )
    large = b"x" * limits.UNAUTHENTICATED_BULK_BYTES_MAX
    assert decode_exactly([encode_command([large])], UNAUTHENTICATED) == ([[large]], None)
    assert decode_exactly([b"*1\r\n$%d\r\n" % (len(large) + 1)], UNAUTHENTICATED) == (
        [],
        "Protocol error: unauthenticated bulk length",
    )
    small = RequestLimits(arguments_max=2, bulk_bytes_max=3)
    assert decode_exactly([encode_command([b"abc", b"d"]), b"*3\r\n"], small) == (
        [[b"abc", b"d"]],
        "Protocol error: invalid multibulk length",
    )
    assert decode_exactly([b"*1\r\n$4\r\n"], small)[1] == "Protocol error: invalid bulk length"


@pytest.mark.parametrize(
    "data",
    [b"*1048576\r\n", b"*1\r\n$536870912\r\n", b"*1048576\r\n$0\r\n\r\n$536870912\r\nx", b"*1\r\n$536870912\r\n" * 2],
)
def test_what_is_declared_takes_no_memory(data: bytes) -> None:
    decoder = ExactDecoder(RequestLimits())
    tracemalloc.start()
    try:
        for piece in cut(data, range(len(data))):
            decoder.feed(piece)
        assert tracemalloc.get_traced_memory()[1] < 10_000
    finally:
        tracemalloc.stop()


def test_the_arguments_of_a_command_have_a_largest_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused as soon as a length declares too much, and counts for each command by itself."""
    monkeypatch.setattr(limits, "COMMAND_BYTES_MAX", 10)
    fits, head = [b"1234", b"12345", b"1"], b"*3\r\n$4\r\n1234\r\n$5\r\n12345\r\n"
    assert decode_exactly([encode_command(fits) * 3]) == ([fits] * 3, None)
    problem = "Protocol error: too big command"
    assert decode_exactly([encode_command(fits), head + b"$2\r\n"]) == ([fits], problem)
    assert decode_exactly(cut(encode_command(fits) + head + b"$2\r\n", range(200))) == ([fits], problem)
    assert decode_exactly([b"*1\r\n$11\r\n"]) == ([], problem)


def test_a_large_argument_is_copied_once() -> None:
    argument = bytes(1_000_000)
    decoder = ExactDecoder(RequestLimits())
    tracemalloc.start()
    try:
        for piece in cut(encode_command([b"SET", b"k", argument]), range(0, 1_000_100, 10_000)):
            decoder.feed(piece)
        assert tracemalloc.get_traced_memory()[1] < 3_500_000
    finally:
        tracemalloc.stop()
    assert decoder.take_commands() == [[b"SET", b"k", argument]]
    assert decoder.is_idle


@given(COMMANDS, st.integers(0, 300))
def test_one_command_after_the_other(commands: list[Words], size: int) -> None:
    data = b"".join(map(encode_command, commands))
    decoder = ExactDecoder(RequestLimits())
    decoder.feed(data[:size])
    before = decoder.take_commands()
    is_ended = decoder.feed_one(data[size:])
    assert is_ended == (len(before) < len(commands))
    assert before + decoder.take_commands() == commands[: len(before) + 1]
    assert decoder.take_rest() == b"".join(map(encode_command, commands[len(before) + 1 :]))
    assert decoder.is_idle


@pytest.mark.parametrize("size", [7, 1000, 65_536])
@pytest.mark.parametrize("small_count", [0, 20])
def test_large_arguments_are_left_in_pieces_if_they_are_to_be(
    size: int, small_count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STAGED_BYTES_MIN", 100_001)  # smaller ones may be plain
    monkeypatch.setattr(limits, "STAGED_PIECE_BYTES_MIN", 500)
    small = [b"small"] * small_count
    one, other = bytes(range(256)) * 400, b"x" * 100_001
    sent = [[b"MSET", b"a", one, *small, b"b", other], [b"PING"], [b"SET", b"k", other]]
    data = b"".join(map(encode_command, sent))
    decoder = ExactDecoder(RequestLimits(leaves_large=True))
    commands: list[Words] = []
    for at in range(0, len(data), size):
        decoder.feed(data[at : at + size])
        while decoder.is_behind:
            decoder.feed(b"")
        commands += decoder.take_commands()
    assert commands == [[b"MSET", b"a", b"", *small, b"b", b""], [b"PING"], [b"SET", b"k", b""]]
    assert [(each.command, each.at) for each in decoder.unjoined] == [
        (commands[0], 2), (commands[0], 4 + small_count), (commands[2], 2),
    ]  # fmt: skip
    assert all(each.command is commands[index] for each, index in zip(decoder.unjoined, (0, 0, 2), strict=True))
    assert [b"".join(each.pieces) for each in decoder.unjoined] == [one, other, other]
    assert all(len(piece) >= 500 for each in decoder.unjoined for piece in each.pieces[:-1])
    assert decoder.is_idle
