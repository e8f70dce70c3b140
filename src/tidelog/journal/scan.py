"""Recovery, first half: what of a shard's files is proved, and how far.

Each shard's files are walked from a frame on, headers only. A mark is *valid* if everything of its batch is: its own
crc, the frames that the batch filled, the blobs it refers to, dense lsns. The walk of a shard ends at the first thing
that is not; from there on nothing is used.

The shards are then taken together (`cycles`).

Whether what follows is a torn tail or rot is decided by the highest *synced* cycle that any mark names, also one
beyond the damage: marks further on are looked for frame by frame and, in a damaged frame, by their prefix.

Some things no crash leaves behind, so that they are refused whatever was synced (`ShardScan.is_refused`): a segment
that is missing before another (a name is durable before the next segment is made), and what a valid mark covers and is
not right all the same: an opcode or a flag that this version does not know, a transaction without an end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from crc32c import crc32c

from tidelog import limits
from tidelog.errors import Corruption, FormatError, NewerFormat, TooOld
from tidelog.ids import Cycle, Lsn, ShardId
from tidelog.journal import control
from tidelog.journal.blob import decode_reference
from tidelog.journal.frame import CHECKSUM, CONTINUES, CRC_BYTES, HEADER_BYTES, decode_header
from tidelog.journal.record import BLOB, CONTROL, FINISH, NEXT_CONT, TS
from tidelog.journal.segment import FilePosition, journal_name
from tidelog.journal.source import ShardSource

if TYPE_CHECKING:
    from tidelog.journal.record_runs import RecordChecks

IsKnown = Callable[[int], bool]
"""Whether this version knows the opcode of an operation."""

_BASES_TRIED: Final = 16
"""In a damaged frame, a mark's crc is tried from the ends of this many marks before it."""


class ValidMark(NamedTuple):
    """A mark whose whole batch is proved."""

    mark: control.Mark
    end: FilePosition
    """Right after it."""
    epochs: tuple[control.Epoch, ...] = ()
    """Those that begin in its batch."""


class ShardScan:
    """The walk over one shard's files, from a frame on."""

    def __init__(
        self,
        source: ShardSource,
        shard_count: int,
        start: FilePosition | None,
        needed: Lsn,
        is_known: IsKnown | None = None,
    ) -> None:
        self._source = source
        self._is_known = is_known
        """None: any opcode will do."""
        self._shard_count = shard_count
        self.frame_bytes = source.geometry.frame_bytes
        self.start = start
        """None: the shard has no files."""
        self.start_lsn = needed
        """Of the frame where the walk began (without files, what is needed): all before it is taken for granted."""
        if start is not None:
            self.start_lsn = self._first_lsn(start)
        self.damage: Corruption | None = None
        """Why the walk ended, if not where the files do ..."""
        self.is_refused = False
        """... and whether it is something that no crash leaves behind."""
        self._stopped: FilePosition | None = None
        self._unproved = 0
        """In the frame walked last, where the bytes begin that no mark in it covers."""
        self._last_mark: control.Mark | None = None
        """The newest valid one."""
        self._record_checks: RecordChecks | None = None
        self._is_open: bool | None = None
        """Whether a transaction goes on; None: not known, as the walk began inside the journal."""
        self._problem: Corruption | None = None
        """Something that is refused if the mark behind it is valid."""
        self._epochs: list[control.Epoch] = []
        """Those since the last mark."""

    @property
    def shard(self) -> ShardId:
        return self._source.shard

    @property
    def folder(self) -> str:
        return self._source.folder

    def close(self) -> None:
        self._source.close()

    def _first_lsn(self, start: FilePosition) -> Lsn:
        # It is believed before any mark proves it, so the name of a segment comes before what a head says.
        if not start.at:
            return start.segment
        try:
            return self._source.frame_header(start.segment, start.at).lsn
        except Corruption:
            return start.segment

    def marks(self) -> Iterator[ValidMark]:
        """The valid marks in order. Afterwards `damage` says why there are no more."""
        if self.start is None:
            return
        lsn: int = self.start_lsn
        last_cycle = -1
        continues = False
        segments = [segment for segment in self._source.segments() if segment >= self.start.segment]
        first, at = self.start
        for segment in segments:
            if segment not in (first, lsn):
                self._unproved = 0
                self.is_refused = True
                self._stop(Corruption(f"a segment is missing before it: lsn {lsn} was expected"), segment, 0)
                return
            is_last = segment == segments[-1]
            while at < self._source.geometry.segment_bytes:
                data = self._source.read(segment, at, at + self.frame_bytes)
                if not data:
                    self._unproved = 0
                    self._note_end(data, segment, at, is_last)
                    return
                try:
                    lsn, last_cycle, continues = yield from self._walk_frame(
                        data, FilePosition(segment, at), lsn, last_cycle, continues
                    )
                except NewerFormat as error:
                    self.is_refused = self.is_refused or self._is_as_written(data, error.position or 0)
                    self._stop(error, segment, at)
                    return
                except Corruption as error:
                    self._stop(error, segment, at)
                    return
                if len(data) < self.frame_bytes or not self._has_frame_after(segment, at, Lsn(lsn), is_last):
                    self._note_end(data, segment, at, is_last)
                    return
                end = self.frame_bytes - CRC_BYTES
                if crc32c(memoryview(data)[:end]) != int.from_bytes(data[end:], "little"):
                    self._stop(Corruption("the checksum of the frame is wrong"), segment, at)
                    return
                if at + self.frame_bytes == self._source.geometry.segment_bytes and not self._source.has_segment(
                    Lsn(lsn)
                ):
                    self.is_refused = True
                    self._stop(Corruption(f"the segment after it, {journal_name(Lsn(lsn))}, is missing"), segment, at)
                    return
                at += self.frame_bytes
            at = 0

    def _walk_frame(
        self, data: bytes, position: FilePosition, lsn: int, last_cycle: int, continues: bool
    ) -> Generator[ValidMark, None, tuple[int, int, bool]]:
        """The valid marks of one frame; returns lsn, last cycle and whether a record goes on, for the next."""
        self._unproved = 0
        header = decode_header(data)
        if header.lsn != lsn:
            raise FormatError(f"the frame begins at lsn {header.lsn} where {lsn} was expected")
        if not header.flags & CHECKSUM:
            raise FormatError("the frame has no checksum")
        if bool(header.flags & CONTINUES) != continues and position != self.start:
            raise FormatError("the frame and the one before disagree about a continued record")
        is_continuation = bool(header.flags & CONTINUES)
        base = 0
        from tidelog.journal.record_runs import skim_notable  # it needs numpy, which takes long to import

        checks = self._checks()
        for passed, record in skim_notable(data, header.size, min(len(data), self.frame_bytes - CRC_BYTES), checks):
            if passed:
                lsn += passed - is_continuation
                is_continuation = continues = False
                self._is_open = not checks.flags_before & FINISH
            if record is None:
                break
            opcode, flags, _, _, start, payload_at, payload_end, end = record
            if problem := self._problem_of(opcode, flags, data[payload_at:payload_end]):
                self._problem = self._problem or self._source.located(problem, position.segment, position.at + start)
            if opcode == control.MARK:
                mark = self._check_mark(data, base, payload_at, payload_end, lsn, last_cycle)
                if self._problem is not None:
                    self.is_refused = True
                    raise self._problem
                last_cycle, base = mark.cycle, end
                self._unproved, self._last_mark = end, mark
                epochs, self._epochs = tuple(self._epochs), []
                yield ValidMark(mark, FilePosition(position.segment, position.at + end), epochs)
            elif opcode < CONTROL:
                if is_continuation:
                    is_continuation = False
                else:
                    lsn += 1
                self._is_open = not flags & FINISH
                if flags & BLOB:
                    try:
                        self._source.check_blob(decode_reference(data[payload_at:payload_end]))
                    except (Corruption, TooOld) as error:  # a torn reference may name a file that was erased
                        raise FormatError(f"the blob of a record is damaged ({error})", position=start) from None
                continues = bool(flags & NEXT_CONT)
                continue
            elif opcode in control.EPOCHS:
                self._epochs.append(control.decode_epoch(opcode, data[payload_at:payload_end]))
            continues = False
        return lsn, last_cycle, continues

    def _checks(self) -> RecordChecks:
        if self._record_checks is None:
            from tidelog.journal.record_runs import RecordChecks  # as above

            self._record_checks = RecordChecks(self._is_known)
        return self._record_checks

    def _problem_of(self, opcode: int, flags: int, payload: bytes) -> Corruption | None:
        """What is not right about a record, if nothing is wrong with its bytes."""
        if opcode == control.MARK:
            return Corruption("a mark inside a transaction: the transaction has no end") if self._is_open else None
        if opcode >= CONTROL:
            if self._is_known is None:
                return None
            if opcode not in control.NAMES:
                return _newer(f"opcode 0x{opcode:02x} is unknown")
            if opcode == control.SELECT and (database := control.decode_select(payload)) >= limits.DATABASES:
                return _newer(f"there is no database {database}")
            return None
        if self._is_known is not None and not self._is_known(opcode):
            return _newer(f"opcode 0x{opcode:02x} is unknown")
        if self._is_open is not None and bool(flags & TS) == self._is_open:
            return Corruption(
                "a transaction begins inside another, which has no end" if flags & TS else "a record of no transaction"
            )
        return None

    def _is_as_written(self, data: bytes, position: int) -> bool:
        """Whether a checksum proves bytes that cannot be understood: that of their frame, or of a mark behind them."""
        end = self.frame_bytes - CRC_BYTES
        view = memoryview(data)
        if len(data) == self.frame_bytes and crc32c(view[:end]) == int.from_bytes(data[end:], "little"):
            return True
        prefix, size = control.mark_prefix(self._shard_count), control.mark_bytes(self._shard_count)
        at = position
        for _ in range(_BASES_TRIED):
            at = data.find(prefix, at + 1)
            if at < 0 or at + size > len(data):
                return False
            crc_at = at + size - control.MARK_CRC_BYTES
            if crc32c(view[self._unproved : crc_at]) == int.from_bytes(data[crc_at : at + size], "little"):
                return True
        return False

    def _check_mark(
        self, data: bytes, base: int, payload_at: int, payload_end: int, lsn: int, last_cycle: int
    ) -> control.Mark:
        mark = control.decode_mark(data[payload_at:payload_end])
        if crc32c(memoryview(data)[base : payload_end - control.MARK_CRC_BYTES]) != mark.crc:
            raise Corruption("the checksum of a mark is wrong", position=base)
        if len(mark.ends) != self._shard_count or mark.ends[self.shard] != lsn or mark.cycle <= last_cycle:
            raise FormatError(
                f"a mark of cycle {mark.cycle} with ends {mark.ends} after cycle {last_cycle} at lsn {lsn}",
                position=payload_at,
            )
        return mark

    def _has_frame_after(self, segment: Lsn, at: int, lsn: Lsn, is_last_segment: bool) -> bool:
        after = at + self.frame_bytes
        if after < self._source.geometry.segment_bytes:
            return bool(self._source.read(segment, after, after + HEADER_BYTES))
        return not is_last_segment or (lsn != segment and self._source.has_segment(lsn))

    def _note_end(self, data: bytes, segment: Lsn, at: int, is_last_segment: bool) -> None:
        """The file ends here. Bytes that no mark covers are a tail, and so are segments that follow."""
        if data[self._unproved :].strip(b"\0"):
            self._stop(Corruption("what follows is not under a mark", position=self._unproved), segment, at)
        elif not is_last_segment:
            self._unproved = len(data)
            self._stop(Corruption("the file ends here, but a segment follows", position=len(data)), segment, at)

    def _stop(self, error: Corruption, segment: Lsn, at: int) -> None:
        self.damage = error if error.path else self._source.located(error, segment, at)
        self._stopped = FilePosition(segment, at)

    def highest_synced_beyond(self) -> Cycle:
        """The highest synced cycle that a mark beyond the damage names; 0 if there is none."""
        highest = 0
        if self._stopped is None:
            return Cycle(0)
        segments = [segment for segment in self._source.segments() if segment >= self._stopped.segment]
        at, skip = self._stopped.at, self._unproved
        for segment in segments:
            while data := self._source.read(segment, at, at + self.frame_bytes):
                marks = find_marks(data[skip:], self._shard_count, self._is_plausible)
                highest = max([highest, *(mark.synced_cycle for mark in marks)])
                at, skip = at + self.frame_bytes, 0
            at = 0
        return Cycle(highest)

    def _is_plausible(self, mark: control.Mark) -> bool:
        """Whether what looks like a mark may follow the last valid one. A value may be a copy of some journal."""
        if self._last_mark is None:
            return True
        pairs = zip(mark.ends, self._last_mark.ends, strict=True)
        return mark.cycle > self._last_mark.cycle and all(end >= known for end, known in pairs)


def _newer(problem: str) -> NewerFormat:
    return NewerFormat(f"{problem}: made by a newer version?")


def find_marks(
    data: bytes, shard_count: int, is_plausible: Callable[[control.Mark], bool] = lambda _: True
) -> Iterator[control.Mark]:
    """Marks in bytes that may be damaged: those whose crc is right from the beginning or from another mark's end.

    The damage may be in the beginning of the mark before; what begins almost like a mark may end like one.
    """
    prefix = control.mark_prefix(shard_count)
    size = control.mark_bytes(shard_count)
    ends: list[int] = []
    likely_ends: list[int] = []
    view = memoryview(data)
    for found in _almost(prefix).finditer(data):
        at = found.start()
        if at + size > len(data):
            break
        if not data.startswith(prefix, at):
            likely_ends.append(at + size)
            continue
        mark = control.decode_mark(data[at + len(prefix) : at + size])
        covered_end = at + size - control.MARK_CRC_BYTES
        bases = [0, *ends[-_BASES_TRIED:], *likely_ends[-_BASES_TRIED:]]
        may_be = mark.synced_cycle < mark.cycle and is_plausible(mark)
        if may_be and any(crc32c(view[base:covered_end]) == mark.crc for base in bases):
            yield mark
        ends.append(at + size)  # also of one that is damaged itself: the next begins there


@cache
def _almost(prefix: bytes) -> re.Pattern[bytes]:
    """Finds the prefix with at most one byte of it wrong, wherever it begins."""
    ways = (re.escape(prefix[:i]) + b"." + re.escape(prefix[i + 1 :]) for i in range(len(prefix)))
    return re.compile(b"(?=" + b"|".join(ways) + b")", re.DOTALL)
