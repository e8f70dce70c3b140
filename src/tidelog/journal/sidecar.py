"""Sidecars: an index of each sealed frame, so that a reader that looks for a few keys need not read the frame.

    sidecar-<first lsn>.idx:  | "TLSC" 4 | entry | entry | ...         one entry a sealed frame, in order

    entry  | body_len 4 | crc32c of the body 4 | body |
    body   | frame 2 | flags 2 | first_lsn 8 | end_lsn 8 | first_ts 8 | last_ts 8 | smallest_len 2 | largest_len 2 |
           | bloom_len 4 | smallest key | largest key | bloom filter |
    flags  bit 0  EVERY_KEY   a record names all keys (FLUSHDB), or has an unknown opcode: the frame may hold anything
           bit 1  LARGEST_CUT the largest key was cut: keys beyond what is here may be in the frame

A record that is split over two frames counts for both. Keys are named without their database: a filter that says yes
once too often costs a read, never an event.

A sidecar holds nothing that the frames do not: it is not fsynced, and one that is missing, torn or damaged is made anew
from the frames.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from tidelog import limits
from tidelog.errors import Corruption
from tidelog.ids import Lsn, Ts
from tidelog.journal.blob import decode_reference
from tidelog.journal.frame import CONTINUES, CRC_BYTES, HEADER_BYTES_MAX, decode_header
from tidelog.journal.layout import read_file, write_all, write_file
from tidelog.journal.operation import OperationTable
from tidelog.journal.record import BLOB, CONTROL, NEXT_CONT, TS, skim, walk
from tidelog.journal.record import HEADER_BYTES_MAX as RECORD_HEADER_BYTES_MAX
from tidelog.journal.segment import sidecar_name
from tidelog.journal.source import ShardSource
from tidelog.ports import Disk

_MAGIC: Final = b"TLSC"
_ENTRY: Final = struct.Struct("<II")
_BODY: Final = struct.Struct("<HHQQQQHHI")
_EVERY_KEY: Final = 0x01
_LARGEST_CUT: Final = 0x02

KeyHashes = npt.NDArray[np.uint64]


class FrameSummary(NamedTuple):
    """What a sealed frame holds."""

    frame: int
    """Its index in the segment."""
    flags: int
    first_lsn: Lsn
    end_lsn: Lsn
    """Of the first record after it."""
    first_ts: Ts
    last_ts: Ts
    smallest: bytes
    """At or below every key in it."""
    largest: bytes
    """At or above every key in it, unless it was cut."""
    bloom: bytes

    def may_hold_key(self, key: bytes) -> bool:
        """False: the frame has no record that names this key."""
        if self.flags & _EVERY_KEY:
            return True
        return bool(self.bloom) and self._in_range(key, key + b"\0") and _bloom_has(self.bloom, key)

    def may_hold_span(self, start: bytes, end: bytes) -> bool:
        """False: the frame has no record that names a key in `[start, end)`; an empty end is unbounded."""
        return bool(self.flags & _EVERY_KEY) or (bool(self.bloom) and self._in_range(start, end))

    def _in_range(self, start: bytes, end: bytes) -> bool:
        if end and self.smallest >= end:
            return False
        return bool(self.flags & _LARGEST_CUT) or self.largest >= start


# --- making them ------------------------------------------------------------------------------------------------------


def summarise_frame(source: ShardSource, segment: Lsn, frame: int, table: OperationTable) -> FrameSummary:
    """Read one sealed frame, check it, and say what it holds."""
    size = source.geometry.frame_bytes
    start = frame * size
    data = source.sealed_frame(segment, start)
    header = decode_header(data)
    lsn, first_ts, last_ts = header.lsn, -1, int(header.ts)
    keys: set[bytes] = set()
    every_key = False
    is_continuation = bool(header.flags & CONTINUES)
    for opcode, flags, ts_relative, _, at, payload_at, payload_end, _ in skim(data, header.size, size - CRC_BYTES):
        if opcode >= CONTROL:
            continue
        if flags & TS:
            last_ts = header.ts + ts_relative
        first_ts = last_ts if first_ts < 0 else first_ts
        payload = data[payload_at:payload_end]
        if is_continuation:
            assert header.prev_record_offset is not None
            payload = _payload_before(source, segment, frame, header.prev_record_offset) + payload
            is_continuation = False
        else:
            lsn = Lsn(lsn + 1)
        if flags & NEXT_CONT:
            payload += _payload_after(source, segment, frame)
        if flags & BLOB:
            payload = source.read_blob(decode_reference(payload))
        try:
            named = table.keys(opcode, payload)
        except Corruption as error:
            error.position = at
            raise source.located(error, segment, start) from None
        if named is None:
            every_key = True
        else:
            keys.update(named)
    return _summary(frame, every_key, header.lsn, lsn, Ts(max(first_ts, 0)), Ts(last_ts), keys)


def _payload_before(source: ShardSource, segment: Lsn, frame: int, offset: int) -> bytes:
    """The part of a split record that lies in the frame before."""
    start = (frame - 1) * source.geometry.frame_bytes
    data = source.read(segment, start + offset, start + source.geometry.frame_bytes - CRC_BYTES)
    head = next(walk(data, 0, len(data)))
    return data[head.payload : head.payload_end]


def _payload_after(source: ShardSource, segment: Lsn, frame: int) -> bytes:
    """The part of a split record that lies in the frame after."""
    start = (frame + 1) * source.geometry.frame_bytes
    head_size = HEADER_BYTES_MAX + RECORD_HEADER_BYTES_MAX
    data = source.read(segment, start, start + head_size + source.geometry.payload_bytes_max)
    header = decode_header(data)
    # The rest of the frame may not be there yet; only the first record has to be.
    head = next(walk(data, header.size, len(data)))
    return data[head.payload : head.payload_end]


def _summary(
    frame: int, every_key: bool, first: Lsn, end: Lsn, first_ts: Ts, last_ts: Ts, keys: set[bytes]
) -> FrameSummary:
    flags = _EVERY_KEY if every_key else 0
    smallest = largest = bloom = b""
    if keys:
        smallest = min(keys)[: limits.SIDECAR_KEY_BYTES_MAX]
        largest = max(keys)
        if len(largest) > limits.SIDECAR_KEY_BYTES_MAX:
            largest = largest[: limits.SIDECAR_KEY_BYTES_MAX]
            flags |= _LARGEST_CUT
        bloom = _bloom_of(keys)
    return FrameSummary(frame, flags, first, end, first_ts, last_ts, smallest, largest, bloom)


def _bloom_bits(hashes: KeyHashes, bloom_bits: int) -> KeyHashes:
    """The bits of keys with these 64-bit hashes: double hashing with the two halves."""
    # Two CRCs are linear in the key; multiplying breaks that up before they are used as a pair.
    mixed = (hashes ^ (hashes >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    low, high = mixed & np.uint64(0xFFFFFFFF), (mixed >> np.uint64(32)) | np.uint64(1)
    steps = np.arange(limits.SIDECAR_BLOOM_HASHES, dtype=np.uint64)
    bits: KeyHashes = (low[:, None] + steps * high[:, None]) % np.uint64(bloom_bits)
    return bits


def _hash(keys: Iterable[bytes]) -> KeyHashes:
    return np.array([crc32c(key) << 32 | zlib.crc32(key) for key in keys], dtype=np.uint64)


def _bloom_of(keys: set[bytes]) -> bytes:
    size = min(max(len(keys) * limits.SIDECAR_BLOOM_BITS_PER_KEY // 8, 8), limits.SIDECAR_BLOOM_BYTES_MAX)
    bits = np.zeros(size * 8, dtype=np.uint8)
    bits[_bloom_bits(_hash(keys), size * 8).ravel()] = 1
    return np.packbits(bits).tobytes()


def _bloom_has(bloom: bytes, key: bytes) -> bool:
    bits = _bloom_bits(_hash([key]), len(bloom) * 8)[0].tolist()
    return all(bloom[bit >> 3] & (0x80 >> (bit & 7)) for bit in bits)


# --- keeping them -----------------------------------------------------------------------------------------------------


def encode_summary(summary: FrameSummary) -> bytes:
    body = (
        _BODY.pack(*summary[:6], len(summary.smallest), len(summary.largest), len(summary.bloom))
        + summary.smallest
        + summary.largest
        + summary.bloom
    )
    return _ENTRY.pack(len(body), crc32c(body)) + body


def decode_summaries(data: bytes) -> list[FrameSummary]:
    """The entries up to the first that is torn, damaged or out of order."""
    found: list[FrameSummary] = []
    at = len(_MAGIC)
    if data[:at] != _MAGIC:
        return found
    while at + _ENTRY.size + _BODY.size <= len(data):
        size, crc = _ENTRY.unpack_from(data, at)
        at += _ENTRY.size
        body = data[at : at + size]
        if not _BODY.size <= size == len(body) or crc32c(body) != crc:  # zeros have a right crc
            break
        numbers = _BODY.unpack_from(body)
        smallest_end = _BODY.size + numbers[6]
        largest_end = smallest_end + numbers[7]
        if numbers[0] != len(found) or largest_end + numbers[8] != size:
            break
        keys = body[_BODY.size : smallest_end], body[smallest_end:largest_end], body[largest_end:]
        found.append(FrameSummary._make((*numbers[:6], *keys)))
        at += size
    return found


class Sidecars:
    """The sidecars of one shard: read, made, and made anew."""

    def __init__(self, disk: Disk, source: ShardSource, table: OperationTable) -> None:
        self._disk = disk
        self._source = source
        self._table = table

    def summaries(self, segment: Lsn, sealed_frames: int) -> Sequence[FrameSummary]:
        """One summary for each of the first `sealed_frames` frames; what is missing or damaged is made anew."""
        path = f"{self._source.folder}/{sidecar_name(segment)}"
        data = read_file(self._disk, path) if self._disk.exists(path) else b""
        found = decode_summaries(data)[:sealed_frames]
        if len(found) == sealed_frames:
            return found
        intact = _MAGIC + b"".join(map(encode_summary, found))
        made = [
            summarise_frame(self._source, segment, frame, self._table) for frame in range(len(found), sealed_frames)
        ]
        addition = b"".join(map(encode_summary, made))
        if data == intact:
            file = self._disk.open(path, "write")
            try:
                write_all(file, len(intact), [addition])
            finally:
                file.close()
        else:
            write_file(self._disk, path, intact + addition)
        return found + made
