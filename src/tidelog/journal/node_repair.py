"""Repair of node files: what is damaged is noted as lost in its place, and what is whole stays where it was.

    DIR/set-aside-<n>/shard-<n>/nodes-<id>.bin     the file as it was found
    DIR/shard-<n>/nodes-<id>.bin                   the same nodes at the same positions; lost ones are marked as such

So references of snapshots stay right, the file has the length that they list, and a server starts. Reads of entries in
a lost node fail with an error that says so; all others work. A file that is missing is made anew, with nothing but lost
nodes in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from tidelog import limits
from tidelog.errors import Corruption
from tidelog.journal.layout import NodeFileLength, shard_folder, write_all
from tidelog.journal.node_audit import FileProof, KeptNode, NodesNeeded
from tidelog.journal.node_format import (
    FILE_HEADER_BYTES,
    NODE_HEADER_BYTES,
    FoundNode,
    LostNode,
    encode_file_header,
    encode_node,
    inner_path,
    node_room,
)
from tidelog.journal.operation import OperationTable
from tidelog.journal.snapshot import Snapshot
from tidelog.journal.snapshot_nodes import keep_file
from tidelog.ports import Disk, File

_GAP_BYTES_MAX: Final = 1 * limits.MIB
"""Bytes that nobody refers to and that make no sense are covered by lost nodes of this size at most."""


class DamagedFile(NamedTuple):
    """A node file that is not what it should be."""

    listed: NodeFileLength
    path: str
    proof: FileProof
    references: list[KeptNode]


class NodeRepair:
    """The node files of a data directory, looked at with all whole snapshots that list them."""

    def __init__(self, disk: Disk, folder: str, table: OperationTable, snapshots: Sequence[Snapshot]) -> None:
        self._disk = disk
        self._folder = folder
        self._table = table
        needed = NodesNeeded(disk, table)
        for snapshot in snapshots:
            needed.read(snapshot)
        self.damaged: list[DamagedFile] = []
        for file_id in sorted(needed.listed):
            proof = needed.prove(file_id)
            if proof.problems:
                where = needed.listed[file_id], needed.paths[file_id]
                self.damaged.append(DamagedFile(*where, proof, needed.references_to(file_id)))
        self._hurt = {(node.file_id, node.position) for file in self.damaged for node in file.proof.hurt}

    def hurt_of(self, snapshot: Snapshot) -> list[KeptNode]:
        """What a snapshot refers to and cannot be read."""
        if not self._hurt:
            return []
        needed = NodesNeeded(self._disk, self._table)
        needed.read(snapshot)
        found = [node for nodes in needed.references.values() for node in nodes]
        return sorted(node for node in found if (node.file_id, node.position) in self._hurt)

    def mend(self, file: DamagedFile, aside: str, *, is_listed: bool) -> None:
        """Keep a damaged file in another folder, and put one that can be used in its place, if anybody needs it."""
        disk, folder = self._disk, shard_folder(self._folder, file.listed.shard)
        keep_file(disk, file.path, f"{aside}/{inner_path(file.listed)}")
        if is_listed:
            new = f"{file.path}.new"
            if disk.exists(new):
                disk.remove(new)
            _write_anew(disk, file, new)
            disk.rename(new, file.path)
        elif disk.exists(file.path):
            disk.remove(file.path)
        disk.sync_folder(folder)


def _write_anew(disk: Disk, file: DamagedFile, path: str) -> None:
    """The nodes that are sound, where they were, and lost ones in all other places. Durable when it returns."""
    source = disk.open(file.path, "read") if disk.exists(file.path) else None
    target = disk.open(path, "create")
    try:
        write_all(target, 0, [encode_file_header(file.listed.id)])
        at = FILE_HEADER_BYTES
        for node, is_sound in _in_order(file.proof.sound, file.references):
            end = node.position + node_room(node.size)
            if node.position < at or end > file.listed.length:
                continue  # references that overlap make no sense
            _write_gap(target, at, node.position)
            if is_sound and source is not None:
                write_all(target, node.position, [source.read(node.position, end - node.position)])
            else:
                write_all(target, node.position, encode_node(LostNode(node.size))[2])
            at = end
        _write_gap(target, at, file.listed.length)
        target.sync()
    finally:
        target.close()
        if source is not None:
            source.close()


def _in_order(sound: Iterable[FoundNode], references: Iterable[KeptNode]) -> list[tuple[FoundNode, bool]]:
    """Nodes that are sound, and others that somebody refers to, by position."""
    nodes = {node.position: (node, True) for node in sound}
    for each in references:
        nodes.setdefault(each.position, (FoundNode(each.position, each.size, each.crc, None), False))
    return [nodes[position] for position in sorted(nodes)]


def _write_gap(target: File, start: int, end: int) -> None:
    while start < end:
        room = min(end - start, _GAP_BYTES_MAX)
        write_all(target, start, encode_node(LostNode(room - NODE_HEADER_BYTES))[2])
        start += room


def describe(file: DamagedFile) -> str:
    first: Corruption = file.proof.problems[0]
    more = len(file.proof.problems) - 1
    return first.problem.partition(";")[0] + (f", and {more} more" if more else "")
