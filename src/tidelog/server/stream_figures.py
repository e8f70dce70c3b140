"""What the streams of a server take, in memory and on disk, and what became of their nodes.

Every figure is kept as things happen, or by the pass over all streams that cooling makes about once a minute
(`store/cooling`): nothing here looks at a key. INFO and /metrics have these names, and so has `TINFO` for one stream:
`memory` is what is in memory, roughly, and `disk` what is needed of node files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.streams.cold import OPENED

if TYPE_CHECKING:
    from tidelog.engine.engine import Engine
    from tidelog.server.memory import Memory


class StreamFigures(NamedTuple):
    """Counts are since the start."""

    stream_memory_bytes: int = 0
    """All streams, without the cache of nodes that were read from disk; what changes with less than a node, and what
    was deleted, as of the last pass."""
    stream_disk_bytes: int = 0
    """What of the node files is needed by streams, by snapshots and copies that are being made of them, and by commands
    that read."""
    stream_remote_bytes: int = 0
    """The same of files that lie only in the object store."""
    hot_stream_bytes: int = 0
    """Full nodes in memory, which are a part of `stream_memory_bytes` ..."""
    hot_stream_bytes_max: int = 0
    """... and what they may take (`hot-stream-bytes`)."""
    opened_node_bytes: int = 0
    """Nodes that were read from disk and are kept for a while."""
    stream_hot_nodes: int = 0
    """Full nodes in memory ..."""
    stream_cold_nodes: int = 0
    """... and on disk, or in the object store."""
    node_files: int = 0
    node_file_bytes: int = 0
    """As they lie on disk. For others, see INFO history."""
    node_file_garbage_ratio: float = 0.0
    """The part of that which nobody needs. From half on, a full file is written anew."""
    cooled_nodes: int = 0
    """Nodes that were written to disk ..."""
    cooled_bytes: int = 0
    """... and what memory they took."""
    rewritten_nodes: int = 0
    """Nodes on disk that were written once more, so that their file could go ..."""
    rewritten_bytes: int = 0
    """... and what they take on disk."""
    fetched_nodes: int = 0
    """Nodes that threads have read for commands ..."""
    fetched_bytes: int = 0
    """... and what they take on disk."""
    unreadable_nodes: int = 0
    """How often a command needed a node that could not be read."""


def stream_figures(engine: Engine, memory: Memory) -> StreamFigures:
    """For the loop's thread."""
    cooling, fetching = engine.store.cooling, engine.fetching
    if cooling is None:
        return StreamFigures()
    files, hot = [file for file in cooling.files if not file.is_remote], cooling.totals
    remote = [file for file in cooling.files if file.is_remote]
    for file in remote:
        file.tally()
    garbage_bytes = sum(file.garbage_bytes for file in files)  # tallies each file
    file_bytes = sum(file.size_bytes for file in files)
    return StreamFigures(
        stream_memory_bytes=hot.node_bytes + hot.other_bytes,
        stream_disk_bytes=sum(file.live_bytes for file in files),
        stream_remote_bytes=sum(file.live_bytes for file in remote),
        hot_stream_bytes=hot.node_bytes,
        hot_stream_bytes_max=memory.hot_stream_bytes,
        opened_node_bytes=OPENED.bytes_held,
        stream_hot_nodes=hot.node_count,
        stream_cold_nodes=sum(file.live_count for file in (*files, *remote)),
        node_files=len(files),
        node_file_bytes=file_bytes,
        node_file_garbage_ratio=round(garbage_bytes / max(file_bytes, 1), 3),
        cooled_nodes=cooling.cooled_count,
        cooled_bytes=cooling.cooled_bytes,
        rewritten_nodes=cooling.rewritten_count,
        rewritten_bytes=cooling.rewritten_bytes,
        fetched_nodes=0 if fetching is None else fetching.fetched_count,
        fetched_bytes=0 if fetching is None else fetching.fetched_bytes,
        unreadable_nodes=OPENED.unreadable_count,
    )
