"""How a test turns the simulated clock."""

from __future__ import annotations

import pytest

from tidelog.testing.clock import WALL_US_DEFAULT, SimulatedClock


def test_nothing_moves_by_itself() -> None:
    clock = SimulatedClock(wall_us=7, monotonic_us=3)

    assert [clock.wall_us(), clock.wall_us()] == [7, 7]
    assert [clock.monotonic_us(), clock.monotonic_us()] == [3, 3]


def test_every_clock_begins_at_the_same_moment() -> None:
    assert SimulatedClock().wall_us() == WALL_US_DEFAULT
    assert SimulatedClock().monotonic_us() == 0


def test_advance_moves_both() -> None:
    clock = SimulatedClock(wall_us=100, monotonic_us=5)

    clock.advance(10)

    assert (clock.wall_us(), clock.monotonic_us()) == (110, 15)


def test_advance_does_not_go_back() -> None:
    clock = SimulatedClock(wall_us=100)

    with pytest.raises(ValueError, match="step_wall"):
        clock.advance(-1)

    assert (clock.wall_us(), clock.monotonic_us()) == (100, 0)


@pytest.mark.parametrize("us", [-50, 50])
def test_step_wall_leaves_monotonic_alone(us: int) -> None:
    clock = SimulatedClock(wall_us=100, monotonic_us=5)

    clock.step_wall(us)

    assert (clock.wall_us(), clock.monotonic_us()) == (100 + us, 5)


def test_set_wall_leaves_monotonic_alone() -> None:
    clock = SimulatedClock(wall_us=100, monotonic_us=5)

    clock.set_wall(1)

    assert (clock.wall_us(), clock.monotonic_us()) == (1, 5)
    assert "wall 1 µs" in repr(clock)
