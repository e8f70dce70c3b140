"""What /metrics shows of streams."""

from __future__ import annotations

from tidelog.gateway.sample import render
from tidelog.gateway.stream_metrics import stream_samples
from tidelog.server.stream_figures import StreamFigures


def test_every_total_is_shown_under_its_name() -> None:
    figures = StreamFigures(*range(1, 1 + len(StreamFigures._fields)))
    lines = render(stream_samples(figures)).splitlines()
    shown = dict(line.split() for line in lines if not line.startswith("#"))
    assert shown["tidelog_stream_memory_bytes"] == "1"
    assert shown["tidelog_stream_disk_bytes"] == "2"
    assert {name.removeprefix("tidelog_").removesuffix("_total"): int(value) for name, value in shown.items()} == (
        figures._asdict()
    )
    kinds = {line.split()[2]: line.split()[3] for line in lines if line.startswith("# TYPE")}
    assert {name for name, kind in kinds.items() if kind == "counter"} == {
        name for name in shown if name.endswith("_total")
    }
