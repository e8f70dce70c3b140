"""Node files that are shipped, on a simulated disk, to be dropped and fetched back."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Final

from tidelog import limits
from tidelog.journal.layout import write_all
from tidelog.journal.node_format import node_file_name
from tidelog.ports import Disk, ObjectStore
from tidelog.shipping.block_cache import BlockCache
from tidelog.shipping.lineage import ShippedExtent, new_digest
from tidelog.shipping.remote_blocks import RemoteBlocks
from tidelog.shipping.remote_file import RemoteNodeFile
from tidelog.shipping.tiered_disk import TieredDisk
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk

URL: Final = "/objects"
ID: Final = "d" * 32
FOLDER: Final = "data"
PATH: Final = f"{FOLDER}/shard-0/{node_file_name(7)}"
CACHE: Final = f"{FOLDER}/history-cache"
DATA: Final = bytes(range(256)) * 40
EXTENT: Final = 3000


def shipped(objects: ObjectStore, data: bytes = DATA, *, path: str = "nodes/a") -> RemoteNodeFile:
    """A file in the store, as some objects."""
    extents = []
    for at in range(0, len(data), EXTENT):
        part = data[at : at + EXTENT]
        digest = new_digest()
        digest.update(part)
        objects.put(f"{ID}/{path}-{at}", [part])
        extents.append(ShippedExtent(at, len(part), f"{path}-{at}", digest.hexdigest()))
    return RemoteNodeFile(URL, False, ID, len(data), tuple(extents))


def with_file(seed: int, data: bytes | None = DATA) -> SimulatedDisk:
    """A disk with the file, which is durable."""
    disk = SimulatedDisk(seed)
    for folder in (FOLDER, f"{FOLDER}/shard-0"):
        disk.make_folder(folder)
        disk.sync_folder(folder.rpartition("/")[0])
    if data is not None:
        file = disk.open(PATH, "create")
        write_all(file, 0, [data])
        file.sync()
        file.close()
        disk.sync_folder(f"{FOLDER}/shard-0")
    return disk


class Tiers:
    """A tiered disk, and what is seen of its reads."""

    def __init__(self, disk: Disk, objects: ObjectStore, *, cache_bytes: int = limits.MIB) -> None:
        self.clock = SimulatedClock()
        self.may_wait = True
        self.later: list[object] = []
        self.cache = BlockCache(disk, CACHE, cache_bytes, nullcontext())
        self.blocks = RemoteBlocks(
            lambda _url, _is_sealed: objects,
            self.cache,
            self.clock,
            nullcontext(),
            lambda: self.may_wait,
            self._later,
        )
        self.disk = TieredDisk(disk, self.blocks, FOLDER)

    def _later(self, call: object) -> None:
        self.later.append(call)

    def run_later(self) -> None:
        self.may_wait = True
        while self.later:
            self.later.pop()()  # type: ignore[operator]

    def read(self, position: int = 0, length: int = len(DATA)) -> bytes:
        file = self.disk.open(PATH, "read")
        try:
            return file.read(position, length)
        finally:
            file.close()
