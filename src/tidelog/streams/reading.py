"""The entries of a stream: finding them by offset, by id or by time, and reading them.

    nodes      sealed, sealed, ..., active       the last one is active; there is always one
    bases      the first offset of each
    last_ids   the last id of each, without the active one's

Finding an entry is a bisection over nodes and a place in the node: with a hundred million entries, over a hundred
thousand numbers.

What lies where is known without opening a node, except the ids inside of it. So a read of many entries first says which
nodes it needs (`OPENED.require`), and cold ones are fetched together. A read by id needs the node where it begins
before it knows how many more.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

from tidelog import limits
from tidelog.streams.cold import OPENED
from tidelog.streams.found import Found
from tidelog.streams.node import ActiveNode, Node, SealedNode
from tidelog.streams.rows import Rows

_Part = tuple[Node, int, int]
"""Entries of a node between two places."""


class StreamEntries:
    """The nodes of a stream."""

    __slots__ = ("active", "bases", "first", "last_ids", "length", "next", "sealed")

    def __init__(self) -> None:
        self.sealed: Sequence[SealedNode] = ()
        """This and the next two are lists once there is a sealed node."""
        self.bases: Sequence[int] = ()
        self.last_ids: Sequence[int] = ()
        self.active = ActiveNode(1)
        self.first = 1
        """The first offset that is not evicted, whether or not its entry is still there; at most `next`."""
        self.next = 1
        """The offset of the next entry."""
        self.length = 0
        """Entries that are there."""

    def __len__(self) -> int:
        return self.length

    @property
    def first_entry(self) -> int:
        """The offset of the oldest entry that is there; `next` if there is none."""
        if self.sealed:
            return self.bases[0]
        return self.active.first_offset if self.active.entries else self.next

    @property
    def last(self) -> int:
        """The offset of the newest entry that ever was."""
        return self.next - 1

    # --- finding ------------------------------------------------------------------------------------------------

    def _node(self, place: int) -> Node:
        return self.sealed[place] if place < len(self.sealed) else self.active

    def _place(self, offset: int) -> int:
        """Which node has the first entry at or after an offset: it, or the one after it."""
        if self.active.entries and offset >= self.active.first_offset:
            return len(self.sealed)
        return max(bisect_right(self.bases, offset) - 1, 0)

    def find(self, offset: int, count: int, last: int | None = None) -> Found:
        """Entries from an offset on, up to a number of them, and none after the offset `last`."""
        found: list[_Part] = []
        first, place = offset, self._place(offset)
        while count > 0 and place <= len(self.sealed):
            node = self._node(place)
            start, stop = node.index_of(offset), len(node)
            if last is not None and stop and node.last_offset > last:
                stop = node.index_of(last + 1)
            stop = min(stop, start + count)
            if start < stop:
                found.append((node, start, stop))
                count -= stop - start
            elif last is not None and stop == 0:
                break
            place += 1
        if OPENED.fetches:
            self._require(found)
            if last is None:
                self._note_read(first, found)
        return Found(found)

    def read(self, offset: int, count: int, last: int | None = None) -> Rows:
        """The same, at once."""
        return self.find(offset, count, last).rows()

    def find_back(self, offset: int, count: int) -> Found:
        """Entries from an offset down, newest first, up to a number of them."""
        found: list[_Part] = []
        for place in range(self._place(offset), -1, -1):
            node = self._node(place)
            stop = node.index_of(offset + 1)
            start = max(stop - count, 0)
            if start < stop:
                found.append((node, start, stop))
                count -= stop - start
            if count <= 0:
                break
        if OPENED.fetches:
            self._require(found)
        return Found(found, is_backward=True)

    def find_ids(self, first_id: int, last_id: int, count: int) -> Found:
        """Entries between two ids, both included, oldest first."""
        found: list[_Part] = []
        place = bisect_left(self.last_ids, first_id)
        if OPENED.fetches and place < len(self.sealed):
            self._require_ids(range(place, len(self.sealed)), first_id, last_id, count)
        while count > 0 and place <= len(self.sealed):
            node = self._node(place)
            if not len(node):
                break
            start = node.index_of_id(first_id)
            stop = min(len(node) if node.last_id <= last_id else node.index_of_id(last_id + 1), start + count)
            if start < stop:
                found.append((node, start, stop))
                count -= stop - start
            if node.last_id >= last_id:
                break
            place += 1
        if OPENED.fetches and found:
            self._note_read(found[0][0].offset_at(found[0][1]), found)
        return Found(found)

    def read_ids(self, first_id: int, last_id: int, count: int) -> Rows:
        """The same, at once."""
        return self.find_ids(first_id, last_id, count).rows()

    def find_ids_back(self, last_id: int, first_id: int, count: int) -> Found:
        """Entries between two ids, both included, newest first."""
        found: list[_Part] = []
        top = bisect_left(self.last_ids, last_id)
        if OPENED.fetches and self.sealed:
            self._require_ids_back(top, last_id, first_id, count)
        for place in range(top, -1, -1):
            if place < len(self.sealed) and self.last_ids[place] < first_id:
                break
            node = self._node(place)
            if not len(node):
                continue
            stop = len(node) if node.last_id <= last_id else node.index_of_id(last_id + 1)
            start = max(node.index_of_id(first_id), stop - count)
            if start < stop:
                found.append((node, start, stop))
                count -= stop - start
            if count <= 0 or start > 0:
                break
        return Found(found, is_backward=True)

    def ids_from(self, offset: int, count: int) -> list[int]:
        """The ids of entries from an offset on, up to a number of them."""
        parts: list[_Part] = []
        for place in range(self._place(offset), len(self.sealed) + 1):
            node = self._node(place)
            start = node.index_of(offset)
            stop = min(len(node), start + count)
            if start < stop:
                parts.append((node, start, stop))
                count -= stop - start
            if count <= 0:
                break
        if OPENED.fetches:
            self._require(parts)
        found: list[int] = []
        for node, start, stop in parts:
            found += node.ids(start, stop)
        return found

    def offset_at_or_after(self, number: int) -> int:
        """The offset of the first entry at or after an id; `next` if there is none."""
        place = bisect_left(self.last_ids, number)
        node = self._node(place)
        if place < len(self.sealed) and number <= self.sealed[place].known_first_id:
            return node.first_offset
        index = node.index_of_id(number)
        if index == len(node) and place < len(self.sealed):  # its last entry is gone
            node, index = self._node(place + 1), 0
        return node.offset_at(index) if index < len(node) else self.next

    def offset_of(self, number: int) -> int | None:
        """The offset of the entry with an id."""
        node = self._node(bisect_left(self.last_ids, number))
        index = node.index_of_id(number)
        return node.offset_at(index) if index < len(node) and node.id_at(index) == number else None

    def _find(self, offset: int) -> tuple[int, int | None]:
        """Node and place in it of the entry at an offset; place None: it is not there."""
        place = self._place(offset)
        node = self._node(place)
        index = node.index_of(offset)
        return place, index if index < len(node) and node.offset_at(index) == offset else None

    def node_at(self, offset: int) -> Node:
        """The node that has the first entry at or after an offset, or the one before it."""
        return self._node(self._place(offset))

    def has(self, offset: int) -> bool:
        """Whether the entry at an offset is there."""
        return self._find(offset)[1] is not None

    def nodes(self) -> Iterator[Node]:
        """All of them, oldest first; the active one only if it has entries."""
        yield from self.sealed
        if self.active.entries:
            yield self.active

    def count_below(self, offset: int) -> int:
        """How many entries lie below an offset."""
        place = self._place(offset)
        node = self._node(place)
        return sum(each.count for each in self.sealed[:place]) + node.index_of(offset)

    def nodes_from(self, offset: int) -> Iterator[Node]:
        """Those that have, or are followed by, an entry at or after an offset."""
        for place in range(self._place(offset), len(self.sealed) + 1):
            node = self._node(place)
            if len(node) and node.last_offset >= offset:
                yield node

    # --- cold nodes ---------------------------------------------------------------------------------------------

    def require_offsets(self, offsets: Iterable[int]) -> None:
        """Entries at these offsets are about to be read, one by one."""
        if OPENED.fetches and self.sealed:
            places = {self._place(offset) for offset in offsets}
            OPENED.require([self.sealed[place] for place in sorted(places) if place < len(self.sealed)])

    def require_ids(self, numbers: Iterable[int]) -> None:
        """The offsets of entries with these ids are about to be looked up, one by one."""
        if OPENED.fetches and self.sealed:
            places = {bisect_left(self.last_ids, number) for number in numbers}
            OPENED.require([self.sealed[place] for place in sorted(places) if place < len(self.sealed)])

    def _require(self, parts: list[_Part]) -> None:
        """Hot."""
        for node, _, _ in parts:
            if isinstance(node, SealedNode) and node.is_away:
                OPENED.require([each for each, _, _ in parts if isinstance(each, SealedNode)])

    def _require_ids(self, places: range, first_id: int, last_id: int, count: int) -> None:
        """What a read from an id on needs; if its first node is away, that and what it needs in any case."""
        needed: list[SealedNode] = []
        for place in places:
            node = self.sealed[place]
            needed.append(node)
            count -= node.count
            if place == places[0] and first_id > node.known_first_id and not OPENED.is_away(node):
                count += node.index_of_id(first_id)
            if count <= 0 or node.last_id >= last_id:
                break
        OPENED.require(needed)

    def _require_ids_back(self, top: int, last_id: int, first_id: int, count: int) -> None:
        """The same of a read from an id down, which begins in the node at the place `top`."""
        needed: list[SealedNode] = []
        for place in range(top, -1, -1):
            if place == len(self.sealed):
                if self.active.entries:
                    count -= self.active.index_of_id(last_id + 1)
            else:
                node = self.sealed[place]
                if self.last_ids[place] < first_id:
                    break
                needed.append(node)
                is_cut = place == top and node.last_id > last_id and not OPENED.is_away(node)
                count -= node.index_of_id(last_id + 1) if is_cut else node.count
            if count <= 0:
                break
        OPENED.require(needed)

    def _note_read(self, offset: int, parts: list[_Part]) -> None:
        """If a read goes on where another ended, the next nodes are fetched before they are asked for."""
        if not parts or OPENED.fetch_ahead is None:
            return
        node, _, stop = parts[-1]
        if isinstance(node, SealedNode) and node.is_cold and self._has_away_ahead(node):
            end = node.offset_at(stop) if stop < node.count else node.last_offset + 1
            if OPENED.goes_on(id(self), offset, end):
                self.look_ahead(node)

    def _has_away_ahead(self, node: SealedNode) -> bool:
        """Whether it is time to fetch what lies behind a node: of the nodes that would be fetched half are open."""
        last = len(self.sealed) - 1
        place = bisect_right(self.bases, node.last_offset)
        half = min(place + limits.AHEAD_NODES_MAX // 2, last)
        return place <= last and (self.sealed[half].is_away or self.sealed[place].is_away)

    def look_ahead(self, node: SealedNode) -> None:
        """A reader is in a cold node, and will go on behind it."""
        fetch_ahead = OPENED.fetch_ahead
        if fetch_ahead is None:
            return
        ahead: list[SealedNode] = []
        size = 0
        place = bisect_right(self.bases, node.last_offset)
        for each in self.sealed[place : place + limits.AHEAD_NODES_MAX]:
            size += each.opened_bytes
            if size > limits.AHEAD_BYTES_MAX and ahead:
                break
            if OPENED.is_away(each):
                ahead.append(each)
        if ahead:
            fetch_ahead(ahead)
