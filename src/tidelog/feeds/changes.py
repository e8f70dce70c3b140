"""What a record changed: the operations of the journal as changes of keys.

    string      val                          nil, the value
    hash        hset, hsets, hdel            field, value
    set         sadd, srem                   member, "1"
    zset        zadd, zrem                   member, score
    stream      append, node                 nil, [[offset, id, tag, entry] ...]
                evict                        "evict", the first offset that stays
                cut                          "del", [offset ...]
                what groups do               "group", [name, what, ...]
    any         del                          nil, nil

A collection that has lost its last member is gone: nothing more is said about it. When a key expires has no event; that
it did is a `del`. `flushdb` names no key: `is_flush` says so.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from tidelog.feeds.event import HASH, NONE, SET, STREAM, STRING, ZSET, Change, array, bulk, number
from tidelog.journal.operation import FLUSHDB, VAL, Del, FlushDb, OperationTable, Start, Val, decode_pairs
from tidelog.resp.encoder import format_double
from tidelog.streams.effects import (
    Ack,
    ConsumerDrop,
    ConsumerSet,
    Deliver,
    GroupDrop,
    GroupSet,
    Pend,
    ProducerSet,
    StreamAppend,
    StreamCut,
    StreamEvict,
    StreamNode,
    StreamPlace,
)
from tidelog.streams.rows import TAGGED, unpack_id
from tidelog.types.hash import HDel, HSet, HSets
from tidelog.types.set import SAdd, SRem
from tidelog.types.string import Expire
from tidelog.types.zset import ZAdd, ZRem

_ONE: Final = b"$1\r\n1\r\n"
_EVICT: Final = b"evict"
_DELETE: Final = b"del"
_GROUP: Final = b"group"
_unpack_score = struct.Struct("<d").unpack


def is_flush(opcode: int) -> bool:
    """Whether a record empties its database."""
    return opcode == FLUSHDB


def changes_of(table: OperationTable, opcode: int, payload: bytes) -> list[Change]:
    """The changes of one record, in order. Hot."""
    if opcode == VAL:
        return [Change(key, STRING, None, bulk(value)) for key, value in decode_pairs(payload)]
    operation = table.decode(opcode, payload, None)
    return _CHANGES[type(operation)](operation)


def _nothing(_op: Any) -> list[Change]:
    return []


def _val(op: Val) -> list[Change]:
    return [Change(key, STRING, None, bulk(value)) for key, value in op.pairs]


def _del(op: Del) -> list[Change]:
    return [Change(key, NONE, None, None) for key in op.keys]


def _hset(op: HSet) -> list[Change]:
    items = op.items
    return [Change(op.key, HASH, items[at], bulk(items[at + 1])) for at in range(0, len(items), 2)]


def _hsets(op: HSets) -> list[Change]:
    items = op.items
    return [Change(items[at], HASH, items[at + 1], bulk(items[at + 2])) for at in range(0, len(items), 3)]


def _hdel(op: HDel) -> list[Change]:
    return [Change(op.key, HASH, field, None) for field in op.fields]


def _sadd(op: SAdd) -> list[Change]:
    return [Change(op.key, SET, member, _ONE) for member in op.members]


def _srem(op: SRem) -> list[Change]:
    return [Change(op.key, SET, member, None) for member in op.members]


def _zadd(op: ZAdd) -> list[Change]:
    items = op.items
    return [
        Change(op.key, ZSET, items[at + 1], bulk(format_double(_unpack_score(items[at])[0])))
        for at in range(0, len(items), 2)
    ]


def _zrem(op: ZRem) -> list[Change]:
    return [Change(op.key, ZSET, member, None) for member in op.members]


# --- streams ----------------------------------------------------------------------------------------------------


def _id(ms: int, seq: int) -> bytes:
    return bulk(b"%d-%d" % (ms, seq))


def _entry(offset: int, ms: int, seq: int, kind: int, tag: bytes, entry: bytes) -> bytes:
    shown = bulk(entry) if kind == TAGGED else entry  # fields are kept as an array
    return b"*4\r\n:%d\r\n%b%b%b" % (offset, _id(ms, seq), bulk(tag), shown)


def _append(op: StreamAppend) -> list[Change]:
    entries = [
        _entry(op.offset + at, op.ms, op.seq + at, op.kind, op.tags[at], op.entries[at])
        for at in range(len(op.entries))
    ]
    return [Change(op.key, STREAM, None, array(entries))]


def _node(op: StreamNode) -> list[Change]:
    rows = op.node.rows(0, op.node.count)
    entries = [
        _entry(rows.offsets[at], rows.ms[at], rows.seqs[at], rows.kinds[at], rows.tags[at], rows.entries[at])
        for at in range(len(rows.entries))
    ]
    return [Change(op.key, STREAM, None, array(entries))]


def _evict(op: StreamEvict) -> list[Change]:
    return [Change(op.key, STREAM, _EVICT, number(op.first))]


def _cut(op: StreamCut) -> list[Change]:
    return [Change(op.key, STREAM, _DELETE, array([number(offset) for offset in op.offsets]))]


# --- groups -----------------------------------------------------------------------------------------------------


def _of_group(key: bytes, group: bytes, what: bytes, more: Sequence[bytes] = ()) -> list[Change]:
    return [Change(key, STREAM, _GROUP, array([bulk(group), bulk(what), *more]), True)]


def _offsets(offsets: Sequence[int]) -> bytes:
    return array([number(offset) for offset in offsets])


def _cursor(offset: int, packed_id: int, entries_read: int) -> list[bytes]:
    ms, seq = unpack_id(packed_id)
    return [number(offset), _id(ms, seq), number(entries_read)]


def _group_set(op: GroupSet) -> list[Change]:
    return _of_group(op.key, op.group, b"set", _cursor(op.last_offset, op.last_id, op.entries_read))


def _group_drop(op: GroupDrop) -> list[Change]:
    return _of_group(op.key, op.group, b"drop")


def _deliver(op: Deliver) -> list[Change]:
    cursor = _cursor(op.last_offset, op.last_id, op.entries_read)
    pending = op.offsets if op.keeps else ()
    return _of_group(op.key, op.group, b"deliver", [*cursor, bulk(op.consumer), _offsets(pending)])


def _pend(op: Pend) -> list[Change]:
    return _of_group(op.key, op.group, b"pend", [bulk(op.consumer), _offsets([item[0] for item in op.items])])


def _ack(op: Ack) -> list[Change]:
    return _of_group(op.key, op.group, b"ack", [_offsets(op.offsets)])


def _consumer_drop(op: ConsumerDrop) -> list[Change]:
    return _of_group(op.key, op.group, b"leave", [bulk(op.consumer)])


_CHANGES: Final[dict[type[Any], Callable[[Any], list[Change]]]] = {
    Val: _val,
    Del: _del,
    FlushDb: _nothing,
    Start: _nothing,
    Expire: _nothing,
    HSet: _hset,
    HSets: _hsets,
    HDel: _hdel,
    SAdd: _sadd,
    SRem: _srem,
    ZAdd: _zadd,
    ZRem: _zrem,
    StreamAppend: _append,
    StreamNode: _node,
    StreamEvict: _evict,
    StreamCut: _cut,
    StreamPlace: _nothing,
    ProducerSet: _nothing,
    GroupSet: _group_set,
    GroupDrop: _group_drop,
    ConsumerSet: _nothing,
    ConsumerDrop: _consumer_drop,
    Deliver: _deliver,
    Pend: _pend,
    Ack: _ack,
}
