"""The far end of a link, without one: what a `History` hands out, encoded, decoded and put together again."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tests.replication.exchange import FROM_LEADER, decoded
from tidelog.ids import Lsn, Ts
from tidelog.journal.journal import Journal
from tidelog.journal.merge import JournalTransaction
from tidelog.journal.record import EXPIRE, FINISH, TS
from tidelog.replication.history import History
from tidelog.replication.incoming import Incoming, Whole
from tidelog.replication.kinds import LinkSide
from tidelog.replication.message import (
    EpochBegins,
    HistoryPosition,
    LinkMessage,
    LongPublication,
    LongRecord,
    PayloadPiece,
    Publication,
    Reached,
    ShardEnd,
    TransactionParts,
)
from tidelog.replication.wire import PieceDecoder, encode

ORDERED = (TransactionParts, LongRecord, PayloadPiece, EpochBegins, Publication, LongPublication)


class Sent(NamedTuple):
    """A record as the journal has it, but for where it lies there."""

    shard: int
    lsn: int
    opcode: int
    flags: int
    database: int
    expire_ms: int
    payload: bytes


Kept = tuple[Ts, list[Sent]]
"""A transaction: its ts, and its records in the order of shards."""


def kept(transaction: JournalTransaction, payload_of: Callable[..., bytes] | None = None) -> Kept:
    records = [
        Sent(
            part.shard, record.lsn, record.opcode, record.flags & (TS | EXPIRE | FINISH), record.database,
            record.expire_ms, record.payload if payload_of is None else payload_of(part, record),
        )
        for part in transaction.parts
        for record in part.records
    ]  # fmt: skip
    return transaction.ts, records


def journaled(journal: Journal, since: int = 0) -> list[Kept]:
    """What the journal has after a ts, as recovery reads it."""
    reader = journal.reader_since(Ts(since))
    try:
        return [kept(transaction, reader.payload_of) for transaction in reader.read()]
    finally:
        reader.close()


def positions(journal: Journal) -> list[HistoryPosition]:
    """Every place between two transactions that the journal still has."""
    shard_count = journal.meta.shard_count
    lsns = [end - count for end, count in zip(journal.writer.visible.lsns, journal.records_after(Ts(0)), strict=True)]
    ends = [ShardEnd(Lsn(lsn), None if lsn else Ts(0)) for lsn in lsns]
    found = [HistoryPosition(journal.erased_ts, tuple(ends))] if not journal.erased_ts else []
    for ts, records in journaled(journal, journal.erased_ts):
        for sent in records:
            ends[sent.shard] = ShardEnd(Lsn(sent.lsn + 1), ts)
        found.append(HistoryPosition(ts, tuple(ends)))
    assert all(len(position.shards) == shard_count for position in found)
    return found


class Receiver:
    """Takes what a history hands out, over the wire, to its end."""

    def __init__(self, journal: Journal, begin: HistoryPosition, next_epoch: int = 0) -> None:
        self.history = History(journal, Reached(begin.ts, begin.lsns), next_epoch)
        self.decoder = PieceDecoder(LinkSide.LEADER)
        self.decoder.feed(encode(FROM_LEADER[0]))
        assert self.decoder.next() is not None
        self.incoming = Incoming(Reached(begin.ts, begin.lsns), lambda opcode: True)
        self.whole: list[Whole] = []
        self.pieces: list[int] = []
        """The size of each piece that came."""

    def step(self) -> bool:
        """Take some; false: nothing more is visible."""
        messages = self.history.read()
        if messages is None:
            return False
        for message in messages:
            self.take(message)
        return True

    def take(self, message: LinkMessage) -> None:
        data = encode(message)
        self.pieces.append(len(data))
        for found in decoded(self.decoder, data):
            assert isinstance(found, ORDERED)
            self.whole += self.incoming.take(found)

    def pull(self) -> None:
        """Take all that is visible."""
        while self.step():
            pass
        assert not self.history.is_inside
        assert not self.incoming.is_inside
        assert self.incoming.reached.ts == self.history.ts

    @property
    def transactions(self) -> list[Kept]:
        return [kept(found) for found in self.whole if isinstance(found, JournalTransaction)]

    @property
    def epochs(self) -> list[int]:
        return [found.epoch.id for found in self.whole if isinstance(found, EpochBegins)]
