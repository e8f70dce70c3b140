"""What feeds tell about operations on a stream.

append, node       field nil        value [[offset, id, tag, entry] ...]
evict              field "evict"    value the first offset that stays
cut                field "del"      value [offset ...]
place              field "setid"    value [first offset, last offset, last id, largest deleted id, entries added]
groups             field "group"    value [name, what happened, ...]      only for feeds that asked for GROUPS
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog.streams.operations import (
    Ack,
    ConsumerDrop,
    Deliver,
    GroupDrop,
    GroupSet,
    Pend,
    StreamAppend,
    StreamCut,
    StreamEvict,
    StreamNode,
    StreamPlace,
)
from tidelog.streams.rows import TAGGED, unpack_id
from tidelog.types.change import Change, array, bulk, number

STREAM: Final = b"stream"
"""What TYPE and the events of feeds call a stream."""


def _id(ms: int, seq: int) -> bytes:
    return bulk(b"%d-%d" % (ms, seq))


def _entry(offset: int, ms: int, seq: int, kind: int, tag: bytes, entry: bytes) -> bytes:
    shown = bulk(entry) if kind == TAGGED else entry  # fields are kept as an array
    return b"*4\r\n:%d\r\n%b%b%b" % (offset, _id(ms, seq), bulk(tag), shown)


def changes_of_append(op: StreamAppend) -> list[Change]:
    entries = [
        _entry(op.offset + at, op.ms, op.seq + at, op.kind, op.tags[at], op.entries[at])
        for at in range(len(op.entries))
    ]
    return [Change(op.key, STREAM, None, array(entries))]


def changes_of_node(op: StreamNode) -> list[Change]:
    rows = op.node.rows(0, op.node.count)
    entries = [
        _entry(rows.offsets[at], rows.ms[at], rows.seqs[at], rows.kinds[at], rows.tags[at], rows.entries[at])
        for at in range(len(rows.entries))
    ]
    return [Change(op.key, STREAM, None, array(entries))]


def changes_of_evict(op: StreamEvict) -> list[Change]:
    return [Change(op.key, STREAM, b"evict", number(op.first))]


def changes_of_cut(op: StreamCut) -> list[Change]:
    return [Change(op.key, STREAM, b"del", _offsets(op.offsets))]


def changes_of_place(op: StreamPlace) -> list[Change]:
    last = op.next - 1
    ids = [_id(*unpack_id(op.last_id)), _id(*unpack_id(op.max_deleted_id))]
    return [
        Change(op.key, STREAM, b"setid", array([number(op.first), number(last), *ids, number(last + op.added_beside)]))
    ]


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
