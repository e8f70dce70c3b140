"""Node files: sealed nodes of streams, written once and kept outside of memory.

    shard-<n>/nodes-<id, 16 hex digits>.bin      made by one process, which appends to it up to `NODE_FILE_BYTES_MAX`

    file   | "TLNODES1" 8 | id 8 |
    node   | size 4 | crc32c 4 | data | zeros up to a multiple of 8 |      one after the other

Integers are little-endian; the crc covers the data. What is in a node is not this module's business.

- A place is given out when its bytes, and the name of their file, are durable. What it names never changes.
- Whoever has a place (a stream, a copy of one that is being read or captured) keeps the file: places count themselves.
- A file goes when nobody has a place in it, nobody has pinned it, and no snapshot on disk lists it. The snapshots that
  did must be durably gone before. The file that is being written stays.

Ids are drawn at random, so files of different servers and of different lives of one server never have the same name: a
full sync, a backup or a restore can put them together.

Appending is for one thread at a time; reading, and letting places go, for any. The rest is for the owner's thread.
"""

from __future__ import annotations

import re
import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from crc32c import crc32c

from tidelog import limits
from tidelog.errors import Corruption, DataDirectoryError
from tidelog.ids import ShardId
from tidelog.journal.layout import NodeFileLength, shard_folder, write_all
from tidelog.ports import Disk, File

_MAGIC: Final = b"TLNODES1"
_FILE_HEADER: Final = struct.Struct("<8sQ")
_NODE_HEADER: Final = struct.Struct("<II")
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


class NodeFile:
    """One file, and who needs it."""

    __slots__ = (
        "_given",
        "_gone",
        "disk",
        "id",
        "is_written_to",
        "live_bytes",
        "live_count",
        "path",
        "pins",
        "shard",
        "size_bytes",
    )

    def __init__(self, disk: Disk, shard: ShardId, file_id: int, path: str, size_bytes: int) -> None:
        self.disk = disk
        self.shard = shard
        self.id = file_id
        self.path = path
        self.size_bytes = size_bytes
        """Durable bytes."""
        self.live_bytes = 0
        """Of nodes that somebody has a place of, as of the last `tally` ..."""
        self.live_count = 0
        """... and how many those are."""
        self.pins = 0
        """Snapshots in the making, full syncs and backups that need it."""
        self.is_written_to = False
        self._given: deque[int] = deque()
        """Live bytes of places that were given out since ..."""
        self._gone: deque[int] = deque()
        """... and let go, on whatever thread."""

    def add(self, live_bytes: int) -> None:
        """A place was given out."""
        self._given.append(live_bytes)

    def let_go(self, live_bytes: int) -> None:
        """A place is gone. On any thread."""
        self._gone.append(live_bytes)

    def tally(self) -> None:
        """Count the places that came and went."""
        while self._gone:
            self.live_bytes -= self._gone.popleft()
            self.live_count -= 1
        while self._given:  # last: a place that goes while this runs is counted next time
            self.live_bytes += self._given.popleft()
            self.live_count += 1

    @property
    def is_sparse(self) -> bool:
        """Most of it is needed no more: what is should be written elsewhere."""
        self.tally()
        return not self.is_written_to and self.live_bytes < limits.NODE_FILE_SPARSE_PART * self.size_bytes

    @property
    def is_needed(self) -> bool:
        """By anybody but the snapshots on disk."""
        self.tally()
        return bool(self.live_count or self.pins or self.is_written_to)


class NodePlace:
    """Where a node lies. The file stays as long as there is one."""

    __slots__ = ("crc", "file", "live_bytes", "position", "size")

    def __init__(self, file: NodeFile, position: int, size: int, crc: int, live_bytes: int | None = None) -> None:
        self.file = file
        self.position = position
        """Of its header."""
        self.size = size
        """Of its data, in bytes."""
        self.crc = crc
        self.live_bytes = size if live_bytes is None else live_bytes
        """What of that is still needed."""
        file.add(self.live_bytes)

    def __del__(self) -> None:
        self.file.let_go(self.live_bytes)

    def part(self, count: int, of: int) -> NodePlace:
        """The same, of which only so much is needed any more."""
        return NodePlace(self.file, self.position, self.size, self.crc, self.live_bytes * count // of)

    @property
    def end(self) -> int:
        return self.position + _room(self.size)

    def read(self) -> bytes:
        """Its data, proved. On any thread. `Corruption`: that is not what was written."""
        return read_all([self])[0]


class NodeFiles:
    """The node files of a data directory."""

    def __init__(self, disk: Disk, folder: str, new_id: Callable[[], int]) -> None:
        self.disk = disk
        self.folder = folder
        self._new_id = new_id
        self._by_id: dict[int, NodeFile] = {}
        self._open: dict[ShardId, tuple[NodeFile, File]] = {}
        """Per shard, the file that is appended to."""
        self.bytes_written = 0

    def __iter__(self) -> Iterator[NodeFile]:
        return iter(list(self._by_id.values()))

    def find(self, shard_count: int) -> None:
        """Learn which files there are."""
        for shard in range(shard_count):
            folder = shard_folder(self.folder, shard)
            if not self.disk.exists(folder):
                continue
            for name in self.disk.list(folder):
                file_id = node_file_id(name)
                if file_id is not None and file_id not in self._by_id:
                    path = f"{folder}/{name}"
                    self._by_id[file_id] = NodeFile(self.disk, ShardId(shard), file_id, path, _size(self.disk, path))

    # --- places -------------------------------------------------------------------------------------------------

    def place(self, file_id: int, position: int, size: int, crc: int) -> NodePlace:
        """A place that somebody has noted. `Corruption`: its file is not there, or is shorter."""
        file = self._by_id.get(file_id)
        if file is None:
            raise Corruption("a node of a stream lies in this file, which is missing", path=node_file_name(file_id))
        if position + _NODE_HEADER.size + size > file.size_bytes:
            raise Corruption(
                f"a node of {size} bytes lies here, but the file ends at {file.size_bytes}",
                path=file.path,
                position=position,
            )
        return NodePlace(file, position, size, crc)

    # --- appending ----------------------------------------------------------------------------------------------

    def append(self, shard: ShardId, nodes: Sequence[bytes]) -> list[NodePlace]:
        """Write nodes, in as few writes as possible, and make them durable. On one thread at a time.

        `OSError`: none of them has a place. What was written of them is given up, with its file.
        """
        chunks: list[bytes] = []
        sizes: list[tuple[int, int]] = []
        for data in nodes:
            crc = crc32c(data)
            chunks += (_NODE_HEADER.pack(len(data), crc), data, bytes(_room(len(data)) - _NODE_HEADER.size - len(data)))
            sizes.append((len(data), crc))
        file, handle = self._appendable(shard)
        try:
            write_all(handle, file.size_bytes, chunks)
            handle.sync()
        except OSError:
            self._give_up(shard)
            raise
        places = []
        for size, crc in sizes:
            places.append(NodePlace(file, file.size_bytes, size, crc))
            file.size_bytes += _room(size)
            self.bytes_written += _room(size)
        if file.size_bytes >= limits.NODE_FILE_BYTES_MAX:
            self._end(shard)
        return places

    def _appendable(self, shard: ShardId) -> tuple[NodeFile, File]:
        if shard not in self._open:
            folder = shard_folder(self.folder, shard)
            file_id = self._new_id()
            while file_id in self._by_id:
                file_id = self._new_id()
            path = f"{folder}/{node_file_name(file_id)}"
            handle = self.disk.open(path, "create")
            try:
                write_all(handle, 0, [_FILE_HEADER.pack(_MAGIC, file_id)])
                self.disk.sync_folder(folder)
            except OSError:
                handle.close()
                self.disk.remove(path)
                raise
            file = NodeFile(self.disk, shard, file_id, path, _FILE_HEADER.size)
            file.is_written_to = True
            self._by_id[file_id] = file
            self._open[shard] = file, handle
        return self._open[shard]

    def _give_up(self, shard: ShardId) -> None:
        """A write or an fsync has failed: what the file says past its durable end is unknown, so nothing is added."""
        file, handle = self._open[shard]
        try:
            handle.truncate(file.size_bytes)
        finally:
            self._end(shard)

    def _end(self, shard: ShardId) -> None:
        file, handle = self._open.pop(shard)
        file.is_written_to = False
        handle.close()

    def close(self) -> None:
        """Append no more. Places stay readable."""
        for shard in list(self._open):
            self._end(shard)

    # --- removing -----------------------------------------------------------------------------------------------

    def pin(self, needed: Iterable[NodeFileLength]) -> list[NodeFile]:
        """Keep the files that a snapshot lists; `unpin` them when they may go. `Corruption`: one is not there."""
        pinned = []
        for each in needed:
            file = self._by_id.get(each.id)
            if file is None:
                raise Corruption("a snapshot lists this file, which is missing", path=node_file_name(each.id))
            pinned.append(file)
        for file in pinned:
            file.pins += 1
        return pinned

    def unneeded(self) -> list[NodeFile]:
        """Those that only snapshots on disk may still need: no place in them will be given out again."""
        return [file for file in self._by_id.values() if not file.is_needed]

    def remove(self, files: Sequence[NodeFile], listed: Iterable[NodeFileLength]) -> list[NodeFile]:
        """Remove those of them that no snapshot lists; returns them. The snapshots that are gone are durably so.

        On any thread; then the owner is to `forget` them.
        """
        kept = {each.id for each in listed}
        going = [file for file in files if file.id not in kept]
        for file in going:
            if self.disk.exists(file.path):
                self.disk.remove(file.path)
        for folder in sorted({file.path.rpartition("/")[0] for file in going}):
            self.disk.sync_folder(folder)
        return going

    def forget(self, files: Iterable[NodeFile]) -> None:
        for file in files:
            self._by_id.pop(file.id, None)


def read_all(places: Sequence[NodePlace]) -> list[bytes]:
    """The data of several nodes, proved: a file is opened once for a run of them. On any thread."""
    found: list[bytes] = []
    last: NodeFile | None = None
    handle: File | None = None
    try:
        for place in places:
            if handle is None or place.file is not last:
                if handle is not None:
                    handle.close()
                last, handle = place.file, _open(place.file.disk, place.file.path)
            found.append(read_node(handle, place.position, place.size, place.crc))
    finally:
        if handle is not None:
            handle.close()
    return found


def read_node(file: File, position: int, size: int, crc: int) -> bytes:
    """The data of a node, proved against what refers to it."""
    try:
        data = file.read(position, _NODE_HEADER.size + size)
    except OSError as error:
        raise DataDirectoryError(f"{file.path}, position {position}: {error}") from error
    if len(data) < _NODE_HEADER.size + size:
        raise Corruption(f"a node of {size} bytes is cut short", path=file.path, position=position)
    if _NODE_HEADER.unpack_from(data) != (size, crc):
        raise Corruption("there is another node here than the one referred to", path=file.path, position=position)
    data = data[_NODE_HEADER.size :]
    if crc32c(data) != crc:
        raise Corruption(f"the checksum of a node of {size} bytes is wrong", path=file.path, position=position)
    return data


def walk_nodes(disk: Disk, path: str, length: int) -> Iterator[tuple[int, int, int]]:
    """Position, size and crc of every node of a file up to a length, each proved. `Corruption` where that ends."""
    file = _open(disk, path)
    try:
        header = file.read(0, _FILE_HEADER.size)
        if len(header) < _FILE_HEADER.size or header[: len(_MAGIC)] != _MAGIC:
            raise Corruption("it does not begin as a node file does", path=path, position=0)
        if _FILE_HEADER.unpack(header)[1] != node_file_id(path.rpartition("/")[2]):
            raise Corruption("it is another file than its name says", path=path, position=0)
        at = _FILE_HEADER.size
        while at < length:
            head = file.read(at, _NODE_HEADER.size)
            if len(head) < _NODE_HEADER.size:
                raise Corruption("it ends before the last node that is needed", path=path, position=at)
            size, crc = _NODE_HEADER.unpack(head)
            if size > length - at:
                raise Corruption(f"a node claims {size} bytes", path=path, position=at)
            read_node(file, at, size, crc)
            yield at, size, crc
            at += _room(size)
    finally:
        file.close()


def _room(size: int) -> int:
    """What a node takes in a file."""
    return -(-(_NODE_HEADER.size + size) // _ALIGNMENT) * _ALIGNMENT


def _open(disk: Disk, path: str) -> File:
    try:
        return disk.open(path, "read")
    except FileNotFoundError:
        raise Corruption("this file of nodes is missing", path=path) from None
    except OSError as error:
        raise DataDirectoryError(f"{path} cannot be read: {error}") from error


def _size(disk: Disk, path: str) -> int:
    file = disk.open(path, "read")
    try:
        return file.size()
    finally:
        file.close()
