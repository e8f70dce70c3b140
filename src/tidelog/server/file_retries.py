"""When files that could not go or return are tried again: each later and later, so that a bad one holds up no other."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from tidelog import limits
from tidelog.errors import Corruption
from tidelog.ports import Clock


@dataclass(slots=True)
class _Failed:
    error: str
    retry_us: int
    """When it is tried again (monotonic)."""
    pause_us: int


class FileRetries:
    """Files that failed, by their paths."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failed: dict[str, _Failed] = {}

    @property
    def error(self) -> str:
        """What went wrong last of what is still wrong; "": nothing is."""
        return next((each.error for each in reversed(self._failed.values()) if each.error), "")

    def is_due(self, path: str) -> bool:
        failed = self._failed.get(path)
        return failed is None or self._clock.monotonic_us() >= failed.retry_us

    def fail(self, path: str, error: BaseException) -> bool:
        """Not now; whether that is news."""
        before = self._failed.pop(path, None)
        if isinstance(error, Corruption):  # to find that out again costs a download
            pause_us = limits.HISTORY_DAMAGED_RETRY_US
        else:
            pause_us = limits.HISTORY_RETRY_US if before is None else 2 * before.pause_us
            pause_us = min(pause_us, limits.HISTORY_RETRY_US_MAX)
        self._failed[path] = _Failed(str(error), self._clock.monotonic_us() + pause_us, pause_us)
        return before is None or before.error != str(error)

    def put_off(self, path: str) -> None:
        """Nothing is wrong, but it is too early."""
        pause_us = limits.HISTORY_LOOK_US
        self._failed[path] = _Failed("", self._clock.monotonic_us() + pause_us, pause_us)

    def succeed(self, path: str) -> None:
        self._failed.pop(path, None)

    def forget_all_but(self, paths: Container[str]) -> None:
        """Others are no more."""
        for path in [each for each in self._failed if each not in paths]:
            del self._failed[path]
