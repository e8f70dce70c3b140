"""Bytes that break the protocol, or nearly: the same answers as a real Redis gives on a raw socket."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator

import pytest

from tests.conformance.redis_oracle import Socket
from tests.resp.wire import cut, encode_command
from tidelog.resp.decoder import RequestDecoder
from tidelog.resp.encoder import encode_error
from tidelog.resp.exact import RequestLimits, Words

PING = b"*1\r\n$4\r\nPING\r\n"
NO_AUTH = b"-NOAUTH Authentication required.\r\n"
HEADS = [b"*1\r\n", b"*2\r\n", b"*0\r\n", b"*-1\r\n", b"*\r\n", b"*01\r\n", b"*x\r\n", b"*+1\r\n", b"*3\r\n", b"$4\r\n",
         b"$-1\r\n", b"$0\r\n", b"$04\r\n", b"$536870913\r\n", b"$9999999999999999999\r\n", b"$\r\n", b":5\r\n",
         b"+OK\r\n", b"_\r\n", b"*1\rX", b"$4\rX", b"%1\r\n", b"~1\r\n", b">1\r\n", b"|1\r\n", b"#t\r\n", b",1\r\n",
         b"(1\r\n", b"=8\r\n", b"-ERR\r\n", b"PING\r\n", b"PING", b"ping", b"\r\n", b"PING\n", b'"\r\n',
         b"'PING'\r\n", b"\xff\r\n", PING, PING, PING, b"*2147483648\r\n", b"*9223372036854775808\r\n", b"* 1\r\n",
         b"\r", b"*1"]  # fmt: skip


def ask(port: int, data: bytes) -> bytes:
    """All that Redis answers before it closes the connection, or we do."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as raw:
        received = b""
        try:
            raw.sendall(data)
            raw.shutdown(socket.SHUT_WR)
            while piece := raw.recv(65536):
                received += piece
        except OSError:
            pass  # it closes without having read all
        return received


def answer(pieces: list[bytes], bounds: RequestLimits, *, fallback: bytes = b"") -> bytes:
    """What a server would answer that knows PING only."""
    decoder = RequestDecoder(bounds)
    replies = []
    for piece in pieces:
        replies += [reply_to(command) or fallback for command in decoder.feed(piece)]
        if decoder.error is not None:
            replies.append(encode_error(f"ERR {decoder.error}"))
            break
    return b"".join(replies)


def reply_to(command: Words) -> bytes:
    if command[0].upper() == b"PING" and len(command) == 1:
        return b"+PONG\r\n"
    if command[0].upper() == b"PING" and len(command) == 2:
        return b"$%d\r\n%b\r\n" % (len(command[1]), command[1])
    return b""


def without_unknown(answers: bytes) -> bytes:
    """Without the errors of commands that are none, which are not the decoder's."""
    kept = [line for line in answers.split(b"\r\n") if not line.startswith((b"-ERR unknown", b"-ERR wrong number"))]
    return b"\r\n".join(kept)


def mixtures(seed: int, count: int) -> list[bytes]:
    drawn = random.Random(seed)
    return [b"".join(drawn.choices(HEADS, k=drawn.randint(1, 6))) for _ in range(count)]


def test_every_head_after_every_other(redis_port: int) -> None:
    data = [PING + one + other + b"PING\r\n" for one in HEADS for other in HEADS]
    check(redis_port, data)


def test_mixtures(redis_port: int) -> None:
    check(redis_port, mixtures(seed=1, count=1500))


def check(port: int, inputs: list[bytes]) -> None:
    differing = []
    for data in inputs:
        expected = without_unknown(ask(port, data))
        for pieces in ([data], cut(data, range(len(data)))):
            actual = without_unknown(answer(pieces, RequestLimits()))
            if actual != expected:
                differing.append((data, expected, actual))
    assert differing == []


@pytest.fixture
def closed_redis(redis_port: int) -> Iterator[int]:
    """The port of a Redis that wants a password."""
    peer = Socket(redis_port)
    peer.call([b"CONFIG", b"SET", b"requirepass", b"secret"])
    yield redis_port
    peer.call([b"CONFIG", b"SET", b"requirepass", b""])
    peer.close()


@pytest.mark.parametrize("count", [2, 9, 10, 11, 12, 1000])
def test_arguments_of_the_unauthenticated(closed_redis: int, count: int) -> None:
    data = encode_command([b"DEL"] * count)
    if count > 10:
        data = data[:20]  # Redis does not read on, and its answer might get lost
    assert answer([data], RequestLimits(is_authenticated=False), fallback=NO_AUTH) == ask(closed_redis, data)


@pytest.mark.parametrize("size", [1, 16_383, 16_384, 16_385, 100_000])
def test_sizes_of_the_unauthenticated(closed_redis: int, size: int) -> None:
    data = encode_command([b"DEL", b"y" * size])
    if size > 16_384:
        data = data[:40]
    assert answer([data], RequestLimits(is_authenticated=False), fallback=NO_AUTH) == ask(closed_redis, data)


@pytest.mark.parametrize(
    "data",
    [
        b"*" + b"1" * 70_000,
        b"*1\r\n$" + b"1" * 70_000,
        b"P" * 70_000,
        b"*1\r\n" + b":" * 70_000,
        b"*1\r\n" * 5,
        b"*1\n" * 5,
    ],
    ids=lambda data: repr(data[:8]),
)
def test_lines_that_are_too_long(redis_port: int, data: bytes) -> None:
    assert answer([data], RequestLimits()) == ask(redis_port, data)
