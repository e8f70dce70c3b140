"""Patterns on a real Redis: which of many strings SSCAN's MATCH lets through."""

from __future__ import annotations

from itertools import product

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conformance.redis_oracle import SCAN, InProcess, Pair, Socket

ALPHABET = [b"a", b"b", b"]", b"-", b"\\", b"\xff"]
STRINGS = [b"".join(letters) for size in range(4) for letters in product(ALPHABET, repeat=size)]
PATTERN = st.lists(st.sampled_from([bytes([byte]) for byte in b"abc*?[]^-\\\xff"]), max_size=8).map(b"".join)


@given(st.lists(PATTERN, min_size=1, max_size=50))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_match(redis_peer: Socket, patterns: list[bytes]) -> None:
    pair = Pair(redis_peer, InProcess(), 2)
    for number, start in enumerate(range(0, len(STRINGS), 100)):  # each of them small enough to be scanned in one step
        pair("SADD", f"s{number}", *STRINGS[start : start + 100])
        for pattern in patterns:
            pair("SSCAN", f"s{number}", 0, "MATCH", pattern, "COUNT", 10_000, order=SCAN)


@given(st.lists(st.tuples(PATTERN, PATTERN), min_size=1, max_size=20))
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_long_patterns(redis_peer: Socket, patterns: list[tuple[bytes, bytes]]) -> None:
    """A run of stars makes a pattern long, whatever stands before and behind it."""
    pair = Pair(redis_peer, InProcess(), 2)
    for number, start in enumerate(range(0, len(STRINGS), 100)):
        pair("SADD", f"s{number}", *STRINGS[start : start + 100])
        for before, after in patterns:
            pair("SSCAN", f"s{number}", 0, "MATCH", before + b"*" * 300 + after, "COUNT", 10_000, order=SCAN)


def test_keys_with_half_a_million_parts(redis_peer: Socket) -> None:
    pair = Pair(redis_peer, InProcess(), 2)
    for number in range(100):
        pair("SET", f"key:{number}", "v")
    for part in (b"?*", b"a*", b"[k-y]*"):
        pair("KEYS", part * 500_000)
    theirs, ours = pair.each("KEYS", b"*" * 500_000 + b"9")
    assert sorted(theirs) == sorted(ours)
