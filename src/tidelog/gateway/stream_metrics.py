"""/metrics of streams: what they take in memory and on disk, and what became of their nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidelog.gateway.sample import Sample
from tidelog.server.stream_figures import StreamFigures

_FIGURES: Final = {
    "stream_memory_bytes": ("gauge", "Memory of streams."),
    "stream_disk_bytes": ("gauge", "What streams need of node files."),
    "stream_remote_bytes": ("gauge", "The same of files that lie only in the object store."),
    "hot_stream_bytes": ("gauge", "Full nodes of streams in memory."),
    "hot_stream_bytes_max": ("gauge", "The parameter hot-stream-bytes."),
    "opened_node_bytes": ("gauge", "Nodes read from disk and kept for a while."),
    "stream_hot_nodes": ("gauge", "How many those are."),
    "stream_cold_nodes": ("gauge", "Full nodes of streams on disk, or in the object store."),
    "node_files": ("gauge", "Files with nodes of streams."),
    "node_file_bytes": ("gauge", "Node files on disk."),
    "node_file_garbage_ratio": ("gauge", "The part of them that nobody needs."),
    "cooled_nodes": ("counter", "Nodes written to disk."),
    "cooled_bytes": ("counter", "What memory they took."),
    "rewritten_nodes": ("counter", "Nodes on disk written once more, so that a file could go."),
    "rewritten_bytes": ("counter", "Their size on disk."),
    "fetched_nodes": ("counter", "Nodes read from disk for commands."),
    "fetched_bytes": ("counter", "Their size on disk."),
    "unreadable_nodes": ("counter", "How often a command needed a node that could not be read."),
}
"""Of each field: its kind, and its help."""


def stream_samples(figures: StreamFigures) -> Iterator[Sample]:
    for name, value in figures._asdict().items():
        kind, text = _FIGURES[name]
        yield Sample(f"tidelog_{name}{'_total' if kind == 'counter' else ''}", kind, text, value)
