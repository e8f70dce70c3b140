"""A leader that comes back after a crash: it takes no writes until the followers that it had have answered.

begin ──► all have answered, or 5 s have passed and no tail comes in ──► `lead_again`
  └─────► end: something else was decided
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from tidelog import limits
from tidelog.ports import Loop, Timer
from tidelog.replication.role_file import FollowerName

_LOG: Final = logging.getLogger("tidelog")


class ReturningLeader:
    """Whom it waits for, and for how long."""

    def __init__(self, loop: Loop, is_taking_tail: Callable[[], bool], lead_again: Callable[[], None]) -> None:
        self._loop = loop
        self._is_taking_tail = is_taking_tail
        self._lead_again = lead_again
        self.is_waiting = False
        self._missed: set[FollowerName] = set()
        """Those that have not answered."""
        self._timer: Timer | None = None

    def begin(self, followers: Iterable[FollowerName]) -> None:
        self.is_waiting = True
        self._missed = set(followers)
        names = ", ".join(map(str, sorted(self._missed)))
        _LOG.warning("the last stop was not clean: waiting for followers that may have more (%s)", names)
        self._timer = self._loop.call_later(limits.REPLICATION_RETURN_S, self._time_out)

    def answered(self, follower: FollowerName) -> None:
        """It is known what a follower has, and we have that too."""
        self._missed.discard(follower)
        if self.is_waiting and not self._missed:
            self._finish()

    def _time_out(self) -> None:
        """Whoever has not answered is not waited for. A tail that is still coming in is: it may have been confirmed."""
        if self._is_taking_tail():
            self._timer = self._loop.call_later(limits.REPLICATION_TAIL_LOOK_S, self._time_out)
        else:
            self._finish()

    def _finish(self) -> None:
        if self.is_waiting:
            self.end()
            self._lead_again()

    def end(self) -> None:
        self.is_waiting = False
        self._missed = set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
