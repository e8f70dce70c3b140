"""What follows a position, as messages: the leader's side of a link, without the link.

    compare (`shared_history`)   does the position lie on our history?
    History                      what comes after it: transactions in order of ts, epochs where they begin

It reads on from memory or from disk (`journal/passes.py`), never past what is visible, and holds what was read of one
frame per shard at most: a long payload is read in pieces, as it is sent. A blob is proved by its checksum before its
last piece is handed out, so a damaged one is read once and never becomes whole at the other side.

    behind     `read` returns messages, as long as there are any
    caught up  `read` returns None: nothing more is visible; the caller comes back when something is

Each record is handed out once: lsns are counted here too, whatever the readers did.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from crc32c import crc32c

from tidelog import limits
from tidelog.errors import InternalError, TooOld
from tidelog.ids import U64_MAX, ShardId, Ts
from tidelog.journal.blob import BlobPieces
from tidelog.journal.control import Epoch
from tidelog.journal.passes import ShardPasses
from tidelog.journal.readable import ReadableJournal
from tidelog.journal.reader import Part, Record, ShardReader
from tidelog.journal.record import BLOB
from tidelog.journal.segment import FilePosition
from tidelog.replication.message import (
    EpochBegins,
    LinkMessage,
    LongRecord,
    PayloadPiece,
    Reached,
    TransactionParts,
)
from tidelog.replication.parts import PART_BYTES, RECORD_BYTES_MAX


class History:
    """What follows a position that lies on the history of a journal."""

    def __init__(self, journal: ReadableJournal, begin: Reached, next_epoch: int) -> None:
        """`next_epoch`: index of the first epoch to be handed out (`Shared`). `TooOld` if it has been erased since."""
        journal.refuse_erased(begin.ts)
        self._journal = journal
        self._ts: int = begin.ts
        """Of the last transaction that was handed out as a whole."""
        self._next_lsns: list[int] = list(begin.lsns)
        self._next_epoch = next_epoch
        self._parts: deque[Part] = deque()
        """What was read and not yet handed out."""
        self._is_inside = False
        """Some of a transaction was handed out, and not all."""
        self._payload: _LongPayload | None = None
        """A payload that is being handed out ..."""
        self._payload_ts = 0
        """... the transaction that it belongs to ..."""
        self._ends_with_payload = False
        """... and whether that is whole with it."""
        self.bytes_read = 0
        """From files, without blobs."""
        self._passes: ShardPasses[ShardReader] = ShardPasses(
            journal, [ShardId(shard) for shard in range(journal.meta.shard_count)], self._open_reader
        )

    def _open_reader(self, shard: ShardId, end: Callable[[], FilePosition | None]) -> ShardReader:
        reader = self._journal.shard_reader(shard, end, self._count_read)
        try:
            reader.seek_ts(Ts(self._ts))
        except BaseException:
            reader.close()
            raise
        return reader

    def _count_read(self, size: int) -> None:
        self.bytes_read += size

    @property
    def ts(self) -> Ts:
        """Everything at or below it has been handed out."""
        return Ts(self._ts)

    @property
    def is_inside(self) -> bool:
        """A transaction was handed out in part."""
        return self._is_inside

    @property
    def records_behind(self) -> int:
        """How many visible records were not handed out yet."""
        return sum(self._journal.writer.visible.lsns) - sum(self._next_lsns)

    def read(self) -> list[LinkMessage] | None:
        """Some messages, about as much as is sent at once; None: nothing more is visible. An empty list is no end.

        `TooOld`: the journal was erased under us. `Corruption`, `OSError`: it cannot be read. After an error the link
        is to be ended, for some of a payload may be missing; another `History` begins at the last whole transaction.
        """
        if self._payload is not None:
            return self._read_payload(self._payload)
        if self._parts:
            return self._hand_out()
        found = self._passes.read()
        if found is not None:
            self._parts.extend(found)
            return self._hand_out()
        messages = self._epochs_before(self._passes.visible_ts + 1)
        if messages:
            return messages
        if self._journal.writer.visible.ts <= self._passes.visible_ts:
            return None
        self._passes.begin_pass()
        return []

    def close(self) -> None:
        self._passes.close()

    # --- epochs -------------------------------------------------------------------------------------------------

    def _epoch_ts(self) -> int:
        """A transaction after this one comes after the next epoch."""
        epochs = self._journal.epochs
        return epochs[self._next_epoch].last_ts if self._next_epoch < len(epochs) else U64_MAX

    def _epochs_before(self, ts: int) -> list[LinkMessage]:
        """The epochs that have begun before a transaction."""
        found: list[LinkMessage] = []
        while self._epoch_ts() < ts:
            epoch = self._journal.epochs[self._next_epoch]
            if epoch.lsns != tuple(self._next_lsns):
                raise InternalError(f"{epoch} does not begin at lsns {self._next_lsns}, where the history is")
            found.append(EpochBegins(epoch))
            self._next_epoch += 1
        return found

    # --- transactions -------------------------------------------------------------------------------------------

    def _hand_out(self) -> list[LinkMessage]:
        """What there is, until it is enough or a long payload has to be read. Hot."""
        messages: list[LinkMessage] = []
        gathered: list[Part] = []
        size = total = 0
        epoch_ts = self._epoch_ts()
        parts = self._parts
        parts_bytes, read_bytes, long_bytes = (
            limits.REPLICATION_PARTS_BYTES,
            limits.REPLICATION_READ_BYTES,
            limits.REPLICATION_LONG_BYTES,
        )
        while parts and total < read_bytes:
            part = parts.popleft()
            ts, shard, records, is_last = part
            if ts > epoch_ts and not self._is_inside:
                if gathered:
                    messages.append(TransactionParts(gathered))
                    gathered, size = [], 0
                messages += self._epochs_before(ts)
                epoch_ts = self._epoch_ts()
            count, part_size = 0, PART_BYTES
            is_long = False
            for _, _, _, flags, _, _, payload in records:  # at once: a field of a tuple costs more
                length = len(payload)
                if length > long_bytes or flags & BLOB:
                    is_long = True
                    break
                part_size += length + RECORD_BYTES_MAX
                count += 1
                if part_size >= parts_bytes:
                    break
            if count < len(records):
                if count:
                    parts.appendleft(Part(ts, shard, records[count:], is_last))
                    part = Part(ts, shard, records[:count], False)
                elif is_long:
                    if gathered:
                        messages.append(TransactionParts(gathered))
                    messages.append(self._begin_payload(part))
                    return messages
            gathered.append(part)
            self._note(part)
            size += part_size
            total += part_size
            if size >= parts_bytes:
                messages.append(TransactionParts(gathered))
                gathered, size = [], 0
        if gathered:
            messages.append(TransactionParts(gathered))
        return messages

    def _note(self, part: Part) -> None:
        """A part is handed out. Hot."""
        ts, shard, records, is_last = part
        if records:
            if records[0].lsn != self._next_lsns[shard]:
                raise InternalError(
                    f"record {records[0].lsn} of shard {shard} was read where {self._next_lsns[shard]} follows"
                )
            self._next_lsns[shard] = records[-1].lsn + 1
        self._is_inside = not is_last
        if is_last:
            self._ts = ts

    # --- long payloads ------------------------------------------------------------------------------------------

    def _begin_payload(self, part: Part) -> LongRecord:
        """The first record of a part is long: its payload follows, and then the rest of the part."""
        record = part.records[0]
        if len(part.records) > 1:
            self._parts.appendleft(part._replace(records=part.records[1:]))
        blob = self._passes.blob_of(part, record) if record.flags & BLOB else None
        self._payload = _LongPayload(record, blob)
        self._payload_ts = part.ts
        self._ends_with_payload = part.is_last and len(part.records) == 1
        alone = record._replace(payload=b"", flags=record.flags & ~BLOB)
        self._note(part._replace(records=[alone], is_last=False))
        return LongRecord(part._replace(records=[alone], is_last=self._ends_with_payload), self._payload.size)

    def _read_payload(self, payload: _LongPayload) -> list[LinkMessage]:
        messages: list[LinkMessage] = []
        total = 0
        try:
            while total < limits.REPLICATION_READ_BYTES and self._payload is not None:
                data = payload.read(limits.REPLICATION_PAYLOAD_BYTES)
                messages.append(PayloadPiece(data))
                total += len(data)
                if payload.is_at_end:
                    self._end_payload()
        except TooOld as error:
            raise self._passes.too_old(error) from error
        return messages

    def _end_payload(self) -> None:
        self._payload = None
        if self._ends_with_payload:
            self._ts, self._is_inside = self._payload_ts, False


def epochs_at(epochs: Sequence[Epoch], begin: Reached) -> int:
    """Index of the first epoch that may have begun at a place or after it: where a history after a snapshot begins.

    Some that the snapshot has may be among them: whoever knows an epoch takes no notice of it.
    """
    for index, epoch in enumerate(epochs):
        if epoch.last_ts >= begin.ts and all(a >= b for a, b in zip(epoch.lsns, begin.lsns, strict=True)):
            return index
    return len(epochs)


class _LongPayload:
    """A payload that is handed out in pieces, from memory or from a blob file."""

    def __init__(self, record: Record, blob: BlobPieces | None) -> None:
        self._data = record.payload
        self._blob = blob
        self._at = 0
        self._crc = 0
        self.size = len(record.payload) if blob is None else blob.size

    @property
    def is_at_end(self) -> bool:
        return self._at >= self.size

    def read(self, size: int) -> bytes:
        """The next piece. That of a blob's end comes only if all of it has the checksum that it should have."""
        if self._blob is None:
            data = self._data[self._at : self._at + size]
        else:
            data = self._blob.read(self._at, size)
            self._crc = crc32c(data, self._crc)
            if self._at + len(data) >= self.size:
                self._blob.check(self._crc)
        self._at += len(data)
        return data
