"""The decoder of requests: the plain and the exact decoder give the same, in any mixture, for any bytes."""

from __future__ import annotations

import resource
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.resp.wire import COMMANDS, PLACES, cut, decode_exactly, decode_requests, encode_command
from tidelog.resp.decoder import RequestDecoder
from tidelog.resp.exact import RequestLimits, Words
from tidelog.resp.plain import take_plain

PING = b"*1\r\n$4\r\nPING\r\n"

EMPTY = st.sampled_from([b"*0\r\n", b"*-1\r\n", b"*-5\r\n", b"\r\n", b" \r\n"])
LINES = st.sampled_from(
    [b"PING\r\n", b"PING\n", b"ECHO \"a\\x00b\" 'c'\r\n", b"+PING\r\n", b":5 x\r\n", b"$4\r\n", b"_\r\n"]
)
GARBAGE = st.one_of(
    st.sampled_from(
        [b":5\r\n", b"+x\r\n", b"*2\r\n", b"*1\r\n:5\r\n", b"*1\r\n$4\r\nPING\r\n", b"$-1\r\n", b"$5\r\n",
         b"*1000000000\r\n", b"*2\r\n*1000000000\r\n", b"*1\r\n$536870913\r\n", b"*3\r\n$1\r\na\r\n-1\r\n",
         b"%2\r\n", b"~100000\r\n", b"*01\r\n", b"*2\r\n$1\r\na\r\n_\r\n", b"*2\r\n$1\r\na\r\n#t\r\n",
         b"*1\r\n,1.5\r\n", b"*1\r\n(12\r\n", b"*1\r\n=5\r\ntxt:a\r\n",
         b"*1\r\n|1\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n", b"*1\r\n>1\r\n$1\r\na\r\n", b'"\r\n', b"*x\r\n",
         b"*1\r\n%1\r\n*0\r\n"]
    ),
    st.binary(max_size=12).map(lambda data: data.replace(b"\r", b"") + b"\r\n"),
)  # fmt: skip


@given(commands=COMMANDS, places=PLACES)
@example(commands=[[b"*1\r\n$4\r\nPING\r\n"], [b"a"]], places=[30])
@example(commands=[[b"GET", b"a"], [b"GET", b"b"]], places=[13, 20, 33])
def test_commands_come_out_wherever_they_are_cut(commands: list[Words], places: list[int]) -> None:
    data = b"".join(map(encode_command, commands))
    assert decode_requests(cut(data, places)) == (commands, None)


@given(
    parts=st.lists(
        st.one_of(st.lists(st.binary(max_size=8), min_size=1).map(encode_command), EMPTY, LINES), max_size=8
    ),
    places=PLACES,
)
def test_lines_and_empty_arrays_among_them(parts: list[bytes], places: list[int]) -> None:
    data = b"".join(parts)
    assert decode_requests(cut(data, places)) == decode_exactly([data])


@given(commands=COMMANDS, garbage=st.lists(GARBAGE, min_size=1, max_size=3).map(b"".join), places=PLACES)
def test_what_comes_before_garbage_comes_out_and_then_the_error(
    commands: list[Words], garbage: bytes, places: list[int]
) -> None:
    data = b"".join(map(encode_command, commands))
    before, error = decode_exactly([data + garbage])
    assert before[: len(commands)] == commands
    assert decode_requests(cut(data + garbage, places)) == (before, error)


ITEMS = [b":5\r\n", b"+PING\r\n", b"-ERR x\r\n", b"_\r\n", b"#t\r\n", b",1.5\r\n", b"(12\r\n", b"=8\r\ntxt:PING\r\n",
         b"$-1\r\n", b"*0\r\n", b"*-1\r\n", b"*1\r\n$1\r\na\r\n", b"%1\r\n$1\r\na\r\n$1\r\nb\r\n",
         b"~1\r\n$1\r\na\r\n", b">1\r\n$1\r\na\r\n", b"|1\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n",
         b"%1\r\n*0\r\n$1\r\nb\r\n", b"!5\r\nERR x\r\n"]  # fmt: skip


@pytest.mark.parametrize("item", ITEMS, ids=repr)
def test_an_argument_must_be_a_bulk_string(item: bytes) -> None:
    got = item[:1].decode()
    error = f"Protocol error: expected '$', got '{got}'" if got != "$" else "Protocol error: invalid bulk length"
    for data in (
        b"*1\r\n" + item,
        b"*2\r\n" + item + b"$1\r\na\r\n" + PING,
        b"*2\r\n$3\r\nGET\r\n" + item + PING,
        b"*3\r\n$3\r\nSET\r\n" + item + b"$1\r\na\r\n",
        b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n" + item,
        b"*9\r\n$3\r\nSET\r\n" + item,  # told at once, although more is to come
    ):
        assert decode_requests([PING * 3 + data]) == ([[b"PING"]] * 3, error)
        assert decode_requests(cut(PING * 3 + data, range(200))) == ([[b"PING"]] * 3, error)
        assert decode_requests([PING * 3 + data[:6], data[6:]]) == ([[b"PING"]] * 3, error)


@pytest.mark.parametrize("item", ITEMS, ids=repr)
def test_no_other_type_comes_through_in_disguise(item: bytes) -> None:
    """The argument before it ends like the head of a bulk string."""
    for word in (b"$1", b"$9", b"$12", b"x\r\n$3"):
        data = b"*3\r\n$%d\r\n%b\r\n" % (len(word), word) + item + b"$1\r\nz\r\n"
        commands, error = decode_requests([data])
        assert error is not None or commands == [[word, b"PING" if b"PING" in item else b"12", b"z"]]
        assert all(type(word) is bytes for command in commands for word in command)


@pytest.mark.parametrize("item", [item for item in ITEMS if item[:1] not in b"*$"], ids=repr)
def test_what_is_no_array_is_a_line(item: bytes) -> None:
    for data in (PING + item, item):
        assert decode_requests([data]) == decode_exactly([data])


@given(commands=COMMANDS, rest=st.one_of(st.just(b""), GARBAGE, LINES, EMPTY, st.just(PING[:-1])))
def test_plain_takes_what_is_plain_and_whole(commands: list[Words], rest: bytes) -> None:
    data = b"".join(map(encode_command, commands))
    taken: list[Words] = []
    if rest == PING:
        rest = b""
    assert take_plain(data + rest, taken) == len(data)
    assert taken == commands


@pytest.mark.parametrize("size", [1000, 65_536])
def test_a_long_stream_that_is_cut(size: int) -> None:
    commands = [[b"SET", b"key:%d" % number, b"value" * 5] for number in range(20_000)]
    data = b"".join(map(encode_command, commands))
    assert decode_requests(cut(data, range(0, len(data), size))) == (commands, None)


@pytest.mark.parametrize(
    "odd",
    [b"*01\r\n$1\r\nx\r\n", b"*1\r\n$01\r\nx\r\n", b"*1\r\n$1\rXx\r\n", b"*1\r\n$1\r\nxxx", b"*1\rX$1\r\nx\r\n",
     b"*1\r\n$100000\r\n" + bytes(100_000) + b"\r\n", encode_command([b"x"] * 10_000), b"*1\r\n$-1\r\n....",
     b"*99999999999999999999\r\n", b"*1\r\n$99999999999999999999\r\n", b"*\r\n$1\r\nx\r\n", b"*1\r\n$\r\nx\r\n",
     b"*A\r\n$1\r\nx\r\n", b"*1\r\n$A\r\n" + bytes(17) + b"\r\n"],
    ids=lambda odd: repr(odd[:30]),
)  # fmt: skip
def test_plain_leaves_the_rest_to_exact(odd: bytes) -> None:
    taken: list[Words] = []
    assert take_plain(PING + odd + PING, taken) == len(PING)
    assert taken == [[b"PING"]]
    assert decode_requests([PING + odd + PING]) == decode_exactly([PING + odd + PING])


def test_each_place_where_plain_commands_end_too_early() -> None:
    data = encode_command([b"", b"x" * 12, b"y" * 123]) + encode_command([b"z"] * 12)
    for end in range(len(data)):
        assert take_plain(data[:end], []) in (0, data.rindex(b"*"))


def test_an_error_in_a_large_buffer() -> None:
    commands = [[b"SET", b"key:%d" % number, b"value" * 5] for number in range(2000)]
    data = b"".join(map(encode_command, commands))
    error = "Protocol error: expected '$', got ':'"
    assert decode_requests([data + b"*1\r\n:5\r\n" + data]) == (commands, error)


# --- memory -----------------------------------------------------------------------------------------------------

DECLARED = [b"*1000000000\r\n", b"*1048576\r\n", b"*100000\r\n", b"*1\r\n$536870912\r\n", b"*2\r\n*1000000000\r\n",
            b"*2\r\n$1\r\na\r\n*1000000000\r\n", b"*2\r\n$2\r\n$1\r\n*1000000000\r\n",
            b"*2\r\n$2\r\n$1\r\n%1000000000\r\n", b"*2\r\n%1000000000\r\n", b"~4294967295\r\n", b">4294967295\r\n",
            b"|4294967295\r\n", b"*9\r\n" * 9 + b"*100000\r\n", b"$536870912\r\n", b"*9999\r\n" * 12,
            b"*-9223372036854775808\r\n"]  # fmt: skip


@pytest.mark.parametrize("data", DECLARED, ids=repr)
def test_what_is_declared_takes_no_memory(data: bytes) -> None:
    for prefix in (b"", PING):
        for pieces in ([prefix + data], cut(prefix + data, range(200)), cut(prefix + data, [len(prefix) + 5])):
            decoders = [RequestDecoder(RequestLimits()) for _ in range(4)]
            before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            tracemalloc.start()
            try:
                for decoder in decoders:
                    for piece in pieces:
                        decoder.feed(piece)
                assert tracemalloc.get_traced_memory()[1] < 4 * 400_000
            finally:
                tracemalloc.stop()
            assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 16 * 1024


def test_a_whale_is_kept_in_one_piece() -> None:
    whale = bytes(8_000_000)
    data = encode_command([b"SET", b"k", whale]) + PING
    decoder = RequestDecoder(RequestLimits())
    commands: list[Words] = []
    pieces = cut(data, range(0, len(data), 65_536))
    tracemalloc.start()
    try:
        for piece in pieces:
            commands += decoder.feed(piece)
        assert tracemalloc.get_traced_memory()[1] < 3 * len(whale)
    finally:
        tracemalloc.stop()
    assert commands == [[b"SET", b"k", whale], [b"PING"]]


def test_many_small_arguments_that_never_end() -> None:
    decoder = RequestDecoder(RequestLimits())
    decoder.feed(b"*9000\r\n")
    for _ in range(8999):
        assert decoder.feed(b"$100\r\n%b\r\n" % bytes(100)) == []
    (command,) = decoder.feed(b"$1\r\nx\r\n")
    assert command == [bytes(100)] * 8999 + [b"x"]


# --- limits -----------------------------------------------------------------------------------------------------


def test_a_client_that_has_not_authenticated() -> None:
    bounds = RequestLimits(is_authenticated=False)
    many, large = encode_command([b"x"] * 11), encode_command([b"x" * 16_385])
    assert decode_requests([PING + many], bounds) == ([[b"PING"]], "Protocol error: unauthenticated multibulk length")
    assert decode_requests([PING + large], bounds) == ([[b"PING"]], "Protocol error: unauthenticated bulk length")
    assert decode_requests([encode_command([b"x"] * 10)], bounds) == ([[b"x"] * 10], None)
    assert decode_requests([encode_command([b"x" * 16_384])], bounds) == ([[b"x" * 16_384]], None)


def test_authenticating_in_the_same_buffer() -> None:
    decoder = RequestDecoder(RequestLimits(is_authenticated=False))
    data = PING + encode_command([b"AUTH", b"x"]) + encode_command([b"DEL"] * 20) + PING + PING[:5]
    assert decoder.feed(data) == [[b"PING"], [b"AUTH", b"x"]]
    decoder.set_limits(RequestLimits())
    assert decoder.resume() == [[b"DEL"] * 20, [b"PING"]]
    assert decoder.error is None
    assert decoder.feed(PING[5:]) == [[b"PING"]]


@pytest.mark.parametrize("is_authenticated", [False, True])
def test_resuming_does_not_forgive_what_is_wrong(is_authenticated: bool) -> None:
    decoder = RequestDecoder(RequestLimits(is_authenticated=is_authenticated))
    assert decoder.feed(PING + b"*x\r\n" + PING) == [[b"PING"]]
    decoder.set_limits(RequestLimits())
    assert decoder.resume() == []
    assert decoder.error == "Protocol error: invalid multibulk length"
    assert decoder.feed(PING) == []
    assert decoder.error == "Protocol error: invalid multibulk length"


@pytest.mark.parametrize("held", [b"", PING[:6], encode_command([b"x"] * 20)[:-3]])
def test_limits_that_shrink(held: bytes) -> None:
    """RESET: what is under way goes through, and counts no more."""
    decoder = RequestDecoder(RequestLimits())
    many = encode_command([b"x"] * 11)
    assert decoder.feed(many + many + held) == [[b"x"] * 11] * 2
    decoder.set_limits(RequestLimits(is_authenticated=False))
    assert decoder.error is None
    rest = PING[6:] if held == PING[:6] else b"x\r\n"[-3:] if held else b""
    commands = decoder.feed(rest + PING + many)
    assert commands[-1] == [b"PING"]
    assert len(commands) == (2 if held else 1)
    assert decoder.error == "Protocol error: unauthenticated multibulk length"
