"""A wall clock that is wrong is not believed before it has been so for a day."""

from __future__ import annotations

from tidelog import limits
from tidelog.shipping.doubted_clock import DoubtedClock
from tidelog.testing.clock import SimulatedClock

HOUR_US = limits.HOUR_US
DAY_US = 24 * HOUR_US


def bounds(clock: SimulatedClock, time: DoubtedClock) -> tuple[int, int]:
    """In hours, seen from the wall clock."""
    wall_us = clock.wall_us()
    return (time.earliest_us() - wall_us) // HOUR_US, (time.latest_us() - wall_us) // HOUR_US


def test_a_clock_that_is_right_is_believed() -> None:
    clock = SimulatedClock()
    time = DoubtedClock(clock, None)
    for _ in range(50):
        clock.advance(HOUR_US)
        assert bounds(clock, time) == (0, 0)


def test_one_that_jumps_ahead_or_back_is_believed_after_a_day() -> None:
    for jump in (100, -100):
        clock = SimulatedClock()
        time = DoubtedClock(clock, None)
        clock.step_wall(jump * HOUR_US)
        for _ in range(24):
            assert bounds(clock, time) == (min(0, -jump), max(0, -jump))
            clock.advance(HOUR_US)
        assert bounds(clock, time) == (0, 0)


def test_one_that_is_wrong_for_a_moment_is_never_believed() -> None:
    clock = SimulatedClock()
    time = DoubtedClock(clock, None)
    for _ in range(5):
        for _ in range(23):
            clock.advance(HOUR_US)
            time.latest_us()
        clock.step_wall(1000 * HOUR_US)
        clock.advance(2 * HOUR_US)
        assert bounds(clock, time) == (-1000, 0)
        clock.step_wall(-1000 * HOUR_US)
        assert bounds(clock, time) == (0, 0)


def test_a_start_goes_by_the_newest_manifest() -> None:
    clock = SimulatedClock()
    time = DoubtedClock(clock, clock.wall_us() - 50 * HOUR_US)
    assert bounds(clock, time) == (-50, 0)
    clock.advance(DAY_US)
    assert bounds(clock, time) == (0, 0)
