"""Trimming: which entries of a stream go, so that a number of entries or the ids from one on remain.

A trim is exact or goes by whole nodes, which is cheaper and removes fewer entries than asked for. An entry that the
same command appends is counted although it is not there yet.
"""

from __future__ import annotations

from typing import NamedTuple

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
    return _exactly(stream, trim, new_id) if trim.is_exact else _whole_nodes(stream, trim, new_id)


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
            return node.rows(index, index + 1).offsets[0]
        index -= len(node)
    return stream.next


def _whole_nodes(stream: Stream, trim: Trim, new_id: int | None) -> tuple[int, int]:
    added = new_id is not None
    length, gone, first = stream.length + added, 0, stream.first
    runs = [(node.last_offset + 1, len(node), node.last_id) for node in stream.sealed]
    if new_id is not None:
        runs.append((stream.next + 1, len(stream.active) + 1, new_id))
    elif stream.active.entries:
        runs.append((stream.next, len(stream.active), stream.active.last_id))
    for after, count, last_id in runs:
        if trim.limit and gone + count > trim.limit:
            break
        left = length - gone - count
        if last_id >= trim.first_id if trim.length is None else left < trim.length or left + count <= trim.length:
            break
        first, gone = after, gone + count
    return first, gone
