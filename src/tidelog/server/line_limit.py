"""A bound on lines of the log that strangers cause: some a minute are let through, the last of them says so."""

from __future__ import annotations

import logging

from tidelog import limits
from tidelog.ports import Clock


class LineLimit(logging.Filter):
    """For a logger of requests that make no sense. Errors, which are ours, always pass."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._began_us = -1_000_000 * limits.LOGGED_LINES_S
        self._count = 0
        """Lines since then, with those that were left out."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.ERROR:
            return True
        now_us = self._clock.monotonic_us()
        if now_us - self._began_us >= 1_000_000 * limits.LOGGED_LINES_S:
            left_out, self._began_us, self._count = self._count - limits.LOGGED_LINES_MAX, now_us, 0
            if left_out > 0:
                _add(record, f"{left_out} lines like this were left out before it")
        self._count += 1
        if self._count == limits.LOGGED_LINES_MAX:
            _add(record, f"more of these are left out for {limits.LOGGED_LINES_S} s")
        return self._count <= limits.LOGGED_LINES_MAX


def _add(record: logging.LogRecord, text: str) -> None:
    record.msg, record.args = f"{record.getMessage()} ({text})", ()
