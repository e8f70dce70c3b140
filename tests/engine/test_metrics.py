"""Counters and histograms."""

from __future__ import annotations

from tidelog.engine.metrics import Durations, Metrics


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
