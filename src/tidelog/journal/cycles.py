"""Recovery, first half: the shards taken together, in order of cycles.

A cycle is *complete* if its whole vector lies under valid marks (`scan`) and, if an epoch begins in it, every shard has
the beginning of that: it has no lsn, so the vector does not tell. Every later vector is at least as large, so the first
incomplete cycle ends the search: what is needed is one pass over all shards side by side, and memory for one frame of
each. A search can also be ended on purpose, where history is to end before its newest cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidelog.ids import Cycle, Lsn, ShardId, Ts
from tidelog.journal.scan import ShardScan, ValidMark
from tidelog.journal.segment import FilePosition

IsBeyond = Callable[[Sequence[ValidMark]], bool]
"""Whether a cycle, of which these are the marks, is not to count, nor any after it. Asked in order of cycles."""


@dataclass(frozen=True, slots=True)
class CompleteCycle:
    """The newest cycle whose whole vector is proved."""

    cycle: Cycle
    last_ts: Ts
    ends: tuple[Lsn, ...]
    """The vector: the end lsn of each shard."""
    marks: tuple[ValidMark | None, ...]
    """Per shard, its newest mark at or below the cycle: the shard is cut after it."""
    synced_cycle: Cycle
    """The highest that is named anywhere: a complete cycle below it means rot."""
    synced_places: tuple[FilePosition | None, ...]
    """Per shard, a place up to which everything is known to be fsynced; None: the shard has no files."""
    lacking: tuple[ShardId, ...] = ()
    """Shards that lack something of the first incomplete cycle, if another shard's mark names it."""


class _SyncedPlace:
    """How far one shard is known to be fsynced, to within a frame: marks are many, frames are few."""

    def __init__(self, start: FilePosition | None, frame_bytes: int) -> None:
        self._frame_bytes = frame_bytes
        self._places: list[tuple[int, FilePosition | None]] = [(0, start)]
        """Cycle and end of the first mark of each frame; the first place is the newest that is known to be synced."""

    def add(self, found: ValidMark) -> None:
        last = self._places[-1][1]
        frame = found.end.at // self._frame_bytes
        if last is None or (last.segment, last.at // self._frame_bytes) != (found.end.segment, frame):
            self._places.append((found.mark.cycle, found.end))

    def newest(self, synced_cycle: int) -> FilePosition | None:
        """The newest place at or below a cycle; those before it are forgotten."""
        while len(self._places) > 1 and self._places[1][0] <= synced_cycle:
            del self._places[0]
        return self._places[0][1]


def _find_in_one(scan: ShardScan, is_beyond: IsBeyond | None) -> CompleteCycle:
    """With one shard, as is usual, every valid mark ends a complete cycle: the newest one counts."""
    place = _SyncedPlace(scan.start, scan.frame_bytes)
    newest: ValidMark | None = None
    synced = 0
    for found in scan.marks():
        if is_beyond is not None and is_beyond((found,)):
            break
        newest = found
        place.add(newest)
        synced = max(synced, newest.mark.synced_cycle)
    else:
        synced = max(synced, scan.highest_synced_beyond())
    cycle, last_ts, ends = Cycle(0), Ts(0), (scan.start_lsn,)
    if newest is not None:
        cycle, last_ts, ends = newest.mark.cycle, newest.mark.last_ts, (newest.mark.ends[0],)
    return CompleteCycle(cycle, last_ts, ends, (newest,), Cycle(synced), (place.newest(synced),))


def find_complete_cycle(scans: Sequence[ShardScan], is_beyond: IsBeyond | None = None) -> CompleteCycle:
    """Take the shards together, cycle by cycle, up to the first that `is_beyond`: what follows that, nobody judges."""
    if len(scans) == 1:
        return _find_in_one(scans[0], is_beyond)
    places = [_SyncedPlace(scan.start, scan.frame_bytes) for scan in scans]
    walks = [scan.marks() for scan in scans]
    heads = [next(walk, None) for walk in walks]
    ends: list[int] = [scan.start_lsn for scan in scans]
    latest: list[ValidMark | None] = [None] * len(scans)
    found = Cycle(0), Ts(0), tuple(scan.start_lsn for scan in scans), tuple(latest)
    synced = 0
    lacking: tuple[ShardId, ...] = ()
    while pending := [head.mark.cycle for head in heads if head is not None]:
        cycle = min(pending)
        if is_beyond is not None and is_beyond(
            [head for head in heads if head is not None and head.mark.cycle == cycle]
        ):
            break
        mark, begins_epoch = None, False
        for shard, head in enumerate(heads):
            if head is not None and head.mark.cycle == cycle:
                mark, latest[shard] = head.mark, head
                begins_epoch = begins_epoch or bool(head.epochs)
                ends[shard] = mark.ends[shard]
                synced = max(synced, mark.synced_cycle)
                places[shard].add(head)
                places[shard].newest(synced)
                heads[shard] = next(walks[shard], None)
        assert mark is not None
        if not lacking:
            lacking = tuple(scan.shard for scan in scans if ends[scan.shard] < mark.ends[scan.shard])
        if not lacking and begins_epoch:
            lacking = tuple(scan.shard for scan in scans if _has_ended(heads[scan.shard], latest[scan.shard], cycle))
        if not lacking:
            found = cycle, mark.last_ts, mark.ends, tuple(latest)
    else:
        synced = max([synced, *(scan.highest_synced_beyond() for scan in scans)])
    return CompleteCycle(*found, Cycle(synced), tuple(place.newest(synced) for place in places), lacking)


def _has_ended(head: ValidMark | None, latest: ValidMark | None, cycle: Cycle) -> bool:
    """Whether a shard ends before a cycle of which each shard has a part. One that goes on has its part: it may lie
    before the frame where the scan of it began."""
    return head is None and (latest is None or latest.mark.cycle < cycle)


def find_damage(scans: Sequence[ShardScan], complete: CompleteCycle) -> list[ShardScan]:
    """Which shards were damaged below what was synced. Whatever else was found in them is a torn tail."""
    refused = [scan for scan in scans if scan.is_refused]
    if complete.cycle >= complete.synced_cycle:
        return refused
    lacking = [scan for scan in scans if scan.shard in complete.lacking]
    vouching = [scan for scan in scans if scan.damage is not None and scan.highest_synced_beyond() > complete.cycle]
    damaged = [scan for scan in scans if scan.damage is not None]
    return refused or lacking or vouching or damaged
