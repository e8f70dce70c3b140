"""A timer for any time."""

from __future__ import annotations

import pytest

from tidelog import limits
from tidelog.engine.deadline import Deadline
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.loop import SimulatedLoop


@pytest.mark.parametrize("seconds", [0.0, 1.5, limits.TIMER_S_MAX, limits.TIMER_S_MAX + 0.5, 3.25 * limits.TIMER_S_MAX])
def test_it_goes_off_once_at_its_time(seconds: float) -> None:
    clock = SimulatedClock()
    loop, began_us = SimulatedLoop(clock), clock.monotonic_us()
    went_off: list[float] = []
    Deadline(loop, seconds, lambda: went_off.append((clock.monotonic_us() - began_us) / 1e6))
    loop.run(seconds + 10)
    assert went_off == [pytest.approx(seconds, abs=1e-3)]


def test_it_can_be_cancelled_also_in_between() -> None:
    clock = SimulatedClock()
    loop = SimulatedLoop(clock)
    went_off: list[int] = []
    first, second = (Deadline(loop, 2 * limits.TIMER_S_MAX, lambda: went_off.append(1)) for _ in range(2))
    first.cancel()
    loop.run(1.5 * limits.TIMER_S_MAX)
    second.cancel()
    second.cancel()
    loop.run(3 * limits.TIMER_S_MAX)
    assert went_off == []
