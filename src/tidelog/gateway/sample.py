"""Samples, and the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Sample(NamedTuple):
    """One number, with the metric that it belongs to."""

    name: str
    kind: str
    """counter, gauge or histogram."""
    help: str
    value: float
    labels: str = ""
    suffix: str = ""


def render(samples: Iterator[Sample]) -> str:
    """The text; the samples of one metric must follow each other."""
    lines = []
    last = ""
    for sample in samples:
        if sample.name != last:
            last = sample.name
            lines += [f"# HELP {sample.name} {sample.help}", f"# TYPE {sample.name} {sample.kind}"]
        value = int(sample.value) if sample.value == int(sample.value) else repr(sample.value)
        lines.append(f"{sample.name}{sample.suffix}{sample.labels} {value}")
    return "\n".join(lines) + "\n"


def label(text: str) -> str:
    """As it stands between the quotes of a label."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
