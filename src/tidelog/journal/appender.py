"""Transactions as they are appended: their records gather per shard, as bytes of the open frames.

    append            a transaction that is made here
    append_one        the same with one record; `append_next` takes the ts from the clock as well
    append_received   a transaction of the history that is followed, exactly as it came

Transactions are appended in order of `ts`, one at a time, and whole: a refused one leaves nothing behind. Nothing here
touches the disk; `JournalWriter` writes what has gathered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tidelog import limits
from tidelog.errors import InternalError
from tidelog.hlc import HybridClock
from tidelog.ids import Lsn, ShardId, Ts
from tidelog.journal import control
from tidelog.journal.merge import JournalTransaction, check_whole
from tidelog.journal.new_record import NewRecord, check_record, check_sizes
from tidelog.journal.operation import START, Start, encode_start
from tidelog.journal.record import CONTROL, EXPIRE, FINISH, TS
from tidelog.journal.shard_writer import ShardWriter
from tidelog.journal.staging import StagedBlob

_TS_FINISH: Final = TS | FINISH
_NONE_STAGED: Final[Mapping[tuple[int, int], StagedBlob]] = {}
_RECORD_BYTES: Final = 16
"""What a record takes beside its payload, roughly: so that many empty ones fill a batch too."""


class TransactionAppender:
    """The half of `JournalWriter` that takes transactions. Hot."""

    def __init__(self, shards: list[ShardWriter], hlc: HybridClock, last_ts: Ts) -> None:
        self._shards = shards
        self._hlc = hlc
        self._last_ts = last_ts
        self.batch_bytes = 0
        """What has gathered; from `BATCH_BYTES_FULL` on, write before appending more."""
        self.refusal: Exception | None = None
        """Why no transaction is taken; None: they are."""

    @property
    def last_ts(self) -> Ts:
        """The newest transaction that was appended, written or not."""
        return self._last_ts

    @property
    def next_lsns(self) -> tuple[Lsn, ...]:
        """Per shard, the lsn of the next record that is appended."""
        return tuple([shard.next_lsn for shard in self._shards])

    def append_one(self, shard: ShardId, ts: Ts, opcode: int, payload: bytes, database: int = 0) -> None:
        """A transaction of one record without expiry. Hot."""
        size = self.batch_bytes + len(payload) + _RECORD_BYTES
        if self.refusal is not None or size > limits.BATCH_BYTES_MAX or ts <= self._last_ts:
            self._check(ts, len(payload))
        self._shards[shard].add_one(ts, opcode, payload, database)
        self._last_ts = ts
        self.batch_bytes = size

    def append_next(self, shard: ShardId, opcode: int, payload: bytes, database: int) -> None:
        """The same with the ts that follows the last one (`HybridClock.following`). Hot."""
        hlc = self._hlc
        ts = hlc.last + 1
        size = self.batch_bytes + len(payload) + _RECORD_BYTES
        if self.refusal is not None or size > limits.BATCH_BYTES_MAX or ts > hlc.bound or ts <= self._last_ts:
            self.append_one(shard, hlc.following(), opcode, payload, database)
            return
        hlc.last = self._last_ts = ts  # type: ignore[assignment]  # a call of `Ts` is measurable here
        self.batch_bytes = size
        self._shards[shard].add_one(ts, opcode, payload, database)  # type: ignore[arg-type]

    def append(self, ts: Ts, records: Sequence[NewRecord]) -> None:
        """A whole transaction: all of it or, with an error, nothing."""
        if not records:
            raise InternalError("a transaction without a record")
        if len(records) == 1:
            check_record(records[0], len(self._shards))
            shard, opcode, payload, expire_ms, database, staged = records[0]
            if expire_ms is None and staged is None:
                self.append_one(shard, ts, opcode, payload, database)
            else:
                self._check(ts, len(payload))
                self._add(ts, records[0], TS | FINISH)
            return
        size = 0
        for new in records:
            check_record(new, len(self._shards))
            size += len(new.payload)
        self._check(ts, size)
        if len(self._shards) == 1:
            flags, last = TS, len(records) - 1
            for index, new in enumerate(records):
                self._add(ts, new, flags | FINISH if index == last else flags)
                flags = 0
            return
        last_of = {new.shard: index for index, new in enumerate(records)}
        begun = set()
        if len(last_of) > 1:
            first = records[0]
            start = encode_start(Start(ts, list(last_of)))
            self._shards[first.shard].add(ts, START, TS, start, None, first.database)
            begun.add(first.shard)
        for index, new in enumerate(records):
            flags = FINISH if last_of[new.shard] == index else 0
            if new.shard not in begun:
                flags |= TS
                begun.add(new.shard)
            self._add(ts, new, flags)

    def append_received(
        self, transaction: JournalTransaction, staged: Mapping[tuple[int, int], StagedBlob] = _NONE_STAGED
    ) -> None:
        """A whole transaction of the history that is followed: its records as they came, `start` among them, under the
        lsns that are due here. All of it or, with an error, nothing. Hot: a follower runs it for each transaction.

        The clock goes on above it, as it does above what is made here: the leader's may be far ahead.

        The payloads are whole: none is a reference to a blob. `staged` has those that lie in the blob file already, by
        shard and lsn; their records come without.
        """
        ts, parts = transaction
        if len(parts) == 1 and len(parts[0].records) == 1 and not staged:  # most
            part_ts, shard, records, _ = parts[0]
            lsn, _, opcode, flags, database, expire_ms, payload = records[0]
            if (
                flags == _TS_FINISH
                and expire_ms < 0
                and part_ts == ts
                and 0 < opcode < CONTROL
                and opcode != START
                and 0 <= shard < len(self._shards)
                and database >= 0
                and lsn == self._shards[shard].next_lsn
                and len(payload) <= limits.PAYLOAD_BYTES_MAX
            ):
                self.append_one(shard, ts, opcode, payload, database)
                self._hlc.follow(ts)
                return
        size = self._check_received(transaction)
        self._check(ts, size)
        for _, shard, records, _ in parts:
            writer = self._shards[shard]
            for lsn, _, opcode, flags, database, expire_ms, payload in records:
                blob = staged.get((shard, lsn)) if staged else None
                if blob is not None:
                    expiry = expire_ms if expire_ms >= 0 else None
                    writer.add_staged(ts, opcode, flags & _TS_FINISH, b"", blob, expiry, database)
                else:
                    writer.add(ts, opcode, flags & _TS_FINISH, payload, expire_ms if expire_ms >= 0 else None, database)
                self.batch_bytes += len(payload) + _RECORD_BYTES
        self._last_ts = ts
        self._hlc.follow(ts)

    def _check_received(self, transaction: JournalTransaction) -> int:
        """Refuse what is not a whole transaction that goes on here; returns its size as a leader counts it. Hot."""
        ts, parts = transaction
        if not parts:
            raise InternalError("a transaction without a record")
        size = 0
        for part_ts, shard, records, _ in parts:
            if not 0 <= shard < len(self._shards) or part_ts != ts or not records:
                raise InternalError(f"transaction {ts} has a part of shard {shard} and ts {part_ts} that is none")
            lsn, last = self._shards[shard].next_lsn, len(records) - 1
            for index, record in enumerate(records):
                if record.lsn != lsn + index:
                    raise InternalError(f"record {record.lsn} of shard {shard} came where {lsn + index} is due")
                flags = (TS if index == 0 else 0) | (FINISH if index == last else 0)
                if record.flags & ~EXPIRE != flags or bool(record.flags & EXPIRE) != (record.expire_ms >= 0):
                    raise InternalError(f"record {record.lsn} of shard {shard} has flags 0x{record.flags:02x}")
                _, _, opcode, _, database, _, payload = record
                if not 0 < opcode < CONTROL or database < 0 or len(payload) > limits.PAYLOAD_BYTES_MAX:
                    check_record(NewRecord(shard, opcode, payload, None, database), len(self._shards))
                if opcode != START:  # whoever made the transaction did not count it
                    size += len(payload)
        check_whole(transaction)
        return size

    def _add(self, ts: Ts, new: NewRecord, flags: int) -> None:
        shard, opcode, payload, expire_ms, database, staged = new
        if staged is None:
            self._shards[shard].add(ts, opcode, flags, payload, expire_ms, database)
        else:
            self._shards[shard].add_staged(ts, opcode, flags, payload, staged, expire_ms, database)
        self.batch_bytes += len(payload) + _RECORD_BYTES
        self._last_ts = ts

    def _check(self, ts: Ts, size: int) -> None:
        """Refuse a transaction before any of it is taken."""
        if self.refusal is not None:
            raise self.refusal.with_traceback(None)  # it is raised many times: its traceback must not grow
        if ts <= self._last_ts:
            raise InternalError(f"ts {ts} is not above the last one, {self._last_ts}")
        check_sizes(size, self.batch_bytes)

    def append_epoch(self, epoch: control.Epoch, ts: Ts) -> None:
        """An epoch begins, on every shard."""
        if self.refusal is not None:
            raise self.refusal.with_traceback(None)
        for shard in self._shards:
            shard.add_epoch(epoch, ts)
