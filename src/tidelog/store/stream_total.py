"""All streams of a server together take at most so many bytes: the oldest nodes go first, whatever stream they are in.

    count    all keys are visited, so many at a time: which streams have sealed nodes, and what the others take
    evict    what streams take now is added up; if it is too much, sealed nodes go, the one with the oldest end first

BACKLOG of a stream's rule keeps its newest entries here too, and the active node of a stream always stays. If that is
still too much, the log says so once, and writes go on: refusing them is what `maxmemory` and a full disk are for.

Streams are counted when as much was sealed as there was room for, and once in a while, because a copy takes room too.
Nothing is decided by an estimate: a stream that was deleted meanwhile takes no room, and costs no other stream entries.
An index of all streams by age was rejected: every append and every DEL would pay for it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final

from tidelog import limits
from tidelog.ids import SLOT_COUNT
from tidelog.store.keyspace import Database
from tidelog.store.store import Store
from tidelog.store.stream_retention import RetentionFigures, evict
from tidelog.streams.retention import BY_TOTAL, GoingNode
from tidelog.streams.stream import Stream

_LOG: Final = logging.getLogger("tidelog")


class _Candidate:
    """A stream that has sealed nodes: how many of them go, and what may."""

    __slots__ = ("database", "going", "key", "spare", "stream")

    def __init__(self, database: Database, key: bytes, stream: Stream) -> None:
        self.database = database
        self.key = key
        self.stream = stream
        self.going: list[GoingNode] = []
        self.spare = stream.length - (stream.rule.backlog if stream.rule is not None else 0)
        """So many entries may go."""

    def oldest_id(self) -> int | None:
        """The last id of the node that goes next; None: none may."""
        at, sealed = len(self.going), self.stream.sealed
        return sealed[at].last_id if at < len(sealed) and sealed[at].count <= self.spare else None

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


class StreamTotal:
    """The bytes of all streams of a store."""

    def __init__(self, store: Store, figures: RetentionFigures) -> None:
        self._store = store
        self._figures = figures
        self._count: Iterator[None] | None = None
        """The count that is under way, and what goes after it."""
        self._long: list[tuple[Database, bytes]] = []
        """Streams with sealed nodes that it has come across ..."""
        self._short_bytes = 0
        """... and what the others take."""
        self._bytes_max = 0
        """As it was when streams were last counted ..."""
        self._sealed_bytes = self._room = 0
        """... and what had ever been sealed then, and how much room there was."""
        self._next_ms = 0
        """When they are counted again in any case."""

    @property
    def is_under_way(self) -> bool:
        """Whether streams are being counted, or evicted."""
        return self._count is not None

    def run(self) -> None:
        """Some times a second."""
        store, figures = self._store, self._figures
        if store.is_follower or not figures.stream_bytes_max:
            self._count = None
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
        self._long, self._short_bytes = [], 0
        self._count = self._visit()

    def _visit(self) -> Iterator[None]:
        """Look at all keys, then evict, a bounded number at a time: everything may change in between."""
        looked_at = 0
        for database in self._store.databases:
            if not database.size:
                continue
            for slot in range(SLOT_COUNT):
                for part in database.buckets(slot):
                    for key, value in part.items():
                        if type(value) is Stream:
                            if value.sealed:
                                self._long.append((database, key))
                            else:
                                self._short_bytes += value.entry_bytes
                    looked_at += len(part)
                looked_at += 1
                if looked_at >= limits.STREAMS_COUNTED_KEYS_AT_ONCE:
                    looked_at = 0
                    yield
        while self._evict():
            yield

    def _candidates(self) -> list[_Candidate]:
        """The long streams that are still there."""
        found: list[_Candidate] = []
        for database, key in self._long:
            stream = database.peek(key)
            if type(stream) is Stream:
                found.append(_Candidate(database, key, stream))
        return found

    # --- evicting -----------------------------------------------------------------------------------------------

    def _evict(self) -> bool:
        """Let the oldest nodes of all streams go until the rest is small enough; returns whether more are to go."""
        candidates = self._candidates()
        total = self._short_bytes + sum(each.stream.entry_bytes for each in candidates)
        excess = total - self._bytes_max
        is_stuck, is_done = False, True
        if excess > 0:
            line = [(oldest, at) for at, each in enumerate(candidates) if (oldest := each.oldest_id()) is not None]
            heapify(line)
            freed = count = 0
            while freed < excess and line and count < limits.EVICTED_NODES_AT_ONCE_MAX:
                at = heappop(line)[1]
                freed += candidates[at].take()
                count += 1
                oldest = candidates[at].oldest_id()
                if oldest is not None:
                    heappush(line, (oldest, at))
            is_stuck, is_done = freed < excess and not line, freed >= excess or not line
            total -= self._run(candidates)
        self._note(total, is_stuck=is_stuck)
        return not is_done

    def _run(self, candidates: list[_Candidate]) -> int:
        """Evict what was chosen; returns what it took."""
        freed = 0
        for each in candidates:
            if each.going and evict(self._store, each.database, each.key, each.first):
                self._figures.add(each.going)
                freed += sum(node.bytes for node in each.going)
        return freed

    def _note(self, total: int, *, is_stuck: bool) -> None:
        figures = self._figures
        if is_stuck and not figures.is_stuck:
            _LOG.warning(
                "streams take %d bytes, %d more than stream-bytes-max allows, and nothing of them may go: "
                "BACKLOG keeps it, or it is in nodes that are being written. Writes go on",
                total, total - self._bytes_max,
            )  # fmt: skip
        figures.stream_bytes, figures.is_stuck = total, is_stuck
        self._room = 0 if is_stuck else self._bytes_max - total
