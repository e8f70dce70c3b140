"""The text format of Prometheus."""

from __future__ import annotations

from tidelog.gateway.sample import Sample, label, render


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


def test_labels_are_quoted() -> None:
    assert label('a"b\\c\nd') == 'a\\"b\\\\c\\nd'
