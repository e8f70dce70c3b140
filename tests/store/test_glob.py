"""Patterns: what they match, held against a transcript of Redis's `stringmatchlen`, and that none takes for ever.

`tests/conformance/test_glob.py` asks a real Redis.
"""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidelog import limits
from tidelog.errors import CommandError
from tidelog.store.glob import _LongPattern, matcher, matches, walking_matcher

YES = [
    ("", ""), ("a", "a"), ("*", "a"), ("**", "abc"), ("*a", "a"), ("a*", "a"), ("a**", "a"), ("*b*", "abc"), ("?", "a"),
    ("??", "ab"), ("a?c", "abc"), ("[abc]", "b"), ("[a-c]x", "bx"), ("[c-a]x", "bx"), ("[^a-c]", "d"), ("[^]", "x"),
    ("[^", "x"), ("[abc", "c"), ("[a-", "a"), ("[a-", "-"), ("[a-]", "a"), ("[a-]", "]"), ("[\\]]", "]"),
    ("[\\^a]", "^"), ("[a^]", "^"), ("\\*", "*"), ("\\", "\\"), ("a\\", "a\\"), ("[\\", "\\"), ("\\a", "a"),
    ("*[0-9]", "a7"), ("a*b*c", "a1b2b3c"), ("*ab", "aab"), ("*\n*", "a\nb"), ("?", "\n"), ("[a-c-e]", "-"),
    ("x*", "xy"),
]  # fmt: skip
NO = [
    ("", "a"), ("*", ""), ("**", ""), ("a", ""), ("a", "A"), ("a", "ab"), ("ab", "a"), ("?", ""), ("?", "ab"),
    ("[]", "]"),
    ("[]a]", "a"), ("[", "["), ("[", "x"), ("[^a]", "a"), ("[a-c]", "d"), ("\\*", "a"), ("*a", "b"), ("a*", "ba"),
    ("a*b*c", "acb"), ("*ab*ab", "ab"), ("aba*aba", "ababa"), ("[!a]", "b"), ("a\\", "a"),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "string"), YES)
def test_matches(pattern: str, string: str) -> None:
    assert matches(pattern.encode(), string.encode())
    assert walking_matcher(pattern.encode(), False)(string.encode())
    assert redis_matches(pattern.encode(), string.encode())


@pytest.mark.parametrize(("pattern", "string"), NO)
def test_does_not_match(pattern: str, string: str) -> None:
    assert not matches(pattern.encode(), string.encode())
    assert not walking_matcher(pattern.encode(), False)(string.encode())
    assert not redis_matches(pattern.encode(), string.encode())


def test_bytes_above_127_are_negative() -> None:
    assert matches(b"[\x80-\x01]", b"\xff")
    assert matches(b"[\x80-\x01]", b"\x00")
    assert not matches(b"[\x80-\x01]", b"a")
    assert matches(b"[a-\xff]", b"\x00")


def test_case_is_ignored_if_asked_for() -> None:
    is_match = matcher(b"Max*[A-C]\\X", ignores_case=True)
    assert is_match(b"maxMEMORYbx")
    assert not is_match(b"maxmemorydx")
    assert not matcher(b"Max*")(b"max")


PATTERN = st.lists(st.sampled_from([bytes([byte]) for byte in b"ab*?[]^-\\\xff"]), max_size=9).map(b"".join)
STRING = st.lists(st.sampled_from([bytes([byte]) for byte in b"abcA-]^\\*\xff\n"]), max_size=7).map(b"".join)


@given(PATTERN, STRING, st.booleans())
@example(b"[a-", b"]", False)
def test_as_redis_has_it(pattern: bytes, string: bytes, ignores_case: bool) -> None:
    expected = redis_matches(pattern, string, ignores_case)
    assert matcher(pattern, ignores_case=ignores_case)(string) == expected
    assert walking_matcher(pattern, ignores_case)(string) == expected


@given(PATTERN, st.lists(STRING, max_size=4))
def test_a_long_pattern_is_a_short_one_with_many_stars(pattern: bytes, strings: list[bytes]) -> None:
    """Of several stars in a row one is enough."""
    is_match = matcher(b"*" * 300 + pattern)
    for string in strings:
        assert is_match(string) == matches(b"*" + pattern, string)


@pytest.mark.parametrize(
    ("pattern", "string"),
    [
        (b"a*" * 1000 + b"b", b"a" * 5000),
        (b"*?" * 1000 + b"b", b"a" * 5000),
        (b"*[ab]" * 1000 + b"c*", b"ab" * 5000),
        (b"*" * 100_000 + b"b", b"a" * 5000),
        (b"*" + b"a" * 1000 + b"b", b"a" * 5000),
        (b"[" + b"a-b" * 100_000 + b"]*c", b"ab" * 5000),
        (b"*" + b"a?" * 25_000 + b"b", b"a" * 100_000),
        (b"*" + b"a?" * 10_000 + b"b*", b"a" * 50_000),
        (b"*a*" + b"a?" * 10_000 + b"b*c", b"a" * 50_000),
        (b"*" + b"[ac]?" * 40 + b"b*", b"a" * 1_000_000),
    ],
)
def test_no_pattern_takes_for_ever(pattern: bytes, string: bytes) -> None:
    start = time.monotonic()
    assert not matches(pattern, string)
    assert time.monotonic() - start < 5


@pytest.mark.parametrize("part", [b"?*", b"a*", b"*?", b"[a-c]*", b"[^x]", b"\\a?"])
def test_of_a_long_pattern_no_more_is_read_than_a_string_needs(part: bytes) -> None:
    """Ten thousand strings beside half a million parts: reading all of it once would take as long as all of this."""
    is_match = matcher(part * 500_000)
    start = time.monotonic()
    assert not any(is_match(b"abc:%d" % number) for number in range(10_000))
    assert time.monotonic() - start < 5


@given(PATTERN, st.lists(STRING, max_size=4))
def test_parts_that_are_looked_for_at_all_places_at_once(pattern: bytes, strings: list[bytes]) -> None:
    long = _LongPattern(b"*" + pattern, False)
    for string in filter(None, strings):
        assert long._finds_parts(string, 1, 0) == matches(b"*" + pattern, string)


def test_a_match_that_would_take_too_long_is_refused() -> None:
    pattern, string = b"*" + b"a?" * 100_000 + b"b*", b"a" * 400_000
    assert len(pattern) * len(string) > limits.PATTERN_WORK_MAX
    with pytest.raises(CommandError, match="takes too long"):
        matches(pattern, string)


def redis_matches(pattern: bytes, string: bytes, ignores_case: bool = False) -> bool:
    """`stringmatchlen` of Redis 7.0, line by line but for its memory of what is hopeless."""
    p, s = 0, 0

    def at(position: int) -> int:
        return pattern[position] if position < len(pattern) else 0

    def signed(byte: int) -> int:
        return byte - 256 if byte > 127 else byte

    def fold(byte: int) -> int:
        return byte + 32 if ignores_case and ord("A") <= byte <= ord("Z") else byte

    while p < len(pattern) and s < len(string):
        byte = pattern[p]
        if byte == ord("*"):
            while at(p + 1) == ord("*"):
                p += 1
            if p + 1 == len(pattern):
                return True
            return any(redis_matches(pattern[p + 1 :], string[start:], ignores_case) for start in range(s, len(string)))
        if byte == ord("["):
            p += 1
            negated = at(p) == ord("^")
            if negated:
                p += 1
            found = False
            while True:
                left = len(pattern) - p
                if left >= 2 and at(p) == ord("\\"):
                    p += 1
                    found |= at(p) == string[s]
                elif left > 0 and at(p) == ord("]"):
                    break
                elif left <= 0:
                    p -= 1
                    break
                elif left >= 3 and at(p + 1) == ord("-"):
                    first, last = sorted((signed(at(p)), signed(at(p + 2))))
                    found |= fold(first) <= fold(signed(string[s])) <= fold(last)
                    p += 2
                else:
                    found |= fold(at(p)) == fold(string[s])
                p += 1
            if found == negated:
                return False
        elif byte != ord("?"):
            if byte == ord("\\") and p + 1 < len(pattern):
                p += 1
            if fold(pattern[p]) != fold(string[s]):
                return False
        s += 1
        p += 1
        if s == len(string):
            while at(p) == ord("*"):
                p += 1
            break
    return p == len(pattern) and s == len(string)
