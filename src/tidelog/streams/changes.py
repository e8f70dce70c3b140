"""What feeds tell about operations on a stream.

append, node       field nil        value [[offset, id, tag, entry] ...]
evict              field "evict"    value the first offset that stays
cut                field "del"      value [offset ...]
place              field "setid"    value [first offset, last offset, last id, largest deleted id, entries added]
copy               field "copy"     value the same, then the database and the key of the stream that was copied
config             field "config"   value [bytes at most, ms at most, entries at least]      0: not said
groups             field "group"    value [name, what happened, ...]      only for feeds that asked for GROUPS
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog import limits
from tidelog.streams.operations import (
    Ack,
    ConsumerDrop,
    Deliver,
    GroupDrop,
    GroupSet,
    Pend,
    StreamAppend,
    StreamConfig,
    StreamCopy,
    StreamCut,
    StreamEvict,
    StreamNode,
    StreamPlace,
)
from tidelog.streams.rows import TAGGED, unpack_id
from tidelog.types.change import Change, Pieces, array, bulk, joined, number, text

STREAM: Final = b"stream"
"""What TYPE and the events of feeds call a stream."""


def _id(ms: int, seq: int) -> bytes:
    return bulk(b"%d-%d" % (ms, seq))


def _entry(offset: int, ms: int, seq: int, kind: int, tag: bytes, entry: bytes) -> bytes | Pieces:
    if len(tag) + len(entry) > limits.FEED_PIECE_BYTES:
        shown = text(entry) if kind == TAGGED else _fields(entry)
        return joined([b"*4\r\n:%d\r\n%b" % (offset, _id(ms, seq)), text(tag), shown])
    small = bulk(entry) if kind == TAGGED else entry  # fields are kept as an array
    return b"*4\r\n:%d\r\n%b%b%b" % (offset, _id(ms, seq), bulk(tag), small)


def _fields(entry: bytes) -> bytes | Pieces:
    """The array of strings that an entry is kept as, the large ones by themselves."""
    at = entry.index(b"\n") + 1
    parts: list[bytes | Pieces] = [entry[:at]]
    while at < len(entry):
        start = entry.index(b"\n", at) + 1
        size = int(entry[at + 1 : start - 2])
        parts.append(text(entry[start : start + size]))
        at = start + size + 2
    return joined(parts)


def _entries(key: bytes, entries: list[bytes | Pieces]) -> list[Change]:
    return [Change(key, STREAM, None, joined([b"*%d\r\n" % len(entries), *entries]))]


def changes_of_append(op: StreamAppend) -> list[Change]:
    return _entries(
        op.key,
        [
            _entry(op.offset + at, op.ms, op.seq + at, op.kind, op.tags[at], op.entries[at])
            for at in range(len(op.entries))
        ],
    )


def changes_of_node(op: StreamNode) -> list[Change]:
    rows = op.node.rows(0, op.node.count)
    return _entries(
        op.key,
        [
            _entry(rows.offsets[at], rows.ms[at], rows.seqs[at], rows.kinds[at], rows.tags[at], rows.entries[at])
            for at in range(len(rows.entries))
        ],
    )


def changes_of_evict(op: StreamEvict) -> list[Change]:
    return [Change(op.key, STREAM, b"evict", number(op.first))]


def changes_of_cut(op: StreamCut) -> list[Change]:
    return [Change(op.key, STREAM, b"del", _offsets(op.offsets))]


def changes_of_place(op: StreamPlace) -> list[Change]:
    return [Change(op.key, STREAM, b"setid", array(_place(op)))]


def changes_of_copy(op: StreamCopy) -> list[Change]:
    """Not the entries: a record does not have them, and a client that wants them reads the stream."""
    return [Change(op.key, STREAM, b"copy", array([*_place(op), number(op.source_database), bulk(op.source)]))]


def changes_of_config(op: StreamConfig) -> list[Change]:
    return [Change(op.key, STREAM, b"config", array([number(value) for value in op[1:]]))]


def _place(op: StreamPlace | StreamCopy) -> list[bytes]:
    last = op.next - 1
    ids = [_id(*unpack_id(op.last_id)), _id(*unpack_id(op.max_deleted_id))]
    return [number(op.first), number(last), *ids, number(last + op.added_beside)]


# --- groups -----------------------------------------------------------------------------------------------------


def _of_group(key: bytes, group: bytes, what: bytes, more: Sequence[bytes] = ()) -> list[Change]:
    return [Change(key, STREAM, b"group", array([bulk(group), bulk(what), *more]), True)]


def _offsets(offsets: Sequence[int]) -> bytes:
    return array([number(offset) for offset in offsets])


def _cursor(offset: int, packed_id: int, entries_read: int) -> list[bytes]:
    ms, seq = unpack_id(packed_id)
    return [number(offset), _id(ms, seq), number(entries_read)]


def changes_of_group(op: GroupSet) -> list[Change]:
    bounds = [number(op.pending_max), bulk(op.dead_letter), number(op.deliveries_max)]
    return _of_group(op.key, op.group, b"set", [*_cursor(op.last_offset, op.last_id, op.entries_read), *bounds])


def changes_of_ungroup(op: GroupDrop) -> list[Change]:
    return _of_group(op.key, op.group, b"drop")


def changes_of_deliver(op: Deliver) -> list[Change]:
    cursor = _cursor(op.last_offset, op.last_id, op.entries_read)
    pending = op.offsets if op.keeps else ()
    return _of_group(op.key, op.group, b"deliver", [*cursor, bulk(op.consumer), _offsets(pending)])


def changes_of_pend(op: Pend) -> list[Change]:
    return _of_group(op.key, op.group, b"pend", [bulk(op.consumer), _offsets([item[0] for item in op.items])])


def changes_of_ack(op: Ack) -> list[Change]:
    return _of_group(op.key, op.group, b"ack", [_offsets(op.offsets)])


def changes_of_leave(op: ConsumerDrop) -> list[Change]:
    return _of_group(op.key, op.group, b"leave", [bulk(op.consumer)])
