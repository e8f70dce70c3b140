"""The clock of this machine."""

from __future__ import annotations

import time


class SystemClock:
    """`ports.Clock` on the clocks of the operating system."""

    __slots__ = ()

    def wall_us(self) -> int:
        return time.time_ns() // 1000

    def monotonic_us(self) -> int:
        return time.monotonic_ns() // 1000
