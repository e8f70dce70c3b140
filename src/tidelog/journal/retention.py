"""Retention: which segments may go, and who can prevent it.

A segment is erased when all of this holds:
- every snapshot that is kept covers it, strictly: the segment after it also has a record that they cover, and so holds
  a mark that is synced;
- no holder needs it;
- it is too old, or the journal behind the snapshots is too large, or the disk is nearly full.

A *holder* is anything that still wants to read: a follower, a feed, a reader. It holds everything after its `ts`. One
that does not move for too long, or for whose sake alone too much is kept, is let go, and told so at its next step.

Named holders outlive their connection, a restart and a failover: they are part of the state that the journal's records
make (`store/holds.py`), on followers as well. Only the leader lets one go, by a record like any other.

The erased-through ts is durable before the first segment is unlinked, so nobody is ever given a beginning that is gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple, Protocol

from tidelog import limits
from tidelog.errors import ClientError, Corruption, HolderLapsed, LimitExceeded
from tidelog.ids import U64_MAX, Lsn, ShardId, Ts
from tidelog.journal.segment import segment_bytes
from tidelog.journal.source import ShardSource
from tidelog.ports import Disk

NO_LIMIT: Final = 1 << 62
"""As bytes or as microseconds: more than there can be."""
NOTHING: Final = Ts(U64_MAX)
"""In the place of the lowest ts that is held."""


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


class Holder(NamedTuple):
    """Someone who still wants to read."""

    name: str
    ts: Ts
    """It needs every transaction after this one."""
    moved_us: int
    """When it last moved (wall clock)."""
    lapsed: str | None = None
    """Why it was let go."""
    epoch: int = 0
    """In which epoch it last moved (0: it never did) ..."""
    seen: Ts = Ts(0)
    """... and the newest transaction that it can have read then: lost history is noticed by that."""


class NamedHolders(Protocol):
    """The named ones (`store/holds.py`): state that the journal's records make, and that only records change."""

    @property
    def by_name(self) -> Mapping[str, Holder]: ...

    def take_replaced(self) -> Ts:
        """The lowest ts that one held before it moved, was let go or released, since this was last asked; `NOTHING` if
        none did."""


class Holders:
    """All holders of a data directory."""

    def __init__(self) -> None:
        self._passing: dict[str, Holder] = {}
        self._named: NamedHolders | None = None
        self._replaced = NOTHING
        """The lowest ts that a named one held before a change up to ..."""
        self._changed_ts = Ts(0)
        """... this transaction ..."""
        self._replaced_since = NOTHING
        """... and before a later one."""

    def set_named(self, named: NamedHolders) -> None:
        """The named ones, as recovery has found them. They go on changing, as records are applied."""
        self._named = named
        named.take_replaced()

    # --- those that pass ----------------------------------------------------------------------------------------

    def hold(self, name: str, ts: Ts, now_us: int) -> None:
        """Hold everything after `ts`; a holder of that name moves there, forwards or back, and is fresh again."""
        check_name(name)
        if name not in self._passing and len(self._passing) >= limits.HOLDERS_MAX:
            lapsed = first_lapsed(self._passing.values())
            if lapsed is None:
                raise LimitExceeded(f"there are {limits.HOLDERS_MAX} holders already")
            self.release(lapsed)  # it was let go, and never came to hear of it
        self._passing[name] = Holder(name, ts, now_us)

    def move(self, name: str, ts: Ts, now_us: int) -> None:
        """The holder has read up to `ts`."""
        holder = self.get(name)
        self._passing[name] = holder._replace(ts=max(holder.ts, ts), moved_us=now_us)

    def get(self, name: str) -> Holder:
        """The holder, or the reason why it no longer is one."""
        holder = self._passing.get(name)
        if holder is None:
            raise ClientError(f"there is no holder {name!r}")
        if holder.lapsed is not None:
            raise HolderLapsed(f"holder {name!r} was let go: {holder.lapsed}", reason=holder.lapsed)
        return holder

    def is_passing(self, name: str) -> bool:
        """Whether one that passes has this name, also if it was let go. A named one may have any name."""
        return name in self._passing

    def release(self, name: str) -> None:
        """It needs nothing any more; fine if it never was."""
        self._passing.pop(name, None)

    def let_go(self, lapsing: Iterable[Holder]) -> list[Holder]:
        """Those of them that pass are let go. The others are named, and are returned: it takes a record."""
        left: list[Holder] = []
        for holder in lapsing:
            if self._passing.get(holder.name) == holder._replace(lapsed=None):
                self._passing[holder.name] = holder
            else:
                left.append(holder)
        return left

    # --- all of them --------------------------------------------------------------------------------------------

    def all(self) -> list[Holder]:
        named = () if self._named is None else self._named.by_name.values()
        return sorted([*self._passing.values(), *named], key=lambda holder: holder.ts)

    def holding(self) -> list[Holder]:
        """Those that count, furthest behind first."""
        return [holder for holder in self.all() if holder.lapsed is None]

    def oldest_needed(self, durable_ts: Ts, last_ts: Ts) -> Ts | None:
        """The ts after which everything is needed; None: nothing is. `durable_ts`, `last_ts`: of the newest transaction
        that is durable, and of the newest.

        A crash may take back that a named one has moved, was let go or released. What it held before stays until its
        record is durable, or the reader would come back to a place that is gone.
        """
        if self._named is not None:
            self._replaced_since = min(self._replaced_since, self._named.take_replaced())
        if durable_ts >= last_ts:
            self._replaced = self._replaced_since = NOTHING
        elif durable_ts >= self._changed_ts:
            self._replaced, self._replaced_since, self._changed_ts = self._replaced_since, NOTHING, last_ts
        held = (holder.ts for holder in self.holding())
        needed = min(self._replaced, self._replaced_since, *held)
        return None if needed == NOTHING else needed


def check_name(name: str) -> None:
    """`LimitExceeded` unless a holder may be called so."""
    if not name or len(name.encode()) > limits.HOLDER_NAME_BYTES_MAX:
        raise LimitExceeded(f"a holder's name has 1 to {limits.HOLDER_NAME_BYTES_MAX} bytes")


def first_lapsed(holders: Iterable[Holder]) -> str | None:
    """The name of the one that is furthest behind of those that were let go."""
    lapsed = min((each for each in holders if each.lapsed is not None), key=lambda each: each.ts, default=None)
    return None if lapsed is None else lapsed.name


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


def list_lapsing(
    erasable: Sequence[Segment], holding: Sequence[Holder], bounds: RetentionLimits, now_us: int
) -> list[Holder]:
    """Those of the holders (furthest behind first) that are past their limits, each with the reason."""
    lapsing: list[Holder] = []
    moving: list[Holder] = []
    for holder in holding:
        if now_us - holder.moved_us > bounds.holder_lapse_us:
            lapsing.append(holder._replace(lapsed=f"it did not move for {bounds.holder_lapse_us / 1e6:.0f} s"))
        else:
            moving.append(holder)
    wanted = _past_limits(erasable, bounds, now_us)
    for holder in moving:
        if sum(segment.size for segment in wanted if segment.last_ts > holder.ts) <= bounds.holder_bytes_max:
            break  # those further ahead hold less
        reason = f"more than {bounds.holder_bytes_max} bytes of journal were kept for it"
        lapsing.append(holder._replace(lapsed=reason))
    return lapsing


def plan_erasure(
    erasable: Sequence[Segment], needed: Ts | None, bounds: RetentionLimits, now_us: int, needed_bytes: int = 0
) -> list[Segment]:
    """Which of the erasable segments go now. `needed`: the ts after which holders need everything; None: they do not.

    `needed_bytes`: how much room the disk lacks. For its sake more segments go than the limits say, oldest first and no
    more than it takes.

    The answer is a prefix of `erasable`, which is in order of time: so it is a prefix of every shard's segments, and
    one ts says what is gone.
    """
    wanted = _past_limits(erasable, bounds, now_us)
    wanted = list(erasable[: max(len(wanted), _count_freeing(erasable, needed_bytes))])
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
