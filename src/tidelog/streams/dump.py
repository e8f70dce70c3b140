"""A stream as the operations that make it again: for snapshots, and for COPY, RENAME and MOVE.

Sealed nodes go as they are: they never change, so a copy of a stream shares them. Within a shard, a copy names the
stream that has the entries in place of the entries themselves.
"""

from __future__ import annotations

from itertools import groupby, islice
from typing import Any

from tidelog import limits
from tidelog.streams.cold import OPENED
from tidelog.streams.group import Group
from tidelog.streams.node import ActiveNode
from tidelog.streams.operations import (
    ConsumerSet,
    GroupSet,
    ProducerSet,
    StreamAppend,
    StreamConfig,
    StreamCopy,
    StreamNode,
    StreamNodes,
    StreamPlace,
    appends,
    pends,
)
from tidelog.streams.stream import Stream


def stream_operations(key: bytes, stream: Stream) -> list[Any]:
    """Operations that make this stream under a key that is not there."""
    OPENED.require(stream.sealed)  # their records have them whole: read before, that is quick, and they are whole
    operations: list[Any] = [StreamNode(key, node) for node in stream.sealed]
    operations += _without_nodes(key, stream)
    return operations


def kept_operations(key: bytes, stream: Stream) -> list[Any]:
    """The same for a snapshot, which refers to cold nodes."""
    operations: list[Any] = []
    for is_cold, nodes in groupby(stream.sealed, lambda node: node.is_cold):
        if not is_cold:
            operations += [StreamNode(key, node) for node in nodes]
            continue
        while run := list(islice(nodes, limits.RECORD_NODES_MAX)):
            places = [node.place for node in run if node.place is not None]
            operations.append(StreamNodes(key, [node.reference for node in run], places))
    operations += _without_nodes(key, stream)
    return operations


def _without_nodes(key: bytes, stream: Stream) -> list[Any]:
    """What follows its sealed nodes."""
    operations: list[Any] = []
    operations += _appends(key, stream.active)
    operations.append(StreamPlace(key, *_place(stream)))
    operations += _rule(key, stream)
    for name, group in stream.groups.items():
        operations += group_operations(key, name, group)
    for name, producer in stream.producers.items():
        operations.append(ProducerSet(key, name, list(zip(producer.seqs, producer.offsets, strict=True))))
    return operations


def copy_operations(key: bytes, stream: Stream, source: bytes, source_database: int) -> list[Any]:
    """Operations that make this stream, which is that of a key in the same shard, under a key that is not there."""
    operations: list[Any] = [StreamCopy(key, source, source_database, *_place(stream)), *_rule(key, stream)]
    for name, group in stream.groups.items():
        operations += group_operations(key, name, group)
    return operations


def _place(stream: Stream) -> tuple[int, int, int, int, int]:
    return stream.first, stream.next, stream.last_id, stream.max_deleted_id, stream.added_beside


def _rule(key: bytes, stream: Stream) -> list[StreamConfig]:
    return [] if stream.rule is None else [StreamConfig(key, *stream.rule)]


def _appends(key: bytes, node: ActiveNode) -> list[StreamAppend]:
    """An append for every run of entries whose offsets and ids count up."""
    rows = node.rows(0, len(node))
    found: list[StreamAppend] = []
    start = 0
    for at in range(1, len(rows.entries) + 1):
        if at < len(rows.entries) and (
            rows.ms[at] == rows.ms[start]
            and rows.seqs[at] == rows.seqs[start] + at - start
            and rows.offsets[at] == rows.offsets[start] + at - start
            and rows.kinds[at] == rows.kinds[start]
        ):
            continue
        place = rows.offsets[start], rows.ms[start], rows.seqs[start], rows.kinds[start]
        found += appends(StreamAppend(key, *place, rows.tags[start:at], rows.entries[start:at]))
        start = at
    return found


def group_set(key: bytes, name: bytes, group: Group) -> GroupSet:
    """A group as it is here, without what is pending."""
    return GroupSet(
        key,
        name,
        group.last_offset,
        group.last_id,
        group.entries_read,
        group.pending_max,
        group.dead_letter,
        group.deliveries_max,
    )


def group_operations(key: bytes, name: bytes, group: Group) -> list[Any]:
    """Operations that make this group in a stream that has its entries."""
    operations: list[Any] = [group_set(key, name, group)]
    for consumer, state in group.consumers.items():
        operations.append(ConsumerSet(key, name, consumer, state.seen_ms, state.active_ms))
    # In order of delivery, a run of one consumer at a time.
    for consumer, run in groupby(group.pending.items(), lambda item: item[1].consumer):
        items = (
            (offset, each.id, each.delivered_ms, each.deliveries, each.retry_after_ms, each.expire_ms)
            for offset, each in run
        )
        operations += pends(key, name, consumer, items)
    return operations
