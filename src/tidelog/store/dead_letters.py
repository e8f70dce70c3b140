"""Pending entries that a group gives up: they have expired, or were delivered too often.

They are no longer pending, and their entries are appended to the group's dead-letter stream if it has one. A read of
the group gives up what it comes across. What has expired also goes by itself, whether or not anybody reads:
`PendingExpiry` finds it by the alarms of each database, at a cost that follows what expires. Both make the same
operations.

A dead-letter stream that cannot be written, because its key has another type, loses nothing: the entries stay pending,
count for no limit, and are tried again. The same holds for entries that cannot be read.

Entries of cold nodes are fetched before they are given up by themselves: a timer never waits for a disk.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from tidelog import limits
from tidelog.errors import CommandError, JournalFailed, JournalFull
from tidelog.store.keyspace import Database
from tidelog.store.store import Store
from tidelog.store.transaction import Transaction
from tidelog.streams.cold import OPENED, NodesAway
from tidelog.streams.group import Group
from tidelog.streams.operations import StreamAppend, acks, appends
from tidelog.streams.progress import next_id
from tidelog.streams.rows import Rows, listed, size_of
from tidelog.streams.sealed_node import SealedNode
from tidelog.streams.stream import Stream

_LOG: Final = logging.getLogger("tidelog")

FetchNodes = Callable[[Sequence[SealedNode], Callable[[str], None]], None]
"""Reads cold nodes on a thread, and then calls something with why one of them cannot be read, or nothing."""


class GivingUp:
    """Pending entries of one group that are given up in one transaction."""

    def __init__(self, key: bytes, name: bytes, stream: Stream, group: Group) -> None:
        self._key = key
        self._name = name
        self._stream = stream
        self._letters_key = group.dead_letter if group.dead_letter != key else b""
        self._letters: list[Rows] = []
        self._bytes = 0
        self._opened: set[SealedNode] = set()
        """Cold nodes that they are read from ..."""
        self._opened_bytes = 0
        """... and what those take, opened."""
        self.offsets: dict[int, None] = {}
        """What is given up."""

    @property
    def has_room(self) -> bool:
        """Whether the transaction takes more. A caller comes back for the rest."""
        return (
            len(self.offsets) < limits.GIVEN_UP_ENTRIES_MAX
            and self._bytes < limits.GIVEN_UP_BYTES_MAX
            and self._opened_bytes < limits.GIVEN_UP_OPENED_BYTES_MAX
        )

    def add(self, offset: int) -> None:
        if self._letters_key:
            self._note_node(offset)
            rows = self._stream.read(offset, 1, offset)
            self._letters.append(rows)
            self._bytes += size_of(listed(rows.tags), listed(rows.entries))
        self.offsets[offset] = None

    def add_all(self, offsets: Sequence[int]) -> None:
        """As many as there is room for."""
        if self._letters_key and OPENED.fetches:
            self._stream.require_offsets(self._first(offsets))
        for offset in offsets:
            if not self.has_room:
                break
            self.add(offset)

    def _note_node(self, offset: int) -> None:
        node = self._stream.node_at(offset)
        if isinstance(node, SealedNode) and node.is_cold and node not in self._opened:
            self._opened.add(node)
            self._opened_bytes += node.opened_bytes

    def _first(self, offsets: Sequence[int]) -> list[int]:
        """Those that there is room for at most, whatever is in them."""
        found: list[int] = []
        nodes: set[SealedNode] = set()
        size = 0
        for offset in offsets:
            if len(found) >= limits.GIVEN_UP_ENTRIES_MAX or size >= limits.GIVEN_UP_OPENED_BYTES_MAX:
                break
            found.append(offset)
            node = self._stream.node_at(offset)
            if isinstance(node, SealedNode) and node.is_cold and node not in nodes:
                nodes.add(node)
                size += node.opened_bytes
        return found

    def operations(self, transaction: Transaction) -> list[Any]:
        made: list[Any] = _letters(transaction, self._letters_key, self._letters) if self._letters else []
        return made + acks(self._key, self._name, sorted(self.offsets))


def _letters(transaction: Transaction, key: bytes, letters: list[Rows]) -> list[StreamAppend]:
    """Append what nobody acknowledged to the dead-letter stream; an error rather than a loss if that is none."""
    try:
        stream: Stream | None = transaction.find_typed(key, Stream)
    except CommandError as error:
        raise CommandError(f"{error}: the dead-letter stream") from None
    ms, seq = next_id(stream, transaction.now_ms, len(letters))
    offset = stream.next if stream is not None else 1
    made: list[StreamAppend] = []
    start = 0
    for at in range(1, len(letters) + 1):
        kind = letters[start].kinds[0]
        if at < len(letters) and letters[at].kinds[0] == kind:
            continue
        tags = [rows.tags[0] for rows in letters[start:at]]
        entries = [rows.entries[0] for rows in letters[start:at]]
        made += appends(StreamAppend(key, offset + start, ms, seq + start, kind, tags, entries))
        start = at
    return made


class PendingExpiry:
    """Gives up what has expired although nobody reads. One for a store."""

    def __init__(self, store: Store, fetch: FetchNodes | None = None) -> None:
        """`fetch`: reads cold nodes on a thread; None: they are read on the spot."""
        self._store = store
        self._fetch = fetch
        self._away: set[tuple[int, bytes]] = set()
        """Streams whose nodes are being fetched: database and key."""
        self._count = self._bytes = 0
        """What this pass has given up: entries, and bytes in the journal."""
        self._warned_ms = 0
        """When it last said that a dead-letter stream cannot be written."""

    def run(self) -> int:
        """Give up pending entries that have expired, up to a bound; returns how many."""
        store = self._store
        self._count = self._bytes = 0
        for database in store.databases:
            while self._takes_more():
                key = database.alarms.take_due(store.now_ms())
                if key is None:
                    break
                self._expire_in(database, key)
        return self._count

    def _takes_more(self) -> bool:
        """Whether there is room for one more transaction. What is left stays, counts for nothing, and comes later."""
        writer = self._store.journal.writer
        if self._count >= limits.EXPIRED_PENDING_AT_ONCE_MAX or self._bytes >= limits.EXPIRED_PENDING_BYTES_MAX:
            return False
        if writer.batch_bytes >= limits.BATCH_BYTES_FULL:
            with contextlib.suppress(JournalFull, JournalFailed):  # the end of the turn says so
                writer.write()
        return self._store.refusal is None and not self._store.is_follower

    def _expire_in(self, database: Database, key: bytes) -> None:
        """The same for one stream, a transaction for each group; sets when to look at it next."""
        store = self._store
        database.alarms.drop(key)
        stream = database.find(key)
        if not isinstance(stream, Stream) or (database.number, key) in self._away:
            return
        for name, group in list(stream.groups.items()):
            next_ms = group.expiries.first_ms(group.pending) if group.expiries is not None else 0
            if 0 < next_ms <= store.now_ms():
                if not self._takes_more():
                    database.wake_at(key, next_ms)
                    return
                next_ms = self._give_up(database, key, name, stream, group)
            if next_ms:
                database.wake_at(key, next_ms)

    def _give_up(self, database: Database, key: bytes, name: bytes, stream: Stream, group: Group) -> int:
        """The same for one group; returns when to look at it next, 0: never."""
        transaction = self._store.begin(database.number)
        giving_up = GivingUp(key, name, stream, group)
        OPENED.fetches = self._fetch is not None
        try:
            if transaction.find(key) is not None:  # or it has expired itself, and goes with everything in it
                giving_up.add_all(group.expired(transaction.now_ms))
            operations = giving_up.operations(transaction)
        except NodesAway as away:
            self._fetch_nodes(database, key, away.nodes)
            return 0
        except CommandError as error:
            self._warn(key, name, str(error), transaction.now_ms)
            return transaction.now_ms + limits.DEAD_LETTERS_RETRY_MS
        finally:
            OPENED.fetches = False
        before = self._store.journal.writer.batch_bytes
        transaction.run(operations)
        self._store.commit(transaction)
        self._bytes += self._store.journal.writer.batch_bytes - before
        self._count += len(giving_up.offsets)
        return group.expiries.first_ms(group.pending) if group.expiries is not None and giving_up.offsets else 0

    def _fetch_nodes(self, database: Database, key: bytes, nodes: Sequence[SealedNode]) -> None:
        """Look at a stream again when its nodes are open. Nobody waits for the disk meanwhile."""
        assert self._fetch is not None
        self._away.add((database.number, key))

        def go_on(error: str) -> None:
            self._away.discard((database.number, key))
            self._count = self._bytes = 0
            if error:
                now_ms = self._store.now_ms()
                self._warn(key, b"", error, now_ms)
                database.wake_at(key, now_ms + limits.DEAD_LETTERS_RETRY_MS)
            else:
                self._expire_in(database, key)

        self._fetch(nodes, go_on)

    def _warn(self, key: bytes, name: bytes, error: str, now_ms: int) -> None:
        if not 0 <= now_ms - self._warned_ms < limits.DEAD_LETTERS_WARNED_MS:
            self._warned_ms = now_ms
            group = f"group {name!r} of " if name else ""
            _LOG.warning("the expired entries of %sstream %r stay pending: %s", group, key, error)
