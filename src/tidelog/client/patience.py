"""How long a client waits for a server that has gone away, and when it gives up.

Pauses double, between two bounds, as long as attempts fail. Each is shortened at random, so that not all clients of a
server come back at the same moment. Whether the first attempt of all is repeated is the caller's decision: a wrong
address should be an error at once.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from tidelog import limits


class Patience:
    """Counts attempts that failed in a row."""

    def __init__(self, away_s_max: float | None = None, *, now_s: Callable[[], float] = time.monotonic) -> None:
        """`away_s_max`: give up when the server was away for this long; None: never."""
        self._away_s_max = away_s_max
        self._now_s = now_s
        self._failure_count = 0
        self._failing_since_s: float | None = None

    def reset(self) -> None:
        """An attempt has succeeded."""
        self._failure_count, self._failing_since_s = 0, None

    def pause_s(self) -> float | None:
        """An attempt has failed: the pause before the next one; None: it is time to give up."""
        now_s = self._now_s()
        if self._failing_since_s is None:
            self._failing_since_s = now_s
        if self._away_s_max is not None and now_s - self._failing_since_s >= self._away_s_max:
            return None
        doubled = 2.0 ** min(self._failure_count, 30)
        self._failure_count += 1
        longest_s = min(limits.CLIENT_RECONNECT_S_MAX, limits.CLIENT_RECONNECT_S_MIN * doubled)
        return longest_s * random.uniform(0.5, 1.0)
