"""The ends of a stream, and how far a group has come: what it reads next, its entries read and its lag.

The two counts are Redis's. They are exact as long as no entry ahead of the group was deleted from the middle. A stream
remembers only the largest deleted id: where that lies ahead of the group, the answer is `UNKNOWN`, except at the two
ends of the stream.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog import limits
from tidelog.errors import CommandError
from tidelog.streams.group import UNKNOWN, Group
from tidelog.streams.read_ahead import ReadAhead
from tidelog.streams.rows import SEQ_MAX, Rows, pack_id
from tidelog.streams.stream import COUNT_MAX, Stream


def first_id(stream: Stream) -> int:
    """The id of the oldest entry that is there; 0: there is none."""
    if stream.sealed:
        return stream.sealed[0].first_id
    return stream.active.id_at(0) if stream.length else 0


def top_id(stream: Stream) -> int:
    """The id of the newest entry that is there; 0: there is none."""
    if stream.active.entries:
        return stream.active.last_id
    return stream.sealed[-1].top_id if stream.sealed else 0


def next_id(stream: Stream | None, now_ms: int, count: int = 1) -> tuple[int, int]:
    """The id of the next entry, behind which `count - 1` more have room."""
    ms, seq = (stream.last_ms, stream.last_seq) if stream is not None else (0, 0)
    if now_ms > ms:
        return now_ms, 0
    if seq + count <= SEQ_MAX:
        return ms, seq + 1
    if ms == SEQ_MAX:
        raise CommandError("ERR The stream has exhausted the last possible ID, unable to add more items")
    return ms + 1, 0


def next_rows(stream: Stream, group: Group, count: int, ahead: ReadAhead | None = None) -> Rows:
    """The next entries of a group: the first whose offset and id both lie after the group's. Hot."""
    first = max(group.last_offset + 1, stream.first)
    rows = stream.read(first, count) if ahead is None else ahead.read(stream, first, count)
    if rows.entries and pack_id(rows.ms[0], rows.seqs[0]) <= group.last_id:  # XGROUP SETID moved the id alone
        rows = stream.read(stream.offset_at_or_after(group.last_id + 1), count)
    return rows


def room_for_pending(group: Group) -> int:
    """How many more entries readers of a group may be given before they acknowledge some, if none has expired."""
    return (group.pending_max or limits.PENDING_MAX_DEFAULT) - len(group.pending) + len(group.lost)


def has_deleted_ahead(stream: Stream, number: int) -> bool:
    """Whether an entry at or after an id, and not before all that are there, was deleted."""
    deleted = stream.max_deleted_id
    return bool(deleted and stream.length) and number <= deleted and first_id(stream) <= deleted


def entries_read_at(stream: Stream, number: int) -> int:
    """How many entries were ever added up to an id; `UNKNOWN` if that cannot be said."""
    added = stream.entries_added
    if not added:
        return 0
    if not stream.length and number <= stream.last_id:
        return added
    if number >= stream.last_id:
        return added if number == stream.last_id else UNKNOWN
    first = first_id(stream)
    if not stream.max_deleted_id or stream.max_deleted_id < first:
        if number < first:
            return added - stream.length
        if number == first:
            return added - stream.length + 1
    return UNKNOWN


def entries_read_after(stream: Stream, group: Group, ids: Sequence[int]) -> int:
    """How many entries a group has read once it has read these, which lie ahead of it; `UNKNOWN` as above."""
    return min(_entries_read_after(stream, group, ids), COUNT_MAX)


def _entries_read_after(stream: Stream, group: Group, ids: Sequence[int]) -> int:
    read = group.entries_read
    deleted = stream.max_deleted_id
    if read != UNKNOWN and ids[0] > deleted:
        return read + len(ids)
    left = list(ids)
    while left and left[0] <= deleted:
        read = entries_read_at(stream, left.pop(0))
    if not left or read != UNKNOWN:
        return read + len(left)
    read = entries_read_at(stream, left[0])
    if read != UNKNOWN:
        return read + len(left) - 1
    return entries_read_at(stream, left[-1])


def lag(stream: Stream, group: Group) -> int | None:
    """How many entries a group has yet to read; None if that cannot be said."""
    if not stream.entries_added:
        return 0
    read = group.entries_read
    if read == UNKNOWN or has_deleted_ahead(stream, group.last_id):
        read = entries_read_at(stream, group.last_id)
    return None if read == UNKNOWN else stream.entries_added - read
