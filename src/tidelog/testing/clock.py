"""A clock that a test turns by hand.

Wall and monotonic time run together through `advance`. Only the wall clock can be set otherwise, to any moment, as an
administrator or NTP would set it. Nothing moves by itself, so a run is the same every time.
"""

from __future__ import annotations

from typing import Final

WALL_US_DEFAULT: Final = 1_700_000_000_000_000
"""A moment in November 2023: large enough to look like a real time, and the same in every run."""


class SimulatedClock:
    """`ports.Clock` for tests."""

    __slots__ = ("_monotonic_us", "_wall_us")

    def __init__(self, wall_us: int = WALL_US_DEFAULT, monotonic_us: int = 0) -> None:
        self._wall_us = wall_us
        self._monotonic_us = monotonic_us

    def __repr__(self) -> str:
        return f"<SimulatedClock wall {self._wall_us} µs, monotonic {self._monotonic_us} µs>"

    def wall_us(self) -> int:
        return self._wall_us

    def monotonic_us(self) -> int:
        return self._monotonic_us

    def advance(self, us: int) -> None:
        """Let time pass on both clocks."""
        if us < 0:
            raise ValueError(f"time does not pass backwards: advance({us}); step_wall sets the wall clock back")
        self._wall_us += us
        self._monotonic_us += us

    def step_wall(self, us: int) -> None:
        """Move the wall clock alone, forwards or backwards."""
        self._wall_us += us

    def set_wall(self, wall_us: int) -> None:
        """Set the wall clock alone to a moment."""
        self._wall_us = wall_us
