"""Streams keep what their rules say, whether or not anybody writes (`streams/retention`).

    ruled streams    each database knows which these are; some of them are looked at some times a second, in turns
    all streams      together they may take so many bytes (`stream_total`)

What goes is decided here and journaled as TEVICT would, so followers, feeds and a replay need nothing else. A follower
decides nothing: it is sent what its leader decides. The cost of a pass follows the streams that have a rule, and what
goes, and both are bounded: what is left comes with the next pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from tidelog import limits
from tidelog.store.keyspace import Database
from tidelog.store.store import Store
from tidelog.streams.operations import StreamEvict
from tidelog.streams.retention import GoingNode, going_by_rule
from tidelog.streams.stream import Stream


class RetentionFigures:
    """What retention may use, and what it has done since the server started. For as long as a process lives."""

    def __init__(self, stream_bytes_max: int = 0) -> None:
        self.stream_bytes_max = stream_bytes_max
        """What the entries of all streams may take; 0: any number of bytes."""
        self.stream_bytes = 0
        """What they took when they were last counted; 0: nobody has counted them."""
        self.is_stuck = False
        """It was too much then, and nothing of it may go."""
        self.entries: Counter[str] = Counter()
        """How many have gone, by reason (`streams/retention.REASONS`) ..."""
        self.bytes: Counter[str] = Counter()
        """... and what they took."""

    def add(self, going: Iterable[GoingNode]) -> None:
        for reason, entries, size in going:
            self.entries[reason] += entries
            self.bytes[reason] += size


class StreamRetention:
    """The rules of the streams of a store."""

    def __init__(self, store: Store, figures: RetentionFigures | None = None) -> None:
        self._store = store
        self.figures = figures if figures is not None else RetentionFigures()
        self._turn: Iterator[tuple[Database, bytes]] = iter(())
        """The streams that come next."""

    @property
    def ruled_count(self) -> int:
        return sum(len(database.ruled) for database in self._store.databases)

    def run(self) -> None:
        """Some times a second: look at the next streams that have a rule."""
        if self._store.refusal is not None or self._store.is_follower:
            return
        looked_at, left = 0, self.ruled_count
        nodes = limits.EVICTED_NODES_AT_ONCE_MAX
        while looked_at < min(left, limits.RULED_STREAMS_AT_ONCE_MAX) and nodes > 0:
            taken = next(self._turn, None)
            if taken is None:
                self._turn = self._ruled()
                continue
            looked_at += 1
            nodes -= self._look_at(taken[0], taken[1], nodes)

    def _ruled(self) -> Iterator[tuple[Database, bytes]]:
        for database in self._store.databases:
            for key in list(database.ruled):  # that of a million takes some milliseconds
                yield database, key

    def _look_at(self, database: Database, key: bytes, nodes_max: int) -> int:
        """Let go what the rule of a stream does not keep; returns how many nodes went."""
        stream = database.peek(key)
        if type(stream) is not Stream or stream.rule is None:
            database.note_rule(key, has_rule=False)  # its key has another value by now
            return 0
        first, going = going_by_rule(stream, self._store.now_ms(), nodes_max)
        if going and evict(self._store, database, key, first):
            self.figures.add(going)
        return len(going)


def evict(store: Store, database: Database, key: bytes, first: int) -> bool:
    """Let all entries below an offset go, as one transaction; false: the stream has expired, and goes as a whole."""
    transaction = store.begin(database.number)
    is_there = transaction.peek(key) is not None
    transaction.run([StreamEvict(key, first)] if is_there else [])
    store.commit(transaction)
    return is_there
