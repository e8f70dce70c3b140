"""Reads cold nodes from their files, many at once. On any thread.

Nodes are read in the order in which they lie on disk, and a file is opened once for those that lie together. A node
that cannot be read is told apart from the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidelog import limits
from tidelog.errors import CommandError, EnvironmentFault
from tidelog.journal.node_files import NodePlace, read_all
from tidelog.streams.cold import OPENED
from tidelog.streams.columns import Columns
from tidelog.streams.sealed_node import SealedNode

Read = tuple[SealedNode, Columns | EnvironmentFault]
"""A node, and its columns or why it cannot be read."""


def open_nodes(nodes: Sequence[SealedNode]) -> list[Read]:
    """Read nodes, in any order."""
    found: list[Read] = []
    for run in _runs(nodes):
        data: list[bytes | None] = [None] * len(run)
        if len(run) > 1:
            try:
                data = list(read_all([place for _, place, _ in run]))
            except EnvironmentFault:
                data = [None] * len(run)  # one by one, to learn which
        for (node, place, is_whole), read in zip(run, data, strict=True):
            found.append((node, _opened(node, place, is_whole, read)))
    placed = {node for node, _ in found}
    found += [(node, Columns(node.read())) for node in nodes if node not in placed]  # not cold
    return found


def put_opened(read: Sequence[Read]) -> None:
    """Let what was read be open. `CommandError`: a node cannot be read. On the loop's thread."""
    opened: list[tuple[SealedNode, Columns]] = []
    for node, found in read:
        if not isinstance(found, Columns):
            raise CommandError(OPENED.explain(node, found))
        opened.append((node, found))
    OPENED.put_all(opened)


def _opened(node: SealedNode, place: NodePlace, is_whole: bool, data: bytes | None) -> Columns | EnvironmentFault:
    try:
        return Columns(node.decoded(place.read() if data is None else data, place, is_whole=is_whole))
    except EnvironmentFault as error:
        return error


_Placed = tuple[SealedNode, NodePlace, bool]


def _runs(nodes: Sequence[SealedNode]) -> Iterator[list[_Placed]]:
    """Cold nodes by their places, in runs of one file up to some bytes."""
    placed: list[_Placed] = []
    for node in nodes:
        batch, place, is_whole = node.form()
        if batch is None and place is not None:
            placed.append((node, place, is_whole))
    placed.sort(key=lambda each: (each[1].file.path, each[1].position))
    run: list[_Placed] = []
    size = 0
    for each in placed:
        place = each[1]
        if run and (place.file is not run[-1][1].file or size >= limits.FETCHED_PIECE_BYTES):
            yield run
            run, size = [], 0
        run.append(each)
        size += place.size
    if run:
        yield run
