"""Hands a transaction to the feeds that watch its keys.

Only records whose keys some feed watches are decoded, and a change is encoded once for all feeds of a protocol.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidelog.feeds.event import encode_change
from tidelog.feeds.feed import ChangeFeed
from tidelog.feeds.span import Interests, Span
from tidelog.ids import ShardId, Ts
from tidelog.journal.merge import JournalTransaction
from tidelog.journal.operation import FLUSHDB, START, VAL, decode_pairs, pair_keys
from tidelog.journal.reader import Part, Record
from tidelog.store.type_table import TypeTable
from tidelog.types.change import EXPIRY, Change, expiry_change
from tidelog.types.effect import keyed_keys
from tidelog.types.key import DELRANGE, EXPIRE, decode_range

_OF_ALL_SHARDS: Final = (FLUSHDB, DELRANGE)


class Fanout:
    """Hands out transactions to the feeds of an index, by database."""

    def __init__(self, types: TypeTable, by_database: dict[int, Interests]) -> None:
        self._types = types
        self._by_database = by_database
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

    def hand_out(self, transaction: JournalTransaction, payload_of: Callable[[Part, Record], bytes]) -> None:
        """Hot."""
        parts = transaction.parts
        if len(parts) == 1:
            self._hand_out_part(transaction.ts, parts[0], payload_of, counts_for_all=True)
        else:
            for part, counts_for_all in _in_order(parts):
                self._hand_out_part(transaction.ts, part, payload_of, counts_for_all=counts_for_all)
        if self._touched:
            for feed in self._touched:
                feed.end_transaction(transaction.ts)
            self._given.update(self._touched)
            self._touched.clear()

    def take_given(self) -> list[ChangeFeed]:
        """The feeds that have got events since the last call."""
        given = list(self._given)
        self._given.clear()
        return given

    def _hand_out_part(
        self, ts: Ts, part: Part, payload_of: Callable[[Part, Record], bytes], *, counts_for_all: bool
    ) -> None:
        for record in part.records:
            interests = self._by_database.get(record.database)
            opcode = record.opcode
            if interests is None or opcode == START:
                continue
            payload = payload_of(part, record)
            if opcode == VAL:
                for key, value in decode_pairs(payload):
                    watching: list[ChangeFeed] = interests.of(key)
                    for feed in watching:
                        if feed.is_due(ts, key) and (feed.shard is None or feed.shard == part.shard):
                            feed.add_string(ts, key, value)
                            self._touched[feed] = None
                    if record.expire_ms >= 0:
                        self._give(ts, part.shard, watching, expiry_change(key, record.expire_ms))
            elif opcode == FLUSHDB:
                self._flush(ts, part.shard, interests, counts_for_all=counts_for_all)
            elif opcode == DELRANGE:
                gone = decode_range(payload)
                self._remove(ts, part.shard, interests, Span(gone.start, gone.end), counts_for_all=counts_for_all)
            elif opcode == EXPIRE:
                [key] = keyed_keys(payload)
                expire_ms = record.expire_ms if record.expire_ms >= 0 else None
                self._give(ts, part.shard, interests.of(key), expiry_change(key, expire_ms))
            else:
                for change in self._types.changes_of(opcode, payload):
                    self._give(ts, part.shard, interests.of(change.key), change)

    def _give(self, ts: Ts, shard: ShardId, feeds: list[ChangeFeed], change: Change) -> None:
        encoded: dict[int, bytes] = {}
        is_expiry = change.type == EXPIRY
        for feed in feeds:
            if change.is_of_group and not feed.request.has_groups:
                continue
            if is_expiry and not feed.request.has_expiry:
                continue
            if feed.is_due(ts, change.key) and (feed.shard is None or feed.shard == shard):
                event = encoded.get(feed.protocol)
                if event is None:
                    event = encoded[feed.protocol] = encode_change(feed.protocol, ts, change)
                feed.add(ts, event)
                self._touched[feed] = None

    def _flush(self, ts: Ts, shard: ShardId, interests: Interests, *, counts_for_all: bool) -> None:
        """Every shard has a record of it; a feed over all shards is told once."""
        for feed in interests.feeds:
            if feed.shard == shard or (feed.shard is None and counts_for_all):
                feed.add_flush(ts)
                self._touched[feed] = None

    def _remove(self, ts: Ts, shard: ShardId, interests: Interests, gone: Span, *, counts_for_all: bool) -> None:
        """The same for a range: told to the feeds whose spans overlap it."""
        for feed in interests.feeds:
            if (feed.shard == shard or (feed.shard is None and counts_for_all)) and feed.add_range(ts, gone):
                self._touched[feed] = None


def _in_order(parts: list[Part]) -> list[tuple[Part, bool]]:
    """The parts of a transaction over several shards, cut so that what any of them did before a flush comes before it.

    There is no other order among shards, and each has a record of every flush, and of every range that was deleted. The
    second says whose counts for all.
    """
    pieces = [_cut_at_flushes(part.records) for part in parts]
    return [
        (part._replace(records=of_part[index]), part is parts[0])
        for index in range(max(map(len, pieces)))
        for part, of_part in zip(parts, pieces, strict=True)
        if index < len(of_part)
    ]


def _cut_at_flushes(records: list[Record]) -> list[list[Record]]:
    """What comes before the first flush, the flush, what comes before the next ..."""
    pieces: list[list[Record]] = [[]]
    for record in records:
        if record.opcode in _OF_ALL_SHARDS:
            pieces += [[record], []]
        else:
            pieces[-1].append(record)
    return pieces
