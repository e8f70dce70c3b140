"""Proving the nodes that snapshots refer to: for `verify`, for `repair`, and cut into tasks for `spark.jobs.verify`.

    references   from the records of a snapshot: which nodes of which files it needs, and whose entries they have
    walk         a file, node by node, up to the length that snapshots list
    match        every reference names a node that is there. If the chain of nodes is broken, it is looked up by itself

Nodes that nobody refers to are proved too, as they are copied with their file and would be found damaged there. A node
that a repair has noted as lost is no damage: it is counted.

A file that lies only in an object store is not read, which would fetch all of history: it is there, and long enough.

Memory: what refers to nodes, as in a server that has the directory open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from tidelog.errors import Corruption, NodeLost
from tidelog.journal.layout import NodeFileLength, shard_folder
from tidelog.journal.merge import JournalTransaction, unreadable
from tidelog.journal.node_format import (
    FoundNode,
    check_file_header,
    examine_nodes,
    node_file_id,
    node_file_name,
    open_node_file,
    read_node,
)
from tidelog.journal.operation import NODES, OperationTable
from tidelog.journal.reader import Part, Record
from tidelog.journal.snapshot import Snapshot
from tidelog.journal.snapshot_nodes import listed_path
from tidelog.ports import Disk, File, is_remote


class KeptNode(NamedTuple):
    """A reference of a snapshot to a node."""

    file_id: int
    position: int
    size: int
    crc: int
    database: int
    key: bytes
    first: int
    last: int
    """Offsets of its first and its last entry."""

    @property
    def entries(self) -> str:
        stream = self.key.decode(errors="backslashreplace")
        return f"entries {self.first} to {self.last} of stream {stream} (database {self.database})"


class FileProof(NamedTuple):
    """What was found in a node file."""

    problems: list[Corruption]
    sound: list[FoundNode]
    """In the order of their positions."""
    lost: int
    """Nodes that a repair has noted as lost before."""
    hurt: list[KeptNode]
    """References to nodes that are damaged, or gone without such a note."""
    is_remote: bool = False
    """It lies only in an object store, and its nodes were not looked at."""


class NodesNeeded:
    """What some snapshots need of node files."""

    def __init__(self, disk: Disk, table: OperationTable) -> None:
        self._disk = disk
        self._table = table
        self.listed: dict[int, NodeFileLength] = {}
        """By their ids, as far as any of them needs them."""
        self.paths: dict[int, str] = {}
        self.references: dict[int, set[KeptNode]] = {}
        """By the id of the file."""

    def add(self, snapshot: Snapshot) -> None:
        """A snapshot whose records are about to be handed to `note`, or to `add_references`."""
        for each in snapshot.point.node_files:
            known = self.listed.get(each.id)
            if known is None or known.length < each.length:
                self.listed[each.id] = each
                self.paths[each.id] = listed_path(self._disk, snapshot, each)

    def read(self, snapshot: Snapshot, is_known: Callable[[int], bool] | None = None) -> None:
        """Prove a snapshot, and take what it refers to."""
        self.add(snapshot)
        if snapshot.point.node_files:
            snapshot.read(self._disk, self.note, lambda _: None, is_known=is_known)
        else:
            snapshot.check(self._disk, is_known=is_known)

    def note(self, transaction: JournalTransaction, payload_of: Callable[[Part, Record], bytes]) -> None:
        """A transaction of a snapshot."""
        for part in transaction.parts:
            for record in part.records:
                if record.opcode == NODES:
                    try:
                        operation = self._table.decode(NODES, payload_of(part, record), None)
                    except Corruption as error:
                        raise unreadable(part, record, error) from error
                    for each in operation.references:
                        place = each.file_id, each.position, each.size, each.crc
                        node = KeptNode(*place, record.database, operation.key, each.first, each.last)
                        self.references.setdefault(each.file_id, set()).add(node)

    def add_references(self, references: Iterable[KeptNode]) -> None:
        for each in references:
            self.references.setdefault(each.file_id, set()).add(each)

    def references_to(self, file_id: int) -> list[KeptNode]:
        return sorted(self.references.get(file_id, ()))

    def prove(self, file_id: int, on_read: Callable[[int], None] | None = None) -> FileProof:
        path, length = self.paths[file_id], self.listed[file_id].length
        if is_remote(self._disk, path):
            return prove_remote_file(self._disk, path, length)
        return prove_file(self._disk, path, length, self.references_to(file_id), on_read)

    def unlisted(self) -> list[KeptNode]:
        """References to files that are not listed."""
        return [each for file_id in self.references if file_id not in self.listed for each in self.references[file_id]]


def prove_remote_file(disk: Disk, path: str, length: int) -> FileProof:
    """Prove that a file which lies in an object store is described, and long enough."""
    problems: list[Corruption] = []
    try:
        size = disk.open(path, "read").size()
        if size < length:
            text = f"this file lies in an object store up to {size}, but a snapshot needs {length} bytes of it"
            problems.append(Corruption(text, path=path, position=size))
    except Corruption as error:
        problems.append(error)
    return FileProof(problems, [], 0, [], is_remote=True)


def prove_file(
    disk: Disk, path: str, length: int, references: Iterable[KeptNode], on_read: Callable[[int], None] | None = None
) -> FileProof:
    """Prove a file up to a length. What cannot be read at all raises `OSError`."""
    try:
        file = open_node_file(disk, path)
    except Corruption as error:
        return FileProof([error], [], 0, list(references))
    try:
        return _prove(file, length, references, on_read)
    finally:
        file.close()


def _prove(file: File, length: int, references: Iterable[KeptNode], on_read: Callable[[int], None] | None) -> FileProof:
    problems: dict[int, Corruption] = {}
    """By position."""
    if file.size() < length:
        text = f"this file of nodes ends, but a snapshot needs {length} bytes of it"
        problems[file.size()] = Corruption(text, path=file.path, position=file.size())
    try:
        check_file_header(file)
    except Corruption as error:
        problems[0] = error
    sound: dict[int, FoundNode] = {}
    lost: set[int] = set()
    for found in examine_nodes(file, length):
        if found.problem is None:
            sound[found.position] = found
        elif isinstance(found.problem, NodeLost):
            lost.add(found.position)
        else:
            problems.setdefault(found.position, found.problem)
        if on_read is not None:
            on_read(found.size)
    hurt: list[KeptNode] = []
    for each in references:
        known = sound.get(each.position)
        if each.position in lost or (known is not None and (known.size, known.crc) == (each.size, each.crc)):
            continue
        try:
            read_node(file, each.position, each.size, each.crc)
            sound[each.position] = FoundNode(each.position, each.size, each.crc, None)
        except NodeLost:
            lost.add(each.position)
        except Corruption as error:
            hurt.append(each)
            text = f"{error.problem}; {each.entries} cannot be read"
            problems[each.position] = Corruption(text, path=file.path, position=each.position)
    return FileProof(
        [problems[at] for at in sorted(problems)], [sound[at] for at in sorted(sound)], len(lost), sorted(hurt)
    )


def unneeded_files(disk: Disk, folder: str, shard_count: int, listed: Mapping[int, NodeFileLength]) -> list[str]:
    """The node files of a data directory that no snapshot lists."""
    return [
        f"shard-{shard}/{name}"
        for shard in range(shard_count)
        if disk.exists(shard_folder(folder, shard))
        for name in disk.list(shard_folder(folder, shard))
        if (file_id := node_file_id(name)) is not None and file_id not in listed
    ]


def missing_list(node: KeptNode, path: str) -> Corruption:
    """A snapshot refers to a node of a file that it does not list."""
    name = node_file_name(node.file_id)
    return Corruption(f"a snapshot refers to {name} for {node.entries}, and does not list it", path=path)
