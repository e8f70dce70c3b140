"""Transactions that are larger than what is sent at once: each event once, in order, then the commit."""

from __future__ import annotations

from typing import Any

import pytest

from tests.feeds.made import Watched
from tests.feeds.rebuilt import Rebuilt
from tidelog import limits
from tidelog.feeds.feed import State
from tidelog.feeds.open_feed import OpenFeed
from tidelog.ids import Ts
from tidelog.types.change import LargeString
from tidelog.types.hash import hset

FIELDS = 5000


class Slow(Rebuilt):
    """Is full after each time that it was sent something, and notes how much that was."""

    def __init__(self, known: Rebuilt) -> None:
        super().__init__(known.spans, has_commits=True)
        self.sizes: list[int] = []

    def send(self, data: bytes | LargeString) -> None:
        super().send(data)
        self.sizes.append(len(data) if isinstance(data, bytes) else data.memory_bytes)
        self.is_full = True


def watch(watched: Watched, **wanted: Any) -> tuple[OpenFeed, Slow]:
    opened, known = watched.watch(has_commits=True, **wanted)
    opened.sink = slow = Slow(known)
    return opened, slow


def read_all(watched: Watched, opened: OpenFeed, slow: Slow) -> None:
    watched.settle()
    while slow.is_full:
        slow.is_full = False
        watched.feeds.resume(opened)
        watched.settle()


def write(watched: Watched, how: str) -> None:
    if how == "hset":
        watched("HSET", "h", *[word for at in range(FIELDS) for word in (f"f{at}", f"v{at}")])
    else:
        transaction = watched.store.begin()
        for at in range(FIELDS):
            transaction.run(hset(b"h%d" % (at % 7), [b"f%d" % at, b"v%d" % at]))
        watched.store.commit(transaction)


@pytest.mark.parametrize("shard_count", [1, 3])
@pytest.mark.parametrize("how", ["hset", "multi"])
@pytest.mark.parametrize("begins", ["live", "disk", "initial"])
def test_a_large_transaction_is_sent_in_parts(
    monkeypatch: pytest.MonkeyPatch, shard_count: int, how: str, begins: str
) -> None:
    monkeypatch.setattr(limits, "FEED_SENT_BYTES", 1000)
    watched = Watched(shard_count)
    if begins != "live":
        write(watched, how)
        watched.settle()
    opened, slow = watch(watched, since=Ts(0) if begins == "disk" else None, is_initial=begins == "initial")
    if begins == "live":
        read_all(watched, opened, slow)
        write(watched, how)
    read_all(watched, opened, slow)
    values = [event for event in slow.events if event[0] == b"value"]
    assert sorted(event[-1] for event in values) == sorted(b"v%d" % at for at in range(FIELDS))
    if begins != "initial":
        assert [event[0] for event in slow.events if event[0] != b"steady"][-1] == b"commit"
        assert len([event for event in slow.events if event[0] == b"commit"]) == 1
    assert max(slow.sizes) < 100_000  # the events of a record
    assert len(slow.sizes) > 5
    assert opened.feed.state is State.STEADY


def test_a_feed_that_is_inside_a_transaction_gives_no_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FEED_SENT_BYTES", 1000)
    watched = Watched()
    opened, slow = watch(watched)
    read_all(watched, opened, slow)
    write(watched, "hset")
    watched.settle()
    assert opened.feed.is_inside
    slow.is_full = False  # but the feed was not told
    watched.tick()
    assert not [event for event in slow.events if event[0] == b"checkpoint"]
    slow.is_full = True
    read_all(watched, opened, slow)
    watched.tick()
    assert slow.events[-1][0] == b"checkpoint"


def test_others_have_their_turn_while_much_becomes_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FEED_LIVE_SLICE_US", 0)
    watched = Watched()
    opened, known = watched.watch()
    watched.settle()
    for number in range(1000):
        watched("SET", f"k{number}", number)
    watched.store.journal.writer.write()
    watched.feeds.advance()
    assert 0 < len(known.events) < 1000
    assert watched.feeds.has_work
    late, known_late = watched.watch()  # joins while the others are still handed what it does not want
    watched.tick()  # a checkpoint promises nothing that was not handed out
    watched.settle()
    assert len(known.state) == 1000
    assert known_late.state == {}
    watched("SET", "k0", "x")
    watched.settle()
    assert known_late.state == {b"k0": b"x"}
    assert opened.feed.state is late.feed.state is State.STEADY
