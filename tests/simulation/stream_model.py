"""Streams in the plainest way, for the model of the store (`store_model`): entries and groups in dicts that are copied
with every change, by code that shares nothing with `tidelog.streams`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from tests.simulation.recovery import require
from tidelog import limits
from tidelog.store.keyspace import Database
from tidelog.streams.operations import (
    Ack,
    Deliver,
    GroupSet,
    Pend,
    PendingItem,
    StreamAppend,
    StreamConfig,
    StreamCut,
    StreamEvict,
    StreamNode,
    StreamPlace,
)
from tidelog.streams.stream import Stream

StreamOperation = (
    StreamAppend | StreamCut | StreamEvict | StreamNode | StreamPlace | StreamConfig | GroupSet | Deliver | Pend | Ack
)
"""What T commands make, and what COPY and snapshots make of it."""


@dataclass(frozen=True)
class PlainGroup:
    """A group whose readers use TREAD."""

    cursor: tuple[int, int]
    limits: tuple[int, bytes, int]
    pending: dict[int, PendingItem] = field(default_factory=dict)

    def without(self, offsets: Any) -> PlainGroup:
        return replace(self, pending={at: item for at, item in self.pending.items() if at not in offsets})


@dataclass(frozen=True)
class PlainStream:
    """A stream, never changed in place."""

    first: int = 1
    next: int = 1
    last_id: int = 0
    entries: dict[int, tuple[int, int, bytes, bytes]] = field(default_factory=dict)
    """Offset -> id, kind, tag, entry."""
    groups: dict[bytes, PlainGroup] = field(default_factory=dict)
    rule: tuple[int, int, int] = (0, 0, 0)
    """MAXBYTES, MAXAGE, BACKLOG."""

    def after(self, operation: StreamOperation) -> PlainStream:
        match operation:
            case StreamAppend(_, offset, ms, seq, kind, tags, entries):
                start = self if offset <= self.next or self.entries else replace(self, first=offset)
                new = {offset + at: (ms << 64 | seq + at, kind, tags[at], entries[at]) for at in range(len(entries))}
                return start._with(new)
            case StreamNode(_, node):
                rows = node.rows(0, node.count)
                items = zip(rows.ids, rows.kinds, rows.tags, rows.entries, strict=True)
                start = self if self.entries else replace(self, first=rows.offsets[0])
                return start._with(dict(zip(rows.offsets, items, strict=True)))
            case StreamEvict(_, first):
                return replace(self, first=first)._without([at for at in self.entries if at < first])
            case StreamCut(_, offsets):
                return self._without(offsets)
            case StreamPlace(_, first, after, last_id, _, _):
                return replace(self, first=first, next=after, last_id=last_id)
            case StreamConfig(_, bytes_max, age_max_ms, backlog):
                return replace(self, rule=(bytes_max, age_max_ms, backlog))
            case GroupSet(_, name, offset, last_id, _, pending_max, letters, deliveries_max):
                known = self.groups.get(name, PlainGroup((0, 0), (0, b"", 0)))
                bounds = pending_max, letters, deliveries_max
                return self._set(name, replace(known, cursor=(offset, last_id), limits=bounds))
            case Deliver(_, name, _, now_ms, retry_ms, expire_ms, offset, last_id, _, keeps, offsets):
                group = replace(self.groups[name], cursor=(offset, last_id))
                given = [(at, self.entries[at][0], now_ms, 1, retry_ms, expire_ms) for at in offsets if keeps]
                return self._pend(name, group, given)
            case Pend(_, name, _, pending):
                return self._pend(name, self.groups[name], list(pending))
            case Ack(_, name, offsets):
                return self._set(name, self.groups[name].without(offsets))

    def without_groups(self) -> PlainStream:
        """As a copy begins: its groups and its rule follow."""
        return replace(self, groups={}, rule=(0, 0, 0))

    def _with(self, new: dict[int, Any]) -> PlainStream:
        entries = {**self.entries, **new}
        last = max(new)
        return replace(self, entries=entries, next=last + 1, last_id=new[last][0])

    def _without(self, offsets: Any) -> PlainStream:
        entries = {at: entry for at, entry in self.entries.items() if at not in offsets}
        groups = {name: group.without(offsets) for name, group in self.groups.items()}
        return replace(self, entries=entries, groups=groups)

    def _pend(self, name: bytes, group: PlainGroup, items: list[PendingItem]) -> PlainStream:
        pending = group.without([item[0] for item in items]).pending
        return self._set(name, replace(group, pending={**pending, **{item[0]: item for item in items}}))

    def _set(self, name: bytes, group: PlainGroup) -> PlainStream:
        return replace(self, groups={**self.groups, name: group})


def plain_stream(stream: Stream) -> PlainStream:
    """A stream of the store in the same form."""
    entries: dict[int, tuple[int, int, bytes, bytes]] = {}
    for node in stream.nodes():
        rows = node.rows(0, len(node))
        items = zip(rows.ids, rows.kinds, rows.tags, rows.entries, strict=True)
        entries.update(zip(rows.offsets, items, strict=True))
    groups = {
        name: PlainGroup(
            (group.last_offset, group.last_id),
            (group.pending_max, group.dead_letter, group.deliveries_max),
            {
                at: (at, each.id, each.delivered_ms, each.deliveries, each.retry_after_ms, each.expire_ms)
                for at, each in group.pending.items()
            },
        )
        for name, group in stream.groups.items()
    }
    rule = (0, 0, 0) if stream.rule is None else (stream.rule.bytes_max, stream.rule.age_max_ms, stream.rule.backlog)
    require(
        stream.sealed_bytes == sum(node.opened_bytes for node in stream.sealed), "a stream counts its bytes wrongly"
    )
    return PlainStream(stream.first, stream.next, stream.last_id, entries, groups, rule)


def check_pending(database: Database, key: bytes, stream: Stream) -> None:
    """Everything that expires some time will be found then."""
    alarm_ms = database.alarms.times.get(key)
    require(alarm_ms is None or (alarm_ms, key) in database.alarms.waiting(), key, "has an alarm that never goes off")
    for group in stream.groups.values():
        expiring = {offset: each.expire_ms for offset, each in group.pending.items() if each.expire_ms}
        require(set(group.expired(2**64)) == expiring.keys(), key, "has pending entries that are not listed to expire")
        late = [when_ms for when_ms in expiring.values() if alarm_ms is None or alarm_ms > when_ms]
        require(not late, key, "has pending entries that will not expire by themselves")


def check_rule(database: Database, key: bytes, stream: Stream) -> None:
    """A stream with a rule is looked at by itself."""
    require(stream.rule is None or key in database.ruled, key, "has a rule that nobody applies")


def check_retained(before: PlainStream, after: PlainStream, now_ms: int, *, is_total: bool = False) -> None:
    """What went by itself, until nothing more did, could go; and what stayed had to, but for a node.

    `is_total`: it went because all streams are too large; then only the backlog is a reason to stay.
    """
    bytes_max, age_max_ms, backlog = before.rule
    node_max = limits.NODE_ENTRIES_MAX
    gone = [offset for offset in before.entries if offset not in after.entries]
    require(gone == list(before.entries)[: len(gone)], "not the oldest entries went:", gone)
    kept = min(backlog, len(before.entries))
    require(len(after.entries) >= kept, "of a backlog of", kept, "there are", len(after.entries))
    if is_total:
        return
    old_ms = now_ms - age_max_ms if age_max_ms else 0
    young = [offset for offset in gone if before.entries[offset][0] >> 64 >= old_ms]
    is_allowed = bool(backlog and not bytes_max and not age_max_ms)
    if young and bytes_max:
        with_last_node = [*gone[-node_max:], *after.entries]
        is_allowed = _bytes_at_most(before, with_last_node) > bytes_max
    require(not young or is_allowed, "entries went for no reason:", young)
    if len(after.entries) >= backlog + node_max:  # no node stays for the backlog alone
        old_left = sum(entry[0] >> 64 < old_ms for entry in after.entries.values())
        require(old_left <= node_max, old_left, "old entries are still there")
        is_small = not bytes_max or _bytes_at_least(after, after.entries) <= bytes_max
        require(is_small or len(after.entries) <= node_max, "a stream has more bytes than it may")
        require(bool(bytes_max or age_max_ms or not backlog), "more is there than the backlog")


def _bytes_at_least(stream: PlainStream, offsets: Any) -> int:
    return sum(24 + len(stream.entries[offset][2]) + len(stream.entries[offset][3]) for offset in offsets)


def _bytes_at_most(stream: PlainStream, offsets: Any) -> int:
    """A node with holes or with two kinds of entries has more columns."""
    return _bytes_at_least(stream, offsets) + 9 * len(offsets)
