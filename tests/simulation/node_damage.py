"""A small node file whose bits are flipped, one at a time.

Whoever reads entries of a node that is damaged gets an error with the name of the file, and never other entries.
Everything else is served as before: the nodes beside it, the other streams, and all that nobody has to read.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, Final, NamedTuple

from tests.simulation.recovery import require
from tests.store.changes import open_store, run
from tests.streams.cold_nodes import cool
from tidelog.errors import CommandError, Corruption
from tidelog.journal.node_format import walk_nodes
from tidelog.store.store import Store
from tidelog.streams.cold import OPENED
from tidelog.streams.sealed_node import SealedNode
from tidelog.streams.stream import Stream
from tidelog.testing.disk import SimulatedDisk

_DELETED: Final = 5
"""The id of an entry that is deleted from the second node, so that this is a part of what lies there."""


class NodeSpecimen(NamedTuple):
    """A store with a stream of three cold nodes, in one file, and of some entries in memory; and another key."""

    disk: SimulatedDisk
    store: Store
    nodes: list[SealedNode]
    path: str
    entries: list[list[Any]]
    """Of each node."""

    @property
    def bits(self) -> range:
        return range(8 * len(self.disk.read_file(self.path)))


@cache
def node_specimen() -> NodeSpecimen:
    disk = SimulatedDisk()
    store = open_store(disk, 1)
    stream: Stream | None = None
    for first in (1, 4, 7):
        for number in range(first, first + 3):
            run(store, [b"XADD", b"s", b"0-%d" % number, b"tag", b"t%d" % number, b"entry", b"entry %d" % number])
        stream = store.database(0).peek(b"s")
        assert stream is not None
        stream.seal()
    cool(store)
    run(store, [b"XDEL", b"s", b"0-%d" % _DELETED])
    run(store, [b"XADD", b"s", b"0-10", b"tag", b"in memory", b"entry", b""])
    run(store, [b"SET", b"k", b"v"])
    store.save()
    assert stream is not None
    nodes = list(stream.sealed)
    assert nodes[0].place is not None
    assert all(node.is_cold for node in nodes)
    return NodeSpecimen(disk, store, nodes, nodes[0].place.file.path, [_entries(node) for node in nodes])


def _entries(node: SealedNode) -> list[Any]:
    rows = node.rows(0, len(node))
    return list(zip(rows.offsets, rows.ids, rows.tags, rows.entries, strict=True))


def flip_bits(specimen: NodeSpecimen, bits: Iterable[int]) -> int:
    """Flip each of them, look, and flip it back; returns how many hurt a node."""
    hurt_count = 0
    for bit in bits:
        specimen.disk.flip_bit(specimen.path, bit)
        hurt = [node for node in specimen.nodes if _covers(node, bit)]
        for node, entries in zip(specimen.nodes, specimen.entries, strict=True):
            _check_node(specimen, node, entries, bit, is_hurt=node in hurt)
        _check_walk(specimen, bit, is_hurt=bool(hurt))
        specimen.disk.flip_bit(specimen.path, bit)
        hurt_count += len(hurt)
    OPENED.clear()
    return hurt_count


def _covers(node: SealedNode, bit: int) -> bool:
    """Whether a bit is of a node's header or data."""
    place = node.place
    assert place is not None
    return place.position <= bit // 8 < place.position + 8 + place.size


def _check_node(specimen: NodeSpecimen, node: SealedNode, entries: list[Any], bit: int, *, is_hurt: bool) -> None:
    OPENED.clear()
    try:
        found = _entries(node)
    except CommandError as error:
        require(is_hurt, "bit", bit, "hurts another node:", error)
        require(specimen.path in str(error), "the error does not name the file:", error)
    else:
        require(not is_hurt, "bit", bit, "is not noticed")
        require(found == entries, "bit", bit, "changes entries to", found)


def _check_walk(specimen: NodeSpecimen, bit: int, *, is_hurt: bool) -> None:
    length = len(specimen.disk.read_file(specimen.path))
    try:
        walk_nodes(specimen.disk, specimen.path, length, lambda _: None)
    except Corruption as error:
        require(is_hurt or bit < 128, "bit", bit, "is between nodes:", error)
    else:
        require(not is_hurt and bit >= 128, "whoever walks over the file does not notice bit", bit)


def start_with_flipped(specimen: NodeSpecimen, bit: int) -> None:
    """A start reads references only, so it succeeds; then the nodes are as damaged as before."""
    disk = specimen.disk.clone(1)
    disk.flip_bit(specimen.path, bit)
    store = open_store(disk, 1)
    database = store.database(0)
    require(database.peek(b"k") == b"v", "another key is not served")
    stream = database.peek(b"s")
    assert stream is not None
    require(stream.length == 9, "the stream has", stream.length, "entries")
    again = NodeSpecimen(disk, store, list(stream.sealed[:3]), specimen.path, specimen.entries)
    for was, node, entries in zip(specimen.nodes, again.nodes, again.entries, strict=True):
        _check_node(again, node, entries, bit, is_hurt=_covers(was, bit))
    last = stream.read(10, 1)
    require(last.tags == [b"in memory"], "what is in memory is not served")
    # Whatever needs no entries works: the damaged node goes with all others.
    run(store, [b"XADD", b"s", b"0-11", b"tag", b"new", b"entry", b""])
    run(store, [b"XTRIM", b"s", b"MAXLEN", b"2"])
    require(stream.length == 2, "entries that cannot be read cannot be evicted")
