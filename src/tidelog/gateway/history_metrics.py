"""What /metrics shows of where node files lie: the numbers of INFO history."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Final

from tidelog.gateway.sample import Sample
from tidelog.server.history import HistoryFacts

_FIGURES: Final = {
    "local_files": ("gauge", "Node files on disk."),
    "local_bytes": ("gauge", "Bytes of node files on disk."),
    "remote_files": ("gauge", "Node files that lie only in the object store."),
    "remote_bytes": ("gauge", "Their bytes."),
    "cache_bytes": ("gauge", "Disk that is used for what was read from the object store."),
    "cache_hits": ("counter", "Blocks that were read from the cache."),
    "fetches": ("counter", "Blocks that were fetched from the object store to be read."),
    "fetched_bytes": ("counter", "Their bytes."),
    "read_failures": ("counter", "Reads that the object store did not answer."),
    "dropped_files": ("counter", "Node files that went from disk."),
    "dropped_bytes": ("counter", "Their bytes."),
    "returned_files": ("counter", "Node files that came back from the object store."),
    "returned_bytes": ("counter", "Bytes that came back from there."),
    "bytes_to_return": ("gauge", "Bytes of node files that are to come back."),
}
"""Of each field: its kind, and its help."""


def history_samples(facts: HistoryFacts | None) -> Iterator[Sample]:
    if facts is None:
        return
    for name, value in asdict(facts).items():
        if name in _FIGURES:
            kind, text = _FIGURES[name]
            yield Sample(f"tidelog_history_{name}{'_total' if kind == 'counter' else ''}", kind, text, value)
    is_failing = bool(facts.error)
    yield Sample("tidelog_history_failing", "gauge", "1: no node file goes or comes back, INFO says why.", is_failing)
