"""The bytes of node files, and how they are proved. What they are for: `node_files`.

    file   | "TLNODES1" 8 | id 8 |
    node   | size 4 | crc32c 4 | data | zeros up to a multiple of 8 |      one after the other

Integers are little-endian; the crc covers the data. A node that was lost (`repair`) has zeros for data, and the
complement of their crc: whoever reads it is told so, and the nodes around it keep their places.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from crc32c import crc32c

from tidelog.errors import Corruption, DataDirectoryError, HistoryAway, NodeLost
from tidelog.ids import U32_MAX, ShardId
from tidelog.journal.layout import NodeFileLength
from tidelog.ports import Disk, File, may_read_again

_MAGIC: Final = b"TLNODES1"
_FILE_HEADER: Final = struct.Struct("<8sQ")
_NODE_HEADER: Final = struct.Struct("<II")
FILE_HEADER_BYTES: Final = _FILE_HEADER.size
NODE_HEADER_BYTES: Final = _NODE_HEADER.size
_ALIGNMENT: Final = 8
_NAME: Final = re.compile(r"nodes-([0-9a-f]{16})\.bin")
_INNER_PATH: Final = re.compile(r"shard-(0|[1-9][0-9]*)/nodes-[0-9a-f]{16}\.bin")


def node_file_name(file_id: int) -> str:
    return f"nodes-{file_id:016x}.bin"


def node_file_id(name: str) -> int | None:
    """The id in the name of a file; None: it is not that of a node file."""
    found = _NAME.fullmatch(name)
    return int(found[1], 16) if found else None


def inner_path(listed: NodeFileLength) -> str:
    """Where a file lies inside of a data directory, or a backup."""
    return f"shard-{listed.shard}/{node_file_name(listed.id)}"


def shard_of_inner_path(path: str) -> ShardId | None:
    """The shard of a path that `inner_path` made; None: it is that of another file."""
    found = _INNER_PATH.fullmatch(path)
    return ShardId(int(found[1])) if found else None


class LostNode(NamedTuple):
    """Stands for a node that is lost."""

    size: int


class FoundNode(NamedTuple):
    """A node of a file, as it lies there."""

    position: int
    size: int
    crc: int
    """As its header says."""
    problem: Corruption | None
    """What is wrong with it."""


def encode_file_header(file_id: int) -> bytes:
    return _FILE_HEADER.pack(_MAGIC, file_id)


def encode_node(node: bytes | LostNode) -> tuple[int, int, list[bytes]]:
    """Its size, its crc, and its bytes in parts."""
    data = bytes(node.size) if isinstance(node, LostNode) else node
    crc = crc32c(data) ^ (U32_MAX if isinstance(node, LostNode) else 0)
    padding = bytes(node_room(len(data)) - NODE_HEADER_BYTES - len(data))
    return len(data), crc, [_NODE_HEADER.pack(len(data), crc), data, padding]


def node_room(size: int) -> int:
    """What a node takes in a file."""
    return -(-(NODE_HEADER_BYTES + size) // _ALIGNMENT) * _ALIGNMENT


def open_node_file(disk: Disk, path: str) -> File:
    try:
        return disk.open(path, "read")
    except FileNotFoundError:
        raise Corruption("this file of nodes is missing", path=path) from None
    except OSError as error:
        raise DataDirectoryError(f"{path} cannot be read: {error}") from error


def read_node(file: File, position: int, size: int, crc: int) -> bytes:
    """The data of a node, proved against what refers to it. `NodeLost`, or another `Corruption`."""
    try:
        return _read_node(file, position, size, crc)
    except NodeLost:
        raise
    except Corruption:
        if not may_read_again(file, position, NODE_HEADER_BYTES + size):
            raise
    return _read_node(file, position, size, crc)


def _read_node(file: File, position: int, size: int, crc: int) -> bytes:
    try:
        data = file.read(position, NODE_HEADER_BYTES + size)
    except HistoryAway:
        raise
    except OSError as error:
        raise DataDirectoryError(f"{file.path}, position {position}: {error}") from error
    if len(data) < NODE_HEADER_BYTES + size:
        raise Corruption(f"a node of {size} bytes is cut short", path=file.path, position=position)
    header, data = _NODE_HEADER.unpack_from(data), data[NODE_HEADER_BYTES:]
    found = crc32c(data)
    if header == (size, crc) == (size, found):
        return data
    if header == (size, found ^ U32_MAX) and not any(data):
        raise NodeLost(f"a node of {size} bytes is lost", path=file.path, position=position)
    if header != (size, crc):
        raise Corruption("there is another node here than the one referred to", path=file.path, position=position)
    raise Corruption(f"the checksum of a node of {size} bytes is wrong", path=file.path, position=position)


def check_file_header(file: File) -> None:
    """`Corruption`: it is not the beginning of this file."""
    header = file.read(0, FILE_HEADER_BYTES)
    if len(header) < FILE_HEADER_BYTES or header[: len(_MAGIC)] != _MAGIC:
        raise Corruption("it does not begin as a node file does", path=file.path, position=0)
    if _FILE_HEADER.unpack(header)[1] != node_file_id(file.path.rpartition("/")[2]):
        raise Corruption("it is another file than its name says", path=file.path, position=0)


def examine_nodes(file: File, length: int, at: int = FILE_HEADER_BYTES) -> Iterator[FoundNode]:
    """Every node of a file up to a length, each proved; behind one whose size makes no sense nothing can be found."""
    while at < length:
        head = file.read(at, NODE_HEADER_BYTES)
        size, crc = _NODE_HEADER.unpack(head) if len(head) == NODE_HEADER_BYTES else (0, 0)
        if len(head) < NODE_HEADER_BYTES or at + node_room(size) > length:
            text = f"a node claims {size} bytes" if head else "it ends before the last node that is needed"
            yield FoundNode(at, length - at - NODE_HEADER_BYTES, crc, Corruption(text, path=file.path, position=at))
            return
        problem: Corruption | None = None
        try:
            read_node(file, at, size, crc)
        except Corruption as error:
            problem = error
        yield FoundNode(at, size, crc, problem)
        at += node_room(size)


def walk_nodes(disk: Disk, path: str, length: int, visit: Callable[[FoundNode], None]) -> None:
    """Every node of a file up to a length, proved. `Corruption`: the first damage; a node that is lost is none."""
    file = open_node_file(disk, path)
    try:
        check_file_header(file)
        for found in examine_nodes(file, length):
            if found.problem is not None and not isinstance(found.problem, NodeLost):
                raise found.problem
            visit(found)
    finally:
        file.close()
