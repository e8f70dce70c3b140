"""Cold nodes in files of a simulated disk."""

from __future__ import annotations

from itertools import count

from tidelog.ids import ShardId
from tidelog.journal.layout import make_shard_folders
from tidelog.journal.node_files import NodeFiles
from tidelog.store.store import Store
from tidelog.streams.rows import TAGGED, Rows
from tidelog.streams.sealed_node import SealedNode
from tidelog.streams.stream import Stream
from tidelog.testing.disk import SimulatedDisk


def node_files() -> NodeFiles:
    disk = SimulatedDisk()
    make_shard_folders(disk, "data", 1)
    return NodeFiles(disk, "data", count(1).__next__)


def chilled(node: SealedNode, files: NodeFiles | None = None) -> SealedNode:
    """The same node, cold from now on."""
    data, last_id = node.compressed()
    (place,) = (files or node_files()).append(ShardId(0), [data])
    node.chill(place, last_id)
    return node


def cold_node(entries: int, size: int, files: NodeFiles | None = None) -> SealedNode:
    """Entries of a size, at offsets from 1 on."""
    numbers = range(1, entries + 1)
    rows = Rows(numbers, numbers, [0] * entries, [TAGGED] * entries, [b"t"] * entries, [bytes(size)] * entries)
    return chilled(SealedNode.of_rows(rows), files)


def cool(store: Store, *, is_pressed: bool = True) -> None:
    """Let everything be cold that may be."""
    cooling = store.cooling
    assert cooling is not None
    for _ in cooling.look(is_pressed=is_pressed):
        pass
    while (job := cooling.take()) is not None:
        job.run()
        assert job.error is None
        cooling.finish(job, stay_open=False)


def chill_all(stream: Stream, files: NodeFiles | None = None) -> Stream:
    """Let all sealed nodes of a stream be cold."""
    files = files or node_files()
    for node in stream.sealed:
        if not node.is_cold:
            chilled(node, files)
    return stream
