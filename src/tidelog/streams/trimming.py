"""Trimming: which entries of a stream go, so that a number of entries or the ids from one on remain.

A trim is exact, or goes by whole hundreds of offsets, which is cheaper and removes fewer entries than asked for. These
are the nodes of a Redis with its usual `stream-node-max-entries`; our own are larger, and do not matter here. An entry
that the same command appends is counted although it is not there yet. T commands evict by whole nodes.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from tidelog import limits
from tidelog.streams.stream import Stream


class Trim(NamedTuple):
    """Which entries stay."""

    length: int | None
    """So many entries, or ..."""
    first_id: int
    """... those with this id or a larger one."""
    is_exact: bool
    limit: int = 0
    """Remove at most so many; 0: any number."""


def first_to_keep(stream: Stream, trim: Trim, new_id: int | None = None) -> tuple[int, int]:
    """The first offset that stays, and how many entries go. `new_id`: of an entry that is about to be appended."""
    return _exactly(stream, trim, new_id) if trim.is_exact else _in_hundreds(stream, trim, new_id)


def _exactly(stream: Stream, trim: Trim, new_id: int | None) -> tuple[int, int]:
    added = new_id is not None
    if trim.length is not None:
        gone = stream.length + added - trim.length
        if gone <= 0:
            return stream.first, 0
        return (_offset_of_nth(stream, gone) if gone < stream.length else stream.next + gone - stream.length), gone
    first = stream.offset_at_or_after(trim.first_id)
    if first < stream.next:
        return first, stream.count_below(first)
    if new_id is not None and new_id < trim.first_id:
        return stream.next + 1, stream.length + 1
    return stream.next, stream.length


def _offset_of_nth(stream: Stream, index: int) -> int:
    """The offset of the entry with so many before it."""
    for node in stream.nodes():
        if index < len(node):
            return node.offset_at(index)
        index -= len(node)
    return stream.next


def _in_hundreds(stream: Stream, trim: Trim, new_id: int | None) -> tuple[int, int]:
    first, gone = _exactly(stream, trim, new_id)
    if gone == stream.length + (new_id is not None) and (not trim.limit or gone <= trim.limit):
        return first, gone  # the last hundred need not be whole
    if trim.limit:
        first = min(first, _offset_of_nth(stream, trim.limit))
    first -= (first - 1) % limits.TRIMMED_TOGETHER
    return (first, stream.count_below(first)) if first > stream.first else (stream.first, 0)


def boundary_below(stream: Stream, offset: int) -> int:
    """The largest offset up to this one that whole nodes can be evicted to."""
    if offset >= stream.next:
        return stream.next
    if stream.active.entries and offset >= stream.active.first_offset:
        return stream.active.first_offset
    place = bisect_right(stream.bases, offset)
    return stream.bases[place - 1] if place else stream.first


def boundary_keeping(stream: Stream, kept: int, coming: int = 0) -> int:
    """The largest such offset that leaves at least `kept` entries, with those that are about to be appended."""
    spare = stream.length + coming - kept
    boundary = stream.first
    for node in stream.sealed:
        if len(node) > spare:
            return boundary
        spare -= len(node)
        boundary = node.last_offset + 1
    if stream.active.entries and len(stream.active) <= spare:
        boundary = stream.next
    return boundary
