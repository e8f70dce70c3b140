"""Bytes of local files on their way into objects.

The name of an object has the lease of its shipper and a number in it, so nobody else ever makes one of the same name,
and what a shipper left behind when it died is never taken for something else:

    <epoch>.<lease>/shard-0/piece-<segment>...    new bytes of the segment that is being written
    <epoch>.<lease>/shard-0/journal-<segment>...  the same once the segment is full
    snapshots/<ts>/...    nodes/...               snapshots, node files

One object is what goes out in two seconds, as far as the ones before tell: a manifest never waits for longer behind an
object that is on its way, and whoever waits for manifests does not take a server on a slow line for dead.
"""

from __future__ import annotations

from typing import Final

from tidelog import limits
from tidelog.journal.layout import SNAPSHOTS
from tidelog.ports import Clock, Disk, File, ObjectStore
from tidelog.shipping.lineage import ShippedExtent, new_digest

_KEPT_PART: Final = 0.75


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


class _Rate:
    """How fast objects go out."""

    def __init__(self) -> None:
        self._bytes = self._us = 0.0
        """Of the last few."""
        self._bytes_max = limits.SHIPPED_OBJECT_BYTES_MAX

    @property
    def bytes_at_once(self) -> int:
        wanted = self._bytes * limits.SHIPPED_OBJECT_US / self._us if self._us else limits.SHIPPED_OBJECT_BYTES_MAX
        smallest = min(limits.SHIPPED_OBJECT_BYTES_MIN, limits.SHIPPED_OBJECT_BYTES_MAX)
        return max(smallest, min(round(wanted), self._bytes_max, limits.SHIPPED_OBJECT_BYTES_MAX))

    def note(self, size: int, took_us: int) -> None:
        if size < limits.SHIPPED_OBJECT_BYTES_MIN and took_us < limits.SHIPPED_OBJECT_US:
            return  # it says how far the store is, not how fast the line is
        self._bytes_max = max(self._bytes_max, 2 * size)
        self._bytes, self._us = self._bytes * _KEPT_PART + size, self._us * _KEPT_PART + took_us

    def note_failure(self, size: int) -> None:
        """It may have been too much for the time that a put may take."""
        self._bytes_max = max(limits.SHIPPED_OBJECT_BYTES_MIN, min(self._bytes_max, size // 2))


class Uploads:
    """Puts the objects of one lease."""

    def __init__(
        self, objects: ObjectStore, database_id: str, lease: int, clock: Clock, before: Uploads | None = None
    ) -> None:
        """`before`: those of the same server under its last lease."""
        self._objects = objects
        self._prefix = f"{database_id}/"
        self._lease = lease
        self._clock = clock
        self._serial = 0
        self.objects_put: int = 0 if before is None else before.objects_put
        self.bytes_put: int = 0 if before is None else before.bytes_put
        self._rate: _Rate = _Rate() if before is None else before._rate

    @property
    def bytes_at_once(self) -> int:
        """Of one object."""
        return self._rate.bytes_at_once

    def put(self, stem: str, data: bytes) -> str:
        """One more object; returns its name below the database."""
        self._serial += 1  # also for what fails: it may be there all the same
        name = f"{stem}.{self._lease:x}-{self._serial:x}"
        self._put(name, [data], len(data))
        return name

    def _put(self, name: str, chunks: list[bytes], size: int) -> None:
        began_us = self._clock.monotonic_us()
        try:
            self._objects.put(self._prefix + name, chunks)
        except OSError:
            self._rate.note_failure(size)
            raise
        self._rate.note(size, self._clock.monotonic_us() - began_us)
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
