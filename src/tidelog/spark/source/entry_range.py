"""Which entries of a stream are read: a range of offsets, of ids, or both.

An id `ms-seq` is also one number, `ms << 64 | seq`, so that ids can be compared and cut like offsets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql.datasource import Filter

from tidelog.spark.options import BadOption
from tidelog.spark.source.batch_reader import comparison
from tidelog.spark.source.pieces import cut_evenly
from tidelog.streams.rows import SEQ_MAX, pack_id

_ID: Final = re.compile(r"([0-9]{1,20})(?:-([0-9]{1,20}))?")
NUMBER_MAX: Final = (1 << 128) - 1
_OFFSET_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class EntryRange:
    """The entries that are wanted of each stream. Both ends are included; all bounds hold."""

    first_offset: int = 0
    last_offset: int = _OFFSET_MAX
    first_number: int = 0
    """Of the id, as one number."""
    last_number: int = NUMBER_MAX

    @property
    def has_offsets(self) -> bool:
        return self.first_offset > 0 or self.last_offset < _OFFSET_MAX

    @property
    def is_empty(self) -> bool:
        return self.first_offset > self.last_offset or self.first_number > self.last_number

    def narrowed(self, other: EntryRange) -> EntryRange:
        return EntryRange(
            max(self.first_offset, other.first_offset),
            min(self.last_offset, other.last_offset),
            max(self.first_number, other.first_number),
            min(self.last_number, other.last_number),
        )


def parse_id(name: str, text: str, seq: int) -> int:
    """An id as one number; `seq`: that of an id which is given by its time alone."""
    found = _ID.fullmatch(text)
    if found is None or max(int(found[1]), int(found[2] or 0)) > SEQ_MAX:
        raise BadOption(f"{name}={text!r}: give an id such as 1700000000000-0")
    return pack_id(int(found[1]), seq if found[2] is None else int(found[2]))


def id_text(number: int) -> str:
    return f"{number >> 64}-{number & SEQ_MAX}"


def range_of_filters(filters: Sequence[Filter]) -> EntryRange:
    """The entries that filters on `offset`, `ms`, `timestamp` and `id` leave."""
    found = EntryRange()
    for each in filters:
        found = found.narrowed(_range_of(each))
    return found


def _range_of(condition: Filter) -> EntryRange:
    column, value, is_lower, is_upper = found = comparison(condition)
    if column == "id":
        match = _ID.fullmatch(value) if is_lower and is_upper and isinstance(value, str) else None
        if match is None or match[2] is None:
            return EntryRange()
        number = pack_id(min(int(match[1]), SEQ_MAX), min(int(match[2]), SEQ_MAX))
        return EntryRange(first_number=number, last_number=number)
    if not isinstance(value, int):
        return EntryRange()
    if column == "offset":
        return EntryRange(*found.bounded(0, _OFFSET_MAX))
    if column not in ("ms", "timestamp"):
        return EntryRange()
    low, high = (-(-value // 1000), value // 1000) if column == "timestamp" else (value, value)
    return range_of_ms(low if is_lower else 0, high if is_upper else SEQ_MAX)


def number_at_us(us: int) -> int:
    """The first id, as one number, at or after a moment in µs."""
    return pack_id(min(max(-(-us // 1000), 0), SEQ_MAX), 0)


def range_of_ms(first: int, last: int) -> EntryRange:
    """The entries of a time in milliseconds, both ends included."""
    first = min(max(first, 0), SEQ_MAX)
    return EntryRange(
        first_number=pack_id(first, 0),
        last_number=pack_id(min(last, SEQ_MAX), SEQ_MAX) if last >= 0 else -1,
    )


def split_ids(first: int, last: int, parts: int) -> Iterator[tuple[int, int]]:
    """A range of ids, as numbers, cut into so many parts that span about the same time each."""
    if first > last:
        return
    first_ms, last_ms = first >> 64, last >> 64
    for low_ms, high_ms in cut_evenly(first_ms, last_ms, min(max(parts, 1), last_ms - first_ms + 1)):
        yield max(pack_id(low_ms, 0), first), min(pack_id(high_ms, SEQ_MAX), last)
