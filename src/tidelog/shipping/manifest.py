"""Manifests: what is shipped, one number after the other. A round of shipping counts once its manifest exists.

    manifest-<number, 16 hex digits>      zlib of JSON, with a CRC32C over it
      lease       the number of the manifest with which this shipper took over: nobody else has it
      lineages    with what changed of their files since the base, and snapshots that it does not have
      base        an object that has all files and snapshots of all lineages as they were at some manifest before

So a manifest costs what changed. A base is made anew when the manifests after it have said as much as it does.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple

from crc32c import crc32c

from tidelog.errors import Corruption, DataDirectoryError
from tidelog.ids import Cycle, Lsn, Ts
from tidelog.journal.beginning import before_first_lsn
from tidelog.journal.control import Epoch
from tidelog.journal.frame import Geometry
from tidelog.journal.layout import SnapshotPoint, point_members, read_point
from tidelog.journal.segment import FilePosition
from tidelog.shipping.lineage import Lineage, ShippedExtent, ShippedFile
from tidelog.shipping.sealed_store import MAGIC
from tidelog.shipping.sealing_key import ID_BYTES

FORMAT: Final = 1
_NAME: Final = re.compile(r"manifest-([0-9a-f]{16})")

_FILES_AT_ONCE: Final = 1000
"""Of a base, as one piece of JSON: other threads wait while one is made."""


class Base(NamedTuple):
    """What a base has, by the names of lineages."""

    files: dict[str, dict[str, ShippedFile]]
    """By path."""
    snapshots: dict[str, dict[Ts, SnapshotPoint]]
    """By their moments."""


NO_BASE: Final = Base({}, {})


class Going(NamedTuple):
    """Objects that will be deleted: an object that lists their names."""

    object: str
    announced_us: int
    """When (wall clock): they stay for a day from then on."""
    names_count: int


class Aged(NamedTuple):
    """A manifest, and when it was the newest."""

    made_us: int
    number: int


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
    changed: Mapping[str, Set[str]] = field(default_factory=dict)
    """Paths of files that are not as the base has them, by lineage ..."""
    in_base: Mapping[str, Set[Ts]] = field(default_factory=dict)
    """... and the snapshots that it has."""
    going: tuple[Going, ...] = ()
    ages: tuple[Aged, ...] = ()
    """Of some manifests before, oldest first: those older than a day may go."""


def manifest_name(number: int) -> str:
    return f"manifest-{number:016x}"


def manifest_number(name: str) -> int | None:
    """Of an object below its database; None: it is no manifest."""
    found = _NAME.fullmatch(name)
    return int(found[1], 16) if found else None


# --- bytes ---------------------------------------------------------------------------------------------------------


def pack(members: dict[str, Any]) -> bytes:
    """JSON with a checksum, compressed."""
    return _pack(_json(members))


def _json(members: object) -> str:
    return json.dumps(members, sort_keys=True, separators=(",", ":"))


def _pack(text: str) -> bytes:
    data = text.encode()
    return zlib.compress(b"%08x\n%b" % (crc32c(data), data), 6)


def unpack(data: bytes, name: str) -> dict[str, Any]:
    """What `pack` packed; `Corruption` if it is anything else, and `DataDirectoryError` if it is encrypted."""
    if data.startswith(MAGIC):
        key_id = data[len(MAGIC) :][:ID_BYTES].hex()
        raise DataDirectoryError(f"{name} is encrypted, with key {key_id}: name the file of that key (--ship-key-file)")
    try:
        crc, _, text = zlib.decompress(data).partition(b"\n")
        if crc != b"%08x" % crc32c(text):
            raise Corruption("its checksum is wrong", path=name)
        members = json.loads(text)
        if members["format"] not in range(1, FORMAT + 1):
            raise Corruption(f"its format is {members['format']}: a newer version of Tidelog made it", path=name)
    except (zlib.error, ValueError, TypeError, KeyError, AttributeError) as error:
        raise Corruption(f"it is nothing that Tidelog has shipped ({error})", path=name) from None
    assert isinstance(members, dict)
    return members


def encode_base(lineages: Iterable[Lineage]) -> bytes:
    pieces = []
    points = {}
    for lineage in lineages:
        points[lineage.name] = [point_members(point) for point in lineage.snapshots.values()]
        left = iter(lineage.files.items())
        while files := list(islice(left, _FILES_AT_ONCE)):
            pieces.append(_json([lineage.name, {path: _file_members(file) for path, file in files}]))
    return _pack(f'{{"files":[{",".join(pieces)}],"format":{FORMAT},"snapshots":{_json(points)}}}')


def decode_base(data: bytes, name: str) -> Base:
    members = unpack(data, name)
    base = Base({}, {})
    try:
        for lineage, files in members["files"]:
            base.files.setdefault(lineage, {}).update((path, _read_file(extents)) for path, extents in files.items())
        for lineage, points in members["snapshots"].items():
            base.snapshots[lineage] = {point.ts: point for point in map(read_point, points)}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Corruption(f"it does not describe what is shipped ({error})", path=name) from None
    return base


def encode_manifest(manifest: Manifest) -> bytes:
    changes = {
        lineage.name: {
            path: _file_members(lineage.files[path]) if path in lineage.files else None
            for path in sorted(manifest.changed.get(lineage.name, ()) if manifest.base else lineage.files)
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
            "lineages": [
                _lineage_members(lineage, manifest.in_base.get(lineage.name, frozenset()) if manifest.base else set())
                for lineage in manifest.lineages
            ],
            "changes": changes,
            "base": manifest.base,
            "going": [list(each) for each in manifest.going],
            "ages": [list(each) for each in manifest.ages],
        }
    )


def base_of(data: bytes, name: str) -> str:
    """The name of the base of a manifest."""
    base = unpack(data, name).get("base")
    if not isinstance(base, str):
        raise Corruption("it is no manifest", path=name)
    return base


def read_lease(data: bytes, name: str) -> int:
    """That of a manifest, which is not read any further."""
    lease = unpack(data, name).get("lease")
    if not isinstance(lease, int):
        raise Corruption("it is no manifest", path=name)
    return lease


def decode_manifest(data: bytes, name: str, base: Base) -> Manifest:
    members = unpack(data, name)
    try:
        epochs = tuple(
            Epoch(id_, tuple(Lsn(lsn) for lsn in lsns), Ts(last), Ts(first))
            for id_, lsns, last, first in members["epochs"]
        )
        lineages = [_read_lineage(each, base.snapshots.get(each["name"], {}), epochs) for each in members["lineages"]]
        for lineage in lineages:
            lineage.files = dict(base.files.get(lineage.name, {}))
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
            epochs=epochs,
            lineages=tuple(lineages),
            base=members["base"],
            changed={name: frozenset(members["changes"].get(name, ())) for name in (each.name for each in lineages)},
            in_base={
                each["name"]: frozenset(Ts(point) for point in each["snapshots"] if isinstance(point, int))
                for each in members["lineages"]
            },
            going=tuple(Going(*each) for each in members["going"]),
            ages=tuple(Aged(*each) for each in members.get("ages", ())),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Corruption(f"it does not describe what is shipped ({error})", path=name) from None


def _file_members(file: ShippedFile) -> list[list[object]]:
    return [list(extent) for extent in file.extents]


def _read_file(extents: list[list[Any]]) -> ShippedFile:
    return ShippedFile(tuple(ShippedExtent(*extent) for extent in extents))


def _lineage_members(lineage: Lineage, in_base: Set[Ts]) -> dict[str, Any]:
    return {
        "name": lineage.name,
        "frame_bytes": lineage.geometry.frame_bytes,
        "frames_per_segment": lineage.geometry.frames_per_segment,
        "shards": lineage.shard_count,
        "begins_ts": lineage.begins_ts,
        "is_beginning_proved": True,
        "ends_ts": lineage.ends_ts,
        "ts": lineage.ts,
        "cycle": lineage.cycle,
        "lsns": list(lineage.lsns),
        "ends": [None if end is None else list(end) for end in lineage.ends],
        "first_segments": list(lineage.first_segments),
        "snapshots": [ts if ts in in_base else point_members(point) for ts, point in lineage.snapshots.items()],
    }


def _was_restored(lineage: str, epochs: Sequence[Epoch]) -> bool:
    """Whether a lineage has nothing before a snapshot, although it has lsn 0: earlier versions took that for all."""
    own = int(lineage.partition(".")[0], 16)
    known = [index for index, epoch in enumerate(epochs) if epoch.id == own]
    return bool(known) and before_first_lsn(epochs[: known[0] + 1]) > 0


def _read_lineage(members: dict[str, Any], in_base: dict[Ts, SnapshotPoint], epochs: Sequence[Epoch]) -> Lineage:
    begins, ends = members["begins_ts"], members["ends_ts"]
    points = [in_base[Ts(each)] if isinstance(each, int) else read_point(each) for each in members["snapshots"]]
    if begins == 0 and not members.get("is_beginning_proved") and _was_restored(members["name"], epochs):
        begins = min((point.ts for point in points), default=None)
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
