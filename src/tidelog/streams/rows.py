"""Entries as columns, and ids as numbers: what nodes are made of and hand out.

An id is handled as one number, `ms << 64 | seq`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, NamedTuple

TAGGED: Final = 0
FIELDS: Final = 1
SEQ_MAX: Final = 2**64 - 1
SEQ_BITS: Final = 64
ENTRY_OVERHEAD_BYTES: Final = 24
"""What an entry takes beside its tag and its bytes: an id and two positions."""


def pack_id(ms: int, seq: int) -> int:
    return ms << SEQ_BITS | seq


def unpack_id(number: int) -> tuple[int, int]:
    return number >> SEQ_BITS, number & SEQ_MAX


def listed(items: Sequence[bytes]) -> list[bytes]:
    """The same as a list: what loops over it is compiled for lists."""
    return items if isinstance(items, list) else list(items)


def size_of(tags: list[bytes], entries: list[bytes]) -> int:
    """What entries take in a node. Hot."""
    size = ENTRY_OVERHEAD_BYTES * len(entries)
    for index in range(len(entries)):
        size += len(tags[index]) + len(entries[index])
    return size


class Rows(NamedTuple):
    """Entries as columns of equal length. What is handed out by a node is not to be changed."""

    offsets: Sequence[int]
    ms: Sequence[int]
    seqs: Sequence[int]
    kinds: Sequence[int]
    tags: Sequence[bytes]
    entries: Sequence[bytes]

    @property
    def ids(self) -> list[int]:
        return pack_ids(self.ms, self.seqs)

    def reversed(self) -> Rows:
        return Rows(
            self.offsets[::-1], self.ms[::-1], self.seqs[::-1], self.kinds[::-1], self.tags[::-1], self.entries[::-1]
        )


def pack_ids(ms: Sequence[int], seqs: Sequence[int]) -> list[int]:
    """The ids of two columns."""
    return [each << SEQ_BITS | seq for each, seq in zip(ms, seqs, strict=True)]


def index_of_id(ms: Sequence[int], seqs: Sequence[int], number: int) -> int:
    """The place of the first entry at or after an id, in two columns."""
    wanted_ms, wanted_seq = unpack_id(number)
    at = bisect_left(ms, wanted_ms)
    end = len(ms)
    if at == end or ms[at] != wanted_ms:
        return at
    # Of one millisecond: their seqs count up.
    end = bisect_left(ms, wanted_ms + 1, lo=at) if wanted_ms < SEQ_MAX else end
    return bisect_left(seqs, wanted_seq, lo=at, hi=end)


def rows_without(rows: Rows, indices: Sequence[int]) -> Rows:
    """The same without some of them."""
    gone = set(indices)
    kept = [index for index in range(len(rows.entries)) if index not in gone]
    return Rows(
        [rows.offsets[index] for index in kept],
        [rows.ms[index] for index in kept],
        [rows.seqs[index] for index in kept],
        [rows.kinds[index] for index in kept],
        [rows.tags[index] for index in kept],
        [rows.entries[index] for index in kept],
    )


def joined(parts: Sequence[Rows]) -> Rows:
    """Entries of several nodes, one after the other."""
    if len(parts) == 1:
        return parts[0]
    offsets: list[int] = []
    ms: list[int] = []
    seqs: list[int] = []
    kinds = bytearray()
    tags: list[bytes] = []
    entries: list[bytes] = []
    for rows in parts:
        offsets.extend(rows.offsets)
        ms.extend(rows.ms)
        seqs.extend(rows.seqs)
        kinds.extend(rows.kinds)
        tags.extend(rows.tags)
        entries.extend(rows.entries)
    return Rows(offsets, ms, seqs, kinds, tags, entries)
