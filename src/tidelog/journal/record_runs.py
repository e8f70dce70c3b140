"""Runs of ordinary records, read many at a time: for recovery, which reads all of a journal.

`record.skim` reads records of any kind, one after the other, and defines what a record means. Recovery reads every
record twice (is it proved? what does it set?), so a restart takes as long as the work done for each record. Here a
plain loop finds only where records start, and numpy does everything else for all of them at once:

    ordinary     a record that is neither padded, split nor a reference to a blob, with a length of one or two bytes
    string run   ordinary records that each are a whole transaction setting strings without an expiry (`val`), with
                 marks between them; where their keys and values lie, as three arrays of positions

Nothing here raises an error about a record: where one is not ordinary, or does not fit, the walk ends before it, and
the caller gives it to `skim`, which says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tidelog.errors import FormatError
from tidelog.journal import control
from tidelog.journal.operation import VAL
from tidelog.journal.record import CONTROL, EXPIRE, FINISH, TS, skim

Positions = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

RUN_RECORDS_MIN: Final = 16
"""A shorter run is not worth its own set-up."""

_FIELD_BYTES: Final = {TS: 4, EXPIRE: 8, FINISH: 0}
_ORDINARY: Final = TS | EXPIRE | FINISH
_WHOLE: Final = TS | FINISH
"""The flags of a record that is a transaction by itself."""


def _field_bytes(flags: int) -> int:
    return sum(size for flag, size in _FIELD_BYTES.items() if flags & flag)


_SIZES: Final = [
    [3 + _field_bytes(flags) + (first >> 1) if first & 1 and not flags & ~_ORDINARY else 0 for first in range(256)]
    for flags in range(256)
]
"""By flags and the first byte of the length, how many bytes a record has; 0: that does not say it."""
_HEADS: Final = [4 + _field_bytes(flags) if not flags & ~_ORDINARY else 0 for flags in range(256)]
"""By flags, how many bytes stand before the payload, if its length has two; 0: it is not ordinary."""


class OrdinaryRecords(NamedTuple):
    """Ordinary records that follow each other."""

    starts: Positions
    opcodes: Bytes
    flags: Bytes
    end: int
    """Where the next record begins that is not one of them, if there is one."""


def find_ordinary(data: bytes, at: int, end: int) -> OrdinaryRecords:
    """The ordinary records in `data[at:end]`, up to the first that is not."""
    bytes_ = np.frombuffer(data, np.uint8)
    edges = np.array(list(_walk(data, at, end)), np.int64)
    if edges[-1] > end:
        edges = edges[:-1]
    starts = edges[:-1]
    opcodes = bytes_[starts]
    count = len(starts)
    if not opcodes.all():  # opcode 0 ends the records, whatever follows it
        count = int(opcodes.argmin())
    return OrdinaryRecords(starts[:count], opcodes[:count], bytes_[starts[:count] + 1], int(edges[count]))


def _walk(data: bytes, at: int, end: int) -> Iterator[int]:
    """Where ordinary records start, and at last where the walk ended. Hot: all that is done for each by itself."""
    sizes = _SIZES
    last = end - 3  # there are four bytes to look at
    while at < last:
        size = sizes[data[at + 1]][data[at + 2]]
        if not size:
            size = _size_of_long(data, at)
            if not size:
                break
        yield at
        at += size
    yield at


def _size_of_long(data: bytes, at: int) -> int:
    first, head = data[at + 2], _HEADS[data[at + 1]]
    return head + ((first | data[at + 3] << 8) >> 2) if first & 3 == 2 and head else 0


RecordHeader = tuple[int, int, int, int, int, int, int, int]
"""What `skim` has of a record."""


class RecordChecks:
    """Finds the records that a scan has to look at one by one, among thousands that are in order.

    In order is an operation with an opcode that is known, which carries a ts exactly if the one before it ended its
    transaction.
    """

    def __init__(self, is_known: Callable[[int], bool] | None) -> None:
        self._is_known = is_known
        """Asked once for each opcode that occurs; None: any is."""
        self._is_doubtful = np.full(256, is_known is not None)
        """By opcode: unknown, or not asked for yet."""
        self._asked: set[int] = set()
        self.flags_before = 0
        """Of the last operation that was passed over, where there was one."""

    def notable(self, found: OrdinaryRecords) -> npt.NDArray[np.bool_]:
        """Which of these records are to be looked at; the first operation always is."""
        is_notable = found.opcodes >= CONTROL
        operations = np.flatnonzero(~is_notable)
        if not len(operations):
            return is_notable
        opcodes, flags = found.opcodes[operations], found.flags[operations]
        if self._is_doubtful[opcodes].any():
            self._ask(opcodes)
            is_notable[operations[self._is_doubtful[opcodes]]] = True
        begins, goes_on = flags[1:] & TS != 0, flags[:-1] & FINISH == 0
        is_notable[operations[1:][begins == goes_on]] = True
        is_notable[operations[0]] = True
        return is_notable

    def _ask(self, opcodes: Bytes) -> None:
        assert self._is_known is not None
        for opcode in np.unique(opcodes[self._is_doubtful[opcodes]]).tolist():
            if opcode not in self._asked:
                self._asked.add(opcode)
                self._is_doubtful[opcode] = not self._is_known(opcode)


def skim_notable(
    data: bytes, at: int, end: int, checks: RecordChecks | None = None
) -> Iterator[tuple[int, RecordHeader | None]]:
    """As `skim`, only of records that are not ordinary operations, each with how many of those stood before it.

    At last comes a None, with how many there were behind the last one.
    """
    while True:
        found = find_ordinary(data, at, end)
        reached = 0
        is_notable = found.opcodes >= CONTROL if checks is None else checks.notable(found)
        for index in np.flatnonzero(is_notable).tolist():
            if checks is not None and index > reached:
                checks.flags_before = int(found.flags[index - 1])
            yield index - reached, next(skim(data, int(found.starts[index]), end))
            reached = index + 1
        passed = len(found.starts) - reached
        if checks is not None and passed:
            checks.flags_before = int(found.flags[-1])
        record = next(skim(data, found.end, end), None)
        yield passed, record
        if record is None:
            return
        at = record[-1]


def count_up_to(data: bytes, at: int, end: int, ts_relative: int) -> int | None:
    """How many operations stand in `data[at:end]` before the first transaction with a later ts; None: there is none."""
    count = 0
    while True:
        found = find_ordinary(data, at, end)
        is_operation = found.opcodes < CONTROL
        timed = np.flatnonzero(is_operation & (found.flags & TS != 0))
        later = np.flatnonzero(_times(data, found.starts[timed]) > ts_relative)
        if len(later):
            return count + int(np.count_nonzero(is_operation[: timed[later[0]]]))
        count += int(np.count_nonzero(is_operation))
        record = next(skim(data, found.end, end), None)
        if record is None:
            return None
        if record[0] < CONTROL:
            if record[2] > ts_relative:
                return count
            count += 1
        at = record[-1]


def _times(data: bytes, starts: Positions) -> Positions:
    """The relative ts of ordinary records that have one: it follows the length."""
    bytes_ = np.frombuffer(data, np.uint8)
    places = starts + np.where(bytes_[starts + 2] & 1, 3, 4)
    times = np.zeros(len(starts), np.int64)
    for index in range(_FIELD_BYTES[TS]):
        times |= bytes_[places + index].astype(np.int64) << 8 * index
    return times


class StringRun(NamedTuple):
    """Records that only set strings: pair by pair, `data[key:value]` and `data[value:end]`."""

    records: int
    """How many there are, each a transaction; marks do not count."""
    last_ts_relative: int
    """The ts of the last of them, relative to the frame's."""
    keys: Positions
    values: Positions
    ends: Positions


class Section(NamedTuple):
    """Some of the records of a stretch: a run, or what lies between two."""

    start: int
    end: int
    run: StringRun | None
    """None: records of any kind."""


def cut_sections(data: bytes, at: int, end: int) -> Iterator[Section]:
    """All of `data[at:end]`, as long string runs and what lies between them."""
    other = at  # where those that are in no run begin
    while at < end and data[at]:
        found = find_ordinary(data, at, end)
        for first, last, run in _find_runs(data, found):
            if first > other:
                yield Section(other, first, None)
            yield Section(first, last, run)
            other = last
        at = found.end
        if at < end and data[at]:
            try:
                at = next(skim(data, at, end))[-1]
            except FormatError:
                break  # the reader of the rest meets the same error in its place
    if other < end:
        yield Section(other, end, None)


def _find_runs(data: bytes, found: OrdinaryRecords) -> Iterator[tuple[int, int, StringRun]]:
    starts, opcodes, flags, end = found
    if not len(starts):
        return
    is_set = (opcodes == VAL) & (flags == _WHOLE)
    fits = is_set | (opcodes == control.MARK)
    edges = np.flatnonzero(np.diff(fits, prepend=False, append=False)).tolist()
    for first, last in zip(edges[::2], edges[1::2], strict=True):
        chosen = starts[first:last][is_set[first:last]]
        if len(chosen) >= RUN_RECORDS_MIN:
            after = int(starts[last]) if last < len(starts) else end
            run = _string_run(data, chosen)
            if run is not None:
                yield int(starts[first]), after, run


def _string_run(data: bytes, starts: Positions) -> StringRun | None:
    """Where keys and values of `val` records lie; None if that is not easily said of all of them."""
    bytes_ = np.frombuffer(data, np.uint8)
    size, at = _lengths(bytes_, starts + 2)
    payloads = at + _FIELD_BYTES[TS]
    ends = payloads + size
    pairs, at = _lengths(bytes_, payloads)
    if (pairs == 1).all():
        key_sizes, at = _lengths(bytes_, at)
        value_sizes, at = _lengths(bytes_, at)
        if key_sizes.min() < 0 or value_sizes.min() < 0 or (at + key_sizes + value_sizes != ends).any():
            return None
        keys, values, value_ends = at, at + key_sizes, ends
    else:
        # All lengths of a record stand before its first key. Those of one byte can be added up all at once.
        counts = 2 * pairs
        firsts = at + counts
        if pairs.min() < 1 or (firsts > ends).any():
            return None
        total = int(counts.sum())
        places = np.arange(total) + np.repeat(at - (counts.cumsum() - counts), counts)
        lengths = bytes_[places]
        if not (lengths & 1).all():
            return None
        sums = (lengths >> 1).cumsum(dtype=np.int64)
        last_sums = sums[counts.cumsum() - 1]
        before = np.concatenate(([0], last_sums[:-1]))
        if (firsts + last_sums - before != ends).any():
            return None
        bounds = sums + np.repeat(firsts - before, counts)  # where each item ends
        values, value_ends = bounds[::2], bounds[1::2]
        keys = values - (lengths[::2] >> 1)
    last_ts_relative = int.from_bytes(data[payloads[-1] - _FIELD_BYTES[TS] : payloads[-1]], "little")
    return StringRun(len(starts), last_ts_relative, keys, values, value_ends)


def _lengths(bytes_: Bytes, at: Positions) -> tuple[Positions, Positions]:
    """The lengths at these positions, -1 for those of more than two bytes, and where they end.

    Positions past the end are those of records that do not fit anyway: any byte will do for them.
    """
    last = len(bytes_) - 1
    first = bytes_[np.minimum(at, last)].astype(np.int64)
    is_one = first & 1 == 1
    if is_one.all():
        return first >> 1, at + 1
    two = (first | bytes_[np.minimum(at + 1, last)].astype(np.int64) << 8) >> 2
    return np.where(is_one, first >> 1, np.where(first & 3 == 2, two, -1)), at + np.where(is_one, 1, 2)
