"""Parts of transactions as bytes: what nearly all pieces of a link are made of. Hot.

    part     | flags 1 | shard 2 | ts 8 | lsn 8 | records 2 | record ... |
    record   | opcode 1 | flags 1 | database 2 | payload_len 4 | [expire 8] | payload |

    flags of a part      bit 0  LAST     with it the transaction is whole
    lsn                  of its first record; those after it count on from there. 0 if it has none
    flags of a record    as in the journal (`journal/record.py`), where only these can be set:
                         TS      the first record of the transaction in its shard
                         EXPIRE  expire is there (absolute ms)
                         FINISH  the last record of the transaction in its shard

A part of a long record has one record, with `payload_len` and without the payload. All numbers are absolute, so a piece
means the same on every link and need not be encoded for each.
"""

from __future__ import annotations

import struct
from functools import partial
from typing import Final

from tidelog import limits
from tidelog.errors import LinkMisused
from tidelog.journal.reader import Part, Record
from tidelog.journal.record import CONTROL, EXPIRE, FINISH, TS

_LAST: Final = 0x01
_SENT: Final = TS | EXPIRE | FINISH

_PART: Final = struct.Struct("<BHQQH")
_RECORD: Final = struct.Struct("<BBHI")
_EXPIRY: Final = struct.Struct("<Q")
_pack_part = _PART.pack
_pack_record = _RECORD.pack
_pack_expiry = _EXPIRY.pack
_pack_one = struct.Struct("<BHQQHBBHI").pack  # a part with one record, as most are
_unpack_part = _PART.unpack_from
_unpack_record = _RECORD.unpack_from
_unpack_expiry = _EXPIRY.unpack_from

PART_BYTES: Final = _PART.size
RECORD_BYTES_MAX: Final = _RECORD.size + _EXPIRY.size
"""What a record takes beside its payload."""

_make_record: Final = partial(tuple.__new__, Record)  # as in `journal.reader`: the call of the class itself is Python
_make_part: Final = partial(tuple.__new__, Part)


def encode_parts(parts: list[Part]) -> list[bytes]:
    """Parts with their payloads, to be joined. Hot."""
    chunks: list[bytes] = []
    for part in parts:
        ts, shard, records, is_last = part
        if len(records) == 1:
            lsn, _, opcode, flags, database, expire_ms, payload = records[0]
            if expire_ms < 0:
                chunks.append(
                    _pack_one(is_last, shard, ts, lsn, 1, opcode, flags & _SENT, database, len(payload)),
                )
                chunks.append(payload)
                continue
        chunks.append(_pack_part(is_last, shard, ts, records[0].lsn if records else 0, len(records)))
        for record in records:
            chunks.append(_record_head(record, len(record.payload)))
            chunks.append(record.payload)
    return chunks


def encode_long_record(part: Part, size: int) -> list[bytes]:
    """A part with one record, whose payload of that size follows elsewhere."""
    record = part.records[0]
    return [_pack_part(part.is_last, part.shard, part.ts, record.lsn, 1), _record_head(record, size)]


def _record_head(record: Record, size: int) -> bytes:
    head = _pack_record(record.opcode, record.flags & _SENT, record.database, size)
    return head + _pack_expiry(record.expire_ms) if record.expire_ms >= 0 else head


def decode_parts(data: bytes, at: int, end: int) -> list[Part]:
    """What `encode_parts` made of parts, in `data[at:end]`. Hot."""
    parts: list[Part] = []
    try:
        while at < end:
            part_flags, shard, ts, lsn, count = _unpack_part(data, at)
            at += PART_BYTES
            _check_part(part_flags, shard)
            records: list[Record] = []
            for index in range(count):
                opcode, flags, database, size = _unpack_record(data, at)
                at += 8
                expire_ms = -1
                if flags & EXPIRE:
                    (expire_ms,) = _unpack_expiry(data, at)
                    at += 8
                if not 0 < opcode < CONTROL or flags & ~_SENT or database >= limits.DATABASES:
                    raise _strange_record(opcode, flags, database)
                payload_end = at + size
                if payload_end > end:
                    raise LinkMisused(f"a record of {size} bytes runs past the end of its piece")
                payload = data[at:payload_end]
                records.append(_make_record((lsn + index, ts, opcode, flags, database, expire_ms, payload)))
                at = payload_end
            parts.append(_make_part((ts, shard, records, bool(part_flags))))
    except struct.error:
        raise LinkMisused("a part of a transaction is cut short") from None
    if at != end:
        raise LinkMisused("a part of a transaction runs past the end of its piece")
    return parts


def decode_long_record(data: bytes, at: int, end: int) -> tuple[Part, int]:
    """What `encode_long_record` was given."""
    try:
        part_flags, shard, ts, lsn, count = _unpack_part(data, at)
        opcode, flags, database, size = _unpack_record(data, at + PART_BYTES)
        at += PART_BYTES + _RECORD.size
        expire_ms = -1
        if flags & EXPIRE:
            (expire_ms,) = _unpack_expiry(data, at)
            at += _EXPIRY.size
    except struct.error:
        raise LinkMisused("the head of a long record is cut short") from None
    _check_part(part_flags, shard)
    if not 0 < opcode < CONTROL or flags & ~_SENT or database >= limits.DATABASES:
        raise _strange_record(opcode, flags, database)
    if at != end or count != 1:
        raise LinkMisused(f"the head of a long record has {count} records and {end - at} bytes too many")
    if not 0 < size <= limits.PAYLOAD_BYTES_MAX:
        raise LinkMisused(f"a long record of {size} bytes: it has 1 to {limits.PAYLOAD_BYTES_MAX}")
    record = Record(lsn, ts, opcode, flags, database, expire_ms, b"")
    return Part(ts, shard, [record], bool(part_flags)), size


def _check_part(flags: int, shard: int) -> None:
    if flags & ~_LAST:
        raise LinkMisused(f"reserved bits are set in the flags 0x{flags:02x} of a part")
    if shard >= limits.SHARDS_MAX:
        raise LinkMisused(f"a part of shard {shard}: there are at most {limits.SHARDS_MAX}")


def _strange_record(opcode: int, flags: int, database: int) -> LinkMisused:
    return LinkMisused(f"opcode 0x{opcode:02x} with flags 0x{flags:02x} in database {database} is not a record")
