"""The frames of one shard as they are being written: bytes only, no disk.

Records are gathered as parts of the open frame. When the frame is full its parts become one chunk, with padding and
checksum; when the batch ends (`end_batch`) the rest becomes a chunk that ends with a mark. Chunks are what is written.

    file:   ... | mark |  r r r r ... pad crc | head r r r r r | mark |
                       ^ batch_start          ^ frame boundary         ^ position after end_batch
                       '------ chunk 1 ------''---- chunk 2 ---------'

So a chunk never crosses the start of a frame or the end of a mark, which is exactly what a mark's crc covers: it is
the crc of its own chunk.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from crc32c import crc32c

from tidelog import limits
from tidelog.errors import InternalError, LimitExceeded
from tidelog.ids import Cycle, Lsn, Ts
from tidelog.journal import blob, control, flit, record
from tidelog.journal.frame import CRC_BYTES, Geometry, encode_header
from tidelog.journal.record import BLOB, CONTROL, EXPIRE, FINISH, NEXT_CONT, TS
from tidelog.journal.segment import FilePosition
from tidelog.journal.staging import StagedBlob, joined_crc

# The heads of nearly all records: | opcode | flags | payload_len flit of 1 or 2 bytes | ts |
_pack_short = struct.Struct("<BBBI").pack
_pack_medium = struct.Struct("<BBHI").pack
_pack_bare = struct.Struct("<BBB").pack  # without a ts: not the first record of its transaction
_pack_short_expiring = struct.Struct("<BBBIQ").pack
_pack_bare_expiring = struct.Struct("<BBBQ").pack
_SHORT_HEAD: Final = 7
_MEDIUM_HEAD: Final = 8
_TS_FINISH: Final = TS | FINISH
_TS_SPAN_MAX: Final = limits.FRAME_TS_SPAN_US_MAX
_U32: Final = struct.Struct("<I")


_COPIED_BYTES_MAX: Final = 16 * limits.KIB
"""Up to here, copying a batch once more costs less than a second piece of it in the write and in the ring."""


class FileWrite:
    """Bytes to be written to a segment's file, in order and without gaps. Hot: one a cycle."""

    __slots__ = ("chunks", "position")

    def __init__(self, position: FilePosition, chunks: list[bytes]) -> None:
        self.position = position
        self.chunks = chunks


class BlobWrite:
    """A payload to be written to a blob file."""

    __slots__ = ("payload", "position", "staged_bytes")

    def __init__(self, position: FilePosition, payload: bytes, staged_bytes: int = 0) -> None:
        self.position = position
        self.payload = payload
        self.staged_bytes = staged_bytes
        """How much of the same value follows it, which was written before (`staging`)."""


class Batch:
    """What one shard has to write in one cycle. Hot."""

    __slots__ = ("blobs", "end", "sealed", "staged_bytes", "writes")

    def __init__(
        self,
        blobs: list[BlobWrite],
        writes: list[FileWrite],
        end: FilePosition,
        sealed: list[FilePosition],
        staged_bytes: int,
    ) -> None:
        self.blobs = blobs
        """To be written before the others."""
        self.writes = writes
        self.end = end
        """Where the journal of this shard ends after it."""
        self.sealed = sealed
        """The starts of the frames that were filled."""
        self.staged_bytes = staged_bytes
        """Of values that its records refer to and that were written before (`staging`)."""


class ShardState(NamedTuple):
    """Where a shard's journal ends: what a writer needs to go on."""

    end: FilePosition | None
    """After a mark. None: there is no segment yet, the first begins at `next_lsn`."""
    next_lsn: Lsn
    frame_ts: Ts
    """Base of the open frame."""
    frame_crc: int
    """Of the open frame's bytes up to the end."""
    database: int
    """The one that is selected at the end."""
    blob_end: int
    """The size of the last segment's blob file."""


class ShardWriter:
    """Encodes the records of one shard into chunks."""

    def __init__(self, geometry: Geometry, shard_count: int, state: ShardState) -> None:
        self._geometry = geometry
        self._mark_bytes = control.mark_bytes(shard_count)
        if self._mark_bytes > geometry.frame_bytes // 2:
            raise LimitExceeded(
                f"the mark of {shard_count} shards does not fit a frame of {geometry.frame_bytes} bytes"
            )
        self._frame_limit = geometry.frame_bytes - CRC_BYTES
        self._blob_over = geometry.payload_bytes_max
        self.next_lsn = state.next_lsn
        self.database = state.database
        self._frame_ts = state.frame_ts
        self._segment = state.next_lsn
        self._frame_start = 0
        self._chunk_start = 0
        self._batch_end = FilePosition(state.next_lsn, 0)
        """Where the last batch ended."""
        self._frame_crc = 0
        """Of the open frame up to `_chunk_start`."""
        self._room = -1
        """Bytes left for records in the open frame; negative: no frame is open."""
        self._parts: list[bytes] = []
        """Of the open frame, from `_chunk_start` on."""
        self._blob_end = 0
        self._blobs: list[BlobWrite] = []
        self._staged_bytes = 0
        self._writes: list[FileWrite] = []
        self._sealed: list[FilePosition] = []
        if state.end is not None:
            self._batch_end = state.end
            self._segment, self._chunk_start = state.end
            self._frame_start = self._chunk_start - self._chunk_start % geometry.frame_bytes
            self._frame_crc = state.frame_crc
            self._room = self._frame_start + self._frame_limit - self._chunk_start
            self._blob_end = state.blob_end

    @property
    def is_dirty(self) -> bool:
        return bool(self._parts or self._writes)

    @property
    def place(self) -> tuple[int, int, int]:
        """Where it ends if nothing is gathered: segment, position in it and in its blob file."""
        return self._segment, self._chunk_start, self._blob_end

    # --- records ------------------------------------------------------------------------------------------------

    def add_one(self, ts: Ts, opcode: int, payload: bytes, database: int) -> None:
        """A transaction of one record without expiry. Hot."""
        size = len(payload)
        ts_relative = ts - self._frame_ts
        if database == self.database and 0 <= ts_relative <= _TS_SPAN_MAX:
            if size < 128:
                room = self._room - size - _SHORT_HEAD
                if room >= 0:
                    self._parts += (_pack_short(opcode, _TS_FINISH, size << 1 | 1, ts_relative), payload)
                    self._room = room
                    self.next_lsn += 1  # type: ignore[assignment]  # a call of `Lsn` is measurable here
                    return
            elif size < 16384 and size <= self._blob_over:
                room = self._room - size - _MEDIUM_HEAD
                if room >= 0:
                    self._parts += (_pack_medium(opcode, _TS_FINISH, size << 2 | 2, ts_relative), payload)
                    self._room = room
                    self.next_lsn += 1  # type: ignore[assignment]
                    return
        self.add(ts, opcode, _TS_FINISH, payload, None, database)

    def add(self, ts: Ts, opcode: int, flags: int, payload: bytes, expire_ms: int | None, database: int) -> None:
        """Any record of an operation. `flags` has TS if it is its transaction's first here, FINISH if its last."""
        if not 0 < opcode < CONTROL or flags & ~_TS_FINISH:
            raise InternalError(f"opcode 0x{opcode:02x} with flags 0x{flags:02x} is not a record of an operation")
        if len(payload) < 128 and database == self.database and 0 <= ts - self._frame_ts <= _TS_SPAN_MAX:
            head = self._short_head(ts, opcode, flags, len(payload) << 1 | 1, expire_ms)
            room = self._room - len(payload) - len(head)
            if room >= 0:  # most records of a transaction with several
                self._parts += (head, payload)
                self._room = room
                self.next_lsn = Lsn(self.next_lsn + 1)
                return
        if len(payload) > limits.PAYLOAD_BYTES_MAX:
            raise LimitExceeded(f"a payload of {len(payload)} bytes: at most {limits.PAYLOAD_BYTES_MAX}")
        if self._room < 0 or not 0 <= ts - self._frame_ts <= _TS_SPAN_MAX:
            self._open_frame(ts)
        if database != self.database:
            self._select(ts, database)
        is_whale = len(payload) > self._blob_over
        size = blob.REFERENCE_BYTES if is_whale else len(payload)
        head_size = 2 + flit.size_of(size) + (4 if flags & TS else 0) + (8 if expire_ms is not None else 0)
        if head_size + size > self._room:
            split_at = self._room - head_size
            if not is_whale and split_at >= limits.SPLIT_ROOM_BYTES_MIN and not self._is_last_frame():
                self._add_split(ts, opcode, flags, payload, expire_ms, split_at)
                return
            self._open_frame(ts)
        if is_whale:
            payload = self._put_blob(payload)
            flags |= BLOB
        self._append_record(ts, opcode, flags, payload, expire_ms)
        self.next_lsn = Lsn(self.next_lsn + 1)

    def _short_head(self, ts: Ts, opcode: int, flags: int, size: int, expire_ms: int | None) -> bytes:
        """What `encode_header` makes for a payload whose size is one byte. Hot."""
        if expire_ms is None:
            if flags & TS:
                return _pack_short(opcode, flags, size, ts - self._frame_ts)
            return _pack_bare(opcode, flags, size)
        if flags & TS:
            return _pack_short_expiring(opcode, flags | EXPIRE, size, ts - self._frame_ts, expire_ms)
        return _pack_bare_expiring(opcode, flags | EXPIRE, size, expire_ms)

    def add_epoch(self, epoch: control.Epoch, ts: Ts) -> None:
        """An epoch begins. `ts` lies above all before it; it becomes the base of a frame that this opens."""
        encoded = control.encode_epoch(epoch)
        if self._room < len(encoded):
            self._open_frame(ts)
        self._append(encoded)

    def _append_record(self, ts: Ts, opcode: int, flags: int, payload: bytes, expire_ms: int | None) -> None:
        ts_relative = ts - self._frame_ts if flags & TS else None
        self._append(record.encode_header(opcode, flags, len(payload), ts_relative=ts_relative, expire_ms=expire_ms))
        self._append(payload)

    def _add_split(self, ts: Ts, opcode: int, flags: int, payload: bytes, expire_ms: int | None, split_at: int) -> None:
        start = self._frame_limit - self._room
        finish = flags & FINISH
        self._append_record(ts, opcode, flags ^ finish | NEXT_CONT, payload[:split_at], expire_ms)
        self.next_lsn = Lsn(self.next_lsn + 1)  # the head has the lsn, so the next frame begins after it
        self._begin_frame(ts, start)
        self._append(record.encode(opcode, finish, payload[split_at:]))
        self._append_selected()

    def _put_blob(self, payload: bytes) -> bytes:
        reference = blob.BlobReference(self._segment, self._blob_end, len(payload), crc32c(payload))
        self._blobs.append(BlobWrite(FilePosition(self._segment, self._blob_end), payload))
        self._blob_end += len(payload)
        return blob.encode_reference(reference)

    # --- values that are written before their records -----------------------------------------------------------

    def reserve(self, size: int, head_bytes: int) -> FilePosition:
        """Room for a value in the blob file, with room for a head before it; returns where the value goes."""
        start = self._blob_end + head_bytes
        self._blob_end = start + size
        return FilePosition(self._segment, start)

    def can_refer_to(self, staged: StagedBlob) -> bool:
        """Whether a record that is added now lies in the segment that the value belongs to, most probably."""
        return staged.position.segment == self._segment and (
            not self._is_last_frame() or self._room >= limits.RECORD_SPLIT_BYTES
        )

    def add_staged(
        self, ts: Ts, opcode: int, flags: int, head: bytes, staged: StagedBlob, expire_ms: int | None, database: int
    ) -> None:
        """A record whose payload is a head and a value that was staged. Each staged value is for one record."""
        if self._room < 0 or not 0 <= ts - self._frame_ts <= _TS_SPAN_MAX:
            self._open_frame(ts)
        if database != self.database:
            self._select(ts, database)
        if self._room < record.HEADER_BYTES_MAX + blob.REFERENCE_BYTES:
            self._open_frame(ts)
        size = len(head) + staged.size
        if staged.position.segment != self._segment or len(head) > limits.STAGED_HEAD_BYTES_MAX:
            # The segment ended meanwhile, and the value's blob file will be erased with it: write the value again.
            self.add(ts, opcode, flags, head + staged.value, expire_ms, database)
            return
        at = staged.position.at - len(head)
        # Also if it is empty: by its write the file is known to have changed.
        crc = joined_crc(crc32c(head), staged.crc, staged.size)
        self._blobs.append(BlobWrite(FilePosition(self._segment, at), head, staged.size))
        self._staged_bytes += staged.size
        reference = blob.encode_reference(blob.BlobReference(self._segment, at, size, crc))
        self._append_record(ts, opcode, flags | BLOB, reference, expire_ms)
        self.next_lsn = Lsn(self.next_lsn + 1)

    # --- databases ----------------------------------------------------------------------------------------------

    def _select(self, ts: Ts, database: int) -> None:
        self.database = database
        select = control.encode_select(database)
        if len(select) > self._room:
            self._open_frame(ts)  # it begins with the select
        else:
            self._append(select)

    def _append_selected(self) -> None:
        if self.database:
            self._append(control.encode_select(self.database))

    def _append(self, data: bytes) -> None:
        self._parts.append(data)
        self._room -= len(data)

    # --- frames and batches -------------------------------------------------------------------------------------

    def _is_last_frame(self) -> bool:
        return self._frame_start + self._geometry.frame_bytes >= self._geometry.segment_bytes

    def _open_frame(self, ts: Ts) -> None:
        """End the open frame, if any, and begin the next with whatever a reader must know first."""
        self._begin_frame(ts, None)
        self._append_selected()

    def _begin_frame(self, ts: Ts, prev_record_offset: int | None) -> None:
        if self._room >= 0:
            is_last = self._is_last_frame()
            self._seal_frame()
            self._frame_start = self._chunk_start
            if is_last:
                if self.next_lsn == self._segment:
                    raise InternalError(f"segment {self._segment:016x} is full and holds no record with an lsn")
                self._segment = self.next_lsn
                self._frame_start = self._chunk_start = self._blob_end = 0
        self._frame_ts = ts
        self._frame_crc = 0
        self._room = self._frame_limit
        self._append(encode_header(self.next_lsn, ts, prev_record_offset))

    def _seal_frame(self) -> None:
        self._parts.append(bytes(self._room))
        data = b"".join(self._parts)
        self._parts.clear()
        self._emit([data, _U32.pack(crc32c(data, self._frame_crc))])
        self._chunk_start = self._frame_start + self._geometry.frame_bytes
        self._sealed.append(FilePosition(self._segment, self._frame_start))
        self._room = -1

    def _emit(self, chunks: list[bytes]) -> None:
        if self._writes and self._writes[-1].position.segment == self._segment:
            self._writes[-1].chunks.extend(chunks)
        else:
            start = self._batch_end  # nearly always
            if start.segment != self._segment or start.at != self._chunk_start:
                start = FilePosition(self._segment, self._chunk_start)
            self._writes.append(FileWrite(start, chunks))

    def end_batch(self, cycle: Cycle, last_ts: Ts, synced_cycle: Cycle, ends: list[Lsn]) -> Batch:
        """End the batch with a mark and hand over what is to be written."""
        if self._room < self._mark_bytes:
            self._open_frame(last_ts)
        self._append(control.encode_mark_without_crc(cycle, last_ts, synced_cycle, ends))
        data = b"".join(self._parts)
        self._parts.clear()
        crc = _U32.pack(crc32c(data))
        self._room -= len(crc)
        self._emit([data + crc] if len(data) <= _COPIED_BYTES_MAX else [data, crc])
        self._frame_crc = crc32c(crc, crc32c(data, self._frame_crc))
        self._chunk_start += len(data) + len(crc)
        end = self._batch_end = FilePosition(self._segment, self._chunk_start)
        batch = Batch(self._blobs, self._writes, end, self._sealed, self._staged_bytes)
        self._blobs, self._writes, self._sealed = [], [], []
        self._staged_bytes = 0
        return batch
