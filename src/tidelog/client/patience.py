"""How long a client waits for a server that has gone away, and when it gives up.

Pauses double, between two bounds, as long as attempts fail. Each is shortened at random, so that not all clients of a
server come back at the same moment.

A server that was reached is the right one, and is waited for. At the start nobody knows that yet:

    the address names one server          a wrong address should be an error at once: nothing is repeated
    several, or Sentinels, and
        some of them answer               a failover is under way: they are waited for as if one had been reached
        none of them answers              they may all be down, or all be wrong: for half a minute
        no Sentinel knows the service     its name is wrong: an error at once

What another attempt cannot heal, such as a wrong password, is no `ServerUnreachable`, and nobody asks for a pause.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from tidelog import limits
from tidelog.errors import TidelogError
from tidelog.server_search import ServerNotFound, UnknownService


class Patience:
    """Counts attempts that failed in a row."""

    def __init__(
        self,
        away_s_max: float | None = None,
        *,
        at_start: bool = False,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """For one server, or for several.

        away_s_max   give up when the server was away for this long; None: never
        at_start     repeat attempts also before a server was reached: the address names several
        """
        self._away_s_max = away_s_max
        self._at_start = at_start
        self._now_s = now_s
        self._is_right = False
        """The server was reached, or one of several has answered."""
        self.has_reached = False
        """There was a connection that could be used."""
        self._failure_count = 0
        self._failing_since_s: float | None = None

    def reached(self) -> None:
        """There is a connection, and what comes of it remains to be seen."""
        self.has_reached = self._is_right = True

    def reset(self) -> None:
        """An attempt has succeeded."""
        self.reached()
        self._failure_count, self._failing_since_s = 0, None

    def pause_s(self, error: TidelogError) -> float | None:
        """An attempt has failed: the pause before the next one; None: it is time to give up."""
        now_s = self._now_s()
        if self._failing_since_s is None:
            self._failing_since_s = now_s
        away_s_max = self._away_s_max_after(error)
        if away_s_max is not None and now_s - self._failing_since_s >= away_s_max:
            return None
        doubled = 2.0 ** min(self._failure_count, 30)
        self._failure_count += 1
        longest_s = min(limits.CLIENT_RECONNECT_S_MAX, limits.CLIENT_RECONNECT_S_MIN * doubled)
        return longest_s * random.uniform(0.5, 1.0)

    def _away_s_max_after(self, error: TidelogError) -> float | None:
        if self._at_start and isinstance(error, ServerNotFound) and error.has_answered:
            self._is_right = True
        if self._is_right:
            return self._away_s_max
        if not self._at_start or isinstance(error, UnknownService):
            return 0.0
        longest_s = limits.CLIENT_START_S_MAX
        return longest_s if self._away_s_max is None else min(longest_s, self._away_s_max)
