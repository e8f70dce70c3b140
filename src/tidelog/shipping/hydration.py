"""A node file comes back from the object store, object by object.

    shard-0/nodes-<id>.fetching    what has come, each object proved by its digest
    shard-0/nodes-<id>.bin         the whole file, durable; then its description goes

If it is broken off, the next one goes on after the objects that are there and have the right digest. A crash at any
point leaves the description, or the whole file, or both.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog import limits
from tidelog.errors import Corruption
from tidelog.journal.layout import write_all
from tidelog.ports import Disk, ObjectStore
from tidelog.shipping.dropping import holds_extent
from tidelog.shipping.lineage import ShippedExtent, new_digest
from tidelog.shipping.remote_file import RemoteNodeFile, fetching_path, remote_path


class Hydration:
    """Of one file, on the disk that is to have it. Calls block, and come one at a time, from any thread."""

    def __init__(
        self,
        disk: Disk,
        path: str,
        remote: RemoteNodeFile,
        objects: ObjectStore,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_stopped`: asked between two blocks; then `step` returns early, and nothing of it counts."""
        self._disk = disk
        self._path = path
        self._remote = remote
        self._objects = objects
        self._is_stopped = is_stopped
        self._done = 0
        """Extents that are there."""
        self._has_looked = False
        self.is_whole = False
        """The file is back."""

    def step(self) -> int:
        """Fetch an object, or finish; returns how many bytes came."""
        if not self._has_looked:
            self._look()
        elif self._done < len(self._remote.extents):
            return self._fetch(self._remote.extents[self._done])
        else:
            self._finish()
        return 0

    def _look(self) -> None:
        """Find what an earlier one has left."""
        part = fetching_path(self._path)
        if not self._disk.exists(part):
            self._disk.open(part, "create").close()
        while self._done < len(self._remote.extents) and holds_extent(
            self._disk, part, self._remote.extents[self._done]
        ):
            self._done += 1
        self._has_looked = True

    def _fetch(self, extent: ShippedExtent) -> int:
        name, digest = f"{self._remote.database_id}/{extent.object}", new_digest()
        file = self._disk.open(fetching_path(self._path), "write")
        try:
            for at in range(0, extent.size, limits.SHIPPED_BLOCK_BYTES):
                if self._is_stopped():
                    return 0
                wanted = min(limits.SHIPPED_BLOCK_BYTES, extent.size - at)
                data = self._objects.read(name, at, wanted)
                digest.update(data)
                write_all(file, extent.position + at, [data])
        finally:
            file.close()
        if digest.hexdigest() != extent.digest:
            raise Corruption(f"its object {name} in {self._remote.url} is not what was put there", path=self._path)
        self._done += 1
        return extent.size

    def _finish(self) -> None:
        disk, part, folder = self._disk, fetching_path(self._path), self._path.rpartition("/")[0]
        file = disk.open(part, "write")
        try:
            file.truncate(self._remote.size)  # the last object may go beyond what is needed
            file.sync()
        finally:
            file.close()
        disk.rename(part, self._path)
        disk.sync_folder(folder)
        disk.remove(remote_path(self._path))
        disk.sync_folder(folder)
        self.is_whole = True
