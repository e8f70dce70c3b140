"""Manifests: what is shipped, one number after the other. A round of shipping counts once its manifest exists.

    manifest-<number, 16 hex digits>      zlib of JSON, with a CRC32C over its members
      lease       the number of the manifest with which this shipper took over: nobody else has it
      lineages    with what changed of their files since the base
      base        an object that has all files of all lineages as they were at some manifest before

So a manifest costs what changed. A base is made anew when the changes have grown to a part of it.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from crc32c import crc32c

from tidelog.errors import Corruption
from tidelog.ids import Cycle, Lsn, Ts
from tidelog.journal.control import Epoch
from tidelog.journal.frame import Geometry
from tidelog.journal.layout import point_members, read_point
from tidelog.journal.segment import FilePosition
from tidelog.shipping.lineage import Lineage, ShippedExtent, ShippedFile

FORMAT: Final = 1
_NAME: Final = re.compile(r"manifest-([0-9a-f]{16})")

Files = dict[str, dict[str, ShippedFile]]
"""By the name of their lineage, then by path."""


class Going(NamedTuple):
    """Objects that will be deleted: an object that lists their names."""

    object: str
    announced_us: int
    """When (wall clock): they stay for a day from then on."""
    names_count: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What one manifest says."""

    number: int
    lease: int
    database_id: str
    made_us: int
    """When (wall clock)."""
    closed_ts: Ts
    """Everything up to this moment is shipped: nothing that is still to come is as old."""
    clock_bound: Ts
    """No ts above it has been given out."""
    epochs: tuple[Epoch, ...]
    """The newest, oldest first."""
    lineages: tuple[Lineage, ...]
    """Oldest first; the last one grows."""
    base: str
    """The name of an object; "": there is none, all files are in this manifest."""
    going: tuple[Going, ...] = ()


def manifest_name(number: int) -> str:
    return f"manifest-{number:016x}"


def manifest_number(name: str) -> int | None:
    """Of an object below its database; None: it is no manifest."""
    found = _NAME.fullmatch(name)
    return int(found[1], 16) if found else None


# --- bytes ---------------------------------------------------------------------------------------------------------


def pack(members: dict[str, Any]) -> bytes:
    """JSON with a checksum, compressed."""
    text = json.dumps(members, sort_keys=True, separators=(",", ":"))
    return zlib.compress(json.dumps([f"{crc32c(text.encode()):08x}", text]).encode(), 6)


def unpack(data: bytes, name: str) -> dict[str, Any]:
    """What `pack` packed; `Corruption` if it is anything else."""
    try:
        crc, text = json.loads(zlib.decompress(data))
        if crc != f"{crc32c(text.encode()):08x}":
            raise Corruption("its checksum is wrong", path=name)
        members = json.loads(text)
        if members["format"] not in range(1, FORMAT + 1):
            raise Corruption(f"its format is {members['format']}: a newer version of Tidelog made it", path=name)
    except (zlib.error, ValueError, TypeError, KeyError, AttributeError) as error:
        raise Corruption(f"it is nothing that Tidelog has shipped ({error})", path=name) from None
    assert isinstance(members, dict)
    return members


def encode_base(lineages: Iterable[Lineage]) -> bytes:
    files = {each.name: {path: _file_members(file) for path, file in each.files.items()} for each in lineages}
    return pack({"format": FORMAT, "files": files})


def decode_base(data: bytes, name: str) -> Files:
    return _read_files(unpack(data, name)["files"])


def encode_manifest(manifest: Manifest, changed: dict[str, set[str]]) -> bytes:
    """`changed`: the paths of files that are not as the base has them, by lineage."""
    changes = {
        lineage.name: {
            path: _file_members(lineage.files[path]) if path in lineage.files else None
            for path in sorted(changed.get(lineage.name, ()))
        }
        for lineage in manifest.lineages
    }
    return pack(
        {
            "format": FORMAT,
            "number": manifest.number,
            "lease": manifest.lease,
            "database_id": manifest.database_id,
            "made_us": manifest.made_us,
            "closed_ts": manifest.closed_ts,
            "clock_bound": manifest.clock_bound,
            "epochs": [[epoch.id, list(epoch.lsns), epoch.last_ts, epoch.first_ts] for epoch in manifest.epochs],
            "lineages": [_lineage_members(lineage) for lineage in manifest.lineages],
            "changes": changes,
            "base": manifest.base,
            "going": [list(each) for each in manifest.going],
        }
    )


def base_of(data: bytes, name: str) -> str:
    """The name of the base of a manifest."""
    base = unpack(data, name)["base"]
    assert isinstance(base, str)
    return base


def decode_manifest(data: bytes, name: str, base: Files) -> Manifest:
    members = unpack(data, name)
    try:
        lineages = [_read_lineage(each) for each in members["lineages"]]
        for lineage in lineages:
            lineage.files = dict(base.get(lineage.name, {}))
            for path, extents in members["changes"].get(lineage.name, {}).items():
                if extents is None:
                    lineage.files.pop(path, None)
                else:
                    lineage.files[path] = _read_file(extents)
        return Manifest(
            number=members["number"],
            lease=members["lease"],
            database_id=members["database_id"],
            made_us=members["made_us"],
            closed_ts=Ts(members["closed_ts"]),
            clock_bound=Ts(members["clock_bound"]),
            epochs=tuple(
                Epoch(id_, tuple(Lsn(lsn) for lsn in lsns), Ts(last), Ts(first))
                for id_, lsns, last, first in members["epochs"]
            ),
            lineages=tuple(lineages),
            base=members["base"],
            going=tuple(Going(*each) for each in members["going"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Corruption(f"it does not describe what is shipped ({error})", path=name) from None


def _file_members(file: ShippedFile) -> list[list[object]]:
    return [list(extent) for extent in file.extents]


def _read_file(extents: list[list[Any]]) -> ShippedFile:
    return ShippedFile(tuple(ShippedExtent(*extent) for extent in extents))


def _read_files(members: dict[str, dict[str, list[list[Any]]]]) -> Files:
    return {name: {path: _read_file(extents) for path, extents in files.items()} for name, files in members.items()}


def _lineage_members(lineage: Lineage) -> dict[str, Any]:
    return {
        "name": lineage.name,
        "frame_bytes": lineage.geometry.frame_bytes,
        "frames_per_segment": lineage.geometry.frames_per_segment,
        "shards": lineage.shard_count,
        "begins_ts": lineage.begins_ts,
        "ends_ts": lineage.ends_ts,
        "ts": lineage.ts,
        "cycle": lineage.cycle,
        "lsns": list(lineage.lsns),
        "ends": [None if end is None else list(end) for end in lineage.ends],
        "first_segments": list(lineage.first_segments),
        "snapshots": [point_members(point) for point in lineage.snapshots.values()],
    }


def _read_lineage(members: dict[str, Any]) -> Lineage:
    begins, ends = members["begins_ts"], members["ends_ts"]
    points = [read_point(each) for each in members["snapshots"]]
    return Lineage(
        name=members["name"],
        geometry=Geometry(members["frame_bytes"], members["frames_per_segment"]),
        shard_count=members["shards"],
        begins_ts=None if begins is None else Ts(begins),
        ends_ts=None if ends is None else Ts(ends),
        ts=Ts(members["ts"]),
        cycle=Cycle(members["cycle"]),
        lsns=tuple(Lsn(lsn) for lsn in members["lsns"]),
        ends=tuple(None if end is None else FilePosition(Lsn(end[0]), end[1]) for end in members["ends"]),
        first_segments=tuple(Lsn(lsn) for lsn in members["first_segments"]),
        snapshots={point.ts: point for point in points},
    )
