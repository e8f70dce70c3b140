"""Node files that lie in an object store and not, or not only, on disk: a small description beside their place.

    shard-0/nodes-<id>.bin         the file; while it is away, it is not there
    shard-0/nodes-<id>.remote      where its bytes are: which store, which objects
    shard-0/nodes-<id>.fetching    the file on its way back, up to the last object that has come

A description is durable before the file goes (`dropping`), and goes after the file is durably back (`hydration`). If
both are there, the file is whole: a crash came between. Whoever reads takes the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Any, Final, NamedTuple

from tidelog.errors import Corruption
from tidelog.journal.layout import Meta, read_json, shard_folder, write_json
from tidelog.journal.node_format import node_file_id
from tidelog.ports import Disk
from tidelog.shipping.lineage import Lineage, ShippedExtent, ShippedFile

_FORMAT: Final = 1
_FILE: Final = ".bin"
_REMOTE: Final = ".remote"
_FETCHING: Final = ".fetching"
_UNFINISHED: Final = (_FETCHING, f"{_REMOTE}.new")


class RemoteNodeFile(NamedTuple):
    """What a description says."""

    url: str
    """Of the object store; it never has credentials in it."""
    is_sealed: bool
    """The objects are encrypted: it takes the key to read them."""
    database_id: str
    """The folder of the objects."""
    size: int
    """Of the file, as far as it is needed."""
    extents: tuple[ShippedExtent, ...]
    """Its bytes, in order and without a gap; the last one may go beyond the size."""

    def is_part_of(self, file: ShippedFile) -> bool:
        """Whether a shipped file has the same objects, and perhaps more."""
        return file.extents[: len(self.extents)] == self.extents

    def objects(self) -> Iterator[str]:
        return (extent.object for extent in self.extents)


def is_node_path(path: str) -> bool:
    return node_file_id(path.rpartition("/")[2]) is not None


def remote_path(path: str) -> str:
    """Where the description of a node file lies."""
    return path.removesuffix(_FILE) + _REMOTE


def fetching_path(path: str) -> str:
    """Where a node file lies while it is on its way back."""
    return path.removesuffix(_FILE) + _FETCHING


def described_name(name: str) -> str | None:
    """The name of the node file that a description is of; None: it is no description."""
    node = name.removesuffix(_REMOTE) + _FILE
    return node if name.endswith(_REMOTE) and node_file_id(node) is not None else None


def is_unfinished_name(name: str) -> bool:
    """Whether it is that of a file on its way back, or of a description that is being written."""
    return any(
        name.endswith(ending) and node_file_id(name.removesuffix(ending) + _FILE) is not None for ending in _UNFINISHED
    )


def paths_beside(path: str) -> list[str]:
    """What may lie beside the place of a node file."""
    return [path.removesuffix(_FILE) + ending for ending in (*_UNFINISHED, _REMOTE)]


def write_remote(disk: Disk, path: str, remote: RemoteNodeFile) -> None:
    """Put the description of a node file beside its place; durable when it returns."""
    members = {
        "format": _FORMAT,
        "url": remote.url,
        "sealed": remote.is_sealed,
        "database_id": remote.database_id,
        "size": remote.size,
        "extents": [list(extent) for extent in remote.extents],
    }
    write_json(disk, remote_path(path), members)


def read_remote(disk: Disk, path: str) -> RemoteNodeFile:
    """The description of a node file. `FileNotFoundError`: it has none; `Corruption`: it cannot be read."""
    members: dict[str, Any] = read_json(disk, remote_path(path))
    try:
        if members["format"] != _FORMAT:
            raise Corruption(
                f"its format is {members['format']}: a newer version of Tidelog made it", path=remote_path(path)
            )
        extents = tuple(ShippedExtent(*extent) for extent in members["extents"])
        return RemoteNodeFile(
            members["url"], bool(members["sealed"]), members["database_id"], int(members["size"]), extents
        )
    except (KeyError, TypeError, ValueError) as error:
        raise Corruption(f"it does not describe where a node file is ({error})", path=remote_path(path)) from None


def remote_files(disk: Disk, folder: str, shard_count: int) -> dict[str, RemoteNodeFile]:
    """All descriptions of a data directory, by the paths of their files in it. On any kind of disk."""
    found: dict[str, RemoteNodeFile] = {}
    for shard in range(shard_count):
        inside = shard_folder(folder, shard)
        for name in disk.list(inside) if disk.exists(inside) else []:
            node = described_name(name) or (name if node_file_id(name) is not None else None)
            if node is not None and disk.exists(remote_path(f"{inside}/{node}")):
                found[f"{shard_folder('', shard)[1:]}/{node}"] = read_remote(disk, f"{inside}/{node}")
    return found


def settle_remote_files(disk: Disk, folder: str, shard_count: int) -> None:
    """Clear away what a crash has left: descriptions of files that are there, and parts of files that nobody fetches.

    On the disk that has the files, before anybody reads.
    """
    for shard in range(shard_count):
        inside = shard_folder(folder, shard)
        names = set(disk.list(inside)) if disk.exists(inside) else set()
        gone = False
        for name in sorted(names):
            node = described_name(name)
            is_over = node in names if node is not None else is_unfinished_name(name)
            if is_over and not (name.endswith(_FETCHING) and name.replace(_FETCHING, _REMOTE) in names):
                disk.remove(f"{inside}/{name}")
                gone = True
        if gone:
            disk.sync_folder(inside)


def files_in_copy(
    disk: Disk, folder: str, meta: Meta, lineage: Lineage, known: Set[str]
) -> Iterator[tuple[str, ShippedFile]]:
    """The node files that lie only in the copy, and that a lineage lacks: it is to have them, so they stay there for as
    long as they are not here. `known`: the objects of the copy. Files of another copy are shipped like others, from
    there."""
    for path, remote in remote_files(disk, folder, meta.shard_count).items():
        is_ours = remote.database_id == meta.database_id and known >= set(remote.objects())
        if is_ours and not remote.is_part_of(lineage.file(path)):
            yield path, ShippedFile(remote.extents)
