"""Counters and histograms."""

from __future__ import annotations

from tidelog import limits
from tidelog.engine.metrics import OTHER_ERRORS, Durations, Metrics


def test_durations() -> None:
    durations = Durations((0.1, 1.0))
    for seconds in (0.0, 0.1, 0.5, 1.0, 2.0):
        durations.add(seconds)
    assert durations.counts == [2, 2, 1]
    assert (durations.count, durations.total_s, durations.last_s) == (5, 3.6, 2.0)


def test_errors_are_counted_by_code() -> None:
    metrics = Metrics()
    for message in ("ERR one", "ERR two", "WRONGTYPE three", "ERR"):
        metrics.count_error(message)
    assert metrics.errors == {"ERR": 3, "WRONGTYPE": 1}
    metrics.reset()
    assert not metrics.errors


def test_codes_that_scripts_make_up_are_bounded() -> None:
    metrics = Metrics()
    for number in range(limits.ERROR_CODES_MAX + 10):
        metrics.count_error(f"CODE{number} of a script")
    metrics.count_error("CODE0 again")
    assert len(metrics.errors) == limits.ERROR_CODES_MAX + 1
    assert (metrics.errors["CODE0"], metrics.errors[OTHER_ERRORS]) == (2, 10)
