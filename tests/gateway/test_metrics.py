"""What /metrics shows of the server itself."""

from __future__ import annotations

from tidelog.engine.metrics import Durations
from tidelog.engine.tallies import Tallies
from tidelog.gateway.metrics import _commands, _histogram
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


def test_commands() -> None:
    tallies = Tallies()
    tallies.of("GET").add(0.5)
    tallies.of("CONFIG|GET").rejected += 2
    lines = render(_commands(tallies)).splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        'tidelog_command_calls_total{command="config|get"} 0',
        'tidelog_command_calls_total{command="get"} 1',
        'tidelog_command_seconds_total{command="config|get"} 0',
        'tidelog_command_seconds_total{command="get"} 0.5',
        'tidelog_command_failed_total{command="config|get"} 0',
        'tidelog_command_failed_total{command="get"} 0',
        'tidelog_command_rejected_total{command="config|get"} 2',
        'tidelog_command_rejected_total{command="get"} 0',
    ]
