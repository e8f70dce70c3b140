"""What /metrics shows of the server itself."""

from __future__ import annotations

from tidelog.engine.metrics import Durations
from tidelog.gateway.metrics import _histogram
from tidelog.gateway.sample import render


def test_histograms_are_cumulative() -> None:
    durations = Durations((0.1, 1.0))
    for seconds in (0.05, 0.5, 0.5, 3):
        durations.add(seconds)
    lines = render(_histogram("took_seconds", "How long.", durations)).splitlines()[2:]
    assert lines == [
        'took_seconds_bucket{le="0.1"} 1',
        'took_seconds_bucket{le="1"} 3',
        'took_seconds_bucket{le="+Inf"} 4',
        "took_seconds_sum 4.05",
        "took_seconds_count 4",
    ]
