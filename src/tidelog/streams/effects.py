"""Every operation on a stream: its record, and what it does.

All of them begin with the key, as `| length flit | bytes |`; so do the other names in them. Numbers of variable size
are flits; offsets go as *runs*: how many runs, then for each its first offset and how many follow each other.

    0x50 append    | key | offset 8 | ms 8 | seq 8 | kind 1 | width 1 | count 4 | producer | [producer's seq 8]
                     | sizes of tags, of entries | tags | entries |    sizes take `width` bytes each; no producer: empty
    0x51 evict     | key | first offset that stays 8 |
    0x52 cut       | key | runs | [largest id 16] |                    entries that are deleted
    0x53 place     | key | first 8 | next 8 | last id 16 | largest deleted id 16 | added beside 8 |
    0x54 node      | key | Arrow IPC stream |                          of a snapshot
    0x55 group     | key | name | last offset 8 | last id 16 | entries read 8 | pending max 8 | dead letter
                     | deliveries max 8 |                              made, or changed
    0x56 ungroup   | key | name |
    0x57 consumer  | key | group | name | seen ms 8 | active ms 8 |    made, or seen
    0x58 leave     | key | group | consumer |                          it and what it has pending are gone
    0x59 deliver   | key | group | consumer | now ms 8 | retry after ms 8 | expire ms 8 | last offset 8 | last id 16
                     | entries read 8 | keeps 1 | runs | [ids] |       new entries; keeps 0: nothing is pending, no ids
    0x5A pend      | key | group | consumer | count 8 | offset 8 | id 16 | delivered ms 8 | deliveries 8
                     | retry after ms 8 | expire ms 8 ... |            entries are delivered again, claimed
    0x5B ack       | key | group | runs |
    0x5C producer  | key | name | count 8 | seq 8 | offset 8 ... |  of a snapshot
    0x5D copy      | key | source | its database flit | first 8 | next 8 | last id 16 | largest deleted id 16
                     | added beside 8 |                                of RENAME, COPY and MOVE within a shard
    0x5E nodes     | key | references |                                of a snapshot: cold nodes, see `payload`
    0x5F config    | key | bytes max 8 | age max ms 8 | backlog 8 |    what it keeps by itself; 0: not said

Ids are 16 bytes, `seq` first, so that they are one little-endian number; those of a delivery go as `payload.id_runs`
says. A cut or delivery of an older version ends before the ids in brackets: they are looked up in the stream. An
operation on a stream, group or consumer that is not there makes it, except those that only remove.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any, Final

from tidelog import limits
from tidelog.errors import DataDirectoryError, FormatError, InternalError
from tidelog.ids import U64_MAX
from tidelog.journal.operation import NODES, OperationKind
from tidelog.streams.changes import (
    changes_of_ack,
    changes_of_append,
    changes_of_config,
    changes_of_copy,
    changes_of_cut,
    changes_of_deliver,
    changes_of_evict,
    changes_of_group,
    changes_of_leave,
    changes_of_node,
    changes_of_pend,
    changes_of_place,
    changes_of_ungroup,
)
from tidelog.streams.fields import DECODE, ENCODE
from tidelog.streams.group import Consumer, Group, Pending
from tidelog.streams.node import FIELDS, TAGGED, SealedNode
from tidelog.streams.operations import (
    Ack,
    ConsumerDrop,
    ConsumerSet,
    Deliver,
    GroupDrop,
    GroupSet,
    Pend,
    ProducerSet,
    StreamAppend,
    StreamConfig,
    StreamCopy,
    StreamCut,
    StreamEvict,
    StreamNode,
    StreamNodes,
    StreamPlace,
)
from tidelog.streams.payload import (
    WIDTHS,
    PayloadReader,
    append_parts,
    encode_append,
    node_references,
    text,
)
from tidelog.streams.rows import listed
from tidelog.streams.stream import RetentionRule, Stream
from tidelog.types.change import Change
from tidelog.types.effect import Effect, Keyspace, no_changes

__all__ = [
    "APPEND",
    "Ack",
    "ConsumerDrop",
    "ConsumerSet",
    "Deliver",
    "GroupDrop",
    "GroupSet",
    "Pend",
    "ProducerSet",
    "StreamAppend",
    "StreamConfig",
    "StreamCopy",
    "StreamCut",
    "StreamEvict",
    "StreamNode",
    "StreamPlace",
    "effects",
]

APPEND: Final = 0x50


# --- appending --------------------------------------------------------------------------------------------------


def _encode_append(op: StreamAppend) -> bytes:
    if op.producer:
        return b"".join(_append_parts(op))
    return encode_append(op.key, (op.offset, op.ms, op.seq), op.kind, listed(op.tags), listed(op.entries))


def _append_parts(op: StreamAppend) -> list[bytes]:
    place = op.offset, op.ms, op.seq
    return append_parts(op.key, place, op.kind, listed(op.tags), listed(op.entries), op.producer, op.producer_seq)


def _last_entry(op: StreamAppend) -> bytes:
    return op.entries[-1]


def _decode_append(payload: bytes, _expire_ms: int | None) -> StreamAppend:
    reader = PayloadReader(payload)
    key = reader.text()
    offset, ms, seq = reader.numbers(3)
    kind, width = reader.take(2)
    count = int.from_bytes(reader.take(4), "little")
    producer = reader.text()
    producer_seq = reader.numbers(1)[0] if producer else 0
    if width not in WIDTHS or not 0 < 2 * count * width <= len(payload):
        raise FormatError(f"an append of {count} entries with sizes of {width} bytes does not fit its payload")
    if kind not in (TAGGED, FIELDS) or not offset or max(offset, seq - 1) > U64_MAX - count:
        raise FormatError(f"no entry of kind {kind} can have offset {offset} and seq {seq}")
    sizes = array(WIDTHS[width], reader.take(2 * count * width))
    flat = reader.items(sizes)
    reader.end()
    return StreamAppend(key, offset, ms, seq, kind, flat[:count], flat[count:], producer, producer_seq)


def _stream(keyspace: Keyspace, key: bytes) -> Stream:
    """The stream of a key, made if it is not there."""
    stream: Stream | None = keyspace.change(key)
    if stream is None:
        stream = Stream(keyspace.cooling_line(key))
        keyspace.put(key, stream)
    return stream


def _apply_append(keyspace: Keyspace, op: StreamAppend) -> None:
    stream = _stream(keyspace, op.key)
    stream.skip_to(op.offset)
    stream.append(op.ms, op.seq, op.kind, listed(op.tags), listed(op.entries))
    if op.producer:
        stream.remember(op.producer, op.producer_seq, op.offset)


# --- entries ----------------------------------------------------------------------------------------------------


def _apply_evict(keyspace: Keyspace, op: StreamEvict) -> None:
    _stream(keyspace, op.key).evict(op.first)


def _apply_cut(keyspace: Keyspace, op: StreamCut) -> None:
    _stream(keyspace, op.key).delete(op.offsets, op.max_id)


def _apply_place(keyspace: Keyspace, op: StreamPlace) -> None:
    stream = _stream(keyspace, op.key)
    stream.skip_to(op.next)
    stream.first = op.first
    stream.last_id, stream.max_deleted_id, stream.added_beside = op.last_id, op.max_deleted_id, op.added_beside


def _apply_config(keyspace: Keyspace, op: StreamConfig) -> None:
    stream = _stream(keyspace, op.key)
    rule = RetentionRule(op.bytes_max, op.age_max_ms, op.backlog)
    stream.rule = rule if any(rule) else None
    keyspace.note_rule(op.key, has_rule=stream.rule is not None)


def _apply_copy(keyspace: Keyspace, op: StreamCopy) -> None:
    source: Stream | None = keyspace.beside(op.source_database).find(op.source)
    if source is None or (source.first, source.next, source.last_id) != (op.first, op.next, op.last_id):
        raise InternalError(f"stream {op.source!r} is not what was copied to {op.key!r}: state and journal differ")
    copied = source.copy(with_groups=False)
    keyspace.put(op.key, copied)
    copied.get_in_line(keyspace.cooling_line(op.key))


def _apply_node(keyspace: Keyspace, op: StreamNode) -> None:
    _stream(keyspace, op.key).replay_node(op.node)


def _encode_nodes(op: StreamNodes) -> bytes:
    return text(op.key) + node_references(op.references)


def _decode_nodes(payload: bytes, _expire_ms: int | None) -> StreamNodes:
    reader = PayloadReader(payload)
    decoded = StreamNodes(reader.text(), reader.node_references())
    reader.end()
    return decoded


def _apply_nodes(keyspace: Keyspace, op: StreamNodes) -> None:
    stream, files = _stream(keyspace, op.key), keyspace.node_files
    if files is None:
        raise DataDirectoryError(f"cold nodes of {op.key!r} can only be read where their files are")
    for reference in op.references:
        place = files.place(reference.file_id, reference.position, reference.size, reference.crc)
        stream.replay_node(SealedNode.of_reference(reference, place))


def _apply_producer(keyspace: Keyspace, op: ProducerSet) -> None:
    stream = _stream(keyspace, op.key)
    for seq, offset in op.calls:
        stream.remember(op.producer, seq, offset)


# --- groups -----------------------------------------------------------------------------------------------------


def _group(keyspace: Keyspace, key: bytes, name: bytes) -> Group:
    return _stream(keyspace, key).group(name)


def _apply_group(keyspace: Keyspace, op: GroupSet) -> None:
    group = _group(keyspace, op.key, op.group)
    group.last_offset, group.last_id, group.entries_read = op.last_offset, op.last_id, op.entries_read
    group.pending_max, group.dead_letter, group.deliveries_max = op.pending_max, op.dead_letter, op.deliveries_max


def _apply_ungroup(keyspace: Keyspace, op: GroupDrop) -> None:
    _stream(keyspace, op.key).drop_group(op.group)


def _apply_consumer(keyspace: Keyspace, op: ConsumerSet) -> None:
    consumers = _group(keyspace, op.key, op.group).consumers
    if op.consumer in consumers:
        consumers[op.consumer].seen_ms, consumers[op.consumer].active_ms = op.seen_ms, op.active_ms
    else:
        consumers[op.consumer] = Consumer(op.seen_ms, op.active_ms)


def _apply_leave(keyspace: Keyspace, op: ConsumerDrop) -> None:
    _group(keyspace, op.key, op.group).remove_consumer(op.consumer)


def _apply_deliver(keyspace: Keyspace, op: Deliver) -> None:
    stream = _stream(keyspace, op.key)
    group = stream.group(op.group)
    ids = list(op.ids)
    if op.keeps and op.offsets and not ids:  # a record of an older version
        ids = stream.ids_from(op.offsets[0], len(op.offsets))
    times_ms = op.now_ms, op.retry_after_ms, op.expire_ms
    cursor = op.last_offset, op.last_id, op.entries_read
    group.deliver(op.consumer, times_ms, cursor, list(op.offsets), ids, keeps=op.keeps)
    if op.keeps and op.expire_ms:
        keyspace.wake_at(op.key, op.expire_ms)


def _apply_pend(keyspace: Keyspace, op: Pend) -> None:
    stream = _stream(keyspace, op.key)
    group = stream.group(op.group)
    lost: list[int] = []
    for offset, number, delivered_ms, deliveries, retry_after_ms, expire_ms in op.items:
        group.add(offset, Pending(number, op.consumer, delivered_ms, deliveries, retry_after_ms, expire_ms))
        if expire_ms:
            keyspace.wake_at(op.key, expire_ms)
        if not stream.has(offset):
            lost.append(offset)
    if lost:  # part of a snapshot
        group.lose_entries(lost)


def _apply_ack(keyspace: Keyspace, op: Ack) -> None:
    _group(keyspace, op.key, op.group).acknowledge(op.offsets)


# --- the table --------------------------------------------------------------------------------------------------

_Fields = Sequence[tuple[str, str]]
"""Names of fields, and what they are: keys of `ENCODE` and `DECODE`."""


def _effect(
    opcode: int,
    name: str,
    operation: type[Any],
    encode: Callable[[Any], bytes],
    decode: Callable[[bytes, int | None], Any],
    apply: Callable[[Keyspace, Any], None],
    changes: Callable[[Any], list[Change]],
) -> Effect:
    return Effect(operation, OperationKind(opcode, name, encode, decode, _keys), apply, changes)


def _keys(payload: bytes) -> list[bytes]:
    return [PayloadReader(payload).text()]


def _plain(
    opcode: int,
    name: str,
    operation: type[Any],
    fields: _Fields,
    apply: Callable[[Keyspace, Any], None],
    changes: Callable[[Any], list[Change]],
    fits: Callable[[Any], bool] = lambda _: True,
) -> Effect:
    """An operation whose payload is its fields, one after the other; `fits`: whether they go together."""

    encoders = [ENCODE[kind] for _, kind in fields]

    def encode(op: Any) -> bytes:
        return b"".join([encode_field(value) for encode_field, value in zip(encoders, op, strict=True)])

    def decode(payload: bytes, _expire_ms: int | None) -> Any:
        reader = PayloadReader(payload)
        values = [DECODE[kind](reader) for _, kind in fields]
        reader.end()
        found = operation(*values)
        if not fits(found):
            raise FormatError(f"the fields of a record of {name} do not go together")
        return found

    return _effect(opcode, name, operation, encode, decode, apply, changes)


_KEY: Final = ("key", "text")
_GROUP: Final = (_KEY, ("group", "text"))
_PLACE: Final = (
    ("first", "u64"),
    ("next", "u64"),
    ("last_id", "id"),
    ("max_deleted_id", "id"),
    ("added_beside", "i64"),
)


def effects() -> list[Effect]:
    """Every operation on a stream."""
    return [
        Effect(
            StreamAppend,
            OperationKind(APPEND, "append", _encode_append, _decode_append, _keys, _last_entry, _append_parts),
            _apply_append,
            changes_of_append,
        ),
        _plain(0x51, "evict", StreamEvict, (_KEY, ("first", "u64")), _apply_evict, changes_of_evict),
        _plain(
            0x52, "cut", StreamCut, (_KEY, ("offsets", "runs"), ("max_id", "id or end")), _apply_cut, changes_of_cut
        ),
        _plain(
            0x53,
            "place",
            StreamPlace,
            (_KEY, *_PLACE),
            _apply_place,
            changes_of_place,
        ),
        _plain(0x54, "node", StreamNode, (_KEY, ("node", "node")), _apply_node, changes_of_node),
        _plain(
            0x55,
            "group",
            GroupSet,
            (
                *_GROUP,
                ("last_offset", "u64"),
                ("last_id", "id"),
                ("entries_read", "i64"),
                ("pending_max", "u64"),
                ("dead_letter", "text"),
                ("deliveries_max", "u64"),
            ),
            _apply_group,
            changes_of_group,
        ),
        _plain(0x56, "ungroup", GroupDrop, _GROUP, _apply_ungroup, changes_of_ungroup),
        _plain(
            0x57,
            "consumer",
            ConsumerSet,
            (*_GROUP, ("consumer", "text"), ("seen_ms", "i64"), ("active_ms", "i64")),
            _apply_consumer,
            no_changes,
        ),
        _plain(0x58, "leave", ConsumerDrop, (*_GROUP, ("consumer", "text")), _apply_leave, changes_of_leave),
        _plain(
            0x59,
            "deliver",
            Deliver,
            (
                *_GROUP,
                ("consumer", "text"),
                ("now_ms", "u64"),
                ("retry_after_ms", "u64"),
                ("expire_ms", "u64"),
                ("last_offset", "u64"),
                ("last_id", "id"),
                ("entries_read", "i64"),
                ("keeps", "flag"),
                ("offsets", "runs"),
                ("ids", "ids or end"),
            ),
            _apply_deliver,
            changes_of_deliver,
            lambda op: not op.ids or (op.keeps and len(op.ids) == len(op.offsets)),
        ),
        _plain(0x5A, "pend", Pend, (*_GROUP, ("consumer", "text"), ("items", "items")), _apply_pend, changes_of_pend),
        _plain(0x5B, "ack", Ack, (*_GROUP, ("offsets", "runs")), _apply_ack, changes_of_ack),
        _plain(
            0x5C, "producer", ProducerSet, (_KEY, ("producer", "text"), ("calls", "calls")), _apply_producer, no_changes
        ),
        _plain(
            0x5D,
            "copy",
            StreamCopy,
            (_KEY, ("source", "text"), ("source_database", "flit"), *_PLACE),
            _apply_copy,
            changes_of_copy,
            lambda op: op.source_database < limits.DATABASES,
        ),
        _plain(
            0x5F,
            "config",
            StreamConfig,
            (_KEY, ("bytes_max", "u64"), ("age_max_ms", "u64"), ("backlog", "u64")),
            _apply_config,
            changes_of_config,
        ),
        _effect(NODES, "nodes", StreamNodes, _encode_nodes, _decode_nodes, _apply_nodes, no_changes),
    ]
