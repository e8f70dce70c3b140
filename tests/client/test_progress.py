"""Where a feed resumes, and what it does not deliver again."""

from __future__ import annotations

import pytest

from tidelog import limits
from tidelog.client.event import Checkpoint, Commit, DeleteRange, Event, Steady, Value
from tidelog.client.progress import Progress
from tidelog.client.request import FeedRequest, spans_of

ALL = spans_of(None, None, ())


def value(ts: int, key: bytes = b"k") -> Value:
    return Value(ts, key, "string", None, b"v")


def checkpoint(ts: int, span: tuple[bytes, bytes] = (b"", b""), epoch: int = 7) -> Checkpoint:
    return Checkpoint(ts, *span, epoch, ts)


def taken(progress: Progress, *events: Event) -> list[Event]:
    return [event for event in events if progress.take(event)]


def test_from_now_on_is_a_place_before_the_first_checkpoint_too() -> None:
    progress = Progress(FeedRequest(ALL))
    assert progress.begin(50, 7) == ["SINCE", 50, "EPOCH", 7, "SEEN", 50]
    assert progress.begin(90, 7) == ["SINCE", 50, "EPOCH", 7, "SEEN", 50]


def test_a_ts_of_the_callers_has_no_epoch_until_the_server_takes_it() -> None:
    progress = Progress(FeedRequest(ALL, since=40))
    assert progress.begin(50, 7) == ["SINCE", 40]
    progress.take(value(41))
    assert progress.begin(50, 7) == ["SINCE", 40, "EPOCH", 7, "SEEN", 41]


def test_a_checkpoint_of_the_callers_has_all() -> None:
    progress = Progress(FeedRequest(ALL, since=Checkpoint(40, b"", b"", 3, 39)))
    assert progress.begin(50, 7) == ["SINCE", 40, "EPOCH", 3, "SEEN", 39]


def test_a_name_begins_where_it_was_left() -> None:
    progress = Progress(FeedRequest(ALL, name="n"))
    assert progress.begin(50, 7) == []
    progress.take(checkpoint(60))
    assert progress.begin(70, 7) == ["SINCE", 60, "EPOCH", 7, "SEEN", 60]


def test_what_was_delivered_is_dropped_after_a_reconnect() -> None:
    progress = Progress(FeedRequest(ALL, since=0))
    progress.begin(0, 7)
    first: list[Event] = [value(1), checkpoint(1), value(2), value(2, b"l"), Commit(2), value(3)]
    assert taken(progress, *first) == first
    assert progress.begin(9, 7) == ["SINCE", 1, "EPOCH", 7, "SEEN", 3]
    again: list[Event] = [value(2), value(2, b"l"), Commit(2), value(3), value(3, b"m"), value(4)]
    assert taken(progress, *again) == [value(3, b"m"), value(4)]


def test_it_is_dropped_however_often_the_connection_is_lost() -> None:
    progress = Progress(FeedRequest(ALL, since=0))
    delivered = []
    for length in (1, 2, 3, 4):
        progress.begin(0, 7)
        delivered += taken(progress, *[value(5, bytes([n])) for n in range(length)])
    assert [event.key for event in delivered if isinstance(event, Value)] == [bytes([n]) for n in range(4)]


def test_nothing_below_the_checkpoint_comes_again() -> None:
    progress = Progress(FeedRequest(ALL, since=0))
    progress.begin(0, 7)
    assert taken(progress, checkpoint(5), value(4), value(5), checkpoint(4), value(6), Steady(3)) == [
        checkpoint(5),
        value(6),
        Steady(3),
    ]


def test_the_least_checkpoint_of_all_spans_counts() -> None:
    spans = spans_of(None, ["a", "b"], ())
    progress = Progress(FeedRequest(spans, since=0))
    progress.begin(0, 7)
    progress.take(checkpoint(5, spans[0]))
    assert progress.begin(9, 7)[:2] == ["SINCE", 0]
    progress.take(checkpoint(4, spans[1]))
    assert progress.checkpoint == checkpoint(4, spans[1])
    progress.take(checkpoint(9, spans[0]))
    assert progress.begin(9, 7)[:2] == ["SINCE", 4]


def test_seen_belongs_to_the_epoch_that_took_us_in() -> None:
    progress = Progress(FeedRequest(ALL, since=0))
    progress.begin(0, 7)
    progress.take(checkpoint(5, epoch=7))
    assert progress.begin(6, 8) == ["SINCE", 5, "EPOCH", 7, "SEEN", 5]
    # Nothing came: it may not have taken us in.
    assert progress.begin(6, 9) == ["SINCE", 5, "EPOCH", 7, "SEEN", 5]
    progress.take(value(7))
    assert progress.begin(8, 9) == ["SINCE", 5, "EPOCH", 9, "SEEN", 7]


def test_initial_values_begin_anew_and_say_so() -> None:
    spans = spans_of(None, ["a", "b"], ())
    progress = Progress(FeedRequest(spans, initial=True))
    assert progress.begin(1, 7) == ["INITIAL"]
    assert progress.start_over() == []
    assert taken(progress, value(1, b"a")) == [value(1, b"a")]
    assert progress.begin(1, 7) == ["INITIAL"]
    assert progress.start_over() == [DeleteRange(1, *span) for span in spans]
    assert progress.start_over() == []
    assert taken(progress, value(1, b"a")) == [value(1, b"a")]
    for span in spans:
        progress.take(checkpoint(2, span))
    assert progress.begin(1, 7)[:2] == ["SINCE", 2]
    assert progress.start_over() == []


def test_the_end() -> None:
    progress = Progress(FeedRequest(ALL, since=0, until=5))
    progress.begin(0, 7)
    progress.take(checkpoint(4))
    assert not progress.has_ended()
    progress.take(checkpoint(5))
    assert progress.has_ended()


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CLIENT_FEED_REMEMBERED_MAX", 3)
    progress = Progress(FeedRequest(ALL, since=0))
    progress.begin(0, 7)
    events = [value(ts) for ts in range(1, 6)]
    taken(progress, *events)
    progress.begin(0, 7)
    assert taken(progress, *events) == [value(1), value(2)]


def test_another_history_may_be_behind_the_checkpoint() -> None:
    """A backup was restored where the clock is behind: what is new there comes, and is resumed from there."""
    progress = Progress(FeedRequest(ALL, since=0))
    progress.begin(0, 7)
    taken(progress, value(50), checkpoint(90))
    assert progress.begin(60, 8) == ["SINCE", 90, "EPOCH", 7, "SEEN", 90]
    assert taken(progress, value(60), value(70), Steady(70)) == [value(60), value(70), Steady(70)]
    assert progress.begin(70, 8) == ["SINCE", 59, "EPOCH", 8, "SEEN", 90]
    assert taken(progress, value(60), value(70), value(80), checkpoint(85, epoch=8)) == [
        value(80),
        checkpoint(85, epoch=8),
    ]
    assert progress.begin(86, 8)[:2] == ["SINCE", 85]


def test_a_server_may_begin_an_epoch_while_we_are_connected() -> None:
    """It was made a leader. What is above the end of the one before is known by the new one alone."""
    progress = Progress(FeedRequest(ALL, since=40))
    progress.begin(50, 7)
    progress.take(value(41))
    progress.take(checkpoint(60, epoch=8))
    progress.take(value(61))
    assert progress.begin(70, 8) == ["SINCE", 60, "EPOCH", 8, "SEEN", 61]


def test_initial_values_are_ahead_of_a_server_that_is_behind() -> None:
    progress = Progress(FeedRequest(ALL, initial=True))
    assert not progress.is_ahead(0)
    progress.begin(50, 7)
    progress.take(value(50))
    assert progress.is_ahead(49)
    assert not progress.is_ahead(50)
    progress.take(checkpoint(51))
    assert not progress.is_ahead(49), "it goes on at its checkpoint, wherever the server is"
