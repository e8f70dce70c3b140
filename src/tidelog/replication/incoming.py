"""Puts what a link brings in pieces together again: whole transactions, in order, under the lsns that are due.

A receiver appends and applies only what comes out of here. So nothing of a transaction has any effect before all of it
has come, whatever happens to the link, and a peer with a bug cannot make a hole:

- transactions come in order of `ts`, and their records have the lsns that follow, shard by shard;
- TS is on the first record of a transaction in each shard, FINISH on the last, and `start` names exactly the shards;
- an epoch begins between two transactions, at the lsns that are reached;
- every opcode is known here: what cannot be applied must not be journaled either.

What is held is the transaction that is under way, and it has a bound.

A payload that comes in pieces is put together. If the receiver has a thread for large ones, that is done as they come,
so that nothing is left to do at once: the transaction then comes out as a `LongTransaction`.
"""

from __future__ import annotations

from functools import partial
from typing import Final, NamedTuple, TypeAlias

from tidelog import limits
from tidelog.errors import FormatError, LinkMisused, TransactionTorn
from tidelog.ids import Lsn, ShardId, Ts
from tidelog.journal.large_bytes import GrowingBytes
from tidelog.journal.merge import JournalTransaction, check_whole
from tidelog.journal.operation import DELRANGE, FLUSHDB, START, VAL, head_of_pair
from tidelog.journal.reader import Part, Record
from tidelog.journal.record import FINISH, TS
from tidelog.journal.scan import IsKnown
from tidelog.replication.message import (
    EpochBegins,
    LongPublication,
    LongRecord,
    PayloadPiece,
    Publication,
    Reached,
    TransactionParts,
)

OrderedMessage: TypeAlias = TransactionParts | LongRecord | PayloadPiece | EpochBegins | Publication | LongPublication
"""What is put together."""


class LongPayload(NamedTuple):
    """A large payload; its record comes without it."""

    shard: ShardId
    record: Record
    key: bytes | None
    """If it sets one string, the key of that ..."""
    pieces: list[bytes]
    """... and then these are a head and the value. Otherwise it is one piece."""


class _GrowingPayload:
    """A large payload while it comes."""

    def __init__(self, long: LongRecord) -> None:
        self._long = long
        self._key: bytes | None = None
        self._head: bytes | None = None
        """None: nothing has come."""
        self._rest = GrowingBytes()

    def add(self, data: bytes) -> None:
        if self._head is None:
            self._head = b""
            found = head_of_pair(data, self._long.size) if self._long.part.records[0].opcode == VAL else None
            if found is not None:
                self._key, value_at = found
                self._head, data = data[:value_at], data[value_at:]
        self._rest.add(data)

    def whole(self) -> LongPayload:
        part = self._long.part
        pieces = [self._rest.whole()] if not self._head else [self._head, self._rest.whole()]
        return LongPayload(part.shard, part.records[0], self._key, pieces)


class LongTransaction(NamedTuple):
    """A whole transaction, and the large payloads of its records."""

    transaction: JournalTransaction
    payloads: list[LongPayload]


Whole: TypeAlias = JournalTransaction | LongTransaction | EpochBegins | Publication
"""What comes out."""

_PUT_TOGETHER: Final = (START, FLUSHDB, DELRANGE)
"""Records that are looked into wherever they come. They are small, unless a range has ends of megabytes."""

_make_transaction: Final = partial(tuple.__new__, JournalTransaction)  # hot: the call of the class itself is Python


class Incoming:
    """The history that a link brings, from a position on."""

    def __init__(self, begin: Reached, is_known: IsKnown, *, leaves_large: bool = False) -> None:
        self._ts: int = begin.ts
        """Of the last whole transaction."""
        self._next_lsns: list[int] = list(begin.lsns)
        self._is_known = is_known
        self._leaves_large = leaves_large
        """Large payloads are left out of their records."""
        self._known: set[int] = set()
        """Opcodes that were asked for."""
        self._open_ts = 0
        """Of the transaction that is under way ..."""
        self._open: dict[int, list[Record]] = {}
        """... and its records by shard; empty: there is none."""
        self._open_long: list[LongPayload] = []
        """Those of its payloads that are."""
        self._open_bytes = 0
        self._open_records = 0
        self._long: LongRecord | LongPublication | None = None
        """What the payload belongs to that is under way ..."""
        self._payload: list[bytes] = []
        """... of which this has come ..."""
        self._growing: _GrowingPayload | None = None
        """... or this, if it is large ..."""
        self._owed = 0
        """... and so much has not."""

    @property
    def reached(self) -> Reached:
        """Where the last whole transaction ended; right only while none is under way (`is_inside`)."""
        return Reached(Ts(self._ts), tuple(map(Lsn, self._next_lsns)))

    @property
    def is_inside(self) -> bool:
        """Something is under way that is not whole."""
        return bool(self._open) or self._long is not None

    @property
    def held_bytes(self) -> int:
        """Payloads of what is under way."""
        due = self._long.size if isinstance(self._long, LongRecord) else 0
        return self._open_bytes + (due - self._owed if self._growing is not None else sum(map(len, self._payload)))

    def take(self, message: OrderedMessage) -> list[Whole]:
        """What has become whole by a message. Hot."""
        if isinstance(message, TransactionParts):
            found: list[Whole] = []
            for part in message.parts:
                whole = self._take_part(part)
                if whole is not None:
                    found.append(whole)
            return found
        if isinstance(message, PayloadPiece):
            return self._take_payload(message.data)
        self._refuse_inside_payload()
        if isinstance(message, LongRecord):
            if self._open_bytes + message.size > limits.TRANSACTION_BYTES_MAX:
                raise self._too_large(message.part.ts, self._open_bytes + message.size)
            self._long, self._owed = message, message.size
            is_large = message.size >= limits.REPLICATION_STAGED_BYTES_MIN
            if is_large and self._leaves_large and message.part.records[0].opcode not in _PUT_TOGETHER:
                self._growing = _GrowingPayload(message)
            return []
        if isinstance(message, LongPublication):
            self._refuse_inside_transaction("a publication")
            self._long, self._owed = message, message.channel_size + message.payload_size
            return []
        if isinstance(message, EpochBegins):
            self._refuse_inside_transaction("an epoch")
            if message.epoch.lsns != tuple(self._next_lsns) or message.epoch.last_ts != self._ts:
                raise LinkMisused(f"{message.epoch} came where ts {self._ts} and lsns {self._next_lsns} are reached")
            return [message]
        self._refuse_inside_transaction("a publication")
        return [message]

    # --- payloads that come in pieces ---------------------------------------------------------------------------

    def _take_payload(self, data: bytes) -> list[Whole]:
        long = self._long
        if long is None or len(data) > self._owed:
            raise LinkMisused(f"{len(data)} bytes of a payload came where {self._owed} are due")
        growing = self._growing
        if growing is not None:
            growing.add(data)
        else:
            self._payload.append(data)
        self._owed -= len(data)
        if self._owed:
            return []
        self._long = self._growing = None
        payload = b"".join(self._payload)
        self._payload.clear()
        if isinstance(long, LongPublication):
            return [Publication(payload[: long.channel_size], payload[long.channel_size :], long.is_sharded)]
        part = long.part
        if growing is not None:
            self._open_bytes += long.size
            self._open_long.append(growing.whole())
        else:
            part = part._replace(records=[part.records[0]._replace(payload=payload)])
        whole = self._take_part(part)
        return [] if whole is None else [whole]

    def _refuse_inside_payload(self) -> None:
        if self._long is not None:
            raise LinkMisused(f"{self._owed} bytes of a payload are due, and something else came")

    def _refuse_inside_transaction(self, what: str) -> None:
        if self._open:
            raise LinkMisused(f"{what} came inside the transaction of ts {self._open_ts}")

    # --- transactions -------------------------------------------------------------------------------------------

    def _take_part(self, part: Part) -> JournalTransaction | LongTransaction | None:
        """The transaction that a part ends; None: it goes on. Hot."""
        if self._long is not None:
            self._refuse_inside_payload()
        ts, shard, records, is_last = part
        if self._open:
            if ts != self._open_ts:
                raise LinkMisused(f"transaction {ts} began before that of ts {self._open_ts} was whole")
        elif ts <= self._ts:
            raise LinkMisused(f"transaction {ts} came after that of ts {self._ts}")
        if records:
            self._check_records(ts, shard, records)
        if is_last and records and not self._open:  # as most are
            parts = [part]
        else:
            self._open_ts = ts
            self._open.setdefault(shard, []).extend(records)
            if not is_last:
                return None
            found = [Part(ts, ShardId(each), self._open[each], True) for each in sorted(self._open)]
            parts = [each for each in found if each.records]
            self._open = {}
        whole: JournalTransaction = _make_transaction((ts, parts))
        self._end_transaction(whole)
        self._ts = ts
        self._open_bytes = self._open_records = 0
        if self._open_long:
            payloads, self._open_long = self._open_long, []
            return LongTransaction(whole, payloads)
        return whole

    def _check_records(self, ts: int, shard: int, records: list[Record]) -> None:
        """Whether they go on where their shard is. Hot."""
        if shard >= len(self._next_lsns):
            raise LinkMisused(f"transaction {ts} has a part of shard {shard}: there are {len(self._next_lsns)}")
        before = self._open.get(shard)
        begins, has_finished = True, False
        if before:
            begins, has_finished = False, bool(before[-1].flags & FINISH)
        lsn = self._next_lsns[shard]
        size = 0
        for record in records:
            opcode, flags = record.opcode, record.flags
            if record.lsn != lsn:
                raise LinkMisused(f"record {record.lsn} of shard {shard} came where {lsn} is due")
            if bool(flags & TS) != begins or has_finished:
                raise LinkMisused(f"record {lsn} of shard {shard} does not fit into the transaction of ts {ts}")
            if opcode not in self._known:
                self._ask(opcode)
            has_finished = bool(flags & FINISH)
            begins = False
            lsn += 1
            if opcode != START:
                size += len(record.payload)
        self._next_lsns[shard] = lsn
        self._open_bytes += size
        self._open_records += len(records)
        if self._open_bytes > limits.TRANSACTION_BYTES_MAX or self._open_records > limits.REPLICATION_RECORDS_MAX:
            raise self._too_large(ts, self._open_bytes)

    def _ask(self, opcode: int) -> None:
        if not self._is_known(opcode):
            raise LinkMisused(f"opcode 0x{opcode:02x} is unknown here: the peer is of a newer version of Tidelog")
        self._known.add(opcode)

    def _too_large(self, ts: int, size: int) -> LinkMisused:
        return LinkMisused(
            f"transaction {ts} has {size} bytes in {self._open_records} records and more: at most "
            f"{limits.TRANSACTION_BYTES_MAX} in {limits.REPLICATION_RECORDS_MAX}"
        )

    def _end_transaction(self, transaction: JournalTransaction) -> None:
        """Whether all that has begun has also ended. Hot."""
        if not transaction.parts:
            raise LinkMisused(f"transaction {transaction.ts} has no record")
        for part in transaction.parts:
            if not part.records[-1].flags & FINISH:
                raise LinkMisused(f"transaction {transaction.ts} has no end in shard {part.shard}")
        try:
            check_whole(transaction)
        except (TransactionTorn, FormatError) as error:
            raise LinkMisused(str(error)) from error
