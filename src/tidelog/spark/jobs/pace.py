"""How fast a job may go: streams an hour and bytes a second, over all of its tasks.

The driver enforces both by choosing how many items a wave has:

    streams an hour     a wave has as many as the limit allows in some seconds; the next begins when these are over
    bytes a second      a wave has no more items than can run at once, and each gets an equal share

So however many executors there are, or join later, no more tasks run than shares were handed out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from tidelog import limits


class Pace(NamedTuple):
    """The limits of a job; None: no limit."""

    items_per_hour: float | None = None
    bytes_per_second: float | None = None

    def wave_items(self, parallel: int) -> int:
        """How many items the next wave may have if `parallel` tasks run at once."""
        most = limits.PIPELINE_WAVE_ITEMS
        if self.items_per_hour is not None:
            most = min(most, max(1, int(self.items_per_hour * limits.PIPELINE_WAVE_S / 3600)))
        if self.bytes_per_second is not None:
            most = min(most, max(1, parallel))
        return most

    def wave_seconds(self, items: int) -> float:
        """The least time between the beginnings of this wave and the next."""
        return 0.0 if self.items_per_hour is None else items * 3600 / self.items_per_hour

    def share(self, items: int) -> float | None:
        """Bytes a second for each task of a wave."""
        return None if self.bytes_per_second is None else self.bytes_per_second / max(1, items)


class Throttle:
    """Slows a task down to its share of bytes a second."""

    def __init__(
        self,
        bytes_per_second: float | None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = bytes_per_second
        self._monotonic = monotonic
        self._sleep = sleep
        self._begun = monotonic()
        self._bytes = 0

    def __call__(self, size_bytes: int) -> None:
        self._bytes += size_bytes
        if self._rate is not None:
            ahead_s = self._bytes / self._rate - (self._monotonic() - self._begun)
            if ahead_s > 0:
                self._sleep(ahead_s)
