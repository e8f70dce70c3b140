"""When a job runs: without end, every so often, or at times of the day.

Times are seconds since 1970, and times of the day are UTC, as days of job sets are.
"""

from __future__ import annotations

from dataclasses import dataclass

_DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Schedule:
    """Neither of the two: the job runs without end, and again if it ends."""

    every_s: int | None = None
    """From the beginning of a run to that of the next one."""
    at_s: tuple[int, ...] = ()
    """Seconds after midnight."""

    @property
    def is_endless(self) -> bool:
        return self.every_s is None and not self.at_s

    def first_s(self, now_s: float) -> float:
        """When the first run is due."""
        return self._next_time_s(now_s) if self.at_s else now_s

    def next_s(self, begun_s: float, ended_s: float) -> float:
        """When the next run is due. One that took too long is followed by it at once. Not for a job without end."""
        if self.at_s:
            return self._next_time_s(ended_s)
        return max(ended_s, begun_s + (self.every_s or 0))

    def _next_time_s(self, now_s: float) -> float:
        day_s = now_s // _DAY_S * _DAY_S
        times = [day_s + days * _DAY_S + at_s for days in (0, 1) for at_s in self.at_s]
        return min(time_s for time_s in times if time_s > now_s)
