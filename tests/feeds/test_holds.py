"""Names of feeds: they belong to a database, one reader has them at a time, and they can be listed and dropped."""

from __future__ import annotations

import pytest

from tests.feeds.made import Watched, let_go
from tests.journal.earlier_holders import write_holders
from tidelog.errors import ClientError, HolderLapsed
from tidelog.feeds.holds import FeedHold
from tidelog.ids import Ts
from tidelog.journal.retention import Holder


@pytest.fixture
def watched() -> Watched:
    return Watched(2)


def names(watched: Watched) -> list[tuple[int | None, str, int]]:
    return [(hold.database, hold.name, hold.ts) for hold in watched.feeds.holds.all()]


def test_a_name_belongs_to_a_database(watched: Watched) -> None:
    watched("SET", "a", 1)
    watched.settle()
    before, after = Ts(0), watched.now
    for database, since in ((0, before), (3, after)):
        watched.watch(name="n", since=since, database=database)
    assert names(watched) == [(0, "n", before), (3, "n", after)]
    watched.feeds.holds.acknowledge(0, "n", after)
    assert names(watched) == [(0, "n", after), (3, "n", after)]
    with pytest.raises(ClientError, match="there is no feed named 'n'"):
        watched.feeds.holds.acknowledge(1, "n", after)


def test_a_name_of_an_earlier_version_goes_to_the_first_that_asks_for_it(watched: Watched) -> None:
    watched("SET", "a", 1)
    watched.settle()
    held = watched.now
    write_holders(watched.disk, "/data", Holder("feed:n", held, watched.clock.wall_us()))
    watched("SET", "a", 2)
    watched.restart()
    assert names(watched) == [(None, "n", held)]
    _, known = watched.watch(name="n")
    assert watched.events(known) == [[b"value", b"a", b"string", None, b"2"], [b"steady"]]
    assert [name[:2] for name in names(watched)] == [(0, "n")]
    watched.restart()
    assert [name[:2] for name in names(watched)] == [(0, "n")]
    assert watched.feeds.holds.get(0, "n").ts == held


def test_a_name_that_nobody_has_begun_is_told(watched: Watched) -> None:
    with pytest.raises(ClientError, match="there is no feed named 'n': the first one says with SINCE or INITIAL"):
        watched.watch(name="n")
    assert names(watched) == []
    watched.watch(name="n", is_initial=True)
    watched.watch(name="n")
    assert [name[:2] for name in names(watched)] == [(0, "n")]


def test_one_reader_at_a_time_has_a_name(watched: Watched) -> None:
    first, known_first = watched.watch(name="n", since=Ts(0))
    other, _ = watched.watch(name="n", since=Ts(0), database=1)
    second, known_second = watched.watch(name="n")
    assert (first.is_closed, other.is_closed, second.is_closed) == (True, False, False)
    assert known_first.ended == ["FEEDTAKEN another reader has taken over the name 'n'"]
    assert watched.feeds.reader_of(0, "n") is second
    watched("SET", "a", 1)
    watched.settle()
    assert [b"value", b"a", b"string", None, b"1"] in watched.events(known_second)
    watched.feeds.close(first)  # its connection, late
    assert watched.feeds.reader_of(0, "n") is second
    watched.feeds.close(second)
    assert watched.feeds.reader_of(0, "n") is None


def test_one_that_cannot_begin_takes_no_name_away(watched: Watched) -> None:
    opened, _ = watched.watch(name="n", since=Ts(0))
    with pytest.raises(ClientError, match="ahead of the clock"):
        watched.watch(name="n", since=Ts(2**62))
    assert not opened.is_closed


def test_a_hold_is_dropped_for_good(watched: Watched) -> None:
    opened, _ = watched.watch(name="n", since=Ts(0))
    watched.feeds.close(opened)
    watched.feeds.holds.drop(0, "n")
    assert names(watched) == []
    with pytest.raises(ClientError, match="there is no feed named 'n'"):
        watched.feeds.holds.drop(0, "n")
    watched.restart()
    assert names(watched) == []


def test_a_hold_that_was_let_go_is_told_and_begun_anew_on_request(watched: Watched) -> None:
    watched.watch(name="n", since=Ts(0))
    let_go(watched)
    [hold] = watched.feeds.holds.all()
    assert hold == FeedHold(0, "n", Ts(0), hold.idle_us, "it did not move")
    with pytest.raises(HolderLapsed):
        watched.watch(name="n")
    watched.watch(name="n", since=watched.now)
    assert watched.feeds.holds.all()[0].lapsed is None
    let_go(watched)
    watched.feeds.holds.drop(0, "n")
    assert names(watched) == []
