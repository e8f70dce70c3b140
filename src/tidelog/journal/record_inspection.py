"""The records of one shard as they lie in its frames, for `tidelog journal show`.

`select_records` bisects over the heads of frames to the first frame that may hold a wanted record, walks from there and
ends where no further record can be wanted. It looks at payloads only if the caller asks for them or for keys; with
keys, it does not read frames whose sidecar says that they hold none of them.

Damage and tails are treated as in `inspection`: they end nothing, and `ShardInspection.damage` says afterwards what was
wrong.

Memory: one frame, and the payload that is being looked at.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tidelog.errors import Corruption, FormatError, TooOld
from tidelog.ids import U64_MAX, Lsn, ShardId, Ts
from tidelog.journal import control, record
from tidelog.journal.blob import decode_reference
from tidelog.journal.frame import CONTINUES, HEADER_BYTES_MAX, FrameHeader, decode_header
from tidelog.journal.inspection import Examined, Frame, ShardInspection
from tidelog.journal.layout import read_file
from tidelog.journal.operation import OperationTable
from tidelog.journal.record import BLOB, CONTROL, NEXT_CONT, TS
from tidelog.journal.segment import segment_holding, sidecar_name

if TYPE_CHECKING:
    from tidelog.journal.sidecar import FrameSummary


class RecordInfo(NamedTuple):
    """A record as it lies in its frame."""

    shard: ShardId
    segment: Lsn
    frame: int
    """The index of the frame in the segment."""
    position: int
    """Bytes from the start of the file."""
    lsn: Lsn | None
    """None: a continuation, or about the journal itself."""
    ts: Ts
    opcode: int
    flags: int
    database: int
    expire_ms: int | None
    payload_bytes: int
    """Of this part of a split record; of the whale itself if the payload is a reference to one."""
    continues: bool
    """It continues a record of the frame before."""
    is_proved: bool
    """A checksum or a mark vouches for it."""
    payload: bytes | None
    """Whole: joined, and read from the blob file. None: not asked for, or a continuation, or see `problem`."""
    problem: str | None
    """Why the payload that was asked for cannot be had."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which records are wanted. Bounds are inclusive."""

    lsn_first: int = 0
    lsn_last: int = U64_MAX
    """Records without an lsn go with the one before them; those before all others with lsn 0."""
    ts_first: int = 0
    ts_last: int = U64_MAX
    opcodes: frozenset[int] = frozenset()
    """Empty: all."""
    keys: frozenset[bytes] = frozenset()
    """With `prefixes` empty: all. A record that names every key, or may, is always wanted."""
    prefixes: frozenset[bytes] = frozenset()
    """Keys that begin with one of these are wanted too."""
    control: bool = True
    """With marks, selects and epochs."""
    payloads: bool = False

    @property
    def needs_payloads(self) -> bool:
        return self.payloads or self.has_keys

    @property
    def has_keys(self) -> bool:
        """Some keys are wanted and others are not."""
        return bool(self.keys or self.prefixes)

    def wants_any(self, named: Sequence[bytes]) -> bool:
        return not self.keys.isdisjoint(named) or any(key.startswith(tuple(self.prefixes)) for key in named)

    def may_be_in(self, summary: FrameSummary) -> bool:
        return any(map(summary.may_hold_key, self.keys)) or any(
            summary.may_hold_span(prefix, _after_prefix(prefix)) for prefix in self.prefixes
        )


def _after_prefix(prefix: bytes) -> bytes:
    """The first key behind all that begin like this; empty: there is none."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else b""


def select_records(shard: ShardInspection, table: OperationTable, selection: Selection) -> Iterator[RecordInfo]:
    """The records of a shard that are wanted, in the order of the journal."""
    return _RecordWalk(shard, table, selection).run()


class _RecordWalk:
    """One pass over the records of a shard."""

    def __init__(self, shard: ShardInspection, table: OperationTable, selection: Selection) -> None:
        self._shard = shard
        self._source = shard.source
        self._frame_bytes = shard.source.geometry.frame_bytes
        self._table = table
        self._wanted = selection
        self._head_was_wanted = False
        """The record seen last is split, and was handed out: so is its continuation."""
        self._is_over = False
        """A frame begins behind all that is wanted."""

    def run(self) -> Iterator[RecordInfo]:
        expected: int | None = None
        for frame in self._shard.read_frames(self._seek(), self._skips()):
            if self._is_over:
                return
            if frame is None:
                expected = None
                continue
            examined = self._shard.examine(frame)
            header = examined.header
            if header is None:
                expected = None
                continue
            if expected is not None and header.lsn != expected:
                problem = f"the frame begins at lsn {header.lsn} where {expected} was expected"
                self._shard.note(Corruption(problem), frame.segment, frame.at)
            if self._is_behind(header):
                return
            lsn = yield from self._walk(frame, examined, header)
            expected = None if examined.is_damaged else lsn

    def _is_behind(self, header: FrameHeader) -> bool:
        """Whether a frame has nothing that is wanted, nor has any after it."""
        wanted = self._wanted
        if header.ts > wanted.ts_last or header.lsn > wanted.lsn_last + 1:
            return True
        # Right behind the last lsn it may still open with the rest of that record, or with what goes with it.
        return header.lsn > wanted.lsn_last and not wanted.control and not header.flags & CONTINUES

    def _skips(self) -> Callable[[Lsn, int], bool] | None:
        """Says which frames need not be read; None: all must be."""
        is_bounded = self._wanted.lsn_last < U64_MAX or self._wanted.ts_last < U64_MAX
        by_keys = self._skip_by_keys() if self._wanted.has_keys else None

        def skip(segment: Lsn, index: int) -> bool:
            try:
                self._is_over = self._is_behind(self._source.frame_header(segment, index * self._frame_bytes))
            except Corruption:
                return False  # reading the frame says what is wrong
            return self._is_over or (by_keys is not None and by_keys(segment, index))

        return skip if is_bounded else by_keys

    # --- where to begin -----------------------------------------------------------------------------------------

    def _seek(self) -> tuple[Lsn, int] | None:
        """Segment and frame from which on something may be wanted; None: from the start."""
        segments = self._shard.list_segments()
        start = self._seek_lsn(segments) if self._wanted.lsn_first else None
        if self._wanted.ts_first:
            start = max([place for place in (start, self._seek_ts(segments)) if place], default=None)
        return start

    def _seek_lsn(self, segments: list[Lsn]) -> tuple[Lsn, int] | None:
        """The newest frame that begins at or before the lsn."""
        index = segment_holding(segments, Lsn(self._wanted.lsn_first))
        if index < 0:
            return None
        segment, wanted = segments[index], self._wanted.lsn_first
        return segment, self._bisect(segment, lambda frames, key: bisect_right(frames, wanted, key=key), "lsn")

    def _seek_ts(self, segments: list[Lsn]) -> tuple[Lsn, int] | None:
        """The newest frame that begins before the ts: one that begins at it may continue its transaction."""
        wanted = self._wanted.ts_first
        try:
            index = bisect_left(segments, wanted, key=lambda first: self._source.frame_header(first, 0).ts) - 1
        except (Corruption, TooOld):
            return None  # a damaged head says nothing: look at everything
        if index < 0:
            return None
        segment = segments[index]
        return segment, self._bisect(segment, lambda frames, key: bisect_left(frames, wanted, key=key), "ts")

    def _bisect(self, segment: Lsn, search: Callable[[range, Callable[[int], int]], int], coordinate: str) -> int:
        def key(index: int) -> int:
            return int(getattr(self._source.frame_header(segment, index * self._frame_bytes), coordinate))

        try:
            return max(search(range(-(-self._source.size(segment) // self._frame_bytes)), key) - 1, 0)
        except (Corruption, TooOld):
            return 0  # as above, within the segment

    def _skip_by_keys(self) -> Callable[[Lsn, int], bool]:
        """Says which frames need not be read, by the sidecars that are there; none is made."""
        segment_of_summaries: Lsn | None = None
        may_hold: list[tuple[Lsn, bool]] = []

        def skip(segment: Lsn, index: int) -> bool:
            nonlocal segment_of_summaries, may_hold
            if segment != segment_of_summaries:
                segment_of_summaries, may_hold = segment, self._read_sidecar(segment)
            if index >= len(may_hold) or may_hold[index][1]:
                return False
            try:
                return self._source.frame_header(segment, index * self._frame_bytes).lsn == may_hold[index][0]
            except Corruption:
                return False

        return skip

    def _read_sidecar(self, segment: Lsn) -> list[tuple[Lsn, bool]]:
        """For each frame that has a summary, its first lsn and whether it may hold one of the keys."""
        path = f"{self._source.folder}/{sidecar_name(segment)}"
        if not self._shard.disk.exists(path):
            return []
        from tidelog.journal.sidecar import decode_summaries  # it needs numpy, which takes long to import

        return [
            (summary.first_lsn, self._wanted.may_be_in(summary))
            for summary in decode_summaries(read_file(self._shard.disk, path))
        ]

    # --- one frame ----------------------------------------------------------------------------------------------

    def _walk(self, frame: Frame, examined: Examined, header: FrameHeader) -> Generator[RecordInfo, None, int]:
        """The records of a frame that are wanted; returns the lsn of the first that follows it."""
        wanted = self._wanted
        lsn, ts, database = int(header.lsn), header.ts, 0
        continues = bool(header.flags & CONTINUES)
        for found in self._shard.walk(frame, examined):
            is_control = found.opcode >= CONTROL
            has_lsn = not is_control and not continues
            if found.opcode == control.SELECT:
                database = self._select(frame, found, database)
            if found.flags & TS:
                ts = Ts(header.ts + found.ts_relative)
            lsn += has_lsn
            if (
                wanted.lsn_first <= max(lsn - 1, 0) <= wanted.lsn_last
                and wanted.ts_first <= ts <= wanted.ts_last
                and (not wanted.opcodes or found.opcode in wanted.opcodes)
                and (wanted.control or not is_control)
            ):
                info = RecordInfo(
                    self._shard.shard,
                    frame.segment,
                    frame.number,
                    frame.at + found.start,
                    Lsn(lsn - 1) if has_lsn else None,
                    ts,
                    found.opcode,
                    found.flags,
                    database,
                    found.expire_ms if found.expire_ms >= 0 else None,
                    self._payload_bytes(frame, found),
                    continues and not is_control,
                    found.end <= examined.proved,
                    None,
                    None,
                )
                if wanted.needs_payloads:
                    info = self._with_payload(info, frame, found)
                if self._names_wanted_key(info):
                    yield info
            continues = continues and is_control
        return lsn

    def _select(self, frame: Frame, found: record.Header, database: int) -> int:
        try:
            return control.decode_select(frame.data[found.payload : found.payload_end])
        except FormatError:
            return database  # only where nothing vouches for it, which has been noted

    def _payload_bytes(self, frame: Frame, found: record.Header) -> int:
        size = found.payload_end - found.payload
        if found.flags & BLOB:
            try:
                return decode_reference(frame.data[found.payload : found.payload_end]).length
            except FormatError:
                return size
        return size

    def _with_payload(self, info: RecordInfo, frame: Frame, found: record.Header) -> RecordInfo:
        if info.continues:
            return info
        try:
            payload = frame.data[found.payload : found.payload_end]
            if found.flags & NEXT_CONT:
                payload += self._continuation(frame)
            if found.flags & BLOB:
                payload = self._source.read_blob(decode_reference(payload))
        except (Corruption, TooOld) as error:
            if isinstance(error, Corruption) and info.is_proved:
                self._shard.note(error, frame.segment, frame.at)
            return info._replace(problem=str(error))
        return info._replace(payload=payload)

    def _continuation(self, frame: Frame) -> bytes:
        """The part of a split record that opens the next frame."""
        start = frame.at + self._frame_bytes
        size = HEADER_BYTES_MAX + record.HEADER_BYTES_MAX + self._source.geometry.payload_bytes_max
        data = self._source.read(frame.segment, start, start + size)
        try:
            header = decode_header(data)
            first = next(record.walk(data, header.size, len(data)), None)
        except FormatError as error:
            raise self._source.located(error, frame.segment, start) from None
        if first is None or not header.flags & CONTINUES:
            raise self._source.located(Corruption("the rest of a split record is missing"), frame.segment, start)
        return data[first.payload : first.payload_end]

    def _names_wanted_key(self, info: RecordInfo) -> bool:
        if not self._wanted.has_keys:
            return True
        if info.continues:
            return self._head_was_wanted
        if info.opcode >= CONTROL or info.payload is None:
            return False
        try:
            named = self._table.keys(info.opcode, info.payload)
        except Corruption as error:
            if info.is_proved:
                error.position = info.position
                self._shard.note(error, info.segment, 0)
            return False
        is_wanted = named is None or self._wanted.wants_any(named)
        self._head_was_wanted = is_wanted and bool(info.flags & NEXT_CONT)
        return is_wanted
