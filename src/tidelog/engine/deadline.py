"""A timer for any time. Those of loops have a longest one, so a longer one is set again in between."""

from __future__ import annotations

from collections.abc import Callable

from tidelog import limits
from tidelog.ports import Loop, Timer


class Deadline:
    """Calls something once, unless it is cancelled before."""

    __slots__ = ("_call", "_left_s", "_loop", "_timer")

    def __init__(self, loop: Loop, seconds: float, call: Callable[[], None]) -> None:
        self._loop = loop
        self._call = call
        self._left_s = seconds
        """What is left after the timer that is set."""
        self._timer: Timer | None = None
        self._go_on()

    def _go_on(self) -> None:
        seconds = min(self._left_s, limits.TIMER_S_MAX)
        self._left_s -= seconds
        self._timer = self._loop.call_later(seconds, self._go_on if self._left_s else self._call)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
