"""A stream: entries in the order in which they came, and the groups that read them. `reading` finds and reads entries.

An entry keeps its offset for ever. Entries go from the front (*evicted*: `first` moves up) or, as holes, from anywhere
(*deleted*).

Where nodes begin and end is internal to the stream: two streams with the same entries are equal. Operations that depend
on it, such as evicting by whole nodes, carry the resulting offsets.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple, cast

from tidelog import limits
from tidelog.streams.cooling_line import CoolingLine
from tidelog.streams.group import Group
from tidelog.streams.node import ENTRY_OVERHEAD_BYTES, ActiveNode, SealedNode
from tidelog.streams.producer import Producer
from tidelog.streams.reading import StreamEntries
from tidelog.streams.rows import pack_id, size_of, unpack_id

_STREAM_BYTES: Final = 600
"""The memory of a stream beside its nodes, roughly."""
_SEALED_NODE_BYTES: Final = 550
"""The memory of a sealed node beside its entries, roughly: a cold one takes no more."""
_GROUP_BYTES: Final = 700
_PENDING_BYTES: Final = 350
_PRODUCER_BYTES: Final = 430
"""The last three as `python -m benchmarks.memory --kinds group,pending,producer` measures them, without what the server
has beside them."""
COUNT_MAX: Final = 2**63 - 1
"""The largest count of entries that a client can set: replies and records have no room for larger ones."""
_NONE: Final[Mapping[bytes, Any]] = MappingProxyType({})
"""The groups and producers of most streams: no dict of their own, and nothing that could be changed by mistake."""


class RetentionRule(NamedTuple):
    """What a stream keeps by itself (TCONFIG); `retention` says how the three go together. 0: not said."""

    bytes_max: int = 0
    """Of `entry_bytes`."""
    age_max_ms: int = 0
    backlog: int = 0
    """So many of its newest entries stay in any case."""


class Stream(StreamEntries):
    """The value of a key."""

    __slots__ = (
        "added_beside",
        "cut_count",
        "groups",
        "last_ms",
        "last_seq",
        "line",
        "max_deleted_id",
        "producers",
        "rule",
        "sealed_bytes",
    )

    def __init__(self, line: CoolingLine | None = None) -> None:
        super().__init__()
        self.line = line
        """Where its sealed nodes get in line to become cold; None: they stay in memory."""
        self.last_ms = 0
        self.last_seq = 0
        """The id of the newest entry that ever was, or what XSETID made of it."""
        self.max_deleted_id = 0
        """The largest id that was deleted; what is evicted does not count."""
        self.added_beside = 0
        """How many entries XSETID added to the number that were ever appended."""
        self.cut_count = 0
        """How often entries were deleted from anywhere since it is in memory."""
        self.groups: Mapping[bytes, Group] = _NONE
        self.producers: Mapping[bytes, Producer] = _NONE
        """Least recently used first."""
        self.rule: RetentionRule | None = None
        """None: entries go only when a command says so, or all streams together are too large."""
        self.sealed_bytes = 0
        """What its sealed nodes take as record batches, wherever they lie."""

    # --- sizes --------------------------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        """A stream without entries is a value too."""
        return True

    @property
    def last_id(self) -> int:
        return pack_id(self.last_ms, self.last_seq)

    @last_id.setter
    def last_id(self, number: int) -> None:
        self.last_ms, self.last_seq = unpack_id(number)

    @property
    def entries_added(self) -> int:
        return min(self.next - 1 + self.added_beside, COUNT_MAX)

    @property
    def entry_bytes(self) -> int:
        """What its entries take before they are compressed, in memory or on disk: each its tag, its bytes and 24 more
        (up to 33 in a node with holes, or with both kinds). Neither cooling nor a restart changes it by more."""
        return self.sealed_bytes + self.active.size_bytes

    @property
    def disk_bytes(self) -> int:
        """What it needs of node files on disk."""
        return sum(node.disk_bytes for node in self.sealed if not node.is_remote)

    @property
    def remote_bytes(self) -> int:
        """What it needs of node files that lie only in an object store."""
        return sum(node.disk_bytes for node in self.sealed if node.is_remote)

    @property
    def size_bytes(self) -> int:
        """Its size in memory, roughly."""
        return self.other_bytes + sum(node.size_bytes for node in self.sealed)

    @property
    def other_bytes(self) -> int:
        """The same without the entries of sealed nodes. Looks at no node."""
        nodes = self.active.size_bytes + _SEALED_NODE_BYTES * len(self.sealed)
        groups = sum(_GROUP_BYTES + _PENDING_BYTES * len(group.pending) for group in self.groups.values())
        return _STREAM_BYTES + nodes + groups + _PRODUCER_BYTES * len(self.producers)

    # --- changing -----------------------------------------------------------------------------------------------

    def append(self, ms: int, seq: int, kind: int, tags: list[bytes], entries: list[bytes]) -> None:
        """Entries of one moment: the `seq` of their ids counts up. Hot."""
        count, active = len(entries), self.active
        size = active.size_bytes + size_of(tags, entries)
        if size < limits.NODE_BYTES_MAX and len(active.entries) + count < limits.NODE_ENTRIES_MAX:
            active.append(self.next, ms, seq, kind, tags, entries)
            self.next += count
        else:
            self._append_over_nodes(ms, seq, kind, tags, entries)
        self.length += count
        self.last_ms, self.last_seq = ms, seq + count - 1

    def _append_over_nodes(self, ms: int, seq: int, kind: int, tags: list[bytes], entries: list[bytes]) -> None:
        """Fill nodes and seal them; an entry that is too large is a node alone."""
        done = 0
        while done < len(entries):
            taken = self._fitting(tags, entries, done)
            if taken:
                end = done + taken
                self.active.append(self.next, ms, seq + done, kind, tags[done:end], entries[done:end])
                self.next += taken
                done = end
            if done < len(entries) or self._is_full:
                self.seal()

    def _fitting(self, tags: list[bytes], entries: list[bytes], start: int) -> int:
        """How many entries, from one on, the active node takes."""
        held, size = len(self.active.entries), self.active.size_bytes
        end = min(len(entries), start + limits.NODE_ENTRIES_MAX - held)
        at = start
        while at < end:
            size += len(tags[at]) + len(entries[at]) + ENTRY_OVERHEAD_BYTES
            if size > limits.NODE_BYTES_MAX and (at > start or held):
                break
            at += 1
        return at - start

    @property
    def _is_full(self) -> bool:
        active = self.active
        return len(active.entries) >= limits.NODE_ENTRIES_MAX or active.size_bytes >= limits.NODE_BYTES_MAX

    def seal(self) -> None:
        """End the active node, and begin the next."""
        if self.active.entries:
            self._add_sealed(self.active.sealed())
        self.active = ActiveNode(self.next)

    def get_in_line(self, line: CoolingLine | None) -> None:
        """It has a key from now on: let its sealed nodes become cold."""
        self.line = line
        if line is not None:
            for node in self.sealed[: -limits.HOT_NODES_KEPT]:
                line.add(node)

    def _add_sealed(self, node: SealedNode) -> None:
        if not self.sealed:
            self.sealed, self.bases, self.last_ids = [], [], []
        cast("list[SealedNode]", self.sealed).append(node)
        cast("list[int]", self.bases).append(node.first_offset)
        cast("list[int]", self.last_ids).append(node.last_id)
        self.sealed_bytes += node.opened_bytes
        if self.line is not None and not node.is_cold:
            self.line.count_sealed(node)
            if len(self.sealed) > limits.HOT_NODES_KEPT:
                self.line.add(self.sealed[-1 - limits.HOT_NODES_KEPT])

    def replay_node(self, node: SealedNode) -> None:
        """A node of a snapshot: entries that follow those that are there."""
        if not self.length:
            self.first = node.first_offset
        self.seal()
        self._add_sealed(node)
        self.length += node.count
        self.next = node.last_offset + 1
        self.last_id = max(self.last_id, node.last_id)
        self.active = ActiveNode(self.next)

    def evict(self, first: int) -> int:
        """Remove everything below an offset; returns how many entries that were."""
        before = self.length
        first = min(first, self.next)
        if first <= self.first:
            return 0
        whole = bisect_right(self.bases, first)  # nodes that begin at or below it
        whole -= bool(whole) and self.sealed[whole - 1].last_offset >= first
        if whole:
            self.length -= sum(node.count for node in self.sealed[:whole])
            self.sealed_bytes -= sum(node.opened_bytes for node in self.sealed[:whole])
            self.sealed, self.bases, self.last_ids = self.sealed[whole:], self.bases[whole:], self.last_ids[whole:]
        cut = self._node(0).index_of(first)
        if cut:
            self._cut_first(cut)
        for group in self.groups.values():
            group.lose_entries(range(self.first, first))
        self.first = first
        return before - self.length

    def _cut_first(self, count: int) -> None:
        """The first node loses its first entries; a sealed one not all."""
        self.length -= count
        if self.sealed:
            left = self.sealed[0].from_index(count)
            self.sealed_bytes += left.opened_bytes - self.sealed[0].opened_bytes
            cast("list[SealedNode]", self.sealed)[0] = left
            cast("list[int]", self.bases)[0] = left.first_offset
        elif count < len(self.active):
            self.active.drop_first(count)
        else:
            self.active = ActiveNode(self.next)

    def delete(self, offsets: Sequence[int], max_id: int = 0) -> int:
        """Remove entries from anywhere; returns how many were there. `max_id`: the largest of their ids, if the caller
        knows it; otherwise it is looked up."""
        self.cut_count += 1
        by_node: dict[int, list[int]] = {}
        for offset in offsets:
            place, index = self._find(offset)
            if index is not None:
                by_node.setdefault(place, []).append(index)
        if by_node and not max_id:
            last = max(by_node)
            max_id = self._node(last).id_at(max(by_node[last]))
        self.max_deleted_id = max(self.max_deleted_id, max_id)
        for place, indices in sorted(by_node.items(), reverse=True):
            self._replace(place, indices)
        for group in self.groups.values():
            group.lose_entries(offsets)
        return sum(map(len, by_node.values()))

    def _replace(self, place: int, gone: Sequence[int]) -> None:
        """Put a node without some of its entries in its place."""
        self.length -= len(gone)
        if place == len(self.sealed):
            self.active = self.active.without(gone) or ActiveNode(self.next)
            return
        left = self.sealed[place].without(gone)
        self.sealed_bytes += (0 if left is None else left.opened_bytes) - self.sealed[place].opened_bytes
        nodes = cast("list[SealedNode]", self.sealed)
        bases, last_ids = cast("list[int]", self.bases), cast("list[int]", self.last_ids)
        if left is None:
            del nodes[place], bases[place], last_ids[place]
        else:
            nodes[place], bases[place], last_ids[place] = left, left.first_offset, left.last_id

    def group(self, name: bytes) -> Group:
        """A group, made if it is not there."""
        found = self.groups.get(name)
        if found is None:
            found = Group()
            self.groups = groups = self.groups if isinstance(self.groups, dict) else {}
            groups[name] = found
        return found

    def drop_group(self, name: bytes) -> None:
        if name in self.groups:
            cast("dict[bytes, Group]", self.groups).pop(name)

    def remember(self, name: bytes, seq: int, offset: int) -> None:
        """A producer's call got an offset. Of too many producers, the one silent the longest is forgotten."""
        self.producers = producers = self.producers if isinstance(self.producers, dict) else {}
        producer = producers.pop(name, None) or Producer()
        producers[name] = producer
        producer.add(seq, offset)
        if len(producers) > limits.PRODUCERS_MAX:
            del producers[next(iter(producers))]

    def skip_to(self, offset: int) -> None:
        """The next entry gets this offset, which no entry has had."""
        if offset <= self.next:
            return
        self.next = offset
        if not self.length:
            self.first = offset
            self.active = ActiveNode(offset)

    def copy(self, *, with_groups: bool = True) -> Stream:
        """An independent copy: sealed nodes, which never change, are shared. `with_groups`: and with its rule."""
        made = Stream()
        made.sealed, made.bases, made.last_ids = self.sealed[:], self.bases[:], self.last_ids[:]
        made.active, made.sealed_bytes = self.active.copy(), self.sealed_bytes
        made.first, made.next, made.length = self.first, self.next, self.length
        made.last_ms, made.last_seq = self.last_ms, self.last_seq
        made.max_deleted_id, made.added_beside = self.max_deleted_id, self.added_beside
        if with_groups:
            made.rule = self.rule
            if self.groups:
                made.groups = {name: group.copy() for name, group in self.groups.items()}
        if self.producers:
            made.producers = {name: producer.copy() for name, producer in self.producers.items()}
        return made
