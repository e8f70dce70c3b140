"""Hands out what was read of the journal to the feeds that watch its keys.

Only records whose keys some feed watches are decoded, and a change is encoded once for all feeds of a protocol. It goes
on record by record, and stops when a feed has enough to send, or when a large payload has to be proved first: so
neither a transaction nor a value is ever in memory as a whole because of its size.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from tidelog import limits
from tidelog.feeds.event import encode_change
from tidelog.feeds.feed import ChangeFeed
from tidelog.feeds.span import Interests, Span
from tidelog.feeds.whale import Whale
from tidelog.ids import ShardId, Ts
from tidelog.journal.operation import DELRANGE, FLUSHDB, START, VAL, decode_pairs, pair_keys
from tidelog.journal.reader import Part, Record
from tidelog.journal.record import BLOB
from tidelog.store.type_table import TypeTable
from tidelog.types.change import EXPIRY, Change, Pieces, expiry_change
from tidelog.types.effect import keyed_keys
from tidelog.types.key import EXPIRE, decode_range


class Fanout:
    """Hands out transactions to the feeds of an index, by database. One place in the journal."""

    def __init__(self, types: TypeTable, by_database: dict[int, Interests]) -> None:
        self._types = types
        self._by_database = by_database
        self._parts: deque[Part] = deque()
        """What is to be handed out ..."""
        self._at = 0
        """... and how many records of the first are done ..."""
        self._whale: Whale | None = None
        """... and the next one, if it lies in a blob file and has not been proved yet."""
        self.whole_ts = Ts(0)
        """The last transaction that was handed out as a whole."""
        self._touched: dict[ChangeFeed, None] = {}
        """Feeds that have got something of the transaction that is being handed out ..."""
        self._given: dict[ChangeFeed, None] = {}
        """... and those that have since somebody asked."""

    def wants(self, database: int, opcode: int, payload: bytes) -> bool:
        """Whether a record may concern a feed: asked for each record before it is decoded. Hot."""
        interests = self._by_database.get(database)
        if interests is None or opcode == START:
            return False
        if interests.has_all:
            return True
        if opcode == VAL:
            return interests.have_any(pair_keys(payload, interests.key_sizes))
        keys = self._types.operations.keys(opcode, payload)
        return keys is None or interests.have_any(keys)

    # --- handing out --------------------------------------------------------------------------------------------

    def take_in(self, parts: list[Part]) -> None:
        """What was read, to be handed out."""
        self._parts.extend(parts)

    @property
    def has_more(self) -> bool:
        """Not everything that was taken in has been handed out."""
        return bool(self._parts)

    def step(self, whale_of: Callable[[Part, Record], Whale]) -> None:
        """Hand out what there is, until a feed has enough or a whale takes longer. Hot."""
        parts = self._parts
        while parts:
            part = parts[0]
            records = part.records
            while self._at < len(records):
                record = records[self._at]
                if record.flags & BLOB:
                    if not self._hand_out_whale(part, record, whale_of):
                        return
                else:
                    self._hand_out_record(part, record, record.payload)
                self._at += 1
                if self._at < len(records) and self._is_enough():
                    return
            parts.popleft()
            self._at = 0
            if part.is_last:
                self.whole_ts = part.ts
                for feed in self._touched:
                    feed.end_transaction(part.ts)
            if self._touched:
                is_enough = self._is_enough()
                self._given.update(self._touched)
                if part.is_last:
                    self._touched.clear()
                if is_enough:
                    return

    def take_given(self) -> list[ChangeFeed]:
        """The feeds that have got events since the last call."""
        if self._touched:
            self._given.update(self._touched)
        given = list(self._given)
        self._given.clear()
        return given

    def touch(self, feed: ChangeFeed) -> None:
        """A feed that has got some of the transaction that is handed out next already."""
        self._touched[feed] = None

    def forget(self, feed: ChangeFeed) -> None:
        """A feed gets nothing more from here."""
        self._touched.pop(feed, None)
        self._given.pop(feed, None)

    def clear(self) -> None:
        """Drop what was not handed out."""
        self._parts.clear()
        self._at, self._whale = 0, None
        self._touched.clear()
        self._given.clear()

    def _is_enough(self) -> bool:
        for feed in self._touched:  # noqa: SIM110 - a generator takes thrice the time
            if feed.out_bytes >= limits.FEED_SENT_BYTES:
                return True
        return False

    def _hand_out_record(self, part: Part, record: Record, payload: bytes) -> None:
        interests = self._by_database.get(record.database)
        opcode, ts, shard = record.opcode, part.ts, part.shard
        if interests is None or opcode == START:
            return
        if opcode == VAL:
            for key, value in decode_pairs(payload):
                watching: list[ChangeFeed] = interests.of(key)
                for feed in watching:
                    if (feed.shard is None or feed.shard == shard) and feed.is_due(ts, key):
                        feed.add_string(ts, key, value)
                        self._touched[feed] = None
                if record.expire_ms >= 0:
                    self._give(ts, shard, watching, expiry_change(key, record.expire_ms))
        elif opcode == FLUSHDB:
            self._flush(ts, shard, interests)
        elif opcode == DELRANGE:
            gone = decode_range(payload)
            self._remove(ts, shard, interests, Span(gone.start, gone.end))
        elif opcode == EXPIRE:
            [key] = keyed_keys(payload)
            expire_ms = record.expire_ms if record.expire_ms >= 0 else None
            self._give(ts, shard, interests.of(key), expiry_change(key, expire_ms))
        else:
            for change in self._types.changes_of(opcode, payload):
                self._give(ts, shard, interests.of(change.key), change)

    def _hand_out_whale(self, part: Part, record: Record, whale_of: Callable[[Part, Record], Whale]) -> bool:
        """The same for a payload that lies in a blob file; false: it takes longer."""
        interests = self._by_database.get(record.database)
        if interests is None:
            self._whale = None  # whoever wanted it may have gone while it was being proved
            return True
        whale = self._whale
        if whale is None:
            whale = self._whale = whale_of(part, record)
        if not whale.prove():
            return False
        self._whale = None
        if record.opcode != VAL:
            self._hand_out_record(part, record, whale.payload())
            return True
        for key, value in whale.pairs():
            watching: list[ChangeFeed] = interests.of(key)
            for feed in watching:
                if (feed.shard is None or feed.shard == part.shard) and feed.is_due(part.ts, key):
                    if isinstance(value, bytes):
                        feed.add_string(part.ts, key, value)
                    else:
                        feed.add_large_string(part.ts, key, value)
                    self._touched[feed] = None
            if record.expire_ms >= 0:
                self._give(part.ts, part.shard, watching, expiry_change(key, record.expire_ms))
        return True

    def _give(self, ts: Ts, shard: ShardId, feeds: list[ChangeFeed], change: Change) -> None:
        encoded: dict[int, bytes | Pieces] = {}
        is_expiry = change.type == EXPIRY
        for feed in feeds:
            if change.is_of_group and not feed.request.has_groups:
                continue
            if is_expiry and not feed.request.has_expiry:
                continue
            if (feed.shard is None or feed.shard == shard) and feed.is_due(ts, change.key):
                event = encoded.get(feed.protocol)
                if event is None:
                    event = encoded[feed.protocol] = encode_change(feed.protocol, ts, change)
                feed.add(ts, event)
                self._touched[feed] = None

    def _flush(self, ts: Ts, shard: ShardId, interests: Interests) -> None:
        """Every shard has a record of it; a feed over all shards is told once, with the first."""
        for feed in interests.feeds:
            if feed.shard == shard or (feed.shard is None and not shard):
                feed.add_flush(ts)
                self._touched[feed] = None

    def _remove(self, ts: Ts, shard: ShardId, interests: Interests, gone: Span) -> None:
        """The same for a range: told to the feeds whose spans overlap it."""
        for feed in interests.feeds:
            if (feed.shard == shard or (feed.shard is None and not shard)) and feed.add_range(ts, gone):
                self._touched[feed] = None
