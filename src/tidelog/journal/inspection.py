"""Looking into a journal: what `tidelog journal ls` and `show` are made of.

    locate             what a path is: a data directory, a snapshot, or one shard of either
    list_snapshots     the snapshots of a data directory, also half-written and damaged ones
    ShardInspection    the segments and frames of one shard; its records are for `record_inspection`

It reads only and takes no lock, so it may look at a directory that a server is writing, and at a damaged one. Damage
never ends it: a frame that cannot be described is passed over (the next one can be parsed by itself), and
`ShardInspection.damage` says afterwards what was wrong and where. The bytes behind the last mark are a `tail`, not
damage: the server is writing them right now, or the next start cuts them. The marks of the last frame tell a tail from
damage; `verify` looks at all shards and is the authority.

Memory: one frame.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from crc32c import crc32c

from tidelog.errors import Corruption, DataDirectoryError, FormatError, TooOld
from tidelog.hlc import read_stored_ts
from tidelog.ids import Lsn, ShardId, Ts
from tidelog.journal import control, record
from tidelog.journal.frame import CONTINUES, CRC_BYTES, FrameHeader, decode_header
from tidelog.journal.layout import ERASED, META, SNAPSHOTS, Meta, SnapshotPoint, read_meta, shard_folder
from tidelog.journal.record import CONTROL, TS
from tidelog.journal.scan import find_marks
from tidelog.journal.segment import blob_name, journal_name, owner_of
from tidelog.journal.source import ShardSource
from tidelog.ports import Disk

_SHARD: Final = re.compile(r"shard-([0-9]{1,3})")
_SNAPSHOT: Final = re.compile(r"snapshot-[0-9a-f]{16}(\.partial)?")


# --- what is described ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JournalFolder:
    """A folder with a journal: a data directory, a snapshot, or one shard of either."""

    kind: Literal["data", "snapshot"]
    folder: str
    """Of the data directory or snapshot, also if one of its shards was named."""
    meta: Meta
    shards: tuple[ShardId, ...]
    """All of them, or the one that was named."""
    is_shard: bool
    """The path was the folder of a shard."""


class SnapshotInfo(NamedTuple):
    """A snapshot in a data directory."""

    name: str
    state: Literal["complete", "partial", "damaged"]
    """partial: half-written, and removed by the next start or snapshot."""
    point: SnapshotPoint | None
    size_bytes: int
    damage: Corruption | None


class SegmentInfo(NamedTuple):
    """A segment, from its file sizes and the heads of its first and last frame."""

    shard: ShardId
    first_lsn: Lsn
    file: str
    frames: int
    """How many have begun."""
    size_bytes: int
    blob_bytes: int
    first_ts: Ts | None
    """At or below that of every record in it; None: the head of its first frame cannot be read."""
    last_frame_ts: Ts | None
    """At or below that of every record in its last frame."""
    is_sealed: bool
    """Full, and followed by another."""


class FrameInfo(NamedTuple):
    """A frame, walked."""

    shard: ShardId
    segment: Lsn
    frame: int
    """Its index in the segment."""
    position: int
    """Bytes from the start of the file."""
    lsn: Lsn | None
    """None, as all that the head says: it cannot be read."""
    ts: Ts | None
    flags: int
    prev_record_offset: int | None
    records: int
    """That have an lsn."""
    last_ts: Ts | None
    """Of the newest transaction with a record in it."""
    used_bytes: int
    checksum: Literal["ok", "open", "BAD"]
    """open: it is the last one, which only its marks vouch for."""


class Tail(NamedTuple):
    """The end of a shard that no mark vouches for."""

    path: str
    position: int
    size_bytes: int


# --- what a path is ---------------------------------------------------------------------------------------------------


def locate(disk: Disk, path: str) -> JournalFolder:
    """Find out what a path is; `DataDirectoryError` if it is nothing of ours."""
    folder = posixpath.normpath(path)
    if not disk.exists(folder):
        raise DataDirectoryError(f"{path} does not exist")
    if not disk.exists(f"{folder}/{META}"):
        holder, match = posixpath.dirname(folder) or ".", _SHARD.fullmatch(posixpath.basename(folder))
        if match is not None and disk.exists(f"{holder}/{META}"):
            found = locate(disk, holder)
            if int(match[1]) not in found.shards:
                raise DataDirectoryError(f"{path} is none of the {len(found.shards)} shards of {holder}")
            return JournalFolder(found.kind, holder, found.meta, (ShardId(int(match[1])),), True)
    meta = read_meta(disk, folder)
    shards = tuple(ShardId(shard) for shard in range(meta.shard_count))
    return JournalFolder("data" if meta.point is None else "snapshot", folder, meta, shards, False)


def list_snapshots(disk: Disk, folder: str) -> Iterator[SnapshotInfo]:
    """The snapshots of a data directory, oldest first."""
    parent = f"{folder}/{SNAPSHOTS}"
    for name in disk.list(parent) if disk.exists(parent) else []:
        match = _SNAPSHOT.fullmatch(name)
        if match is None:
            continue
        try:
            yield _describe_snapshot(disk, f"{parent}/{name}", name, is_partial=bool(match[1]))
        except FileNotFoundError:
            continue  # removed while we looked


def _describe_snapshot(disk: Disk, path: str, name: str, *, is_partial: bool) -> SnapshotInfo:
    size = _size_of_tree(disk, path)
    if is_partial:
        return SnapshotInfo(name, "partial", None, size, None)
    try:
        return SnapshotInfo(name, "complete", read_meta(disk, path).point, size, None)
    except Corruption as error:
        return SnapshotInfo(name, "damaged", None, size, error)
    except DataDirectoryError as error:
        return SnapshotInfo(name, "damaged", None, size, Corruption(str(error), path=path))


def _size_of_tree(disk: Disk, path: str) -> int:
    folders = [path, *(f"{path}/{name}" for name in disk.list(path) if _SHARD.fullmatch(name))]
    return sum(
        _size_of(disk, f"{folder}/{name}")
        for folder in folders
        for name in disk.list(folder)
        if not _SHARD.fullmatch(name)
    )


def _size_of(disk: Disk, path: str) -> int:
    file = disk.open(path, "read")
    try:
        return file.size()
    finally:
        file.close()


# --- one shard --------------------------------------------------------------------------------------------------------


class Frame(NamedTuple):
    """The bytes of a frame and where they lie."""

    segment: Lsn
    number: int
    """Its index in the segment."""
    at: int
    data: bytes
    is_followed: bool
    """By another one, so that its checksum counts."""


class Examined(NamedTuple):
    """What vouches for a frame."""

    header: FrameHeader | None
    """None: it cannot be read."""
    proved: int
    """Up to here its bytes are vouched for."""
    is_damaged: bool


class ShardInspection:
    """Describes what one shard holds. `damage` and `tail` speak of what has been looked at so far."""

    def __init__(
        self, disk: Disk, folder: JournalFolder, shard: ShardId, on_read: Callable[[int], None] | None = None
    ) -> None:
        self._folder = folder
        self._frame_bytes = folder.meta.geometry.frame_bytes
        self.disk = disk
        self.source = ShardSource(
            disk, shard_folder(folder.folder, shard), folder.meta.geometry, shard, on_read=on_read
        )
        self.shard = shard
        self._damage: list[Corruption] = []
        self.tail: Tail | None = None

    @property
    def damage(self) -> list[Corruption]:
        """What was found to be wrong so far; what is being erased is no damage, whatever it looks like."""
        if not self._damage:
            return []
        first_kept = self._first_kept()
        owners = [owner_of(posixpath.basename(error.path)) for error in self._damage]
        return [
            error for error, owner in zip(self._damage, owners, strict=True) if owner is None or owner >= first_kept
        ]

    def _first_kept(self) -> Lsn:
        """The oldest segment that is not being erased.

        Its files vanish one by one. That they will is durable before the first does: the erased-through ts is then at
        or above that of the segment after it.
        """
        segments = self.list_segments()
        try:
            erased = read_stored_ts(self.disk, self._folder.folder, ERASED)
        except (Corruption, FileNotFoundError):
            erased = None  # then only what is gone counts as erased
        kept = 0
        while erased is not None and kept + 1 < len(segments) and self._begins_by(segments[kept + 1], erased.ts):
            kept += 1
        return segments[kept] if segments else Lsn(0)

    def _begins_by(self, segment: Lsn, ts: Ts) -> bool:
        try:
            return self.source.frame_header(segment, 0).ts <= ts
        except TooOld:
            return True  # gone by now
        except Corruption:
            return False

    def close(self) -> None:
        self.source.close()

    def list_segments(self) -> list[Lsn]:
        """The first lsns of the segments; none, and damage, if the folder is missing."""
        try:
            return self.source.segments()
        except FileNotFoundError:
            if not any(error.path == self.source.folder for error in self._damage):
                self._damage.append(Corruption("the folder of the shard is missing", path=self.source.folder))
            return []

    def note(self, error: Corruption, segment: Lsn, base: int) -> None:
        """Remember damage; its position, if it has no path yet, counts from `base`."""
        self._damage.append(error if error.path else self.source.located(error, segment, base))

    # --- segments -----------------------------------------------------------------------------------------------

    def segments(self) -> Iterator[SegmentInfo]:
        """The segments, oldest first. Only sizes and heads of frames are read."""
        firsts = self.list_segments()
        for first in firsts:
            try:
                yield self._describe_segment(first, is_sealed=first != firsts[-1])
            except TooOld:
                continue  # erased while we looked

    def _describe_segment(self, first: Lsn, *, is_sealed: bool) -> SegmentInfo:
        size = self.source.size(first)
        frames = -(-size // self._frame_bytes)
        if is_sealed and size < self.source.geometry.segment_bytes:
            self.note(Corruption(f"{size} bytes, but a segment follows: the file was cut", position=size), first, 0)
        heads = [self._head(first, index, is_last=not is_sealed) for index in sorted({0, frames - 1} - {-1})]
        if heads and heads[0] is not None and heads[0].lsn != first:
            self.note(Corruption(f"the first frame begins at lsn {heads[0].lsn}, not at {first}"), first, 0)
        blob = f"{self.source.folder}/{blob_name(first)}"
        return SegmentInfo(
            self.shard,
            first,
            journal_name(first),
            frames,
            size,
            _size_of(self.disk, blob) if self.disk.exists(blob) else 0,
            heads[0].ts if heads and heads[0] else None,
            heads[-1].ts if heads and heads[-1] else None,
            is_sealed or self._folder.kind == "snapshot",
        )

    def _head(self, segment: Lsn, index: int, *, is_last: bool) -> FrameHeader | None:
        at = index * self._frame_bytes
        try:
            return self.source.frame_header(segment, at)
        except Corruption as error:
            if not is_last or self._read_frame(segment, at, is_last).is_followed:
                self.note(error, segment, at)
            else:
                self.examine(self._read_frame(segment, at, is_last))  # a torn end is no damage
            return None

    # --- frames -------------------------------------------------------------------------------------------------

    def frames(self) -> Iterator[FrameInfo]:
        """The frames in order, each of them read, walked and checked."""
        for frame in self.read_frames():
            if frame is None:
                continue
            examined = self.examine(frame)
            header = examined.header
            records, used, last_ts = 0, 0, None
            if header is not None:
                is_continuation = bool(header.flags & CONTINUES)
                used = header.size
                for found in self.walk(frame, examined):
                    if found.opcode < CONTROL:
                        records += not is_continuation
                        is_continuation = False
                        last_ts = Ts(header.ts + found.ts_relative) if found.flags & TS else last_ts or header.ts
                    used = found.end
            yield FrameInfo(
                self.shard,
                frame.segment,
                frame.number,
                frame.at,
                header.lsn if header else None,
                header.ts if header else None,
                header.flags if header else 0,
                header.prev_record_offset if header else None,
                records,
                last_ts,
                used,
                "BAD" if examined.is_damaged else "ok" if frame.is_followed else "open",
            )

    def read_frames(
        self, start: tuple[Lsn, int] | None = None, skip: Callable[[Lsn, int], bool] | None = None
    ) -> Iterator[Frame | None]:
        """The frames from one on; None stands for those that were skipped."""
        segments = self.list_segments()
        for segment in segments:
            if start is not None and segment < start[0]:
                continue
            at = start[1] * self._frame_bytes if start is not None and segment == start[0] else 0
            is_last = segment == segments[-1]
            try:
                while at < self.source.geometry.segment_bytes:
                    if skip is not None and skip(segment, at // self._frame_bytes):
                        yield None
                    else:
                        frame = self._read_frame(segment, at, is_last)
                        if not frame.data:
                            break
                        yield frame
                        if is_last and not frame.is_followed:
                            return  # read while it was open: going on behind it would leave out what it got since
                    at += self._frame_bytes
            except TooOld:
                yield None  # erased while we looked
                continue
            if not is_last and (size := self.source.size(segment)) < self.source.geometry.segment_bytes:
                error = Corruption("the file ends before the segment does", position=size)
                self.note(error, segment, 0)

    def _read_frame(self, segment: Lsn, at: int, is_last_segment: bool) -> Frame:
        data = self.source.read(segment, at, at + self._frame_bytes)
        after = at + self._frame_bytes
        # Asked only now: what was full when it was read stays as it is, whatever is being written.
        is_followed = len(data) == self._frame_bytes and (
            not is_last_segment or bool(self.source.read(segment, after, after + 1))
        )
        return Frame(segment, at // self._frame_bytes, at, data, is_followed)

    def examine(self, frame: Frame) -> Examined:
        """Find out what vouches for a frame; damage and tail are noted."""
        data = frame.data
        try:
            header = decode_header(data)
        except FormatError as error:
            header = None
            problem: Corruption = error
        else:
            end = self._frame_bytes - CRC_BYTES
            if frame.is_followed and crc32c(memoryview(data)[:end]) == int.from_bytes(data[end:], "little"):
                return Examined(header, end, False)
            problem = Corruption("the checksum of the frame is wrong")
        proved, cycle = _proved_by_marks(data, header, self._frame_bytes - CRC_BYTES)
        if not frame.is_followed:
            if not data[proved:].strip(b"\0"):
                return Examined(header, proved, False)
            shard_count = self._folder.meta.shard_count
            if self._folder.kind == "data" and all(mark.cycle <= cycle for mark in find_marks(data, shard_count)):
                path = self.source.path(frame.segment)
                self.tail = Tail(path, frame.at + proved, len(data) - proved)
                return Examined(header, proved, False)
            if header is not None:
                problem = Corruption("what follows is not under a valid mark")
        problem.position = proved if header is not None else problem.position
        self.note(problem, frame.segment, frame.at)
        return Examined(header, proved, True)

    def walk(self, frame: Frame, examined: Examined) -> Iterator[record.Header]:
        """The records of a frame, as far as they can be told apart."""
        assert examined.header is not None
        try:
            yield from record.walk(
                frame.data, examined.header.size, min(len(frame.data), self._frame_bytes - CRC_BYTES)
            )
        except FormatError as error:
            # In the part that nothing vouches for this was to be expected, and has been noted.
            if (error.position or 0) < examined.proved:
                self.note(error, frame.segment, frame.at)


def _proved_by_marks(data: bytes, header: FrameHeader | None, end: int) -> tuple[int, int]:
    """How far the marks of a frame vouch for it without a gap, and the last cycle they name."""
    proved, cycle = 0, -1
    if header is None:
        return proved, cycle
    try:
        for found in record.walk(data, header.size, min(len(data), end)):
            if found.opcode == control.MARK:
                mark = control.decode_mark(data[found.payload : found.payload_end])
                if crc32c(memoryview(data)[proved : found.payload_end - control.MARK_CRC_BYTES]) != mark.crc:
                    break
                proved, cycle = found.end, mark.cycle
    except FormatError:
        return proved, cycle  # the marks after it cannot be reached
    return proved, cycle
