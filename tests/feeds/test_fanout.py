"""What feeds are told of expiries and of ranges of keys, if they asked for it."""

from __future__ import annotations

import pytest

from tests.commands.running import TABLE
from tests.feeds.made import Watched
from tests.feeds.test_feeds import value
from tidelog import limits
from tidelog.engine.dispatch import find_command, run_command
from tidelog.feeds.span import Span, span_of_key, span_of_prefix


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_expiries_are_told_to_who_asks(watched: Watched) -> None:
    _, known = watched.watch(has_expiry=True)
    _, without = watched.watch()
    assert watched.events(known) == [[b"steady"]]
    at_ms = watched.now_ms + 100_000
    for command, expected in [
        (f"SET s v PXAT {at_ms}", [value(b"s", "string", None, b"v"), [b"expire", b"s", at_ms]]),
        ("APPEND s x", [value(b"s", "string", None, b"vx"), [b"expire", b"s", at_ms]]),
        ("PERSIST s", [[b"expire", b"s", None]]),
        ("SET s w", [value(b"s", "string", None, b"w")]),
        ("HSET h f v", [value(b"h", "hash", b"f", b"v")]),
        (f"PEXPIREAT h {at_ms}", [[b"expire", b"h", at_ms]]),
        ("HSET h f w", [value(b"h", "hash", b"f", b"w")]),
        ("COPY h i", [value(b"i", "hash", b"f", b"w"), [b"expire", b"i", at_ms]]),
        ("EXPIRE h -1", [value(b"h", "none", None, None)]),
    ]:
        watched(*command.split())
        assert watched.events(known) == expected, command
        assert not [event for event in watched.events(without) if event[0] == b"expire"]


def test_initial_values_with_expiries(watched: Watched) -> None:
    at_ms = watched.now_ms + 100_000
    watched("SADD", "m", "a")
    watched("PEXPIREAT", "m", at_ms)
    watched("SET", "other", 1)
    _, known = watched.watch([span_of_key(b"m")], is_initial=True, has_expiry=True)
    assert watched.events(known) == [value(b"m", "set", b"a", b"1"), [b"expire", b"m", at_ms], [b"steady"]]


def test_a_range_is_one_event_for_each_span_that_has_some_of_it(watched: Watched) -> None:
    feeds = {
        name: watched.watch(spans)[1]
        for name, spans in {
            "all": [span_of_prefix(b"")],
            "key": [span_of_key(b"user:7")],
            "other key": [span_of_key(b"a")],
            "prefix": [span_of_prefix(b"user:1")],
            "longer": [span_of_prefix(b"us")],
            "span": [Span(b"a", b"user:5"), Span(b"user:8", b"")],
            "before": [Span(b"a", b"user:")],
        }.items()
    }
    for known in feeds.values():
        assert watched.events(known) == [[b"steady"]]
    for number in range(20):
        watched("SET", f"user:{number}", 1)
    watched.settle()
    for known in feeds.values():
        watched.events(known)
    assert watched("DELPREFIX", "user:") == 20
    assert {name: watched.events(known) for name, known in feeds.items()} == {
        "all": [[b"deleterange", b"user:", b"user;"]],
        "key": [[b"deleterange", b"user:7", b"user:7\0"]],
        "other key": [],
        "prefix": [[b"deleterange", b"user:1", b"user:2"]],
        "longer": [[b"deleterange", b"user:", b"user;"]],
        "span": [[b"deleterange", b"user:", b"user:5"], [b"deleterange", b"user:8", b"user;"]],
        "before": [],
    }


def test_a_range_that_goes_while_initial_values_are_read(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FEED_EVENTS_AT_ONCE", 2000)
    for number in range(100):
        watched("SET", f"k{number}", number)
    watched("SET", "other", 1)
    watched.settle()
    _, known = watched.watch(is_initial=True)
    watched.feeds.work(0)
    assert 0 < len(known.events) < 100
    watched("MSET", *(word for number in range(100) for word in (f"k{number}", "changed")))
    watched("DELRANGE", "k1", "k8")
    watched("SET", "k50", "again")
    watched.settle()
    expected = {b"k%d" % number: b"changed" for number in (0, 8, 9, *range(80, 100))}
    assert known.state == expected | {b"k50": b"again", b"other": b"1"}
    assert [event[0] for event in known.events].count(b"deleterange") == 1
    watched.tick()
    assert known.unchecked == 0


def test_a_range_and_then_a_flush_while_initial_values_are_read(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FEED_EVENTS_AT_ONCE", 2000)
    for number in range(100):
        watched("SET", f"k{number}", number)
    watched.settle()
    _, known = watched.watch(is_initial=True)
    watched.feeds.work(0)
    [told, *_] = known.state
    watched("DELPREFIX", "k")
    watched("HSET", told, "field", 1)  # a client must hear that it is no string any more
    watched("FLUSHDB")
    watched.settle()
    assert known.state == {}
    assert [event[3] for event in known.events if told in event] == [b"string", b"hash"]


def test_a_large_value_that_nobody_wants_any_more_is_not_taken_for_the_next(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "FEED_PROVED_BYTES_AT_ONCE", 1000)
    monkeypatch.setattr(limits, "FEED_LIVE_SLICE_US", 0)  # so that it is proved little by little
    leaving, _ = watched.watch()
    _, known = watched.watch(database=1)
    watched.settle()
    large = bytes(watched.store.journal.meta.geometry.frame_bytes)
    for database, value_ in ((0, b"a" + large), (1, b"b" + large)):
        transaction = watched.store.begin(database)
        run_command(find_command(TABLE, words := [b"SET", b"k", value_]), transaction, words)
        watched.store.commit(transaction)
    watched.store.journal.writer.write()
    watched.feeds.advance()
    watched.feeds.close(leaving)
    watched.settle()
    assert known.state == {b"k": b"b" + large}


def test_a_range_inside_a_transaction_over_shards() -> None:
    """First what each shard did before it, then the range, then the rest."""
    watched = Watched(3)
    _, whole = watched.watch(has_commits=True)
    watched.settle()
    whole.events.clear()
    transaction = watched.store.begin(0)
    for words in ("MSET k1 1 k2 1 k3 1 k4 1 k5 1", "DELPREFIX k", "MSET k1 2 k2 2 k3 2 k9 2"):
        run_command(find_command(TABLE, arguments := words.encode().split()), transaction, arguments)
    watched.store.commit(transaction)
    kinds = [event[0] for event in watched.events(whole)]
    assert kinds == [b"value"] * 5 + [b"deleterange"] + [b"value"] * 4 + [b"commit"]
    assert whole.state == dict.fromkeys([b"k1", b"k2", b"k3", b"k9"], b"2")
