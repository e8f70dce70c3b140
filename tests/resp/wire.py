"""Requests as bytes, for tests: encoding them, and cutting them into pieces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from hypothesis import strategies as st

from tidelog.resp.decoder import RequestDecoder
from tidelog.resp.encoder import Later, ReplyPart
from tidelog.resp.exact import ExactDecoder, ProtocolError, RequestLimits, Words

Outcome = tuple[list[Words], str | None]
"""The commands that came out, and the error after them."""


def encode_command(words: Sequence[bytes]) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


def cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    """The pieces of bytes between places; no piece is empty."""
    bounds = [0, *sorted({place for place in places if 0 < place < len(data)}), len(data)]
    return [data[start:end] for start, end in pairwise(bounds) if end > start]


def decode_exactly(pieces: Iterable[bytes], bounds: RequestLimits | None = None) -> Outcome:
    decoder = ExactDecoder(bounds or RequestLimits())
    try:
        for piece in pieces:
            decoder.feed(piece)
    except ProtocolError as error:
        return decoder.take_commands(), str(error)
    return decoder.take_commands(), None


def decode_requests(pieces: Iterable[bytes], bounds: RequestLimits | None = None) -> Outcome:
    decoder = RequestDecoder(bounds or RequestLimits())
    commands: list[Words] = []
    for piece in pieces:
        commands += decoder.feed(piece)
        if decoder.error is not None:
            break
    return commands, decoder.error


WORDS = st.one_of(
    st.binary(max_size=20),
    st.sampled_from(
        [b"", b"*", b"*1", b"*1000000\r\n", b"*1\r\n$4\r\nPING\r\n", b"$1", b"$3\r\nab", b"$999999999\r\n", b"+OK",
         b":5", b"-1", b"(5", b"=", b">", b"\r\n*3\r\n", b"\r\n", b"\r", b"\n", b"\r\n+", b"x\r\n:5\r\n", b"%1\r\n",
         b"~", b"_", b"\r\n- item\r\n- item", b"{}", b"x" * 150, b"*" * 130]
    ),
)  # fmt: skip
"""Arguments, many of which look like the protocol itself."""
COMMANDS = st.lists(st.lists(WORDS, min_size=1, max_size=5), max_size=8)
PLACES = st.one_of(
    st.just(range(0)),  # in one piece
    st.just(range(4000)),  # byte by byte
    st.lists(st.integers(1, 400), max_size=12),
)
"""Where bytes are cut."""


def joined_parts(parts: Sequence[ReplyPart]) -> bytes:
    """A reply that was encoded in parts, as its client gets it."""
    return b"".join(part.encoded() if isinstance(part, Later) else part for part in parts)
