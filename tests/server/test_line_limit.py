"""Lines of the log that strangers cause: a few a minute, and how many were left out."""

from __future__ import annotations

import logging

from tidelog import limits
from tidelog.server.line_limit import LineLimit
from tidelog.testing.clock import SimulatedClock


def test_a_few_a_minute() -> None:
    clock = SimulatedClock()
    limit = LineLimit(clock)

    def line(level: int = logging.WARNING) -> str | None:
        record = logging.LogRecord("name", level, "file", 1, "junk from %s", ("10.0.0.1",), None)
        return record.getMessage() if limit.filter(record) else None

    shown = [line() for _ in range(1000)]
    assert shown[:9] == ["junk from 10.0.0.1"] * 9
    assert shown[9] == "junk from 10.0.0.1 (more of these are left out for 60 s)"
    assert shown[10:] == [None] * 990
    assert line(logging.ERROR) == "junk from 10.0.0.1"
    clock.advance(1_000_000 * limits.LOGGED_LINES_S)
    assert line() == "junk from 10.0.0.1 (990 lines like this were left out before it)"
    assert line() == "junk from 10.0.0.1"
    clock.advance(1_000_000 * limits.LOGGED_LINES_S)
    assert line() == "junk from 10.0.0.1"
