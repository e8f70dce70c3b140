"""The data directory: what lies where, and who may open it.

    DIR/
      meta.json                  id, shards, slot ranges, frame size; written last when the directory is made
      lock                       held by the process that writes
      clock                      the upper bound of the hybrid clock (`hlc.TsFile`)
      erased                     the erased-through ts (`hlc.TsFile`)
      holders.json               named holders, if an earlier version made it (`holders_file`)
      shard-<n>/                 the segments of a shard (`segment`)
      shard-<n>/shard.json       its slots and the frame size once more
      shard-<n>/nodes-<id>.bin   nodes of its streams, which memory does not keep (`node_files`)
      snapshots/snapshot-<ts>/   each a journal of its own, with its own meta.json (`snapshot`)
      cut-tails/tail-<n>/        what a start cut off, because a crash had torn it (`tail`)
      set-aside-<n>/             what a repair cut out
      diverged-<ts>/             what this server had beyond the history of its leader, which they share up to that ts
                                 (`rewind`): a journal of its own, with its own meta.json and perhaps snapshots/
      diverged-<ts>.partial/     ... half-made: removed by the next start
      rewind-unfinished          only while a rewind cuts: the next start finishes it ...
      rewound.json               ... and the same file afterwards: what the last rewind did
      role.json                  whether the server leads or follows (`replication/role_file`)
      sync/                      a full sync from a leader as it lands (`replacement`)
      replaced/                  what it takes the place of, while it does
      restored.json              only of a database that was restored from a copy, and goes on (`shipping/fetch`)
      restore-unfinished         only while a restore fills the directory: until it is gone, nothing here counts

JSON files carry the CRC32C of their other members, so a damaged one is refused instead of believed. What decides how
files are read is in two places: a meta.json that is whole but of another directory does not fit `shard.json`.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from crc32c import crc32c

from tidelog import limits
from tidelog.errors import Corruption, DataDirectoryError, DirectoryInUse, LimitExceeded
from tidelog.ids import Lsn, ShardId, Ts, slot_ranges
from tidelog.journal.frame import Geometry
from tidelog.ports import Chunk, Disk, File, Lock

FORMAT: Final = 1
"""The version of the format. One that raises it reads the older ones too."""

META: Final = "meta.json"
SHARD_META: Final = "shard.json"
LOCK: Final = "lock"
CLOCK: Final = "clock"
ERASED: Final = "erased"
HOLDERS: Final = "holders.json"
SNAPSHOTS: Final = "snapshots"
CUT_TAILS: Final = "cut-tails"
RESTORING: Final = "restore-unfinished"
REWINDING: Final = "rewind-unfinished"
REWOUND: Final = "rewound.json"
ROLE: Final = "role.json"
SYNC: Final = "sync"
REPLACED: Final = "replaced"

_REWRITE_BYTES: Final = 1 * limits.MIB
_DATABASE_ID: Final = re.compile(r"[0-9a-f]{32}")


class NodeFileLength(NamedTuple):
    """How much of a node file (`node_files`) a snapshot needs."""

    shard: ShardId
    id: int
    length: int
    """Up to the end of the last node that it refers to."""


@dataclass(frozen=True, slots=True)
class SnapshotPoint:
    """The moment that a snapshot shows."""

    ts: Ts
    """Everything up to and including this transaction is in it."""
    lsns: tuple[Lsn, ...]
    """Per shard, the first lsn of the journal that is not in it."""
    keys: int | None = None
    """How many keys it has; None: nobody counted."""
    places: tuple[tuple[int, int, int], ...] | None = None
    """Per shard, where the journal ended: segment, position in it and in its blob file; None: nobody knows."""
    node_files: tuple[NodeFileLength, ...] = ()
    """Those that it refers to."""


@dataclass(frozen=True, slots=True)
class Meta:
    """What `meta.json` says."""

    geometry: Geometry
    slots: tuple[tuple[int, int], ...]
    """Per shard, its first and last slot."""
    point: SnapshotPoint | None = None
    """Only in a snapshot."""
    database_id: str = ""
    """32 hex digits, made with the directory; "": nobody has made one yet, as an earlier version wrote this."""

    @property
    def shard_count(self) -> int:
        return len(self.slots)


def shard_folder(folder: str, shard: ShardId | int) -> str:
    return f"{folder}/shard-{shard}"


def write_all(file: File, position: int, chunks: Sequence[Chunk]) -> None:
    """Write everything, however short the single writes turn out."""
    total = len(chunks[0]) if len(chunks) == 1 else sum(map(len, chunks))
    written = file.write(position, chunks)
    while written < total:
        rest = b"".join(chunks)[written:]
        position, total, chunks = position + written, len(rest), [rest]
        written = file.write(position, chunks)


def rewrite(file: File, start: int, end: int) -> None:
    """Write bytes in their own place again, so that the next sync really writes them."""
    for at in range(start, end, _REWRITE_BYTES):
        write_all(file, at, [file.read(at, min(_REWRITE_BYTES, end - at))])


def write_file(disk: Disk, path: str, data: bytes) -> None:
    """Put a whole file in place durably: afterwards it has the old content or the new, never a mixture."""
    folder, temporary = posixpath.dirname(path), f"{path}.new"
    if disk.exists(temporary):
        disk.remove(temporary)
    file = disk.open(temporary, "create")
    try:
        write_all(file, 0, [data])
        file.sync()
    finally:
        file.close()
    disk.rename(temporary, path)
    disk.sync_folder(folder)


def read_file(disk: Disk, path: str) -> bytes:
    file = disk.open(path, "read")
    try:
        return file.read(0, file.size())
    finally:
        file.close()


def write_json(disk: Disk, path: str, members: dict[str, Any]) -> None:
    """A JSON file with a checksum over its members, put in place durably."""
    crc = crc32c(json.dumps(members, sort_keys=True).encode())
    write_file(disk, path, json.dumps({**members, "crc32c": f"{crc:08x}"}, indent=1).encode() + b"\n")


def read_json(disk: Disk, path: str) -> dict[str, Any]:
    """The members of a JSON file, checked."""
    try:
        members = json.loads(read_file(disk, path))
        crc = members.pop("crc32c")
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise Corruption(f"not a file that Tidelog wrote ({error})", path=path) from None
    if crc != f"{crc32c(json.dumps(members, sort_keys=True).encode()):08x}":
        raise Corruption("its checksum is wrong", path=path)
    assert isinstance(members, dict)
    return members


def write_meta(disk: Disk, folder: str, meta: Meta) -> None:
    members: dict[str, Any] = {
        "format": FORMAT,
        "shards": meta.shard_count,
        "slots": [list(slots) for slots in meta.slots],
        "frame_bytes": meta.geometry.frame_bytes,
        "frames_per_segment": meta.geometry.frames_per_segment,
    }
    if meta.database_id:
        members["database_id"] = meta.database_id
    if meta.point is not None:
        members["point"] = point_members(meta.point)
    write_json(disk, f"{folder}/{META}", members)


def point_members(point: SnapshotPoint) -> dict[str, Any]:
    """The moment of a snapshot, as JSON has it."""
    members: dict[str, Any] = {"ts": point.ts, "lsns": list(point.lsns)}
    if point.keys is not None:
        members["keys"] = point.keys
    if point.places is not None:
        members["places"] = [list(place) for place in point.places]
    if point.node_files:
        members["node_files"] = [[shard, f"{id_:016x}", size] for shard, id_, size in point.node_files]
    return members


def read_meta(disk: Disk, folder: str) -> Meta:
    path = f"{folder}/{META}"
    if not disk.exists(path):
        raise DataDirectoryError(f"{folder} is not a data directory of Tidelog: it has no {META}")
    members = read_json(disk, path)
    version = members.get("format", 1)  # the first version may not say so
    if version not in range(1, FORMAT + 1):
        hint = ": made by a newer version of Tidelog?" if isinstance(version, int) and version > FORMAT else ""
        raise DataDirectoryError(f"{path}: format {version}, but this version reads only {FORMAT}{hint}")
    try:
        slots = tuple((int(first), int(last)) for first, last in members["slots"])
        geometry = Geometry(members["frame_bytes"], members["frames_per_segment"])
        point = members.get("point")
        meta = Meta(geometry, slots, read_point(point) if point else None, _read_id(members.get("database_id", "")))
    except (KeyError, TypeError, ValueError, LimitExceeded) as error:
        raise Corruption(f"it does not describe a journal ({error})", path=path) from None
    if not 1 <= meta.shard_count <= limits.SHARDS_MAX or members.get("shards") != meta.shard_count:
        raise Corruption(f"it names {members.get('shards')} shards and {meta.shard_count} slot ranges", path=path)
    if meta.slots != tuple(slot_ranges(meta.shard_count)):
        raise Corruption(f"its slot ranges are not those of {meta.shard_count} shards", path=path)
    return meta


def slots_in(disk: Disk, folder: str, shard_count: int) -> Sequence[tuple[int, int]]:
    """The slot ranges that a directory has, or will have with so many shards once it is made."""
    return read_meta(disk, folder).slots if disk.exists(f"{folder}/{META}") else slot_ranges(shard_count)


def write_shard_metas(disk: Disk, folder: str, meta: Meta) -> None:
    """Say in the folder of every shard what it is; those that say so already are left alone."""
    for shard in range(meta.shard_count):
        path = f"{shard_folder(folder, shard)}/{SHARD_META}"
        if not disk.exists(path) or read_json(disk, path) != _shard_members(meta, shard):
            write_json(disk, path, _shard_members(meta, shard))


def check_shard_metas(disk: Disk, folder: str, meta: Meta) -> None:
    """Refuse a meta.json that is not the one the shards were made with; older versions did not write theirs."""
    for shard in range(meta.shard_count):
        path = f"{shard_folder(folder, shard)}/{SHARD_META}"
        if not disk.exists(path):
            continue
        members = read_json(disk, path)
        for name, value in _shard_members(meta, shard).items():
            if members.get(name) != value:
                raise Corruption(
                    f"its {name} is {value!r}, but shard {shard} was made with {members.get(name)!r}",
                    path=f"{folder}/{META}",
                )


def _shard_members(meta: Meta, shard: int) -> dict[str, Any]:
    return {
        "shard": shard,
        "shards": meta.shard_count,
        "slots": list(meta.slots[shard]),
        "frame_bytes": meta.geometry.frame_bytes,
        "frames_per_segment": meta.geometry.frames_per_segment,
    }


def read_point(members: dict[str, Any]) -> SnapshotPoint:
    """What `point_members` made; `KeyError`, `TypeError` or `ValueError` if it did not."""
    ts, lsns = Ts(members["ts"]), tuple(Lsn(lsn) for lsn in members["lsns"])
    places = members.get("places")
    return SnapshotPoint(
        ts,
        lsns,
        members.get("keys"),
        None if places is None else tuple((segment, at, blob_at) for segment, at, blob_at in places),
        tuple(
            NodeFileLength(ShardId(shard), int(file_id, 16), int(length))
            for shard, file_id, length in members.get("node_files", ())
        ),
    )


def _read_id(database_id: str) -> str:
    if database_id and not _DATABASE_ID.fullmatch(database_id):
        raise ValueError(f"{database_id!r} is not the id of a database")
    return database_id


def lock_directory(disk: Disk, folder: str) -> Lock:
    """Take the directory for this process alone."""
    try:
        return disk.lock(f"{folder}/{LOCK}")
    except BlockingIOError as error:
        raise DirectoryInUse(
            f"{folder} is in use by another process ({error.strerror or error}): stop it first, "
            f"or give each server a directory of its own"
        ) from None


def create_directory(disk: Disk, folder: str, geometry: Geometry, shard_count: int, database_id: str) -> Meta:
    """Make the folders of a new data directory. `meta.json` comes last, so a crash here leaves no directory at all."""
    if not 1 <= shard_count <= limits.SHARDS_MAX:
        raise LimitExceeded(f"{shard_count} shards: it must be 1 to {limits.SHARDS_MAX}")
    make_shard_folders(disk, folder, shard_count)
    disk.make_folder(f"{folder}/{SNAPSHOTS}")
    disk.sync_folder(folder)
    meta = Meta(geometry, tuple(slot_ranges(shard_count)), database_id=database_id)
    write_shard_metas(disk, folder, meta)
    write_meta(disk, folder, meta)
    return meta


def make_shard_folders(disk: Disk, folder: str, shard_count: int) -> None:
    """Make a folder with one folder a shard in it; the names in `folder` are durable with its next sync."""
    disk.make_folder(folder)
    disk.sync_folder(posixpath.dirname(folder) or ".")
    for shard in range(shard_count):
        disk.make_folder(shard_folder(folder, shard))
