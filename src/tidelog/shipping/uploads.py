"""Bytes of local files on their way into objects.

The name of an object has the lease of its shipper and a number in it, so nobody else ever makes one of the same name,
and what a shipper left behind when it died is never taken for something else:

    <epoch>.<lease>/shard-0/piece-<segment>...    new bytes of the segment that is being written
    <epoch>.<lease>/shard-0/journal-<segment>...  the same once the segment is full
    snapshots/<ts>/...    nodes/...               snapshots, node files
"""

from __future__ import annotations

from tidelog import limits
from tidelog.journal.layout import SNAPSHOTS
from tidelog.ports import Disk, File, ObjectStore
from tidelog.shipping.lineage import ShippedExtent, new_digest


def stem(lineage: str, path: str, position: int, *, is_piece: bool = False) -> str:
    """The name of the object that holds a file's bytes from a position on, as far as it says what is in it."""
    folder, _, name = path.rpartition("/")
    if path.startswith(f"{SNAPSHOTS}/"):
        return f"{path.replace('/snapshot-', '/', 1).replace('.partial/', '/', 1)}-{position:x}"
    if name.startswith("nodes-"):
        return f"nodes/{name}-{position:x}"
    if is_piece:
        name = name.replace("journal-", "piece-", 1)
    return f"{lineage}/{folder}/{name}-{position:x}" if folder else f"{lineage}/{name}-{position:x}"


class Uploads:
    """Puts the objects of one lease."""

    def __init__(self, objects: ObjectStore, database_id: str, lease: int) -> None:
        self._objects = objects
        self._prefix = f"{database_id}/"
        self._lease = lease
        self._serial = 0
        self.objects_put = 0
        self.bytes_put = 0

    def put(self, stem: str, data: bytes) -> str:
        """One more object; returns its name below the database."""
        self._serial += 1  # also for what fails: it may be there all the same
        name = f"{stem}.{self._lease:x}-{self._serial:x}"
        self._put(name, [data], len(data))
        return name

    def _put(self, name: str, chunks: list[bytes], size: int) -> None:
        self._objects.put(self._prefix + name, chunks)
        self.objects_put += 1
        self.bytes_put += size

    def put_file(self, disk: Disk, path: str, start: int, end: int, stem: str, level: int = 0) -> ShippedExtent:
        """Bytes of a local file, which must be there."""
        file = disk.open(path, "read")
        try:
            return self.put_bytes(file, start, end, stem, level)
        finally:
            file.close()

    def put_bytes(self, file: File, start: int, end: int, stem: str, level: int = 0) -> ShippedExtent:
        chunks: list[bytes] = []
        digest, at = new_digest(), start
        while at < end:
            chunk = file.read(at, min(limits.COPY_BYTES_AT_ONCE, end - at))
            if not chunk:
                raise OSError(f"{file.path} ends at {at}: {end} bytes of it were to be shipped")
            digest.update(chunk)
            at += len(chunk)
            chunks.append(chunk)
        self._serial += 1
        name = f"{stem}.{self._lease:x}-{self._serial:x}"
        self._put(name, chunks, end - start)
        return ShippedExtent(start, end - start, name, digest.hexdigest(), level)
