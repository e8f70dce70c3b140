"""The tail that a start cuts off: what lies behind the newest complete cycle. It is described, and set aside first.

    cut-tails/
      tail-<n>/                                      of the n-th start that cut one; the newest few are kept
        tail.json                                    what it is; durable before anything is cut
        shard-<n>/journal-....dj0.from-<position>    a copy of the end of the segment that stays
        shard-<n>/journal-....dj0, blob-....bin      whole files behind it, moved here

Nothing reads these files but people. A folder without tail.json is half-made: nothing was cut yet, and it is removed.
A start that was cut short itself left a tail.json of the same cut, and the next one goes on with it.
"""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tidelog import limits
from tidelog.errors import Corruption, DataDirectoryError
from tidelog.ids import Cycle, ShardId, Ts
from tidelog.journal.frame import CONTINUES, CRC_BYTES, Geometry, decode_header
from tidelog.journal.layout import CUT_TAILS, read_file, read_json, shard_folder, write_all, write_json
from tidelog.journal.record import CONTROL, TS, skim
from tidelog.journal.segment import FilePosition, journal_name, owner_of, sidecar_name
from tidelog.ports import Disk

_NAME: Final = re.compile(r"tail-([0-9]{1,9})")
_TAIL_META: Final = "tail.json"
_COPY_BYTES: Final = 1 << 20


class TailPiece(NamedTuple):
    """A file, or the end of one, that lies behind the cut."""

    shard: ShardId
    name: str
    start: int
    """Where it begins in the file; 0: all of the file goes."""
    size: int

    @property
    def kept_name(self) -> str:
        return f"{self.name}.from-{self.start}" if self.start else self.name


@dataclass(frozen=True, slots=True)
class TornTail:
    """What lies behind the newest complete cycle."""

    pieces: tuple[TailPiece, ...] = ()
    records: int = 0
    """As far as they can be told apart."""
    first_ts: Ts = Ts(0)
    last_ts: Ts = Ts(0)
    """Of the oldest and the newest transaction in it; 0: none can be read."""

    @property
    def journal_bytes(self) -> int:
        return sum(piece.size for piece in self.pieces if piece.name.startswith("journal-"))


class CutTail(NamedTuple):
    """A tail that was cut, and where it is kept."""

    path: str
    size_bytes: int
    """With whole blob files."""
    records: int
    first_ts: Ts
    last_ts: Ts

    def __str__(self) -> str:
        span = f"from ts {self.first_ts} to {self.last_ts}" if self.first_ts else "no whole record among them"
        return f"{self.size_bytes} bytes with {self.records} records ({span})"


# --- what it is -------------------------------------------------------------------------------------------------------


def find_tail(
    disk: Disk, folder: str, geometry: Geometry, cuts: tuple[FilePosition | None, ...], after_ts: Ts
) -> TornTail:
    """What lies behind the cuts, one per shard. `after_ts`: every transaction there is younger."""
    pieces: list[TailPiece] = []
    records, all_ts = 0, []
    for index, cut in enumerate(cuts):
        shard = ShardId(index)
        found = tail_pieces(disk, shard_folder(folder, shard), shard, cut)
        pieces += found
        for piece in found:
            if piece.name.startswith("journal-"):
                count, seen = _count_records(disk, shard_folder(folder, shard), geometry, piece, after_ts)
                records += count
                all_ts += seen
    return TornTail(tuple(pieces), records, min(all_ts, default=Ts(0)), max(all_ts, default=Ts(0)))


def tail_pieces(disk: Disk, folder: str, shard: ShardId, cut: FilePosition | None) -> list[TailPiece]:
    """The end of the segment that is cut, and all files of segments behind it but sidecars."""
    pieces = []
    for name in disk.list(folder):
        owner = owner_of(name)
        if owner is None or name == sidecar_name(owner) or (cut is not None and owner < cut.segment):
            continue
        start = 0
        if cut is not None and owner == cut.segment:
            if name != journal_name(owner):
                continue  # what its blob file has of the tail stays: nothing refers to it
            start = cut.at
        file = disk.open(f"{folder}/{name}", "read")
        size = file.size()
        file.close()
        if size > start:
            pieces.append(TailPiece(shard, name, start, size - start))
    return pieces


def _count_records(disk: Disk, folder: str, geometry: Geometry, piece: TailPiece, after_ts: Ts) -> tuple[int, list[Ts]]:
    """How many records a torn piece seems to have, and the first and the last ts. Frames are parsed by themselves."""
    count, first, last = 0, Ts(0), after_ts
    file = disk.open(f"{folder}/{piece.name}", "read")
    try:
        for frame_start in range(0, piece.start + piece.size, geometry.frame_bytes):
            if frame_start + geometry.frame_bytes <= piece.start:
                continue
            data = file.read(frame_start, geometry.frame_bytes)
            try:
                header = decode_header(data)
                is_continuation = bool(header.flags & CONTINUES)
                end = min(len(data), geometry.frame_bytes - CRC_BYTES)
                for opcode, flags, ts_relative, _, start, _, _, _ in skim(data, header.size, end):
                    if opcode >= CONTROL:
                        continue
                    is_counted, is_continuation = not is_continuation, False
                    if frame_start + start < piece.start or not is_counted:
                        continue
                    if flags & TS:
                        if header.ts + ts_relative <= last:
                            break  # not what a writer wrote here: from now on the bytes mean nothing
                        last = Ts(header.ts + ts_relative)
                        first = first or last
                    count += 1
            except Corruption:
                continue  # torn from here on; the next frame may be whole
    finally:
        file.close()
    return count, [first, last] if first else []


# --- setting it aside -------------------------------------------------------------------------------------------------


def set_aside_tail(
    disk: Disk, folder: str, tail: TornTail, cycle: Cycle, cuts: tuple[FilePosition | None, ...]
) -> CutTail | None:
    """Keep a copy of the ends that are about to be cut, and say what they are. None: there is nothing to cut.

    Whole files are moved by the cut itself (`loader.cut_tails`), into the folder that this names.
    """
    members: dict[str, Any] = {
        "cycle": cycle,
        "cuts": [None if cut is None else list(cut) for cut in cuts],
        "bytes": sum(piece.size for piece in tail.pieces),
        "records": tail.records,
        "first_ts": tail.first_ts,
        "last_ts": tail.last_ts,
    }
    try:
        begun = _begun_before(disk, folder, members)
        if begun is not None:
            _copy_ends(disk, folder, tail, begun.path)
            return begun
        if not tail.pieces:
            return None
        path = _make_folder(disk, folder)
        _copy_ends(disk, folder, tail, path)
        write_json(disk, f"{path}/{_TAIL_META}", members)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise DataDirectoryError(
            f"there is no space in {folder} to set aside {members['bytes']} bytes that a crash tore: make room, or "
            f"move folders in {folder}/{CUT_TAILS} elsewhere"
        ) from error
    return _as_cut(path, members)


def _as_cut(path: str, members: dict[str, Any]) -> CutTail:
    return CutTail(path, members["bytes"], members["records"], Ts(members["first_ts"]), Ts(members["last_ts"]))


def _begun_before(disk: Disk, folder: str, members: dict[str, Any]) -> CutTail | None:
    """The tail of a start that was cut short after it began to cut: nothing was written since."""
    numbers = list_cut_tails(disk, folder)
    if not numbers:
        return None
    path = cut_tail_path(folder, numbers[-1])
    try:
        known = read_json(disk, f"{path}/{_TAIL_META}")
    except (Corruption, FileNotFoundError):
        return None
    is_same = all(known.get(name) == members[name] for name in ("cycle", "cuts"))
    return _as_cut(path, known) if is_same else None


def _make_folder(disk: Disk, folder: str) -> str:
    """A folder for the next tail; those that are half-made or too many go."""
    parent = f"{folder}/{CUT_TAILS}"
    disk.make_folder(parent)
    disk.sync_folder(folder)
    numbers = list_cut_tails(disk, folder)
    half_made = [number for number in numbers if not disk.exists(f"{cut_tail_path(folder, number)}/{_TAIL_META}")]
    whole = [number for number in numbers if number not in half_made]
    for number in half_made + whole[: -(limits.CUT_TAILS_KEPT - 1)]:
        _remove(disk, cut_tail_path(folder, number))
    path = cut_tail_path(folder, max(whole, default=0) + 1)
    disk.make_folder(path)
    disk.sync_folder(parent)
    return path


def _copy_ends(disk: Disk, folder: str, tail: TornTail, path: str) -> None:
    for piece in tail.pieces:
        target_folder = f"{path}/shard-{piece.shard}"
        disk.make_folder(target_folder)
        disk.sync_folder(path)
        if piece.start:
            source = f"{shard_folder(folder, piece.shard)}/{piece.name}"
            copy_end(disk, source, piece, _free_name(disk, target_folder, source, piece))
            disk.sync_folder(target_folder)


def _free_name(disk: Disk, folder: str, source: str, piece: TailPiece) -> str:
    """Where a copy goes: to its name, unless something else that was cut at the same place has it."""
    path = f"{folder}/{piece.kept_name}"
    number = 2
    while disk.exists(path) and read_file(disk, path) != read_file(disk, source)[piece.start :]:
        path = f"{folder}/{piece.kept_name}.{number}"
        number += 1
    return path


def free_path(disk: Disk, path: str) -> str:
    """Where a whole file goes: there, unless one that was cut before has the name.

    A start that was cut short after its cut may have begun a segment of the same name.
    """
    found, number = path, 2
    while disk.exists(found):
        found = f"{path}.{number}"
        number += 1
    return found


def copy_end(disk: Disk, path: str, piece: TailPiece, target_path: str) -> None:
    """Copy a piece durably; the caller syncs the folder."""
    if disk.exists(target_path):
        disk.remove(target_path)
    source = disk.open(path, "read")
    try:
        target = disk.open(target_path, "create")
        try:
            for at in range(0, piece.size, _COPY_BYTES):
                data = source.read(piece.start + at, min(_COPY_BYTES, piece.size - at))
                write_all(target, at, [data])
            target.sync()
        finally:
            target.close()
    finally:
        source.close()


def _remove(disk: Disk, path: str) -> None:
    """A tail is none once its tail.json is gone."""
    if disk.exists(f"{path}/{_TAIL_META}"):
        disk.remove(f"{path}/{_TAIL_META}")
        disk.sync_folder(path)
    for name in disk.list(path):
        if name.startswith("shard-"):
            for leaf in disk.list(f"{path}/{name}"):
                disk.remove(f"{path}/{name}/{leaf}")
        disk.remove(f"{path}/{name}")
    disk.remove(path)


# --- what is kept -----------------------------------------------------------------------------------------------------


def cut_tail_path(folder: str, number: int) -> str:
    return f"{folder}/{CUT_TAILS}/tail-{number}"


def list_cut_tails(disk: Disk, folder: str) -> list[int]:
    """The numbers of the tails that are kept, oldest first. They count all tails that were ever cut."""
    parent = f"{folder}/{CUT_TAILS}"
    names = disk.list(parent) if disk.exists(parent) else []
    return sorted(int(match[1]) for name in names if (match := _NAME.fullmatch(name)))
