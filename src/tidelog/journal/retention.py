"""Retention: which segments may go, and who can prevent it.

A segment is erased when all of this holds:
- every snapshot that is kept covers it, strictly: the segment after it also has a record that they cover, and so holds
  a mark that is synced;
- no holder needs it;
- it is too old, or the journal behind the snapshots is too large, or the disk is nearly full.

A *holder* is anything that still wants to read: a follower, a feed, a reader. It holds everything after its `ts`. One
that does not move for too long, or for whose sake alone too much is kept, is let go, and told so at its next step.
Named holders are durable: they outlive their connection and a restart.

The erased-through ts is durable before the first segment is unlinked, so nobody is ever given a beginning that is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

from tidelog import limits
from tidelog.errors import ClientError, Corruption, HolderLapsed, LimitExceeded
from tidelog.ids import Lsn, ShardId, Ts
from tidelog.journal.layout import HOLDERS, read_json, write_json
from tidelog.journal.segment import segment_bytes
from tidelog.journal.source import ShardSource
from tidelog.ports import Disk

NO_LIMIT: Final = 1 << 62
"""As bytes or as microseconds: more than there can be."""


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """What an operator may set."""

    bytes_max: int = limits.RETAIN_BYTES
    """Journal that is kept although the snapshots cover it."""
    age_max_us: int = limits.RETAIN_AGE_US
    holder_lapse_us: int = limits.HOLDER_LAPSE_US
    holder_bytes_max: int = limits.HOLDER_BYTES_MAX
    snapshots_kept: int = limits.SNAPSHOTS_KEPT


class Segment(NamedTuple):
    """A segment that is followed by another."""

    shard: ShardId
    first: Lsn
    end: Lsn
    """The first lsn of the segment after it."""
    last_ts: Ts
    """No transaction that begins in it is younger."""
    size: int
    """With its blobs."""


@dataclass(slots=True)
class Holder:
    """Someone who still wants to read."""

    name: str
    ts: Ts
    """It needs every transaction after this one."""
    moved_us: int
    """When it last moved (wall clock)."""
    is_durable: bool
    lapsed: str | None = None
    """Why it was let go."""
    epoch: int = 0
    """In which epoch it last moved (0: it never did) ..."""
    seen: Ts = Ts(0)
    """... and the newest transaction that it can have read then: lost history is noticed by that."""


class Holders:
    """All holders of a data directory."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._path = f"{folder}/{HOLDERS}"
        self._holders: dict[str, Holder] = {}
        self._is_stored = True
        """The file has the durable ones as they are here; false after it could not be written."""
        if disk.exists(self._path):
            for stored in read_json(disk, self._path)["holders"]:
                holder = Holder(stored["name"], Ts(stored["ts"]), stored["moved_us"], True, stored["lapsed"])
                holder.epoch, holder.seen = stored.get("epoch", 0), Ts(stored.get("seen", 0))
                self._holders[holder.name] = holder

    def hold(self, name: str, ts: Ts, now_us: int, *, durable: bool = False) -> Holder:
        """Hold everything after `ts`; a holder of that name moves there, forwards or back, and is fresh again."""
        if not name or len(name.encode()) > limits.HOLDER_NAME_BYTES_MAX:
            raise LimitExceeded(f"a holder's name has 1 to {limits.HOLDER_NAME_BYTES_MAX} bytes")
        if name not in self._holders and len(self._holders) >= limits.HOLDERS_MAX:
            lapsed = [each.name for each in self.all() if each.lapsed is not None]
            if not lapsed:
                raise LimitExceeded(f"there are {limits.HOLDERS_MAX} holders already")
            self.release(lapsed[0])  # it was let go, and never came to hear of it
        before = self._holders.get(name)
        holder = self._holders[name] = Holder(name, ts, now_us, durable)
        if durable or (before is not None and before.is_durable):  # the file must not bring the old one back
            self._store()
        return holder

    def __contains__(self, name: object) -> bool:
        return name in self._holders

    def move(self, name: str, ts: Ts, now_us: int, epoch: int = 0, seen: Ts = Ts(0)) -> None:
        """The holder has read up to `ts`: in this epoch, and no transaction after `seen`."""
        holder = self.get(name)
        holder.ts, holder.moved_us = max(holder.ts, ts), now_us
        holder.epoch, holder.seen = epoch, seen
        if holder.is_durable:
            self._store()

    def get(self, name: str) -> Holder:
        """The holder, or the reason why it no longer is one."""
        holder = self._holders.get(name)
        if holder is None:
            raise ClientError(f"there is no holder {name!r}")
        if holder.lapsed is not None:
            raise HolderLapsed(f"holder {name!r} was let go: {holder.lapsed}", reason=holder.lapsed)
        return holder

    def release(self, name: str) -> None:
        """It needs nothing any more; fine if it never was."""
        holder = self._holders.pop(name, None)
        if holder is not None and holder.is_durable:
            self._store()

    def rename(self, name: str, to: str) -> None:
        """Call a holder otherwise."""
        holder = self._holders[to] = self._holders.pop(name)
        holder.name = to
        if holder.is_durable:
            self._store()

    def all(self) -> list[Holder]:
        return sorted(self._holders.values(), key=lambda holder: holder.ts)

    def holding(self) -> list[Holder]:
        """Those that count, furthest behind first."""
        return [holder for holder in self.all() if holder.lapsed is None]

    def lapse(self, holders: Iterable[Holder], reason: str) -> None:
        for holder in holders:
            holder.lapsed = reason
            if holder.is_durable:
                self._store()

    def settle(self) -> None:
        """Make sure that a restart finds the holders as they are here; before anything is erased for it."""
        if not self._is_stored:
            self._store()

    def _store(self) -> None:
        self._is_stored = False
        write_json(self._disk, self._path, self.members())
        self._is_stored = True

    def members(self, moved_us: int | None = None) -> dict[str, Any]:
        """The durable ones, as files have them; with a time, as if all had moved then."""
        return {
            "holders": [
                {
                    "name": holder.name,
                    "ts": holder.ts,
                    "moved_us": holder.moved_us if moved_us is None else moved_us,
                    "lapsed": holder.lapsed,
                    **({"epoch": holder.epoch, "seen": holder.seen} if holder.epoch else {}),
                }
                for holder in self.all()
                if holder.is_durable
            ]
        }


def list_erasable(disk: Disk, sources: Sequence[ShardSource], covered: Sequence[Lsn]) -> list[Segment]:
    """The segments that snapshots cover (`covered`: the lsns up to which the oldest kept one does), oldest first.

    What is erased cannot be had again, so a head counts only if it is proved: a shard's list ends at the first that is
    damaged, and nothing behind it goes.
    """
    found: list[Segment] = []
    for source in sources:
        last_ts = Ts(0)
        for first, after in pairwise(source.segments()):
            if after >= covered[source.shard]:
                break
            try:
                header = source.proved_header(after)
            except Corruption:
                break
            if header.ts < last_ts:
                break
            last_ts = header.ts
            size = sum(segment_bytes(disk, source.folder, first))
            found.append(Segment(source.shard, first, after, last_ts, size))
    return sorted(found, key=lambda segment: (segment.last_ts, segment.shard, segment.first))


def plan_erasure(
    erasable: Sequence[Segment], holders: Holders, bounds: RetentionLimits, now_us: int, needed_bytes: int = 0
) -> list[Segment]:
    """Which of the erasable segments go now; lets go of holders that are past their limits.

    `needed_bytes`: how much room the disk lacks. For its sake more segments go than the limits say, oldest first and no
    more than it takes; but no holder is let go.

    The answer is a prefix of `erasable`, which is in order of time: so it is a prefix of every shard's segments, and
    one ts says what is gone.
    """
    wanted = _past_limits(erasable, bounds, now_us)
    stalled = [holder for holder in holders.holding() if now_us - holder.moved_us > bounds.holder_lapse_us]
    holders.lapse(stalled, f"it did not move for {bounds.holder_lapse_us / 1e6:.0f} s")
    for holder in holders.holding():
        held = [segment for segment in wanted if segment.last_ts > holder.ts]
        if sum(segment.size for segment in held) <= bounds.holder_bytes_max:
            break  # those further ahead hold less
        holders.lapse([holder], f"more than {bounds.holder_bytes_max} bytes of journal were kept for it")
    holders.settle()
    wanted = list(erasable[: max(len(wanted), _count_freeing(erasable, needed_bytes))])
    needed = min((holder.ts for holder in holders.holding()), default=None)
    if needed is None:
        return wanted
    kept = next((index for index, segment in enumerate(wanted) if segment.last_ts > needed), len(wanted))
    return wanted[:kept]


def _past_limits(erasable: Sequence[Segment], bounds: RetentionLimits, now_us: int) -> list[Segment]:
    """The shortest prefix whose absence satisfies the limits on bytes and age."""
    total = sum(segment.size for segment in erasable)
    count = 0
    for index, segment in enumerate(erasable):
        if total > bounds.bytes_max or now_us - segment.last_ts > bounds.age_max_us:
            count = index + 1
        total -= segment.size
    return list(erasable[:count])


def _count_freeing(erasable: Sequence[Segment], needed_bytes: int) -> int:
    """How many of the oldest must go to free so much; all, if they do not."""
    freed = count = 0
    while freed < needed_bytes and count < len(erasable):
        freed += erasable[count].size
        count += 1
    return count
