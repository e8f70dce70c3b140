"""The operations on streams, as values: what `effects` encodes and applies.

They carry results, never conditions. Long ones are cut into several that fit a record each: `appends`, `cuts`, `acks`,
`delivers` and `pends` do that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple, TypeVar

from tidelog import limits
from tidelog.journal.node_files import NodePlace
from tidelog.streams.node import SealedNode
from tidelog.streams.rows import listed
from tidelog.streams.sealed_node import NodeReference

PendingItem = tuple[int, int, int, int, int, int]
"""A pending entry: offset, id, delivered ms, deliveries, retry after ms, expire ms."""
_Any = TypeVar("_Any")
_RECORD_ENTRIES_MAX: Final = limits.RECORD_MEMBERS_MAX
_RECORD_BYTES_MAX: Final = limits.RECORD_SPLIT_BYTES


class StreamAppend(NamedTuple):
    """Entries of one moment, at the end."""

    key: bytes
    offset: int
    ms: int
    seq: int
    kind: int
    tags: Sequence[bytes]
    entries: Sequence[bytes]
    producer: bytes = b""
    producer_seq: int = 0


class StreamEvict(NamedTuple):
    """Everything below an offset goes."""

    key: bytes
    first: int


class StreamCut(NamedTuple):
    """Entries that are there are deleted."""

    key: bytes
    offsets: Sequence[int]
    max_id: int = 0
    """The largest of their ids; 0 in records of older versions, which also name entries that are not there."""


class StreamPlace(NamedTuple):
    """Where a stream stands: XSETID, and streams without entries."""

    key: bytes
    first: int
    next: int
    last_id: int
    max_deleted_id: int
    added_beside: int


class StreamConfig(NamedTuple):
    """What a stream keeps by itself from now on: a `RetentionRule`. All 0: it has none."""

    key: bytes
    bytes_max: int
    age_max_ms: int
    backlog: int


class StreamNode(NamedTuple):
    """A sealed node, as a snapshot has it."""

    key: bytes
    node: SealedNode


class StreamCopy(NamedTuple):
    """The entries of another stream of the same shard, with its place and producers, under a key that is not there.

    Groups and its rule follow as operations of their own, so that feeds tell about them.
    """

    key: bytes
    source: bytes
    source_database: int
    first: int
    """This and the following are those of the source, and of the copy."""
    next: int
    last_id: int
    max_deleted_id: int
    added_beside: int


class StreamNodes(NamedTuple):
    """Cold nodes, as a snapshot refers to them."""

    key: bytes
    references: Sequence[NodeReference]
    places: Sequence[NodePlace] = ()
    """Of the nodes, if they are at hand: what they are in stays as long as these do."""


class GroupSet(NamedTuple):
    """A group is made, or its cursor or its limits are set."""

    key: bytes
    group: bytes
    last_offset: int
    last_id: int
    entries_read: int
    pending_max: int
    dead_letter: bytes
    deliveries_max: int


class GroupDrop(NamedTuple):
    """A group is gone."""

    key: bytes
    group: bytes


class ConsumerSet(NamedTuple):
    """A consumer is made, or was seen."""

    key: bytes
    group: bytes
    consumer: bytes
    seen_ms: int
    active_ms: int


class ConsumerDrop(NamedTuple):
    """A consumer and what it has pending are gone."""

    key: bytes
    group: bytes
    consumer: bytes


class Deliver(NamedTuple):
    """New entries are given to a reader."""

    key: bytes
    group: bytes
    consumer: bytes
    now_ms: int
    retry_after_ms: int
    expire_ms: int
    last_offset: int
    last_id: int
    entries_read: int
    keeps: bool
    """They are pending from now on."""
    offsets: Sequence[int]
    ids: Sequence[int] = ()
    """Of the same entries if it keeps them, so that applying it opens no node; empty in records of older versions."""


class Pend(NamedTuple):
    """Entries are pending as said here, whatever they were: redelivered, claimed, or part of a snapshot."""

    key: bytes
    group: bytes
    consumer: bytes
    items: Sequence[PendingItem]


class Ack(NamedTuple):
    """Entries are pending no more."""

    key: bytes
    group: bytes
    offsets: Sequence[int]


class ProducerSet(NamedTuple):
    """What is remembered of a producer."""

    key: bytes
    producer: bytes
    calls: Sequence[tuple[int, int]]
    """Seq and offset."""


def appends(op: StreamAppend) -> list[StreamAppend]:
    """An append in as many records as it needs; its producer's call goes with the first."""
    ends = record_ends(op.key, listed(op.tags), listed(op.entries))
    if len(ends) == 1:
        return [op]
    found: list[StreamAppend] = []
    start = 0
    for end in ends:
        place = op.offset + start, op.ms, op.seq + start, op.kind
        who = (op.producer, op.producer_seq) if not start else (b"", 0)
        found.append(StreamAppend(op.key, *place, op.tags[start:end], op.entries[start:end], *who))
        start = end
    return found


def record_ends(key: bytes, tags: list[bytes], entries: list[bytes]) -> list[int]:
    """Where the records of an append end, the last with the last entry. Hot."""
    ends: list[int] = []
    start, size = 0, len(key)
    for at in range(len(entries)):
        grown = size + len(tags[at]) + len(entries[at])
        if at > start and (grown > _RECORD_BYTES_MAX or at - start >= _RECORD_ENTRIES_MAX):
            ends.append(at)
            grown -= size - len(key)
            start = at
        size = grown
    ends.append(len(entries))
    return ends


def cuts(key: bytes, offsets: Iterable[int], max_id: int) -> list[StreamCut]:
    """Delete entries, in as many records as they need; each of them says the largest id of all."""
    return [StreamCut(key, part, max_id) for part in _parts(offsets, limits.RECORD_OFFSETS_MAX)]


def acks(key: bytes, group: bytes, offsets: Iterable[int]) -> list[Ack]:
    """Acknowledge entries, in as many records as they need."""
    return [Ack(key, group, part) for part in _parts(offsets, limits.RECORD_OFFSETS_MAX)]


def delivers(op: Deliver) -> list[Deliver]:
    """A delivery in as many records as it needs; each of them says where the group is in the end."""
    size = limits.RECORD_DELIVERED_MAX
    if len(op.offsets) <= size:
        return [op]
    parts = [slice(at, at + size) for at in range(0, len(op.offsets), size)]
    return [op._replace(offsets=op.offsets[part], ids=op.ids[part]) for part in parts]


def pends(key: bytes, group: bytes, consumer: bytes, items: Iterable[PendingItem]) -> list[Pend]:
    """Entries that are pending, in as many records as they need."""
    return [Pend(key, group, consumer, part) for part in _parts(items, limits.RECORD_PENDING_MAX)]


def _parts(items: Iterable[_Any], size: int) -> Iterator[list[_Any]]:
    left = iter(items)
    while part := list(islice(left, size)):
        yield part
