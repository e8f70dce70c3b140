"""Regular expressions of groups: what they match, which are refused, and that those accepted are quick."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog import limits
from tidelog.channels.patterns import ChannelPattern

SLOWEST_S = 0.1
"""For one name; it takes some ms, on a machine that does other things as well."""


@pytest.mark.parametrize(
    ("text", "name", "captures"),
    [
        ("chat-room-(?P<id>[0-9]+)", "chat-room-17", {"id": "17"}),
        ("chat-room-(?P<id>[0-9]+)", "chat-room-17x", None),
        ("chat-room-(?P<id>[0-9]+)", "a-chat-room-17", None),
        ("(?P<a>[a-z]+)(?:-(?P<b>[a-z]+))?", "x", {"a": "x", "b": None}),
        ("a|b", "ab", None),
        (".+", "anything_At-all", {}),
        ("^x$", "x", {}),
    ],
)
def test_the_whole_name_is_matched(text: str, name: str, captures: dict[str, str | None] | None) -> None:
    assert ChannelPattern(text).match(name) == captures


@pytest.mark.parametrize(
    ("text", "ways"),
    [
        ("abc", 1),
        ("[a-z]+", 1),
        ("room-(?P<id>[0-9]+)-[a-z]+", 1),
        ("(?:[a-z]+-)*[0-9]+", 1),
        ("a|b|c[0-9]*", 1),
        ("[a-z]++[a-z]++", 1),
        ("(?:ab|ac)x", 2),
        (".*-.*", 64),
        (".*.*-", 4096),
    ],
)
def test_ways_are_counted(text: str, ways: int) -> None:
    assert ChannelPattern(text).ways <= ways


@pytest.mark.parametrize(
    "text",
    [
        "(a+)+b",
        "(a|a[a-z])*b",
        "(?:[a-z]+)*",
        ".*.*.*x",
        "(?:a?b?){20}x",
        "(?:[a-z]{1,2}[a-z]{1,2}){31}",
        "(((((a+)+)+)+)+)+",
        "(" * 80 + "a" + ")+" * 80 + "a",
    ],
)
def test_expressions_that_explode_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"could try more than 4096 ways|must not repeat what can be empty"):
        ChannelPattern(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "must have 1 to 1000 characters"),
        ("a" * 1001, "must have 1 to 1000 characters"),
        ("(", "is not a regular expression: missing"),
        ("(a)\\1", "no references to groups"),
        ("(?P<x>a)(?P=x)", "no references to groups"),
        ("(?=a)a", "nothing that looks ahead or back"),
        ("(?<!a)a", "nothing that looks ahead or back"),
        ("(?i)a", r"no flags such as \(\?i\)"),
        ("(?i:a)", r"no flags such as \(\?i"),
        ("(?x) a", "no flags"),
    ],
)
def test_what_cannot_be_counted_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        ChannelPattern(text)


NAMES = ["a" * 63, "a" * 62 + "-", "ab" * 31, "a-" * 31, "a1" * 31 + "-", "aab" * 21, "-" * 63, "1" * 62 + "_"]


def slowest_s(pattern: ChannelPattern) -> float:
    slowest = 0.0
    for name in NAMES:
        begun = time.perf_counter()
        pattern.match(name)
        slowest = max(slowest, time.perf_counter() - begun)
    return slowest


@pytest.mark.parametrize(
    "text", [".*.*-", "[ab]*[a-z]*1", "(?:a|b|ab)x.*.*", ".*?.*?-", "(?:[a-z]-?)*_", "(?:a|ab)(?:a|ab)(?:a|ab).*1"]
)
def test_the_worst_that_is_accepted_is_quick(text: str) -> None:
    pattern = ChannelPattern(text)
    assert pattern.ways <= limits.CHANNEL_PATTERN_WAYS_MAX
    assert min(slowest_s(pattern) for _ in range(3)) < SLOWEST_S


PIECES = st.sampled_from(["a", "b", "-", "[a-z]", "[ab]", "[^a]", r"\w", r"\d", ".", "1"])
EXPRESSIONS = st.recursive(
    PIECES,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=4).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2,5}", "*?", "++", "{3}"])).map(
            lambda parts: f"(?:{parts[0]}){parts[1]}"
        ),
    ),
    max_leaves=10,
)


@settings(max_examples=150, deadline=None)
@given(EXPRESSIONS)
def test_any_expression_is_quick_or_refused(text: str) -> None:
    try:
        pattern = ChannelPattern(text)
    except ValueError:
        return
    assert min(slowest_s(pattern) for _ in range(2)) < SLOWEST_S, text
