"""Records: what a frame is filled with.

    | opcode 1 | flags 1 | payload_len flit | [padding_len 1] | [ts 4] | [expire 8] | payload | padding |

    flags  bit 0  TS         ts is there, relative to the frame's: the first record of a transaction.
                             Absent: as the record before, and for the first record of a frame the frame's
           bit 1  PADDED     padding_len is there
           bit 2  EXPIRE     expire is there (absolute ms)
           bit 3  NEXT_CONT  the next record continues this payload (it opens the next frame)
           bit 4  FINISH     the last record of this shard's part of its transaction
           bit 5  BLOB       the payload is a reference to a whale in the blob file
           bit 6, 7          reserved, must be zero (6 is kept for a before-image)

Opcode 0 ends the records of a frame. Opcodes of `CONTROL` and above, and continuations, have no lsn, so that lsns
do not depend on how batches and frames fell; they are transparent: the ts of the record before them goes on.

A record split over two frames keeps its ts and expire in its head; FINISH is on the part that ends it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

from tidelog.errors import FormatError, NewerFormat
from tidelog.journal import flit

TS: Final = 0x01
PADDED: Final = 0x02
EXPIRE: Final = 0x04
NEXT_CONT: Final = 0x08
FINISH: Final = 0x10
BLOB: Final = 0x20
RESERVED: Final = 0xC0

END: Final = 0x00
"""Opcode 0: no more records in this frame."""
CONTROL: Final = 0xF0
"""Opcodes from here on describe the journal itself and have no lsn."""

HEADER_BYTES_MAX: Final = 1 + 1 + flit.SIZE_MAX + 1 + 4 + 8

_U32: Final = struct.Struct("<I")
_U64: Final = struct.Struct("<Q")
_unpack_u64 = _U64.unpack_from


class Header(NamedTuple):
    """One record as it lies in a frame, without its payload."""

    opcode: int
    flags: int
    ts_relative: int
    """µs after the frame's ts; -1 when absent."""
    expire_ms: int
    """Absolute; -1 when absent."""
    start: int
    payload: int
    """Where the payload begins."""
    payload_end: int
    end: int
    """Where the next record begins: after the padding."""


_make_header: Final = partial(tuple.__new__, Header)


def encode(
    opcode: int,
    flags: int,
    payload: bytes,
    *,
    ts_relative: int | None = None,
    expire_ms: int | None = None,
    padding: int = 0,
) -> bytes:
    """One whole record; the flags for what is given are set here."""
    return (
        encode_header(opcode, flags, len(payload), ts_relative=ts_relative, expire_ms=expire_ms, padding=padding)
        + payload
        + bytes(padding)
    )


def encode_header(
    opcode: int,
    flags: int,
    payload_bytes: int,
    *,
    ts_relative: int | None = None,
    expire_ms: int | None = None,
    padding: int = 0,
) -> bytes:
    """What stands before the payload."""
    parts = [flit.encode(payload_bytes)]
    if padding:
        flags |= PADDED
        parts.append(padding.to_bytes(1, "little"))
    if ts_relative is not None:
        flags |= TS
        parts.append(_U32.pack(ts_relative))
    if expire_ms is not None:
        flags |= EXPIRE
        parts.append(_U64.pack(expire_ms))
    return bytes((opcode, flags)) + b"".join(parts)


def walk(data: bytes, position: int, end: int) -> Iterator[Header]:
    """The headers of the records in `data[position:end]`, up to opcode 0. Payloads are not looked at.

    A record that runs past `end`, or has a reserved bit, raises `FormatError` with its position in `data`; the
    caller, who knows the file and the frame, adds them.
    """
    return map(_make_header, skim(data, position, end))


def skim(data: bytes, position: int, end: int) -> Iterator[tuple[int, int, int, int, int, int, int, int]]:
    """As `walk`, with the fields of `Header` as plain tuples."""
    start = position
    while start < end:
        opcode, flags, ts_relative, expire_ms, at, payload_end, record_end = header_at(data, start, end)
        if not opcode:
            return
        yield opcode, flags, ts_relative, expire_ms, start, at, payload_end, record_end
        start = record_end


def header_at(data: bytes, start: int, end: int) -> tuple[int, int, int, int, int, int, int]:
    """The fields of `Header` but `start`; opcode 0: there is none. Hot: it runs once for each record that is read."""
    try:
        opcode = data[start]
        if not opcode:
            return 0, 0, -1, -1, start, start, start
        flags = data[start + 1]
        first = data[start + 2]
        if first & 1:
            size = first >> 1
            at = start + 3
        elif first & 2:
            size = (first | data[start + 3] << 8) >> 2
            at = start + 4
        else:
            size, at = flit.decode(data, start + 2)
        ts_relative = expire_ms = -1
        padding = 0
        if flags & 0xC7:
            if flags & RESERVED:
                raise NewerFormat(f"reserved bits are set in the flags 0x{flags:02x} of a record", position=start)
            if flags & PADDED:
                padding = data[at]
                at += 1
            if flags & TS:
                ts_relative = data[at] | data[at + 1] << 8 | data[at + 2] << 16 | data[at + 3] << 24
                at += 4
            if flags & EXPIRE:
                (expire_ms,) = _unpack_u64(data, at)
                at += 8
        payload_end = at + size
        record_end = payload_end + padding
        if record_end > end:
            raise FormatError(f"a record of {record_end - start} bytes runs past the end", position=start)
        return opcode, flags, ts_relative, expire_ms, at, payload_end, record_end
    except (IndexError, struct.error):
        raise FormatError("a record's header runs past the end", position=start) from None
