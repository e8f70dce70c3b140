"""Where a reader's bytes come from: the ring if it still has them, otherwise the files.

A file stays open while its segment is being read, so a reader can read a segment that is erased meanwhile to its end.
The next segment is then missing, and the reader gets an error that says so.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from crc32c import crc32c

from tidelog.errors import Corruption, TooOld
from tidelog.ids import Lsn, ShardId
from tidelog.journal.blob import BlobPieces, BlobReference, check_blob, read_blob
from tidelog.journal.control import MARK, MARK_CRC_BYTES
from tidelog.journal.frame import CRC_BYTES, HEADER_BYTES_MAX, FrameHeader, Geometry, decode_header
from tidelog.journal.layout import rewrite
from tidelog.journal.record import skim
from tidelog.journal.ring import Ring
from tidelog.journal.segment import blob_name, journal_name, list_segments
from tidelog.ports import Disk, File


class ShardSource:
    """The bytes of one shard's files."""

    def __init__(
        self,
        disk: Disk,
        folder: str,
        geometry: Geometry,
        shard: ShardId,
        ring: Ring | None = None,
        on_read: Callable[[int], None] | None = None,
    ) -> None:
        self._disk = disk
        self.folder = folder
        self.geometry = geometry
        self.shard = shard
        self._ring = ring
        self._on_read = on_read
        """Called with how many bytes were read from the files, to show progress."""
        self._files: dict[str, File] = {}
        """The segment and the blob file read last."""

    def segments(self) -> list[Lsn]:
        return list_segments(self._disk, self.folder)

    def has_segment(self, segment: Lsn) -> bool:
        return self._disk.exists(self.path(segment))

    def path(self, segment: Lsn) -> str:
        return f"{self.folder}/{journal_name(segment)}"

    def held(self, segment: Lsn, start: int, end: int) -> bytes | None:
        """The bytes from `start` to `end` as they were written, if the ring still has all of them."""
        return None if self._ring is None else self._ring.read(self.shard, segment, start, end)

    def read(self, segment: Lsn, start: int, end: int) -> bytes:
        """The bytes from `start` to `end`; fewer if the file ends before."""
        data = self.held(segment, start, end)
        if data is not None:
            return data
        file = self._open(segment, journal_name(segment))
        try:
            data = file.read(start, end - start)
        except OSError as error:
            # Not damage: what cannot be read now may be whole, and must never be cut like a torn tail.
            raise OSError(error.errno, f"{error.strerror or error} at position {start}", file.path) from error
        if self._on_read is not None:
            self._on_read(len(data))
        return data

    def size(self, segment: Lsn) -> int:
        return self._open(segment, journal_name(segment)).size()

    def sealed_frame(self, segment: Lsn, start: int) -> bytes:
        """A whole frame that is full, proved by its checksum."""
        data = self.read(segment, start, start + self.geometry.frame_bytes)
        end = self.geometry.frame_bytes - CRC_BYTES
        if len(data) <= end or crc32c(memoryview(data)[:end]) != int.from_bytes(data[end:], "little"):
            raise self.located(Corruption("the checksum of the frame is wrong"), segment, start)
        return data

    def proved_header(self, segment: Lsn) -> FrameHeader:
        """The head of a segment's first frame, proved by the frame's checksum or, while that is open, by a mark."""
        data = self.read(segment, 0, self.geometry.frame_bytes)
        try:
            header = decode_header(data)
            end = self.geometry.frame_bytes - CRC_BYTES
            if len(data) > end and crc32c(memoryview(data)[:end]) == int.from_bytes(data[end:], "little"):
                return header
            for opcode, _, _, _, _, _, payload_end, _ in skim(data, header.size, min(len(data), end)):
                if opcode == MARK:
                    crc_at = payload_end - MARK_CRC_BYTES
                    if crc32c(memoryview(data)[:crc_at]) == int.from_bytes(data[crc_at:payload_end], "little"):
                        return header
                    break
            raise Corruption("nothing proves the head of the segment")
        except Corruption as error:
            raise self.located(error, segment, 0) from None

    def blob_size(self, segment: Lsn) -> int:
        return self._open(segment, blob_name(segment)).size()

    def frame_header(self, segment: Lsn, start: int) -> FrameHeader:
        data = self.read(segment, start, start + HEADER_BYTES_MAX)
        try:
            return decode_header(data)
        except Corruption as error:
            raise self.located(error, segment, start) from None

    def read_blob(self, reference: BlobReference) -> bytes:
        if self._on_read is not None:
            self._on_read(reference.length)
        return read_blob(self._open(reference.segment, blob_name(reference.segment)), reference)

    def blob_pieces(self, reference: BlobReference) -> BlobPieces:
        name = blob_name(reference.segment)
        missing = partial(self._missing, reference.segment, name)
        return BlobPieces(self._disk, f"{self.folder}/{name}", reference, missing)

    def check_blob(self, reference: BlobReference) -> None:
        check_blob(self._open(reference.segment, blob_name(reference.segment)), reference)

    def write_blob_again(self, reference: BlobReference) -> None:
        """Write a whale in its own place again (see `loader`)."""
        file = self._disk.open(f"{self.folder}/{blob_name(reference.segment)}", "write")
        try:
            rewrite(file, reference.position, reference.position + reference.length)
        finally:
            file.close()

    def _open(self, segment: Lsn, name: str) -> File:
        file = self._files.get(name)
        if file is None:
            kind = name[:4]
            for other in [other for other in self._files if other[:4] == kind]:
                self._files.pop(other).close()
            try:
                file = self._disk.open(f"{self.folder}/{name}", "read")
            except FileNotFoundError:
                raise self._missing(segment, name) from None
            self._files[name] = file
        return file

    def _missing(self, segment: Lsn, name: str) -> Exception:
        segments = self.segments()
        path = f"{self.folder}/{name}"
        if segments and segments[0] > segment:
            return TooOld(f"{path} has been erased; the journal begins at lsn {segments[0]}", oldest=segments[0])
        return Corruption("the file is missing", path=path)

    def located(self, error: Corruption, segment: Lsn, base: int) -> Corruption:
        """The same error with file, frame and position; its own position counts from `base`."""
        at = base + (error.position or 0)
        return type(error)(error.problem, path=self.path(segment), frame=at // self.geometry.frame_bytes, position=at)

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()
