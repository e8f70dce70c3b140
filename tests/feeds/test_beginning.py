"""Where feeds begin that come back from an older epoch."""

from __future__ import annotations

import contextlib

import pytest

from tests.feeds.made import Watched
from tidelog.errors import ClientError, FeedDiverged
from tidelog.feeds.feeds import Feeds
from tidelog.ids import Ts
from tidelog.journal.control import Epoch
from tidelog.journal.rewind import rewind


@pytest.fixture
def watched() -> Watched:
    """A store whose second epoch has a transaction."""
    watched = Watched(2)
    watched("MSET", "a", 1, "b", 1)
    watched.settle()
    watched.restart()
    watched.clock.advance(60_000_000)
    watched("SET", "late", 1)
    watched.settle()
    return watched


def older_and_newest(watched: Watched) -> tuple[Epoch, Epoch]:
    older, newest = watched.store.journal.epochs
    return older, newest


def test_a_promise_that_the_next_epoch_keeps_is_still_good(watched: Watched) -> None:
    older, newest = older_and_newest(watched)
    assert newest.last_ts < newest.first_ts < watched.now
    for since in (newest.last_ts, newest.first_ts - 1):
        _, known = watched.watch(since=Ts(since), epoch=older.id, seen=newest.last_ts)
        assert watched.events(known) == [[b"value", b"late", b"string", None, b"1"], [b"steady"]]


@pytest.mark.parametrize("has_all", [False, True])
def test_a_promise_is_as_good_on_a_follower_whose_clock_is_late(watched: Watched, has_all: bool) -> None:
    """Its leader's clock is ahead since a crash, and it was sent history, but nothing was announced to it yet."""
    older, newest = older_and_newest(watched)
    follower = Watched(2, leads=False)
    receive(follower, watched, None if has_all else newest.last_ts)
    since = Ts(newest.first_ts - 1)
    assert follower.clock.wall_us() < since
    _, known = follower.watch(since=since, epoch=older.id, seen=newest.last_ts)
    receive(follower, watched)
    assert [b"value", b"late", b"string", None, b"1"] in follower.events(known)
    with pytest.raises(FeedDiverged):
        follower.watch(since=newest.first_ts, epoch=older.id, seen=newest.last_ts)


def test_who_leads_after_an_epoch_in_which_nothing_happened_keeps_its_promises(watched: Watched) -> None:
    older, newest = older_and_newest(watched)
    follower = Watched(2, leads=False)
    receive(follower, watched, newest.last_ts)
    follower.store.journal.begin_epoch(77)
    follower.store.is_follower = False
    follower("SET", "other", 1)
    follower.settle()
    follower.clock.advance(60_000_000)
    _, known = follower.watch(since=Ts(newest.first_ts - 1), epoch=older.id, seen=newest.last_ts)
    assert [b"value", b"other", b"string", None, b"1"] in follower.events(known)


def receive(follower: Watched, leader: Watched, upto: Ts | None = None) -> None:
    """A follower gets what it lacks of the history of its leader: up to a ts, with the epoch that begins there."""
    journal = follower.store.journal
    with contextlib.closing(leader.store.journal.reader_since(journal.writer.last_ts)) as reader:
        for transaction in reader.read():
            receive_epochs(follower, leader)
            if upto is not None and transaction.ts > upto:
                break
            follower.store.apply_received(transaction)
    receive_epochs(follower, leader)
    follower.settle()


def receive_epochs(follower: Watched, leader: Watched) -> None:
    journal = follower.store.journal
    for epoch in leader.store.journal.epochs:
        if epoch.last_ts == journal.writer.last_ts:
            journal.append_received_epoch(epoch)


def test_a_promise_that_reaches_into_the_next_epoch_is_not(watched: Watched) -> None:
    """Also where its first transaction came later: until then, nobody could know."""
    older, newest = older_and_newest(watched)
    for since in (newest.first_ts, watched.now, watched.now + 1, watched.clock.wall_us() + 10_000_000):
        with pytest.raises(FeedDiverged) as error:
            watched.watch(since=Ts(since), epoch=older.id, seen=newest.last_ts)
        assert error.value.since == newest.last_ts


def test_the_newest_epoch_promises_what_it_likes(watched: Watched) -> None:
    _, newest = older_and_newest(watched)
    watched.watch(since=watched.now, epoch=newest.id, seen=watched.now)


def test_lost_history_is_told_before_a_broken_promise(watched: Watched) -> None:
    older, newest = older_and_newest(watched)
    with pytest.raises(FeedDiverged, match="lost") as error:
        watched.watch(since=Ts(0), epoch=older.id, seen=Ts(newest.last_ts + 1))
    assert error.value.since == newest.last_ts


def test_a_broken_promise_is_told_also_where_the_journal_is_erased(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    older, newest = older_and_newest(watched)
    monkeypatch.setattr(type(watched.store.journal), "erased_ts", newest.first_ts)
    with pytest.raises(FeedDiverged):
        watched.watch(since=newest.first_ts, epoch=older.id, seen=newest.last_ts)


def test_an_epoch_of_an_earlier_version_begins_with_its_first_transaction(watched: Watched) -> None:
    older, newest = older_and_newest(watched)
    watched.store.journal.epochs[-1] = newest._replace(first_ts=Ts(0))
    first_ts = watched.now
    watched.watch(since=Ts(first_ts - 1), epoch=older.id, seen=newest.last_ts)
    for since in (first_ts, watched.clock.wall_us() + 10_000_000):
        with pytest.raises(FeedDiverged) as error:
            watched.watch(since=Ts(since), epoch=older.id, seen=newest.last_ts)
        assert error.value.since == newest.last_ts


def test_holds_go_back_with_the_history_that_they_are_part_of() -> None:
    watched = Watched(2)
    watched("MSET", "a", "0", "b", "0")
    watched.settle()
    watched.watch(name="reader", since=watched.now)
    watched("MSET", "a", "1", "b", "1")
    watched.settle()
    shared = watched.now
    watched("MSET", "a", "2", "b", "2")
    watched.settle()
    watched.feeds.holds.acknowledge(0, "reader", watched.now)
    watched.watch(name="later", since=watched.now)
    watched.settle()
    watched.disk.kill()
    assert rewind(watched.disk, "/data", shared, watched.store.journal.epoch_id).ends_ts == shared
    watched.store = watched._open()
    watched.feeds = Feeds(watched.store, watched.clock)
    watched("SET", "a", "other")
    watched.settle()
    _, known = watched.watch(name="reader")
    assert [event[4] for event in watched.events(known) if event[0] == b"value"] == [b"1", b"1", b"other"]
    with pytest.raises(ClientError, match="no feed named 'later'"):
        watched.watch(name="later")
