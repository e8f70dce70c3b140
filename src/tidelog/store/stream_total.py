"""All streams of a server together take at most so many bytes: the oldest nodes go first, whatever stream they are in.

    count    all keys are visited, so many at a time: which streams have sealed nodes, and what the others take
    evict    what streams take now is added up; if it is too much, sealed nodes go, the one with the oldest end first

BACKLOG of a stream's rule keeps its newest entries here too, and the active node of a stream always stays. If that is
still too much, the log says so, and writes go on: refusing them is what `maxmemory` and a full disk are for.

Streams are counted when as much was sealed as there was room for, and once in a while, because a copy takes room too.
A stream with sealed nodes that was deleted meanwhile takes no room, and costs no other stream entries. Nor does any of
a database that was cleared; of the others, those without sealed nodes take what they did when they were visited.
Only with thousands of streams that have sealed nodes does the sum take more than one step, and is some tenths of a
second old.
An index of all streams by age was rejected: every append and every DEL would pay for it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final

from tidelog import limits
from tidelog.ids import SLOT_COUNT
from tidelog.store.keyspace import Database
from tidelog.store.store import Store
from tidelog.store.stream_retention import RetentionFigures, evict
from tidelog.streams.retention import BY_TOTAL, GoingNode
from tidelog.streams.stream import Stream
from tidelog.types.effect import StoredValue

_LOG: Final = logging.getLogger("tidelog")


class _Candidate:
    """A stream that loses nodes: how many, and how many entries may go."""

    __slots__ = ("database", "going", "key", "spare", "stream")

    def __init__(self, database: Database, key: bytes, stream: Stream) -> None:
        self.database = database
        self.key = key
        self.stream = stream
        self.going: list[GoingNode] = []
        self.spare = _spare(stream)

    def oldest_id(self) -> int | None:
        """The last id of the node that goes next; None: none may."""
        return _oldest_id(self.stream, len(self.going), self.spare)

    def take(self) -> int:
        """Let that node go; returns what it took."""
        node = self.stream.sealed[len(self.going)]
        self.spare -= node.count
        self.going.append(GoingNode(BY_TOTAL, node.count, node.opened_bytes))
        return node.opened_bytes

    @property
    def first(self) -> int:
        """The first offset that stays."""
        return self.stream.sealed[len(self.going) - 1].last_offset + 1


def _spare(stream: Stream) -> int:
    """So many of its entries may go."""
    return stream.length - (stream.rule.backlog if stream.rule is not None else 0)


def _oldest_id(stream: Stream, at: int, spare: int) -> int | None:
    """The last id of one of its nodes, if it may go."""
    sealed = stream.sealed
    return sealed[at].last_id if at < len(sealed) and sealed[at].count <= spare else None


class StreamTotal:
    """The bytes of all streams of a store."""

    def __init__(self, store: Store, figures: RetentionFigures) -> None:
        self._store = store
        self._figures = figures
        self._count: Iterator[None] | None = None
        """The count that is under way, and what goes after it."""
        self._long: list[tuple[Database, int, bytes]] = []
        """Streams with sealed nodes that it has come across, each with its slot ..."""
        self._short_bytes: Counter[tuple[int, int]] = Counter()
        """... and what the others take, by database and how often that had been cleared."""
        self._bytes_max = 0
        """As it was when streams were last counted ..."""
        self._sealed_bytes = self._room = 0
        """... and what had ever been sealed then, and how much room there was."""
        self._next_ms = 0
        """When they are counted again in any case."""
        self._warned_ms = 0
        """When the log last said that nothing may go."""

    @property
    def is_under_way(self) -> bool:
        """Whether streams are being counted, or evicted."""
        return self._count is not None

    def run(self) -> None:
        """Some times a second."""
        store, figures = self._store, self._figures
        if store.is_follower or not figures.stream_bytes_max:
            self._count, self._long = None, []
            self._next_ms = figures.stream_bytes = 0
            figures.is_stuck = False
            return
        if store.refusal is not None:
            return
        if self._count is None and self._is_due():
            self._begin()
        if self._count is not None and next(self._count, self) is self:
            self._count = None
            self._long = []

    def _is_due(self) -> bool:
        """Whether there may be too much."""
        grown = self._ever_sealed() - self._sealed_bytes
        now_ms = self._store.now_ms()
        is_late = not 0 < self._next_ms - now_ms <= limits.STREAMS_COUNTED_EVERY_MS  # or the clock was set back
        return is_late or grown > self._room or self._figures.stream_bytes_max != self._bytes_max

    def _ever_sealed(self) -> int:
        cooling = self._store.cooling
        return 0 if cooling is None else cooling.sealed_bytes

    # --- counting -----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._bytes_max = self._figures.stream_bytes_max
        self._sealed_bytes = self._ever_sealed()
        self._next_ms = self._store.now_ms() + limits.STREAMS_COUNTED_EVERY_MS
        self._long, self._short_bytes = [], Counter()
        self._count = self._visit()

    def _visit(self) -> Iterator[None]:
        """Look at all keys, then evict, a bounded number at a time: everything may change in between."""
        looked_at = 0
        for database in self._store.databases:
            if not database.size:
                continue
            for slot in range(SLOT_COUNT):
                for part in database.buckets(slot) or [{}]:  # of a slot that is split meanwhile, those of before
                    self._note_streams(database, slot, part)
                    looked_at += 1 + len(part)
                    if looked_at >= limits.STREAMS_COUNTED_KEYS_AT_ONCE:
                        looked_at = 0
                        yield
        is_done = False
        while not is_done:
            total = sum(self._short_bytes[each.number, each.cleared_count] for each in self._store.databases)
            line: list[tuple[int, int]] = []
            for at in range(len(self._long)):
                total += self._add_up(at, line)
                if at % limits.STREAMS_COUNTED_KEYS_AT_ONCE == limits.STREAMS_COUNTED_KEYS_AT_ONCE - 1:
                    yield
            is_done = self._evict(total, line)
            if not is_done:
                yield

    def _note_streams(self, database: Database, slot: int, part: dict[bytes, StoredValue]) -> None:
        for key, value in part.items():
            if type(value) is Stream:
                if value.sealed:
                    self._long.append((database, slot, key))
                else:
                    self._short_bytes[database.number, database.cleared_count] += value.entry_bytes

    def _add_up(self, at: int, line: list[tuple[int, int]]) -> int:
        """What a long stream takes now; puts it in line with the age of its oldest node, if that may go."""
        stream = self._stream(at)
        if stream is None:
            return 0
        oldest = _oldest_id(stream, 0, _spare(stream))
        if oldest is not None:
            line.append((oldest, at))
        return stream.entry_bytes

    def _stream(self, at: int) -> Stream | None:
        """A long stream, if it is still there."""
        database, slot, key = self._long[at]
        bucket = database.slots[slot]
        found = None if bucket is None else bucket.get(key)
        return found if type(found) is Stream else None

    # --- evicting -----------------------------------------------------------------------------------------------

    def _evict(self, total: int, line: list[tuple[int, int]]) -> bool:
        """Let the oldest nodes of all streams go until the rest is small enough; returns whether none are left to go.

        `line`: the last id of the oldest node of streams, and which stream that is.
        """
        self._bytes_max = self._figures.stream_bytes_max  # it may have been set since they were counted
        excess = total - self._bytes_max
        heapify(line)
        going: dict[int, _Candidate] = {}
        freed = count = 0
        while freed < excess and line and count < limits.EVICTED_NODES_AT_ONCE_MAX:
            at = heappop(line)[1]
            candidate = going.get(at) or self._candidate(at)
            if candidate is not None:
                going[at] = candidate
                freed += candidate.take()
                count += 1
                oldest = candidate.oldest_id()
                if oldest is not None:
                    heappush(line, (oldest, at))
        self._note(total - self._run(going.values()), is_stuck=freed < excess and not line)
        return freed >= excess or not line

    def _candidate(self, at: int) -> _Candidate | None:
        """A stream that may lose its oldest node; None: it has changed meanwhile."""
        stream = self._stream(at)
        if stream is None or _oldest_id(stream, 0, _spare(stream)) is None:
            return None
        database, _, key = self._long[at]
        return _Candidate(database, key, stream)

    def _run(self, candidates: Iterable[_Candidate]) -> int:
        """Evict what was chosen; returns what it took."""
        freed = 0
        for each in candidates:
            if evict(self._store, each.database, each.key, each.first):
                self._figures.add(each.going)
                freed += sum(node.bytes for node in each.going)
        return freed

    def _note(self, total: int, *, is_stuck: bool) -> None:
        figures = self._figures
        now_ms = self._store.now_ms()
        was_told = 0 <= now_ms - self._warned_ms < limits.STREAMS_STUCK_WARNED_MS
        if is_stuck and not (figures.is_stuck or was_told):
            self._warned_ms = now_ms
            _LOG.warning(
                "streams take %d bytes, %d more than stream-bytes-max allows, and nothing of them may go: "
                "BACKLOG keeps it, or it is in nodes that are being written. Writes go on",
                total, total - self._bytes_max,
            )  # fmt: skip
        figures.stream_bytes, figures.is_stuck = total, is_stuck
        self._room = 0 if is_stuck else self._bytes_max - total
