"""Inline commands: quoting, and the same words as a real Redis finds."""

from __future__ import annotations

import random
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conformance.redis_oracle import Socket, decode
from tidelog.resp.inline import split_line


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"", []),
        (b" \t\r\v\f", []),
        (b"GET  key\r", [b"GET", b"key"]),
        (b'SET k "a b"', [b"SET", b"k", b"a b"]),
        (b"SET k 'a b'", [b"SET", b"k", b"a b"]),
        (b'""', [b""]),
        (b"''", [b""]),
        (b'"\\n\\r\\t\\b\\a\\x41\\q\\""', [b'\n\r\t\b\aAq"']),
        (b'"\\x4"', [b"x4"]),
        (b'"\\xZZ"', [b"xZZ"]),
        (b"'\\n\\''", [b"\\n'"]),
        (b"a\\nb", [b"a\\nb"]),
        (b'a"b c"', [b"ab c"]),
        (b"a\vb\fc", [b"a\vb\fc"]),
        (b"\va", [b"a"]),
        (b'"a"\v"b"', [b"a", b"b"]),
        (b"\xff\xfe", [b"\xff\xfe"]),
        (b"a\0b", [b"a", b"b"]),
        (b'"a', None),
        (b"'a", None),
        (b'"a\\"', None),
        (b'"a\\', None),
        (b'"a"b', None),
        (b"'a'b", None),
        (b"'a''b'", None),
        (b'"', None),
    ],
)
def test_words(line: bytes, words: list[bytes] | None) -> None:
    assert split_line(line) == words


@given(st.binary(max_size=40))
def test_any_line(line: bytes) -> None:
    words = split_line(line)
    assert words is None or all(type(word) is bytes for word in words)


@given(st.lists(st.binary(max_size=10), max_size=5))
def test_what_is_quoted_comes_back(words: list[bytes]) -> None:
    quoted = b" ".join(b'"%b"' % b"".join(b"\\x%02x" % byte for byte in word) for word in words)
    assert split_line(quoted) == words


def lines(seed: int, count: int) -> list[bytes]:
    """Lines of quotes, escapes and spaces, without line ends and zero bytes (for which Redis waits for ever)."""
    drawn = random.Random(seed)
    parts = [b"a", b"b", b" ", b" ", b'"', b'"', b"'", b"\\", b"\\x41", b"\\x4", b"\\n", b"\\'", b'\\"', b"\t",
             b"\v", b"\f", b"\r", b"\xff", b"\\\\", b"\x01"]  # fmt: skip
    return [b"".join(drawn.choices(parts, k=drawn.randint(0, 12))) for _ in range(count)]


def test_a_real_redis_finds_the_same_words(redis_port: int) -> None:
    peer = Socket(redis_port)
    differing = []
    for line in lines(seed=1, count=1500):
        peer.call([b"DEL", b"words"])
        with socket.create_connection(("127.0.0.1", redis_port), timeout=30) as raw:
            raw.sendall(b"RPUSH words first " + line + b"\n")
            reply = raw.recv(1000)
        expected = None if b"unbalanced" in reply else decode(peer.call([b"LRANGE", b"words", b"1", b"-1"]))
        if split_line(b"RPUSH words first " + line) != (
            None if expected is None else [b"RPUSH", b"words", b"first", *expected]
        ):
            differing.append((line, expected))
    peer.close()
    assert differing == []
