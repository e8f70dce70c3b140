"""What goes of a stream by its rule: by bytes, by age, never what BACKLOG keeps, and without opening a node."""

from __future__ import annotations

import pytest

from tests.streams.cold_nodes import chill_all
from tests.streams.plain import filled
from tidelog import limits
from tidelog.streams.cold import OPENED
from tidelog.streams.retention import BY_AGE, BY_BACKLOG, BY_BYTES, going_by_rule
from tidelog.streams.stream import RetentionRule, Stream

ENTRY = 24 + 4 + 4
"""What an entry of `filled` takes ..."""
NODE = 10 * ENTRY
"""... and a sealed node of ten."""


@pytest.fixture(autouse=True)
def _small_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "NODE_ENTRIES_MAX", 10)


def going(stream: Stream, rule: RetentionRule, now_ms: int = 0, nodes_max: int = 100) -> tuple[int, list[str]]:
    """The first offset that stays, and why each node before it goes."""
    stream.rule = rule
    first, nodes = going_by_rule(stream, now_ms, nodes_max)
    before = stream.length, stream.entry_bytes
    copied = stream.copy()
    assert copied.evict(first) == sum(node.entries for node in nodes)
    assert (copied.length, copied.entry_bytes) == (
        before[0] - sum(node.entries for node in nodes), before[1] - sum(node.bytes for node in nodes)
    )  # fmt: skip
    return first, [node.reason for node in nodes]


def test_bytes_count_tags_entries_and_some_more() -> None:
    stream = filled(45)
    assert stream.entry_bytes == 4 * NODE + 5 * ENTRY
    assert chill_all(stream).entry_bytes == 4 * NODE + 5 * ENTRY


@pytest.mark.parametrize(
    ("bytes_max", "first"),
    [
        (4 * NODE + 5 * ENTRY, 1),
        (4 * NODE + 5 * ENTRY - 1, 11),
        (3 * NODE + 5 * ENTRY, 11),
        (3 * NODE + 5 * ENTRY - 1, 21),
        (5 * ENTRY, 41),
        (1, 41),
    ],
)
def test_the_oldest_nodes_go_while_there_are_too_many_bytes(bytes_max: int, first: int) -> None:
    """The active node stays, however large it is."""
    reasons = [BY_BYTES] * (first // 10)
    assert going(filled(45), RetentionRule(bytes_max)) == (first, reasons)


@pytest.mark.parametrize(("age", "first"), [(60, 1), (35, 1), (34, 11), (25, 11), (24, 21), (1, 41), (0, 46)])
def test_nodes_go_once_their_last_entry_is_too_old(age: int, first: int) -> None:
    """Entry n is of millisecond 1000 + n; the last of the first node is of 1010."""
    rule = RetentionRule(age_max_ms=age + 10**6)
    found, reasons = going(filled(45), rule, now_ms=1045 + 10**6 + bool(age == 0))
    assert (found, set(reasons)) == (first, {BY_AGE} if first > 1 else set())


def test_an_age_larger_than_the_clock_keeps_everything() -> None:
    assert going(filled(45), RetentionRule(age_max_ms=2**63 - 1), now_ms=5000) == (1, [])


@pytest.mark.parametrize(("backlog", "first"), [(45, 1), (36, 1), (35, 11), (15, 31), (6, 31), (5, 41), (1, 41)])
@pytest.mark.parametrize(
    "rule",
    [RetentionRule(1), RetentionRule(0, 1), RetentionRule(1, 1), RetentionRule()],
    ids=["bytes", "age", "both", ""],
)
def test_the_backlog_stays_whatever_the_others_say(rule: RetentionRule, backlog: int, first: int) -> None:
    """And alone it lets everything else go, as BACKLOG of TWRITE does."""
    reason = BY_AGE if rule.age_max_ms else BY_BYTES if rule.bytes_max else BY_BACKLOG
    expected = first, [reason] * (first // 10)
    assert going(filled(45), rule._replace(backlog=backlog), now_ms=10**6) == expected


def test_the_backlog_counts_entries_and_not_offsets() -> None:
    stream = filled(45)
    stream.delete(range(12, 40))
    assert stream.length == 17
    assert going(stream, RetentionRule(backlog=7)) == (11, [BY_BACKLOG])
    assert going(stream, RetentionRule(backlog=6)) == (12, [BY_BACKLOG] * 2)


def test_either_of_the_two_lets_entries_go() -> None:
    stream = filled(45)
    assert going(stream, RetentionRule(2 * NODE + 5 * ENTRY, 20), now_ms=1035) == (21, [BY_AGE, BY_BYTES])
    assert going(stream, RetentionRule(10**6, 20), now_ms=1045) == (21, [BY_AGE] * 2)


def test_no_more_nodes_than_asked_for() -> None:
    stream = filled(45)
    assert going(stream, RetentionRule(1), nodes_max=2) == (21, [BY_BYTES] * 2)
    assert going(stream, RetentionRule(0, 1), now_ms=10**6, nodes_max=4) == (46, [BY_AGE] * 5)


def test_an_empty_stream_keeps_nothing() -> None:
    assert going(Stream(), RetentionRule(1, 1)) == (1, [])


def test_no_cold_node_is_opened() -> None:
    stream = chill_all(filled(45))
    OPENED.clear()
    OPENED.fetches = True
    try:
        assert going(stream, RetentionRule(2 * NODE, 15, 6), now_ms=1045) == (31, [BY_AGE, BY_AGE, BY_BYTES])
    finally:
        OPENED.fetches = False
