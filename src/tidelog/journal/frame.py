"""Frames: the units in which a segment is read, each parseable by itself.

    | "DJ0" 3 | flags 1 | lsn 8 | ts 8 | [prev_record_offset 4] | records ... | zero padding | [crc32c 4] |

    flags  bit 0  CONTINUES  prev_record_offset is there: the first record continues one that starts there in the
                             frame before
           bit 1  CHECKSUM   the last 4 bytes are reserved for the CRC32C of all before them. Set when the frame is
                             begun and never rewritten; the CRC is written when the frame is full, and counts from
                             the first mark in a later frame on
           bits 2 to 7       reserved, must be zero
    lsn    of the first record in the frame that has one (the next one to come, if none has)
    ts     the base of the relative ts in the frame: at or below that of every record in it

A segment holds at most `frames_per_segment` of them, and every frame but its last is followed by another.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidelog import limits
from tidelog.errors import FormatError, LimitExceeded, NewerFormat
from tidelog.ids import Lsn, Ts
from tidelog.journal import record

MAGIC: Final = b"DJ0"
CONTINUES: Final = 0x01
CHECKSUM: Final = 0x02
RESERVED: Final = 0xFC

_HEADER: Final = struct.Struct("<3sBQQ")
_U32: Final = struct.Struct("<I")
HEADER_BYTES: Final = _HEADER.size
HEADER_BYTES_MAX: Final = _HEADER.size + _U32.size
CRC_BYTES: Final = 4


class FrameHeader(NamedTuple):
    """The head of a frame, decoded."""

    flags: int
    lsn: Lsn
    ts: Ts
    prev_record_offset: int | None
    size: int
    """How many bytes the head has: where the records begin."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """The sizes that a data directory is made with."""

    frame_bytes: int = limits.FRAME_BYTES_DEFAULT
    frames_per_segment: int = limits.FRAMES_PER_SEGMENT_MAX

    def __post_init__(self) -> None:
        # Far smaller frames than the configuration offers are legal here: simulations cross their edges often.
        if self.frame_bytes % 512 or not 1024 <= self.frame_bytes <= max(limits.FRAME_BYTES_CHOICES):
            raise LimitExceeded(f"a frame of {self.frame_bytes} bytes: it must be 1, 2 or 4 MiB")
        if not 1 <= self.frames_per_segment <= limits.FRAMES_PER_SEGMENT_MAX:
            raise LimitExceeded(
                f"{self.frames_per_segment} frames a segment: it must be 1 to {limits.FRAMES_PER_SEGMENT_MAX}"
            )

    @property
    def payload_bytes_max(self) -> int:
        """A larger payload goes to the blob file."""
        return self.frame_bytes // limits.BLOB_FRAME_FRACTION

    @property
    def segment_bytes(self) -> int:
        return self.frame_bytes * self.frames_per_segment


def encode_header(lsn: Lsn, ts: Ts, prev_record_offset: int | None = None) -> bytes:
    """The head of a new frame; ours always reserve a checksum."""
    if prev_record_offset is None:
        return _HEADER.pack(MAGIC, CHECKSUM, lsn, ts)
    return _HEADER.pack(MAGIC, CHECKSUM | CONTINUES, lsn, ts) + _U32.pack(prev_record_offset)


def decode_header(data: bytes, at: int = 0) -> FrameHeader:
    """The head at `data[at:]`; `FormatError` (position relative to `data`) if it is none."""
    if len(data) - at < HEADER_BYTES:
        raise FormatError(f"a frame's head is cut short at {len(data) - at} bytes", position=at)
    magic, flags, lsn, ts = _HEADER.unpack_from(data, at)
    if magic != MAGIC:
        raise FormatError(f"a frame begins with {magic!r} instead of {MAGIC!r}", position=at)
    if flags & RESERVED:
        raise NewerFormat(f"reserved bits are set in the flags 0x{flags:02x} of a frame", position=at + 3)
    if not flags & CONTINUES:
        return FrameHeader(flags, Lsn(lsn), Ts(ts), None, HEADER_BYTES)
    if len(data) - at < HEADER_BYTES_MAX:
        raise FormatError("a frame's head is cut short", position=at)
    (offset,) = _U32.unpack_from(data, at + HEADER_BYTES)
    return FrameHeader(flags, Lsn(lsn), Ts(ts), offset, HEADER_BYTES_MAX)


def records_end(flags: int, frame_bytes: int) -> int:
    """Where the room for records ends in a frame with these flags."""
    return frame_bytes - CRC_BYTES if flags & CHECKSUM else frame_bytes


assert record.HEADER_BYTES_MAX < limits.SPLIT_ROOM_BYTES_MIN
