"""Node files: sealed nodes of streams, written once and kept outside of memory.

    shard-<n>/nodes-<id, 16 hex digits>.bin      made by one process, which appends to it up to `NODE_FILE_BYTES_MAX`

The bytes are drawn in `node_format`. What is in a node is not this module's business.

- A place is given out when its bytes, and the name of their file, are durable. What it names never changes.
- Whoever has a place (a stream, a copy of one that is being read or captured) keeps the file: places count themselves.
- A file goes when nobody has a place in it, nobody has pinned it, and no snapshot on disk lists it. The snapshots that
  did must be durably gone before. The file that is being written stays.

Ids are drawn at random, so files of different servers and of different lives of one server never have the same name: a
full sync, a backup or a restore can put them together.

Appending is for one thread at a time; reading, and letting places go, for any. The rest is for the owner's thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from tidelog import limits
from tidelog.errors import Corruption
from tidelog.ids import ShardId
from tidelog.journal.layout import NodeFileLength, shard_folder, write_all
from tidelog.journal.node_format import (
    FILE_HEADER_BYTES,
    NODE_HEADER_BYTES,
    LostNode,
    encode_file_header,
    encode_node,
    node_file_id,
    node_file_name,
    node_room,
    open_node_file,
    read_node,
)
from tidelog.ports import Disk, File


class NodeFile:
    """One file, and who needs it."""

    __slots__ = (
        "_given",
        "_gone",
        "disk",
        "given_end",
        "id",
        "is_remote",
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
        self.is_remote = False
        """It lies in an object store, and not on disk: reads of it take long, and may fail for a while."""
        self.given_end = 0
        """Where the last place ends that was ever given out."""
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
    def garbage_bytes(self) -> int:
        """What of it nobody needs. Entries that went from a node count as needed after a restart."""
        self.tally()
        needed = FILE_HEADER_BYTES + self.live_bytes + NODE_HEADER_BYTES * self.live_count
        return max(self.size_bytes - needed, 0)

    @property
    def is_sparse(self) -> bool:
        """Most of it is needed no more: what is should be written elsewhere."""
        self.tally()
        if self.is_remote:  # what it takes is not space on this disk, and all of it would have to be fetched
            return False
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
        file.given_end = max(file.given_end, position + node_room(size))

    def __del__(self) -> None:
        self.file.let_go(self.live_bytes)

    def part(self, count: int, of: int) -> NodePlace:
        """The same, of which only so much is needed any more."""
        return NodePlace(self.file, self.position, self.size, self.crc, self.live_bytes * count // of)

    @property
    def end(self) -> int:
        return self.position + node_room(self.size)

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

    def __contains__(self, file: NodeFile) -> bool:
        return self._by_id.get(file.id) is file

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

    def know(self, listed: NodeFileLength, path: str) -> None:
        """A file that lies somewhere else, to be read only."""
        self._by_id[listed.id] = NodeFile(self.disk, listed.shard, listed.id, path, listed.length)

    # --- places -------------------------------------------------------------------------------------------------

    def place(self, file_id: int, position: int, size: int, crc: int) -> NodePlace:
        """A place that somebody has noted. `Corruption`: its file is not there, or is shorter."""
        file = self._by_id.get(file_id)
        if file is None:
            raise Corruption("a node of a stream lies in this file, which is missing", path=node_file_name(file_id))
        if position + NODE_HEADER_BYTES + size > file.size_bytes:
            raise Corruption(
                f"a node of {size} bytes lies here, but the file ends at {file.size_bytes}",
                path=file.path,
                position=position,
            )
        return NodePlace(file, position, size, crc)

    # --- appending ----------------------------------------------------------------------------------------------

    def append(self, shard: ShardId, nodes: Sequence[bytes | LostNode]) -> list[NodePlace]:
        """Write nodes, in as few writes as possible, and make them durable. On one thread at a time.

        `OSError`: none of them has a place. What was written of them is given up, with its file.
        """
        chunks: list[bytes] = []
        sizes: list[tuple[int, int]] = []
        for node in nodes:
            size, crc, parts = encode_node(node)
            chunks += parts
            sizes.append((size, crc))
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
            file.size_bytes += node_room(size)
            self.bytes_written += node_room(size)
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
                write_all(handle, 0, [encode_file_header(file_id)])
                self.disk.sync_folder(folder)
            except OSError:
                handle.close()
                try:
                    self.disk.remove(path)
                except OSError:  # nobody needs it: the next removal tries again
                    self._by_id[file_id] = NodeFile(self.disk, shard, file_id, path, 0)
                raise
            file = NodeFile(self.disk, shard, file_id, path, FILE_HEADER_BYTES)
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
                last, handle = place.file, open_node_file(place.file.disk, place.file.path)
            found.append(read_node(handle, place.position, place.size, place.crc))
    finally:
        if handle is not None:
            handle.close()
    return found


def _size(disk: Disk, path: str) -> int:
    file = disk.open(path, "read")
    try:
        return file.size()
    finally:
        file.close()
