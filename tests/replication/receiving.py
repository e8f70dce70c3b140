"""The far end of a link: what came out of it, in a form that can be compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tidelog.ids import Ts
from tidelog.journal.merge import JournalTransaction
from tidelog.journal.record import EXPIRE, FINISH, TS
from tidelog.replication.message import (
    EpochBegins,
    LongPublication,
    LongRecord,
    PayloadPiece,
    Publication,
    TransactionParts,
)

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
