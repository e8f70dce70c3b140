"""Parts of patterns, found at all places at once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog import limits
from tidelog.errors import CommandError
from tidelog.store.bit_search import BitSearch

CHOICE = st.frozensets(st.sampled_from(list(b"ab\xff")), max_size=3)
STRING = st.lists(st.sampled_from(list(b"ab\xff")), min_size=1, max_size=12).map(bytes)


@given(STRING, st.lists(CHOICE, max_size=4), st.integers(0, 12))
def test_the_leftmost_place(string: bytes, choices: list[frozenset[int]], start: int) -> None:
    start = min(start, len(string))
    ends = [
        at + len(choices)
        for at in range(start, len(string) - len(choices) + 1)
        if all(string[at + index] in choice for index, choice in enumerate(choices))
    ]
    expected = ends[0] if ends and ends[0] - len(choices) < len(string) else -1
    assert BitSearch(string).find_end(choices, start) == expected


def test_one_search_finds_part_after_part() -> None:
    search = BitSearch(b"abcabc")
    part = [frozenset(b"ax"), frozenset(b"b")]
    assert search.find_end(part, 0) == 2
    assert search.find_end(part, 2) == 5
    assert search.find_end(part, 5) == -1


def test_work_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PATTERN_WORK_MAX", 64 * 100)
    search = BitSearch(b"a" * 50)
    assert search.find_end([frozenset(b"a")] * 10, 0) == 10
    assert search.find_end([frozenset(b"b")] * 10, 0) == -1
    with pytest.raises(CommandError, match="takes too long to be matched with a name of 50 bytes"):
        search.find_end([frozenset(b"a")], 0)


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PATTERN_NUMBERS_BITS_MAX", 1000)
    search = BitSearch(b"a" * 100)
    for byte in range(256):
        assert search.find_end([frozenset({byte})], 0) == (1 if byte == ord("a") else -1)
        assert len(search._fits) <= 11
