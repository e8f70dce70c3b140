"""The ledger: what was given to the journal, kept in the plainest way there is.

One list of transactions in the order in which they were appended. Everything that the journal may ever show, after
whatever crash, is a prefix of it, so every check is a comparison with `transactions[:k]` for one `k`:

    ts           gives k: transactions up to a ts are exactly those before `count_up_to(ts)`
    vectors[k]   the lsn of each shard after k transactions: lsns are dense, so they follow from counting records
    state_at(k)  the keyspace after k transactions

Transactions are kept as plain tuples in the form in which a reader would show them, so that comparing thousands of
them is one comparison of lists. What `start` records look like is written down here a second time, from the format
and not from the code under test.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from tidelog.journal.merge import JournalTransaction
from tidelog.journal.new_record import NewRecord
from tidelog.journal.operation import DEL, FLUSHDB, START, VAL, Del, FlushDb, Val, core_table
from tidelog.journal.reader import Part, Record

PlainRecord = tuple[int, int, int, int, bytes]
"""lsn, opcode, database, expiry (-1: none), payload."""
PlainTransaction = tuple[int, list[tuple[int, list[PlainRecord]]]]
"""ts, and for each shard in order of shards, its records."""
State = dict[tuple[int, int, bytes], tuple[bytes, int | None]]
"""(shard, database, key) -> (value, expiry)."""

_TABLE: Final = core_table()


def plain(transaction: JournalTransaction, payload_of: Callable[[Part, Record], bytes]) -> PlainTransaction:
    """A transaction that a reader showed, with payloads from wherever they lie."""
    parts = []
    for part in transaction.parts:
        records: list[PlainRecord] = [
            (record.lsn, record.opcode, record.database, record.expire_ms, payload_of(part, record))
            for record in part.records
        ]
        parts.append((int(part.shard), records))
    return int(transaction.ts), parts


def apply_record(state: State, shard: int, record: PlainRecord) -> None:
    """What a record does to the keyspace."""
    _, opcode, database, expire, payload = record
    match _TABLE.decode(opcode, payload, None if expire < 0 else expire):
        case Val(pairs, expire_ms):
            for key, value in pairs:
                state[shard, database, key] = (value, expire_ms)
        case Del(keys):
            for key in keys:
                state.pop((shard, database, key), None)
        case FlushDb():
            for place in [place for place in state if place[:2] == (shard, database)]:
                del state[place]


def fold(transactions: Iterable[PlainTransaction], state: State | None = None) -> State:
    """The keyspace after these transactions."""
    state = {} if state is None else state
    for _, parts in transactions:
        for shard, records in parts:
            for record in records:
                apply_record(state, shard, record)
    return state


def _encode_start(ts: int, shards: Sequence[int]) -> bytes:
    # Every number below 128 is one byte as a flit: n * 2 + 1.
    return struct.pack("<Q", ts) + bytes([len(shards) * 2 + 1, *(shard * 2 + 1 for shard in shards)])


class Ledger:
    """All transactions that count, in order."""

    def __init__(self, shard_count: int) -> None:
        self.shard_count = shard_count
        self.transactions: list[PlainTransaction] = []
        self.ts: list[int] = []
        self.vectors: list[tuple[int, ...]] = [(0,) * shard_count]
        """`vectors[k]`: per shard, its next lsn after k transactions."""
        self.state: State = {}
        """After all of them."""

    def __len__(self) -> int:
        return len(self.ts)

    @property
    def last_ts(self) -> int:
        return self.ts[-1] if self.ts else 0

    def append(self, ts: int, records: Sequence[NewRecord]) -> None:
        """A transaction was accepted."""
        lsns = list(self.vectors[-1])
        parts: dict[int, list[PlainRecord]] = {}
        shards = list(dict.fromkeys(new.shard for new in records))
        if len(shards) > 1:
            first = records[0]
            parts[first.shard] = [(lsns[first.shard], START, first.database, -1, _encode_start(ts, shards))]
            lsns[first.shard] += 1
        for shard, opcode, head, expire_ms, database, staged in records:
            payload = head if staged is None else head + staged.value
            record = (lsns[shard], opcode, database, -1 if expire_ms is None else expire_ms, payload)
            parts.setdefault(shard, []).append(record)
            lsns[shard] += 1
            apply_record(self.state, shard, record)
        self.ts.append(ts)
        self.transactions.append((ts, sorted(parts.items())))
        self.vectors.append(tuple(lsns))

    def count_up_to(self, ts: int) -> int:
        """How many transactions have this ts or an older one."""
        return bisect_right(self.ts, ts)

    def state_at(self, count: int) -> State:
        """The keyspace after the first `count` transactions."""
        return fold(self.transactions[:count])

    def cut(self, count: int) -> None:
        """Only the first `count` happened."""
        if count < len(self.ts):
            del self.ts[count:], self.transactions[count:], self.vectors[count + 1 :]
            self.state = self.state_at(count)

    def shard_parts(self, shard: int) -> list[tuple[int, list[PlainRecord]]]:
        """What one shard has of each transaction that changed it: ts and records."""
        return [(ts, records) for ts, parts in self.transactions for owner, records in parts if owner == shard]


__all__: Final = [
    "DEL",
    "FLUSHDB",
    "VAL",
    "Ledger",
    "PlainRecord",
    "PlainTransaction",
    "State",
    "apply_record",
    "fold",
    "plain",
]
