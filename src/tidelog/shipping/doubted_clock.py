"""The time, for what is deleted by its age: between the earliest and the latest that it may be.

A wall clock may be wrong, for a moment or since the machine was started, and what was deleted by it does not come back.
So it is compared with the time that has passed since the newest manifest was made:

    earliest    no later than that: by it, something is old enough to go
    latest      no earlier than that: with it, something says when its time began

If the wall clock goes otherwise for a whole day of passed time, it is believed: the server was stopped for longer, or
the clock had been wrong before. It is believed by the least that it differed in that day.
"""

from __future__ import annotations

from tidelog import limits
from tidelog.ports import Clock


class DoubtedClock:
    """For one shipper, from a takeover on."""

    def __init__(self, clock: Clock, made_us: int | None) -> None:
        """`made_us`: when the newest manifest was made; None: there is none, so nothing can be deleted wrongly."""
        self._clock = clock
        self._since_us = clock.monotonic_us()
        self._passed_us = (clock.wall_us() if made_us is None else made_us) - self._since_us
        """What the wall clock would show when the monotonic one began, had it gone on from the newest manifest."""
        self._least_us: int | None = None
        """How much the wall clock differed at least, since `_since_us`."""

    def earliest_us(self) -> int:
        return min(self._clock.wall_us(), self._look())

    def latest_us(self) -> int:
        return max(self._clock.wall_us(), self._look())

    def bounds_us(self) -> tuple[int, int]:
        """The earliest and the latest."""
        return self.earliest_us(), self.latest_us()

    def _look(self) -> int:
        now_us = self._clock.monotonic_us()
        differs_us = self._clock.wall_us() - (self._passed_us + now_us)
        if self._least_us is None or abs(differs_us) < abs(self._least_us):
            self._least_us = differs_us
        if now_us - self._since_us >= limits.SHIP_DOUBT_US:
            self._passed_us += self._least_us
            self._since_us, self._least_us = now_us, None
        return self._passed_us + now_us
