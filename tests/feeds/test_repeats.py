"""Readers that begin at the same place again and again."""

from __future__ import annotations

import pytest

from tests.feeds.made import EVERYTHING, Watched
from tests.feeds.rebuilt import Rebuilt
from tidelog import limits
from tidelog.feeds.feed import ChangeFeedRequest
from tidelog.feeds.open_feed import OpenFeed
from tidelog.feeds.repeats import Repeats
from tidelog.ids import Ts
from tidelog.testing.clock import SimulatedClock

OLD = ChangeFeedRequest(EVERYTHING, since=Ts(5))
SECOND = limits.SECOND_US


def test_the_same_beginning_waits_after_some_times() -> None:
    repeats = Repeats(SimulatedClock(), burst=3)
    delays = [repeats.delay_us(f"10.0.0.1:{port}", OLD) for port in range(12)]
    assert delays[:3] == [0, 0, 0]
    assert delays[3:9] == [at * 10 * SECOND for at in (1, 2, 3, 4, 5, 6)]
    assert set(delays[9:]) == {limits.FEED_REPEAT_DELAY_US_MAX}
    assert repeats.delayed_count == 9


def test_once_in_a_while_is_no_repeat() -> None:
    clock = SimulatedClock()
    repeats = Repeats(clock, burst=3)
    for _ in range(20):
        assert repeats.delay_us("10.0.0.1:1", OLD) == 0
        clock.advance(10 * SECOND)


@pytest.mark.parametrize(
    "other",
    [
        ChangeFeedRequest(EVERYTHING, since=Ts(6)),
        ChangeFeedRequest(EVERYTHING, since=Ts(5), until=Ts(9)),
        ChangeFeedRequest(EVERYTHING, since=Ts(5), database=1),
        ChangeFeedRequest(EVERYTHING, since=Ts(5), name="n"),
        ChangeFeedRequest(EVERYTHING, is_initial=True),
        ChangeFeedRequest(EVERYTHING),
    ],
)
def test_who_goes_on_does_not_wait(other: ChangeFeedRequest) -> None:
    repeats = Repeats(SimulatedClock(), burst=1)
    assert repeats.delay_us("10.0.0.1:1", OLD) == 0
    assert repeats.delay_us("10.0.0.1:2", OLD) > 0
    assert repeats.delay_us("10.0.0.1:3", other) == 0
    assert repeats.delay_us("10.0.0.2:1", OLD) == 0


def test_feeds_that_begin_now_never_wait() -> None:
    repeats = Repeats(SimulatedClock(), burst=1)
    assert not any(repeats.delay_us("10.0.0.1:1", ChangeFeedRequest(EVERYTHING)) for _ in range(10))


def test_there_may_be_no_limit() -> None:
    repeats = Repeats(SimulatedClock(), burst=0)
    assert not any(repeats.delay_us("10.0.0.1:1", OLD) for _ in range(1000))


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FEED_REPEATS_KEPT", 10)
    repeats = Repeats(SimulatedClock(), burst=1)
    for ts in range(100):
        assert repeats.delay_us("10.0.0.1:1", ChangeFeedRequest(EVERYTHING, since=Ts(ts))) == 0
    assert repeats.delay_us("10.0.0.1:1", ChangeFeedRequest(EVERYTHING, since=Ts(0))) == 0
    assert repeats.delay_us("10.0.0.1:1", ChangeFeedRequest(EVERYTHING, since=Ts(99))) > 0


def test_a_feed_that_waits_has_checkpoints_and_then_everything() -> None:
    watched = Watched()
    watched("SET", "a", 1)
    watched.settle()
    known = Rebuilt(EVERYTHING)
    late = watched.feeds.open(ChangeFeedRequest(EVERYTHING, since=Ts(0)), 2, known, 5 * SECOND)
    watched.settle()
    watched.tick(1000)
    assert [(event[0], event[1]) for event in known.events] == [(b"checkpoint", 0)]
    assert is_delayed(late)
    watched.tick(4000)
    watched.settle()
    assert known.state == {b"a": b"1"}
    assert not is_delayed(late)


def is_delayed(opened: OpenFeed) -> bool:
    return opened.is_delayed
