"""A lineage as the data directory that it was: a `ports.Disk` that only reads, from an object store.

Whatever reads a data directory reads this one: a restore, an audit, Spark. The journal ends where the manifest says;
what was shipped beyond is not seen. A manifest never changes, so neither does what is read, until `advance` shows a
later one: files that are open grow, as they would on a disk.

Reads of a few bytes, such as heads of frames, fetch a block around them; the newest blocks are kept. Reads that go on
where the last one ended have their next blocks fetched ahead, side by side, if there are threads for that. Whoever will
read everything twice gives a scratch file: then each block is fetched once. Whoever knows what is read next, out of any
order, says so (`will_read`), and just that is fetched.
"""

from __future__ import annotations

import errno
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn, Protocol

from tidelog import limits
from tidelog.errors import ObjectGone
from tidelog.journal.segment import journal_name, owner_of
from tidelog.ports import Chunk, Lock, ObjectStore, OpenMode
from tidelog.shipping.lineage import Lineage, ShippedExtent, ShippedFile


class Fetched(Protocol):
    """Something that another thread gets."""

    def result(self) -> bytes: ...


class Scratch(Protocol):
    """Room on this machine for blocks of objects."""

    def once(self, block: tuple[str, int], fetch: Callable[[], bytes]) -> Callable[[], bytes]:
        """A call that has the bytes of a block (an object, and a number), and fetches them the first time."""


FetchAhead = Callable[[Callable[[], bytes]], Fetched]
"""Begins a call on another thread."""
FileRange = tuple[str, int, int]
"""A path, a position, and a number of bytes."""


class ShippedDisk:
    """The files of one lineage, below a folder of any name."""

    def __init__(
        self,
        objects: ObjectStore,
        database_id: str,
        lineage: Lineage,
        root: str,
        fetch_ahead: FetchAhead | None = None,
        on_fetched: Callable[[int], None] | None = None,
        scratch: Scratch | None = None,
        *,
        ahead_blocks: int = limits.SHIPPED_AHEAD_BLOCKS,
    ) -> None:
        """`on_fetched` is told how many bytes came; from any thread. `ahead_blocks`: so many are fetched ahead."""
        self._root = root.rstrip("/")
        self._files: dict[str, _ShownFile] = {}
        self._blocks = _Blocks(objects, f"{database_id}/", fetch_ahead, on_fetched, scratch, ahead_blocks)
        self._folders = {""}
        self.advance(lineage)

    def advance(self, lineage: Lineage) -> None:
        """Show the same lineage as a later manifest has it. Not while another thread reads."""
        found = _visible_files(lineage)
        for path, (file, size) in found.items():
            if path in self._files:
                self._files[path].show(file, size)
            else:
                self._files[path] = _ShownFile(file, size)
        for path in [path for path in self._files if path not in found]:
            del self._files[path]
        self._folders = {""}
        for path in self._files:
            while "/" in path:
                path = path.rpartition("/")[0]
                self._folders.add(path)

    def _inner(self, path: str) -> str:
        if path == self._root:
            return ""
        if not path.startswith(f"{self._root}/"):
            raise FileNotFoundError(errno.ENOENT, "it is not shipped", path)
        return path.removeprefix(f"{self._root}/")

    def open(self, path: str, mode: OpenMode) -> OpenShippedFile:
        if mode != "read":
            _refuse(path)
        found = self._files.get(self._inner(path))
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "it is not shipped", path)
        return OpenShippedFile(path, found, self._blocks)

    def will_read(self, ranges: Iterable[FileRange]) -> None:
        """These ranges of files are read next, and each once: begin to fetch them, neighbours with one request.

        What an earlier call asked for, and nobody has read, is forgotten.
        """
        wanted: dict[str, list[tuple[int, int]]] = {}
        for path, position, length in ranges:
            shown = self._files[self._inner(path)]
            for extent in shown.file.extents:
                start, stop = max(position, extent.position), min(position + length, extent.end, shown.size)
                if start < stop:
                    wanted.setdefault(extent.object, []).append((start - extent.position, stop - extent.position))
        self._blocks.will_read(wanted)

    def exists(self, path: str) -> bool:
        if path != self._root and not path.startswith(f"{self._root}/"):
            return False
        inner = self._inner(path)
        return inner in self._files or inner in self._folders

    def list(self, folder: str) -> list[str]:
        inner = self._inner(folder)
        if inner not in self._folders:
            raise FileNotFoundError(errno.ENOENT, "it is not shipped", folder)
        prefix = f"{inner}/" if inner else ""
        names = {path.removeprefix(prefix).partition("/")[0] for path in self._files if path.startswith(prefix)}
        return sorted(names)

    def make_folder(self, path: str) -> None:
        _refuse(path)

    def rename(self, old: str, _new: str) -> None:
        _refuse(old)

    def link(self, old: str, _new: str) -> None:
        raise OSError(errno.EXDEV, "it lies in an object store", old)

    def remove(self, path: str) -> None:
        _refuse(path)

    def sync_folder(self, path: str) -> None:
        _refuse(path)

    def lock(self, path: str) -> Lock:
        _refuse(path)

    def free_bytes(self, path: str) -> int:
        _refuse(path)


def _refuse(path: str) -> NoReturn:
    raise OSError(errno.EROFS, "what is shipped cannot be changed", path)


def _visible_files(lineage: Lineage) -> dict[str, tuple[ShippedFile, int]]:
    """The files of a lineage with their sizes, as far as its manifest says that they count."""
    found: dict[str, tuple[ShippedFile, int]] = {}
    for path, file in lineage.files.items():
        folder, _, name = path.rpartition("/")
        segment = owner_of(name) if folder.startswith("shard-") else None
        size = file.size
        if segment is not None:
            shard = int(folder.removeprefix("shard-"))
            end = lineage.ends[shard] if shard < len(lineage.ends) else None
            if end is None or segment > end.segment:
                continue
            if segment == end.segment and name == journal_name(segment):
                size = end.at
        if ".partial/" not in path:
            found[path] = file, size
    return found


class _ShownFile:
    """A file as far as it can be seen now."""

    __slots__ = ("file", "size")

    def __init__(self, file: ShippedFile, size: int) -> None:
        self.file = file
        self.size = size

    def show(self, file: ShippedFile, size: int) -> None:
        self.file, self.size = file, size


class OpenShippedFile:
    """`ports.File` on a file of a lineage."""

    def __init__(self, path: str, shown: _ShownFile, blocks: _Blocks) -> None:
        self.path = path
        self._shown = shown
        self._blocks = blocks
        self._next = -1
        """Where the last read ended."""

    def size(self) -> int:
        return self._shown.size

    def read(self, position: int, length: int) -> bytes:
        shown = self._shown
        end = min(position + length, shown.size)
        if position >= end:
            return b""
        is_scan, self._next = position == self._next, end
        found: list[bytes] = []
        at = position
        for extent in shown.file.extents:
            if extent.end <= at:
                continue
            if extent.position >= end:
                break
            if extent.position > at:  # a hole of a blob file: nothing refers to it
                found.append(bytes(extent.position - at))
                at = extent.position
            stop = min(end, extent.end)
            found.append(self._blocks.read(extent, at - extent.position, stop - extent.position, is_scan=is_scan))
            at = stop
        if is_scan:
            self._blocks.ahead(shown.file, end)
        return b"".join(found) if len(found) != 1 else found[0]

    def write(self, _position: int, _chunks: Sequence[Chunk]) -> int:
        _refuse(self.path)

    def truncate(self, _size: int) -> None:
        _refuse(self.path)

    def sync(self) -> None:
        _refuse(self.path)

    def close(self) -> None:
        return None


class _Blocks:
    """Blocks of objects, the newest of which are kept."""

    def __init__(
        self,
        objects: ObjectStore,
        prefix: str,
        fetch_ahead: FetchAhead | None,
        on_fetched: Callable[[int], None] | None,
        scratch: Scratch | None,
        ahead_blocks: int,
    ) -> None:
        self._objects = objects
        self._prefix = prefix
        self._fetch_ahead = fetch_ahead
        self._on_fetched = on_fetched
        self._scratch = scratch
        self._ahead_blocks = ahead_blocks
        self._kept: OrderedDict[tuple[str, int], bytes | Fetched] = OrderedDict()
        self._wanted: dict[str, list[tuple[int, int, Fetched]]] = {}
        """By object: where ranges begin and end that are read next."""

    def will_read(self, wanted: dict[str, list[tuple[int, int]]]) -> None:
        self._wanted = {}
        if self._fetch_ahead is None:
            return
        for name, ranges in wanted.items():
            self._wanted[name] = [
                (start, end, self._fetch_ahead(self._fetching_range(name, start, end)))
                for start, end in _joined(ranges)
            ]

    def _fetching_range(self, name: str, start: int, end: int) -> Callable[[], bytes]:
        return lambda: self._fetch(name, start, end - start)

    def read(self, extent: ShippedExtent, start: int, end: int, *, is_scan: bool) -> bytes:
        """Bytes of one object."""
        for first, last, fetched in self._wanted.get(extent.object, ()):
            if first <= start and end <= last:
                return fetched.result()[start - first : end - first]
        size = limits.SHIPPED_BLOCK_BYTES
        if end - start >= size and not is_scan and self._scratch is None:
            return self._fetch(extent.object, start, end - start)
        found = []
        for block in range(start // size, (end + size - 1) // size):
            data = self._block(extent, block)
            found.append(data[max(0, start - block * size) : end - block * size])
        return found[0] if len(found) == 1 else b"".join(found)

    def ahead(self, file: ShippedFile, position: int) -> None:
        """Begin to fetch what follows a position."""
        if self._fetch_ahead is None:
            return
        left = self._ahead_blocks
        for extent in file.extents:
            if extent.end <= position:
                continue
            first = max(0, position - extent.position) // limits.SHIPPED_BLOCK_BYTES
            for block in range(first, (extent.size + limits.SHIPPED_BLOCK_BYTES - 1) // limits.SHIPPED_BLOCK_BYTES):
                if not left:
                    return
                left -= 1
                if (extent.object, block) not in self._kept:
                    self._keep(extent.object, block, self._fetch_ahead(self._fetching(extent, block)))

    def _block(self, extent: ShippedExtent, block: int) -> bytes:
        key = extent.object, block
        held = self._kept.get(key)
        if held is None:
            data = self._fetching(extent, block)()
        elif isinstance(held, bytes):
            self._kept.move_to_end(key)
            return held
        else:
            del self._kept[key]  # also if it fails: whoever comes next tries again
            data = held.result()
        self._keep(*key, data)
        return data

    def _fetching(self, extent: ShippedExtent, block: int) -> Callable[[], bytes]:
        start = block * limits.SHIPPED_BLOCK_BYTES
        length = min(limits.SHIPPED_BLOCK_BYTES, extent.size - start)
        if self._scratch is None:
            return lambda: self._fetch(extent.object, start, length)
        return self._scratch.once((extent.object, block), lambda: self._fetch(extent.object, start, length))

    def _keep(self, name: str, block: int, data: bytes | Fetched) -> None:
        self._kept[name, block] = data
        self._kept.move_to_end((name, block))
        while len(self._kept) > limits.SHIPPED_BLOCKS_KEPT:
            self._kept.popitem(last=False)

    def _fetch(self, name: str, start: int, length: int) -> bytes:
        try:
            data = self._objects.read(self._prefix + name, start, length)
        except FileNotFoundError:
            words = f"{self._prefix}{name} is not in the object store"
            raise ObjectGone(words, name=name) from None
        if len(data) != length:
            raise OSError(errno.EIO, f"the object ends at {start + len(data)}, before {start + length}", name)
        if self._on_fetched is not None:
            self._on_fetched(length)
        return data


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges in order, those that lie close to each other as one, unless it would be large."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if joined:
            first, last = joined[-1]
            if start - last <= limits.SHIPPED_HOLE_BYTES and end - first <= limits.SHIPPED_BLOCK_BYTES:
                joined[-1] = first, max(last, end)
                continue
        joined.append((start, end))
    return joined
