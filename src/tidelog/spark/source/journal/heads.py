"""Heads of frames, by which the records of a shard are divided among tasks.

    first       the head of each segment: those that lie outside of the wanted time are not looked at any further
    then        the heads of some frames of the others, as many frames apart as a task is to have

Of a copy, just those bytes are fetched, side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from tidelog.errors import Corruption, TooOld
from tidelog.ids import U64_MAX, Lsn, ShardId
from tidelog.journal.frame import HEADER_BYTES_MAX
from tidelog.journal.inspection import JournalFolder, ShardInspection
from tidelog.journal.record_inspection import Selection
from tidelog.journal.segment import FilePosition
from tidelog.ports import Disk
from tidelog.shipping.shipped_disk import ShippedDisk


class FrameHead(NamedTuple):
    """Where a frame begins."""

    lsn: int
    """Of its first record."""
    ts: int
    """Of the transaction before it; 0: its head cannot be read."""


def read_heads(disk: Disk, place: JournalFolder, shard: ShardId, wanted: Selection, frames: int) -> list[FrameHead]:
    """The heads of every so many frames, and of each segment, oldest first. Of segments outside of the wanted time and
    lsns only the first. `Corruption`: the shard cannot be read at all."""
    inspection = ShardInspection(disk, place, shard)
    try:
        segments = inspection.list_segments()
        _will_read(inspection, [FilePosition(segment, 0) for segment in segments])
        # One that was erased meanwhile is left out.
        firsts = {segment: head for segment in segments if (head := _head(inspection, segment, 0)) is not None}
        places = {segment: _frames_of(inspection, segment, frames) for segment in _within(firsts, wanted)}
        _will_read(inspection, [FilePosition(segment, at) for segment in places for at in places[segment] if at])
        heads: list[FrameHead] = []
        for segment, first in firsts.items():
            more = [_head(inspection, segment, at) for at in places.get(segment, ()) if at]
            for head in [first, *more]:
                # The task before one that cannot be read says what is wrong, or one of its own if it is the first.
                if head is not None and (head is not _UNREADABLE or not heads):
                    heads.append(FrameHead(segment, 0) if head is _UNREADABLE else head)
        if inspection.damage:
            raise inspection.damage[0]
        return heads
    finally:
        inspection.close()


_UNREADABLE: Final = FrameHead(-1, 0)


def _within(firsts: Mapping[Lsn, FrameHead], wanted: Selection) -> Iterator[Lsn]:
    """The segments that may have wanted records, as far as their heads tell."""
    following = [*list(firsts.items())[1:], (Lsn(U64_MAX), _UNREADABLE)]
    for (segment, head), (after, next_head) in zip(firsts.items(), following, strict=True):
        ends_ts = U64_MAX if next_head is _UNREADABLE else next_head.ts
        is_in_time = head.ts <= wanted.ts_last and ends_ts >= wanted.ts_first
        if is_in_time and segment <= wanted.lsn_last and after > wanted.lsn_first:
            yield segment


def _frames_of(inspection: ShardInspection, segment: Lsn, frames: int) -> range:
    source = inspection.source
    try:
        return range(0, source.size(segment), frames * source.geometry.frame_bytes)
    except TooOld:
        return range(0)


def _head(inspection: ShardInspection, segment: Lsn, at: int) -> FrameHead | None:
    """None: it was erased meanwhile, as the task that reads it will notice."""
    try:
        header = inspection.source.frame_header(segment, at)
    except TooOld:
        return None
    except Corruption:
        return _UNREADABLE
    return FrameHead(header.lsn, header.ts)


def _will_read(inspection: ShardInspection, places: list[FilePosition]) -> None:
    if isinstance(inspection.disk, ShippedDisk):
        inspection.disk.will_read((inspection.source.path(each.segment), each.at, HEADER_BYTES_MAX) for each in places)
