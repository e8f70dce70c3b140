"""When a client came, and when it was last active: looked at now and then, so that no command pays for it."""

from __future__ import annotations


class Activity:
    """One client's. Times are those of a monotonic clock."""

    __slots__ = ("_active_us", "_came_us", "_seen_count", "slow_since_us")

    def __init__(self, now_us: int) -> None:
        self._came_us = self._active_us = now_us
        self._seen_count = 0
        """Its commands at the last look: more of them now mean that the client is not idle."""
        self.slow_since_us = 0
        """Since when much has been left unread; 0: it has not."""

    def look(self, now_us: int, command_count: int) -> None:
        """Note whether the client has sent commands since the last look."""
        if command_count != self._seen_count:
            self._seen_count = command_count
            self._active_us = now_us

    def age_s(self, now_us: int) -> int:
        return (now_us - self._came_us) // 1_000_000

    def idle_s(self, now_us: int) -> int:
        """By the last look."""
        return (now_us - self._active_us) // 1_000_000

    def is_slow(self, now_us: int, seconds: int, *, leaves_much: bool) -> bool:
        """Whether much is left unread now, and has been for longer than this."""
        if not leaves_much:
            self.slow_since_us = 0
            return False
        self.slow_since_us = self.slow_since_us or now_us
        return now_us - self.slow_since_us > 1_000_000 * seconds
