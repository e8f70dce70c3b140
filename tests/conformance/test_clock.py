"""What `ports.Clock` promises, for the real and the simulated clock."""

from __future__ import annotations

import pytest

from tidelog.ports import Clock
from tidelog.system.clock import SystemClock
from tidelog.testing.clock import SimulatedClock

YEAR_2020_US = 1_577_836_800_000_000
YEAR_2200_US = 7_258_118_400_000_000


@pytest.fixture(params=[SystemClock, SimulatedClock])
def clock(request: pytest.FixtureRequest) -> Clock:
    made: Clock = request.param()
    return made


def test_wall_time_is_in_microseconds_since_1970(clock: Clock) -> None:
    assert isinstance(clock.wall_us(), int)
    assert YEAR_2020_US < clock.wall_us() < YEAR_2200_US


def test_monotonic_time_never_steps_back(clock: Clock) -> None:
    readings = [clock.monotonic_us() for _ in range(1000)]

    assert all(isinstance(reading, int) for reading in readings)
    assert readings == sorted(readings)
