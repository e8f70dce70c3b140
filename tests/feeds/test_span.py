"""Who is interested in a key: what the index says is what looking at every span would say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.feeds.span import Interests, Span, after_prefix, span_of_key, span_of_prefix

KEYS = st.binary(max_size=3)
SPANS = st.one_of(
    KEYS.map(span_of_key),
    KEYS.map(span_of_prefix),
    st.tuples(KEYS, KEYS).map(lambda bounds: Span(*bounds)),
)


@given(
    st.lists(st.lists(SPANS, min_size=1, max_size=4), max_size=6),
    st.lists(KEYS, max_size=20),
    st.sets(st.integers(0, 5)),
)
def test_the_index_says_what_the_spans_say(feeds: list[list[Span]], keys: list[bytes], leaving: set[int]) -> None:
    interests = Interests()
    for number, spans in enumerate(feeds):
        interests.add(number, spans)
    for number in leaving:
        interests.remove(number)
    staying = {number: spans for number, spans in enumerate(feeds) if number not in leaving}
    assert sorted(interests.feeds) == sorted(staying)
    for key in keys:
        found = interests.of(key)
        assert len(found) == len(set(found))
        assert sorted(found) == [number for number, spans in staying.items() if any(span.has(key) for span in spans)]
        assert interests.have_any([key]) == bool(found)
        assert not found or interests.key_sizes is None or len(key) in interests.key_sizes


@given(KEYS, st.binary(max_size=5))
def test_a_prefix_is_a_span(prefix: bytes, key: bytes) -> None:
    assert span_of_prefix(prefix).has(key) == key.startswith(prefix)


@pytest.mark.parametrize(
    ("prefix", "after"), [(b"a", b"b"), (b"", b""), (b"\xff", b""), (b"a\xff\xff", b"b"), (b"a\x00", b"a\x01")]
)
def test_what_follows_a_prefix(prefix: bytes, after: bytes) -> None:
    assert after_prefix(prefix) == after


def test_a_span_that_is_empty() -> None:
    assert Span(b"b", b"a").is_empty
    assert Span(b"a", b"a").is_empty
    assert not Span(b"a", b"").is_empty
