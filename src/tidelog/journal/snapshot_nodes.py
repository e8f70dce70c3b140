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

from tidelog.errors import Corruption
from tidelog.journal.layout import SNAPSHOTS, NodeFileLength, shard_folder
from tidelog.journal.node_files import node_file_name, walk_nodes
from tidelog.journal.snapshot import Snapshot
from tidelog.ports import Disk


def listed_path(disk: Disk, snapshot: Snapshot, listed: NodeFileLength) -> str:
    """Where a file that a snapshot lists lies, or should."""
    name = node_file_name(listed.id)
    own = f"{shard_folder(snapshot.path, listed.shard)}/{name}"
    parent, _, _ = snapshot.path.rpartition("/")
    if posixpath.basename(parent) != SNAPSHOTS or disk.exists(own):
        return own
    return f"{shard_folder(posixpath.dirname(parent) or '.', listed.shard)}/{name}"


def check_lengths(disk: Disk, snapshot: Snapshot) -> None:
    """`Corruption`: a file that it lists is missing, or shorter than it needs. Nothing is read."""
    for listed in snapshot.point.node_files:
        check_length(disk, snapshot, listed)


def check_length(disk: Disk, snapshot: Snapshot, listed: NodeFileLength) -> str:
    """The same for one of them; returns where it lies."""
    path = listed_path(disk, snapshot, listed)
    needed = f"the snapshot {snapshot.path} needs {listed.length} bytes of it"
    try:
        file = disk.open(path, "read")
    except FileNotFoundError:
        raise Corruption(f"this file of nodes is missing, and {needed}", path=path) from None
    try:
        size = file.size()
    finally:
        file.close()
    if size < listed.length:
        raise Corruption(f"this file of nodes ends at {size}, but {needed}", path=path, position=size)
    return path


def prove_nodes(disk: Disk, snapshot: Snapshot, on_read: Callable[[int], None] | None = None) -> None:
    """Read every node of the files that it lists, as far as it needs them. `Corruption`: the first that is damaged."""
    for listed in snapshot.point.node_files:
        for _, size, _ in walk_nodes(disk, check_length(disk, snapshot, listed), listed.length):
            if on_read is not None:
                on_read(size)


def listed_bytes(snapshot: Snapshot) -> int:
    """What it needs of node files."""
    return sum(listed.length for listed in snapshot.point.node_files)
