"""The node files that a snapshot lists: where they lie, and whether what it needs of them is there.

    DIR/shard-<n>/nodes-<id>.bin       of a snapshot in DIR/snapshots/: they belong to the data directory
    BACKUP/shard-<n>/nodes-<id>.bin    of one that was copied out of it: they are its own

A start only compares lengths: it never reads nodes, however many there are. Bytes past the length that is listed are
left alone. A crash leaves them, nothing refers to them, nobody appends after them (a process begins files of its own),
and they go with their file.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable

from tidelog import limits
from tidelog.errors import Corruption
from tidelog.journal.file_copies import copy_file, link_or_copy
from tidelog.journal.layout import SNAPSHOTS, NodeFileLength, shard_folder
from tidelog.journal.node_format import FoundNode, inner_path, walk_nodes
from tidelog.journal.snapshot import Snapshot
from tidelog.ports import Disk


def listed_path(disk: Disk, snapshot: Snapshot, listed: NodeFileLength) -> str:
    """Where a file that a snapshot lists lies, or should."""
    inner = inner_path(listed)
    own = f"{snapshot.path}/{inner}"
    parent, _, _ = snapshot.path.rpartition("/")
    if posixpath.basename(parent) != SNAPSHOTS or disk.exists(own):
        return own
    return f"{posixpath.dirname(parent) or '.'}/{inner}"


def check_lengths(disk: Disk, snapshot: Snapshot) -> None:
    """`Corruption`: a file that it lists is missing, or shorter than it needs. Nothing is read."""
    for listed in snapshot.point.node_files:
        check_length(disk, snapshot, listed)


def check_length(disk: Disk, snapshot: Snapshot, listed: NodeFileLength) -> str:
    """The same for one of them; returns where it lies."""
    path = listed_path(disk, snapshot, listed)
    needed = f"the snapshot {snapshot.path} needs {listed.length} bytes of it"
    try:
        size = _size(disk, path)
    except FileNotFoundError:
        raise Corruption(f"this file of nodes is missing, and {needed}", path=path) from None
    if size < listed.length:
        raise Corruption(f"this file of nodes ends at {size}, but {needed}", path=path, position=size)
    return path


def prove_nodes(disk: Disk, snapshot: Snapshot, on_read: Callable[[int], None] | None = None) -> None:
    """Read every node of the files that it lists, as far as it needs them. `Corruption`: the first that is damaged."""

    def visit(found: FoundNode) -> None:
        if on_read is not None:
            on_read(found.size)

    for listed in snapshot.point.node_files:
        walk_nodes(disk, check_length(disk, snapshot, listed), listed.length, visit)


def put_beside(
    disk: Disk, snapshot: Snapshot, folder: str, on_copied: Callable[[int], None], *, is_at_rest: bool = False
) -> None:
    """Put the files that it lists into the shards' folders of another folder; durable when it returns.

    A file that is full, and so never appended to again, is linked if the file system can. `is_at_rest`: all of them are
    such, as nobody has the data directory open. Others are copied as far as they are needed. Those that are there stay.
    """
    for listed in snapshot.point.node_files:
        target = f"{folder}/{inner_path(listed)}"
        if disk.exists(target):
            continue
        source = check_length(disk, snapshot, listed)
        if is_at_rest or _size(disk, source) >= limits.NODE_FILE_BYTES_MAX:
            link_or_copy(disk, source, target, listed.length, on_copied)
        else:
            copy_file(disk, source, target, listed.length, on_copied)
    for shard in sorted({listed.shard for listed in snapshot.point.node_files}):
        disk.sync_folder(shard_folder(folder, shard))


def keep_file(disk: Disk, path: str, target: str) -> None:
    """A second name for a file that is about to go, durable when it returns; the folders of that are made."""
    if not disk.exists(path) or disk.exists(target):
        return
    folder = target.rpartition("/")[0]
    disk.make_folder(folder)
    disk.sync_folder(folder.rpartition("/")[0])
    link_or_copy(disk, path, target, None, lambda _: None)
    disk.sync_folder(folder)


def keep_listed(disk: Disk, folder: str, snapshot: Snapshot, aside: str) -> None:
    """Second names for the node files that a snapshot lists, which is set aside, as far as they are there."""
    for listed in snapshot.point.node_files:
        keep_file(disk, f"{folder}/{inner_path(listed)}", f"{aside}/{inner_path(listed)}")


def _size(disk: Disk, path: str) -> int:
    file = disk.open(path, "read")
    try:
        return file.size()
    finally:
        file.close()


def listed_bytes(snapshot: Snapshot) -> int:
    """What it needs of node files."""
    return sum(listed.length for listed in snapshot.point.node_files)
