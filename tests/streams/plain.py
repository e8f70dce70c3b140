"""Streams as plain values, which can be compared, and operations put through the journal's encoding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidelog.store.keyspace import Database
from tidelog.streams.effects import effects
from tidelog.streams.rows import Rows, joined
from tidelog.streams.stream import Stream

BY_OPERATION = {effect.operation: effect for effect in effects()}


def plain(stream: Stream) -> dict[str, Any]:
    """Everything that a stream is, however its nodes are cut and kept."""
    assert stream.sealed_bytes == sum(node.opened_bytes for node in stream.sealed)
    return {
        "rows": plain_rows(joined([node.rows(0, len(node)) for node in stream.nodes()])),
        "places": (stream.first, stream.next, stream.length, stream.first_entry),
        "ids": (stream.last_id, stream.max_deleted_id, stream.added_beside),
        "rule": stream.rule,
        "groups": {name: plain_group(group) for name, group in stream.groups.items()},
        "producers": [(name, list(each.seqs), list(each.offsets)) for name, each in stream.producers.items()],
    }


def plain_rows(rows: Rows) -> list[tuple[Any, ...]]:
    return list(zip(*map(list, rows), strict=True))


def plain_group(group: Any) -> dict[str, Any]:
    items = [
        (offset, each.id, each.consumer, each.delivered_ms, each.deliveries, each.retry_after_ms, each.expire_ms)
        for offset, each in group.pending.items()
    ]
    assert list(group.due) == [offset for offset, each in group.pending.items() if each.retry_ms]
    expiring = sorted((each.expire_ms, offset) for offset, each in group.pending.items() if each.expire_ms)
    assert group.expired(2**64) == [offset for _, offset in expiring]
    assert all(group.pending[offset].consumer for offset in group.lost)
    for name, consumer in group.consumers.items():
        assert consumer.pending_count == sum(each.consumer == name for each in group.pending.values())
    return {
        "cursor": (group.last_offset, group.last_id, group.entries_read),
        "limits": (group.pending_max, group.dead_letter, group.deliveries_max),
        "pending": items,
        "lost": sorted(group.lost),
        "consumers": {name: (each.seen_ms, each.active_ms) for name, each in group.consumers.items()},
    }


def decoded(operation: Any) -> Any:
    """An operation as the journal gives it back."""
    kind = BY_OPERATION[type(operation)].kind
    return kind.decode(kind.encode(operation), None)


def apply(database: Database, operations: Sequence[Any]) -> None:
    """Apply operations as recovery does."""
    for operation in operations:
        BY_OPERATION[type(operation)].apply(database, decoded(operation))


def stream_in(database: Database, key: bytes = b"k") -> Stream:
    value = database.find(key)
    assert isinstance(value, Stream)
    return value


def filled(
    count: int, *, ms: int = 1000, size: int = 4, kinds: Sequence[int] = (0,), stream: Stream | None = None
) -> Stream:
    """A stream with so many more entries, one each millisecond."""
    stream = stream if stream is not None else Stream()
    for at in range(stream.next, stream.next + count):
        stream.append(ms + at, 0, kinds[at % len(kinds)], [b"tag%d" % (at % 7)], [b"%0*d" % (size, at)])
    return stream
