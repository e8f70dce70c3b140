"""An epoch that begins while feeds are open: their readers know it before they get anything of it."""

from __future__ import annotations

import pytest

from tests.feeds.made import Watched
from tidelog.errors import FeedDiverged
from tidelog.ids import Ts


@pytest.fixture
def watched() -> Watched:
    return Watched()


@pytest.mark.parametrize("is_steady", [True, False])
def test_an_epoch_that_begins_is_told_before_what_happens_in_it(watched: Watched, is_steady: bool) -> None:
    """A reader that comes back right after a promotion must not say that it has seen the new in the old epoch."""
    opened, known = watched.watch()
    watched("SET", "k", "old")
    if is_steady:
        watched.settle()
    watched.store.journal.writer.write()
    before = watched.now
    watched.store.journal.begin_epoch(77)
    watched("SET", "k", "new")
    watched.settle()
    told = [event for event in known.events if event[0] != b"steady"]
    if is_steady:
        assert [event[0] for event in told] == [b"value", b"checkpoint", b"value"]
        assert told[1][1:] == [before, b"", b"", 77, before]
    else:
        assert [event[0] for event in told] == [b"checkpoint", b"value", b"value"]
        assert told[0][4] == 77
    last = told[-1][1]
    again, _ = watched.watch(since=Ts(before), epoch=77, seen=Ts(last))
    assert again.feed.position == before
    with pytest.raises(FeedDiverged):
        watched.watch(since=Ts(before), epoch=watched.store.journal.epochs[0].id, seen=Ts(last))
    assert opened.epoch_id == 77


def test_a_reader_that_takes_nothing_is_told_the_epoch_when_it_reads_on(watched: Watched) -> None:
    opened, known = watched.watch()
    watched.settle()
    known.is_full = True
    watched("SET", "k", "old")
    watched.settle()
    watched.store.journal.begin_epoch(77)
    watched("SET", "k", "new")
    watched.settle()
    known.is_full = False
    watched.feeds.resume(opened)
    assert [event[0] for event in watched.events(known)] == [b"steady", b"value", b"checkpoint", b"value"]
