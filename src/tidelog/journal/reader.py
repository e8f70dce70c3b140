"""Reading one shard: from any lsn or ts, while it is written, never past `visible`, whole transactions only.

Bytes are taken in stretches, up to the end of the frame or of what is visible, whichever comes first. Nothing that was
read from a file is handed out before all of it is proved: a full frame by its checksum, the visible part of the open
frame by its marks (what is visible ends with one). The checksum runs on over the stretches of a frame, so no byte is
read twice, except by a reader that began a frame in memory, where there is nothing to prove, and ends it on disk.

    seek_lsn, seek_ts   bisect over segments and frames (`places`); only heads are read
    read                the next parts of transactions, or None at the end of what is visible
    skip_sealed         past a frame that holds nothing of interest (`sidecar`)
    in pieces           a large part is handed out in pieces of a frame at most: for feeds, whose memory must not depend
                        on the size of a transaction. A flush, and a deleted range, is a piece by itself, so that
                        shards can be merged
    load                all that is visible, with runs of records that only set strings as a whole: for recovery
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from crc32c import crc32c

from tidelog.errors import ClientError, Corruption, UnreadableRecord
from tidelog.ids import Lsn, ShardId, Ts
from tidelog.journal import control
from tidelog.journal.blob import BlobPieces, decode_reference
from tidelog.journal.frame import CHECKSUM, CONTINUES, CRC_BYTES, decode_header
from tidelog.journal.operation import DELRANGE, FLUSHDB
from tidelog.journal.places import Places
from tidelog.journal.record import BLOB, CONTROL, END, FINISH, NEXT_CONT, header_at, skim, walk
from tidelog.journal.segment import FilePosition
from tidelog.journal.source import ShardSource

if TYPE_CHECKING:
    from tidelog.journal.record_runs import StringRun


class Record(NamedTuple):
    """One record of an operation, joined if it was split. Hot: one is made for each that is read."""

    lsn: Lsn
    ts: Ts
    opcode: int
    flags: int
    database: int
    expire_ms: int
    """Absolute; -1: none."""
    payload: bytes
    """As it lies in the journal: with the flag BLOB a reference, which `ShardReader.payload_of` follows."""


class Part(NamedTuple):
    """What one shard has of a transaction, or a piece of that."""

    ts: Ts
    shard: ShardId
    records: list[Record]
    is_last: bool
    """Nothing more of the transaction follows; always true for a reader that hands out whole parts."""


Wants: TypeAlias = "Callable[[int, int, bytes], bool]"
"""Whether anyone wants a record: of this database, with this opcode and payload."""
LoadStrings: TypeAlias = "Callable[[int, bytes, StringRun], None]"
"""Takes a run of records that set strings of a database, and the bytes that it lies in."""

_make_record: Final = partial(tuple.__new__, Record)  # `_make` is Python, and too slow for once a record
_make_part: Final = partial(tuple.__new__, Part)
_NO_RECORD: Final = Record(Lsn(0), Ts(0), 0, 0, 0, -1, b"")
_RECORDS_AT_ONCE: Final = 4096
"""Few enough for one turn of the loop, where nobody wants them."""
_NOT_WHOLE: Final = NEXT_CONT | BLOB
"""Flags of a record whose payload is not all that it says."""
_PARTS_AT_ONCE: Final = 256
"""Few enough to die young: thousands of live tuples would make every pass of the garbage collector walk them."""


class ShardReader:
    """A place in one shard's journal, and how to go on from it."""

    def __init__(
        self,
        source: ShardSource,
        end: Callable[[], FilePosition | None],
        on_epoch: Callable[[control.Epoch], None] | None = None,
        wants: Wants | None = None,
        *,
        in_pieces: bool = False,
    ) -> None:
        self._source = source
        self._in_pieces = in_pieces
        self._frame_bytes = source.geometry.frame_bytes
        self._places = Places(source, end)
        self._end = end
        """How far may be read: always after a mark. None: there is nothing."""
        self._on_epoch = on_epoch
        self._wants = wants
        """Records that it does not want are left out, and parts without any; None: there are none. Those of a whale
        are always handed out: what they say lies elsewhere."""
        self._segment: Lsn | None = None
        self._at = 0
        self._after_ts = -1
        """Transactions up to this one are passed over."""
        self._from_lsn = 0
        """Records before this one are passed over."""
        self._frame_crc = 0
        """Of the open frame, up to `_at`; -1: not known, as some of it came from memory."""
        self._frame_ts = 0
        self._ts = 0
        self._lsn: int | None = None
        """Of the next record; None: taken from the next frame."""
        self._database = 0
        self._head: Record | None = None
        """A record whose continuation is still to come."""
        self._open: list[Record] | None = None
        """The transaction that has begun; None: passing over one whose beginning was not seen."""
        self._has_pieces = False
        """Some of it has been handed out."""
        self._has_skipped = False
        """A frame was passed over since a transaction last began: the one that is open may have ended there."""
        self._ended: list[Part] = []
        """A transaction that did, and is to be handed out before what comes next."""
        self._data = b""
        """The stretch of bytes that is being decoded: proved, and up to `_at`."""
        self._cursor = -1
        """Where in it the next record begins; -1: it is used up."""
        self._records_end = 0
        self._stretch = FilePosition(Lsn(0), 0)
        """Where it begins."""

    @property
    def shard(self) -> ShardId:
        return self._source.shard

    @property
    def next_lsn(self) -> int:
        """Of the next record; before a frame that was not read yet, the segment's first."""
        return self._lsn if self._lsn is not None else self._segment or 0

    @property
    def reached_ts(self) -> int:
        """Every transaction at or below it has been read, whether somebody wanted it or not."""
        return self._ts - 1

    # --- where to begin -----------------------------------------------------------------------------------------

    def seek_start(self) -> None:
        """Go to the first record that the journal still has."""
        segments = self._source.segments()
        self._go_to(FilePosition(segments[0], 0) if segments else None)

    def seek_lsn(self, lsn: Lsn) -> None:
        """Go to the record with this lsn, the first of a transaction (or the next one to come)."""
        self._go_to(self._places.of_lsn(lsn))
        self._from_lsn = lsn

    def seek_ts(self, ts: Ts) -> None:
        """Go to the first transaction after `ts`; the caller knows whether the journal reaches back that far."""
        self._go_to(self._places.of_ts(ts))
        self._after_ts = ts

    def _go_to(self, place: FilePosition | None) -> None:
        self._segment, self._at = (None, 0) if place is None else place
        self._frame_crc, self._lsn, self._head, self._open = 0, None, None, None
        self._after_ts, self._from_lsn = -1, 0
        self._cursor = -1
        self._has_skipped, self._has_pieces, self._ended = False, False, []

    # --- reading ------------------------------------------------------------------------------------------------

    def read(self) -> list[Part] | None:
        """The next parts of transactions, some at a time; None: nothing more is visible. An empty list is no end."""
        if self._cursor < 0 and not self._take_stretch():
            return self._end_open() or None if self._has_skipped else None
        ended, self._ended = self._ended, []
        try:
            parts = self._decode_parts()
        except Corruption as error:
            raise self._located(error) from None
        if self._cursor < 0:
            self._end_stretch()
        return ended + parts if ended else parts

    def next_sealed(self) -> FilePosition | None:
        """The frame that comes next, if it is full and nothing of it was read yet."""
        end, segment, at = self._end(), self._segment, self._at
        if end is None or segment is None or self._cursor >= 0 or at % self._frame_bytes:
            return None
        is_sealed = end.segment > segment or end.at >= at + self._frame_bytes
        return FilePosition(segment, at) if is_sealed else None

    def skip_sealed(self, end_lsn: Lsn) -> None:
        """Pass over that frame without reading it; `end_lsn` is of the first record after it.

        Records in it are missing from what is handed out: the caller knows that they do not concern it. A
        transaction that reaches over it is still one part, and one that began in it begins behind it.
        """
        self._has_skipped = True
        self._head, self._lsn = None, None
        self._at += self._frame_bytes
        if self._at >= self._source.geometry.segment_bytes:
            self._segment, self._at = end_lsn, 0

    def _end_open(self) -> list[Part]:
        """The transaction that had begun before frames were skipped: it ended in one of them."""
        begun, self._open, self._has_skipped = self._open, [], False
        had_pieces, self._has_pieces = self._has_pieces, False
        if not (begun or had_pieces) or self._ts <= self._after_ts:
            return []
        return [_make_part((self._ts, self.shard, begun or [], True))]

    def _take_stretch(self) -> bool:
        """Read on to the end of the frame or of what is visible, and prove it; false if there is nothing more."""
        end = self._end()
        if end is None:
            return False
        if self._segment is None:  # the journal was empty when we came, and now it has begun
            self._segment = self._source.segments()[0]
        if (self._segment, self._at) >= end:
            return False
        segment, start = self._segment, self._at
        frame_end = start - start % self._frame_bytes + self._frame_bytes
        is_sealed = end.segment > segment or end.at >= frame_end
        stop = frame_end if is_sealed else end.at
        self._stretch = FilePosition(segment, start)
        try:
            data = self._source.held(segment, start, stop)
            is_proved = data is not None
            if data is None:
                data = self._read_file(segment, start, stop, is_sealed)
            else:
                self._frame_crc = 0 if is_sealed else -1
            records_end = len(data) - CRC_BYTES if is_sealed else len(data)
            at = self._begin_frame(data) if start % self._frame_bytes == 0 else 0
            if not is_sealed and not is_proved:
                _prove_marks(data, at, records_end)
        except Corruption as error:
            raise self._located(error) from None
        self._data, self._cursor, self._records_end = data, at, records_end
        self._at = stop
        return True

    def _read_file(self, segment: Lsn, start: int, stop: int, is_sealed: bool) -> bytes:
        """A stretch from the file; of a full frame, also proved by its checksum."""
        if is_sealed and self._frame_crc < 0:  # its beginning came from memory
            self._frame_crc = 0
            frame = start - start % self._frame_bytes
            return self._source.sealed_frame(segment, frame)[start - frame :]
        data = self._source.read(segment, start, stop)
        if len(data) < stop - start:
            raise Corruption("the file ends before what was written", position=len(data))
        if self._frame_crc < 0:
            return data
        records_end = len(data) - CRC_BYTES if is_sealed else len(data)
        crc = crc32c(memoryview(data)[:records_end], self._frame_crc)
        self._frame_crc = 0 if is_sealed else crc
        if is_sealed and crc != int.from_bytes(data[records_end:], "little"):
            raise Corruption("the checksum of the frame is wrong")
        return data

    def _begin_frame(self, data: bytes) -> int:
        """Take over what the head of a frame says; returns where its records begin."""
        header = decode_header(data)
        if self._lsn is not None and header.lsn != self._lsn:
            raise Corruption(f"the frame begins at lsn {header.lsn} where {self._lsn} was expected")
        if not header.flags & CHECKSUM:
            raise Corruption("the frame has no checksum")
        at = header.size
        if bool(header.flags & CONTINUES) != (self._head is not None):
            if self._lsn is not None:
                raise Corruption("the frame and the one before disagree about a continued record")
            # We start here: the record that goes on began before us.
            first = next(walk(data, at, len(data)), None)
            at = first.end if first is not None else at
        if self._has_skipped:
            if header.ts != self._ts:  # otherwise it may go on here
                self._ended = self._end_open()
            self._open = self._open or []
        self._lsn = header.lsn
        self._frame_ts = self._ts = header.ts
        self._database = 0
        return at

    def load(self, apply: Callable[[Part], None], load_strings: LoadStrings) -> None:
        """Hand out all that is visible: transaction by transaction, or as runs that only set strings."""
        assert self._cursor < 0
        assert self._after_ts < 0
        while self._take_stretch():
            try:
                self._load_stretch(apply, load_strings)
            except Corruption as error:
                raise self._located(error) from None

    def _load_stretch(self, apply: Callable[[Part], None], load_strings: LoadStrings) -> None:
        from tidelog.journal.record_runs import cut_sections  # it needs numpy, which takes long to import

        data = self._data
        for start, end, run in cut_sections(data, self._cursor, self._records_end):
            assert self._lsn is not None
            if run is not None and not self._open and self._head is None and self._lsn >= self._from_lsn:
                load_strings(self._database, data, run)
                self._lsn += run.records
                self._ts = self._frame_ts + run.last_ts_relative
                self._open = []
                continue
            self._cursor, self._records_end = start, end
            while self._cursor >= 0:
                for part in self._decode_parts():
                    apply(part)
        self._end_stretch()

    def _end_stretch(self) -> None:
        self._cursor, self._data = -1, b""
        if self._at >= self._source.geometry.segment_bytes:
            assert self._lsn is not None
            self._segment, self._at = Lsn(self._lsn), 0

    def _decode_parts(self) -> list[Part]:
        """Decode up to `_PARTS_AT_ONCE` parts. Hot: this loop runs once for each record that anyone reads."""
        parts: list[Part] = []
        lsn, ts, head, open_part, database = self._lsn, self._ts, self._head, self._open, self._database
        frame_ts, from_lsn, after_ts, shard = self._frame_ts, self._from_lsn, self._after_ts, self.shard
        data, wants, at, end = self._data, self._wants, self._cursor, self._records_end
        in_pieces, has_pieces = self._in_pieces, self._has_pieces
        assert lsn is not None
        lsn_max = lsn + _RECORDS_AT_ONCE
        opcode = END
        record = _NO_RECORD
        while at < end:
            start = at
            opcode, flags, ts_relative, expire_ms, payload_at, payload_end, at = header_at(data, start, end)
            if not opcode:
                break
            payload = data[payload_at:payload_end]
            if opcode >= CONTROL:
                if opcode == control.SELECT:
                    database = control.decode_select(payload)
                elif self._on_epoch is not None and opcode in control.EPOCHS:
                    self._on_epoch(control.decode_epoch(opcode, payload))
                continue
            is_wanted = True
            if head is not None:
                if opcode != head.opcode:
                    raise Corruption("a continued record goes on with another opcode", position=start)
                record = head._replace(flags=head.flags & ~NEXT_CONT | flags & FINISH, payload=head.payload + payload)
                head = None
                if wants is not None and not record.flags & BLOB:
                    is_wanted = wants(record.database, opcode, record.payload)  # `select` comes after it
            else:
                if ts_relative >= 0:
                    if open_part or has_pieces:
                        if not self._has_skipped:
                            raise Corruption(f"a transaction begins inside that of ts {ts}", position=start)
                        if ts > after_ts:
                            parts.append(_make_part((ts, shard, open_part or [], True)))
                        has_pieces = False
                    self._has_skipped = False
                    ts = frame_ts + ts_relative
                    open_part = []
                lsn += 1
                if wants is not None and not flags & _NOT_WHOLE:
                    is_wanted = wants(database, opcode, payload)
                if is_wanted:
                    record = _make_record((lsn - 1, ts, opcode, flags, database, expire_ms, payload))
                    if flags & NEXT_CONT:
                        head = record
                        continue
            if open_part is None:  # the beginning of this transaction lies before us
                if lsn > from_lsn > 0:
                    raise self._inside(ts)
                continue
            if is_wanted:
                if in_pieces and opcode in (FLUSHDB, DELRANGE) and ts > after_ts:
                    if open_part:
                        parts.append(_make_part((ts, shard, open_part, False)))
                    parts.append(_make_part((ts, shard, [record], False)))
                    open_part, has_pieces = [], True
                else:
                    open_part.append(record)
            if flags & FINISH:
                if (open_part or has_pieces) and ts > after_ts:
                    first_lsn = open_part[0].lsn if open_part else from_lsn
                    if first_lsn >= from_lsn:
                        parts.append(_make_part((ts, shard, open_part, True)))
                    elif lsn > from_lsn:
                        raise self._inside(ts)
                open_part, has_pieces = [], False
                if len(parts) >= _PARTS_AT_ONCE or lsn >= lsn_max:
                    break
            elif in_pieces and lsn >= lsn_max:
                break
        is_used_up = at >= end or not opcode
        if in_pieces and open_part and ts > after_ts:
            parts.append(_make_part((ts, shard, open_part, False)))
            open_part, has_pieces = [], True
        self._has_pieces = has_pieces
        self._cursor = -1 if is_used_up else at
        self._lsn, self._ts, self._head, self._open, self._database = lsn, ts, head, open_part, database
        return parts

    def _inside(self, ts: int) -> ClientError:
        return ClientError(f"lsn {self._from_lsn} of shard {self.shard} lies inside the transaction of ts {ts}")

    def _located(self, error: Corruption) -> Corruption:
        if isinstance(error, UnreadableRecord):
            return self.located(error)
        return error if error.path else self._source.located(error, self._stretch.segment, self._stretch.at)

    def located(self, error: UnreadableRecord) -> UnreadableRecord:
        """The same error with the file, the frame and the position of the record."""
        place = self._places.of_record(Lsn(error.lsn))
        if error.path or place is None:
            return error
        return UnreadableRecord(
            error.problem,
            shard=error.shard,
            lsn=error.lsn,
            path=self._source.path(place.segment),
            frame=place.at // self._frame_bytes,
            position=place.at,
        )

    def payload_of(self, record: Record) -> bytes:
        """The payload of a record, from the blob file if it lies there."""
        if record.flags & BLOB:
            return self._source.read_blob(decode_reference(record.payload))
        return record.payload

    def blob_of(self, record: Record) -> BlobPieces:
        """The same for one with the flag BLOB, to be read in pieces; the caller proves them."""
        return self._source.blob_pieces(decode_reference(record.payload))

    def close(self) -> None:
        self._source.close()


def _prove_marks(data: bytes, at: int, end: int) -> None:
    """Check that every byte of a stretch of an open frame lies under a mark whose checksum is right."""
    base = 0
    for opcode, _, _, _, _, _, payload_end, record_end in skim(data, at, end):
        if opcode == control.MARK:
            crc_at = payload_end - control.MARK_CRC_BYTES
            if crc32c(memoryview(data)[base:crc_at]) != int.from_bytes(data[crc_at:payload_end], "little"):
                raise Corruption("the checksum of a mark is wrong", position=base)
            base = record_end
    if base != end:
        raise Corruption("the end of what was written is not under a mark", position=base)
