"""The text format of Prometheus."""

from __future__ import annotations

from tidelog.gateway.metrics import Sample, _histogram, render
from tidelog.server.metrics import Durations


def test_render() -> None:
    samples = [
        Sample("a_total", "counter", "How many.", 3),
        Sample("b", "gauge", "How much.", 0.25, '{x="1"}'),
        Sample("b", "gauge", "How much.", 2.0, '{x="2"}'),
    ]
    assert render(iter(samples)) == (
        "# HELP a_total How many.\n# TYPE a_total counter\na_total 3\n"
        '# HELP b How much.\n# TYPE b gauge\nb{x="1"} 0.25\nb{x="2"} 2\n'
    )


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
