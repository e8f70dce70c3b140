"""A node file goes from disk, since all of it is in the object store.

    prove      the local bytes are those that were shipped, and the store has every object in its full size
    describe   where the bytes are; durable
    remove     the local file

A crash at any point leaves the file, or its description, or both. Whoever decides that a file may go sees to it that a
manifest names it, and that a snapshot which was shipped refers to it (`copied_files`).
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog import limits
from tidelog.errors import ShippingError
from tidelog.journal.node_files import NodeFile
from tidelog.journal.snapshot import listed_node_files
from tidelog.ports import Disk, File, ObjectStore
from tidelog.shipping.lineage import ShippedExtent, ShippedFile, new_digest
from tidelog.shipping.remote_file import RemoteNodeFile, write_remote


def may_drop(file: NodeFile, shipped: ShippedFile | None) -> bool:
    """Whether a file can go as far as its owner knows, who calls this: `shipped` has all that anybody needs of it.

    One that is sparse is about to be written anew, and one that only snapshots need goes with them.
    """
    if shipped is None or file.is_remote or file.is_written_to or file.pins:
        return False
    return 0 < file.given_end <= shipped.size and file.is_needed and not file.is_sparse


def is_listed_beyond(disk: Disk, folder: str, file_id: int, size: int) -> bool:
    """Whether a snapshot in a data directory needs more of a file than so many bytes."""
    return any(each.id == file_id and each.length > size for each in listed_node_files(disk, folder))


def drop_file(
    disk: Disk,
    path: str,
    remote: RemoteNodeFile,
    objects: ObjectStore,
    is_stopped: Callable[[], bool] = lambda: False,
) -> int:
    """Drop a file on the disk that has it; returns how many bytes went. `ShippingError`: it is better kept.

    `is_stopped`: asked when the store has answered; then the file stays.
    """
    file = disk.open(path, "read")
    try:
        size = file.size()
        at = 0
        for extent in remote.extents:
            if extent.position != at:
                raise ShippingError(f"{path} stays on disk: bytes {at} to {extent.position} were never shipped")
            at = extent.end
            if not holds_extent(disk, path, extent):
                raise ShippingError(f"{path} stays on disk: from {extent.position} on it is not what was shipped")
            name = f"{remote.database_id}/{extent.object}"
            if objects.size(name) != extent.size:
                raise ShippingError(f"{path} stays on disk: the object {name} has not the size that it was put with")
        if at < remote.size:
            raise ShippingError(f"{path} stays on disk: only {at} of {remote.size} bytes were shipped")
    finally:
        file.close()
    if is_stopped():
        raise ShippingError(f"{path} stays on disk: the server stops")
    write_remote(disk, path, remote)
    disk.remove(path)
    disk.sync_folder(path.rpartition("/")[0])
    return size


def holds_extent(disk: Disk, path: str, extent: ShippedExtent) -> bool:
    """Whether a local file has the bytes of an extent in their place."""
    try:
        file = disk.open(path, "read")
    except FileNotFoundError:
        return False
    try:
        return holds(file, extent)
    finally:
        file.close()


def holds(file: File, extent: ShippedExtent) -> bool:
    """Whether a file has the bytes of an extent in their place."""
    digest = new_digest()
    for at in range(extent.position, extent.end, limits.COPY_BYTES_AT_ONCE):
        wanted = min(limits.COPY_BYTES_AT_ONCE, extent.end - at)
        data = file.read(at, wanted)
        if len(data) < wanted:
            return False
        digest.update(data)
    return digest.hexdigest() == extent.digest
