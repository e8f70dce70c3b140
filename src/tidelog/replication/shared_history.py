"""Whether what another server has lies on the history here, and if not, where the two part.

Two servers compare epochs first. An epoch's id is drawn by the process that begins it, so an epoch that both know is
one that both have lived through, with everything before it:

    here     E1 ── E2 ──────────── E3 ───────►        E2 is the newest that both know
    there    E1 ── E2 ─────┬─────►                    shared, if its end lies at or before the beginning of our E3
                           └─ E4 ►                    diverged: where E3 or E4 began, whichever was first

Inside an epoch one process has written, so of two positions one is a prefix of the other, and its lsns and `ts` must be
found here exactly: per shard, the number of records up to the `ts` of the last transaction is the lsn, and the record
before has the `ts` that is claimed. Nothing else is believed of a peer.

Whoever goes back to where it has diverged makes progress: that lies below its position, or it knows epochs that it has
to forget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from tidelog.errors import TooOld
from tidelog.ids import Lsn, Ts
from tidelog.journal.control import Epoch
from tidelog.journal.durability import Visible
from tidelog.journal.readable import ReadableJournal
from tidelog.replication.message import HistoryPosition, ShardEnd


@dataclass(frozen=True, slots=True)
class Shared:
    """The position lies on our history, and the journal has all that follows."""

    next_epoch: int
    """Index of the first of our epochs that the other does not know."""


@dataclass(frozen=True, slots=True)
class Diverged:
    """The other has transactions that are not of our history."""

    since: Ts
    """Up to here, both are the same ..."""
    epoch: int
    """... and up to the end of this epoch or less: later ones that the other knows are not ours."""
    is_newer: bool
    """It has gone on from our newest epoch to another one: somebody else was made leader after us."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """The other has more than is visible here, in our newest epoch. Whether all that is here is on its history, only it
    can say, by a comparison of its own."""


@dataclass(frozen=True, slots=True)
class Erased:
    """The journal no longer has all that follows the position."""

    oldest: Ts
    """From here on, it has."""


@dataclass(frozen=True, slots=True)
class Unrelated:
    """Nothing shows that lsns mean the same here and there."""

    problem: str


_NO_EPOCH: Final = Epoch(0, (), Ts(0))

HistoryComparison: TypeAlias = Shared | Diverged | Ahead | Erased | Unrelated


def own_position(journal: ReadableJournal) -> HistoryPosition:
    """The end of what is visible, with what proves it. It walks a frame of each shard."""
    visible = journal.writer.visible
    ends = [ShardEnd(lsn, _ts_before(journal, visible, shard, lsn)) for shard, lsn in enumerate(visible.lsns)]
    return HistoryPosition(visible.ts, tuple(ends))


def _ts_before(journal: ReadableJournal, visible: Visible, shard: int, lsn: Lsn) -> Ts | None:
    """The ts of the record before an lsn (0: there is none); None: not known."""
    return journal.ask_places(visible, shard, lambda places: places.ts_of(Lsn(lsn - 1))) if lsn else Ts(0)


def compare(journal: ReadableJournal, epochs: Sequence[Epoch], position: HistoryPosition) -> HistoryComparison:
    """Where a server with these epochs and this position stands. It reads a frame of each shard, or a few."""
    shard_count, visible = journal.meta.shard_count, journal.writer.visible
    if len(position.shards) != shard_count:
        return Unrelated(f"it has {len(position.shards)} shards, and there are {shard_count} here")
    common, next_epoch = _NO_EPOCH, 0
    if epochs:
        found = _newest_common(journal.epochs, epochs)
        if found is None:
            return Unrelated("no epoch is known both here and there")
        next_epoch, theirs = found[0] + 1, found[1]
        common = journal.epochs[found[0]]
        parted = _compare_epochs(journal, next_epoch, epochs[theirs:], position)
        if parted is not None:
            return parted
    elif any(position.lsns) or position.ts:
        return Unrelated("it knows no epoch of its history")
    if position.ts < journal.erased_ts:
        return Erased(journal.erased_ts)
    if position.ts > visible.ts:
        if all(there >= here for there, here in zip(position.lsns, visible.lsns, strict=True)):
            return Ahead()
        return _parted_inside(common, position, "its lsns and its ts contradict each other")
    try:
        problem = _find_difference(journal, position)
    except TooOld as error:
        problem = str(error)
    if problem is None:
        return Shared(next_epoch)
    if position.ts < journal.erased_ts:  # another thread has erased it while we looked
        return Erased(journal.erased_ts)
    return _parted_inside(common, position, problem)


def _newest_common(ours: Sequence[Epoch], theirs: Sequence[Epoch]) -> tuple[int, int] | None:
    """The indexes of the newest epoch that both know, here and there."""
    index_of = {epoch.id: index for index, epoch in enumerate(ours)}
    for index in range(len(theirs) - 1, -1, -1):
        if theirs[index].id in index_of:
            return index_of[theirs[index].id], index
    return None


def _compare_epochs(
    journal: ReadableJournal, next_epoch: int, theirs: Sequence[Epoch], position: HistoryPosition
) -> HistoryComparison | None:
    """What the epochs alone tell; `theirs` begins with the newest that both know. None: nothing against it."""
    common = journal.epochs[next_epoch - 1]
    after = journal.epochs[next_epoch] if next_epoch < len(journal.epochs) else None
    if common != theirs[0]:
        return Unrelated(f"epoch {common.id} begins at lsns {common.lsns} here and at {theirs[0].lsns} there")
    if any(lsn < first for lsn, first in zip(position.lsns, common.lsns, strict=True)):
        return Unrelated(f"it knows epoch {common.id} and has less than all before it")
    if len(theirs) > 1:
        end = journal.writer.visible.ts if after is None else after.last_ts
        return Diverged(min(end, theirs[1].last_ts, position.ts), common.id, is_newer=after is None)
    if after is None:
        return None
    if position.ts > after.last_ts:
        return Diverged(after.last_ts, common.id, is_newer=False)
    if any(lsn > first for lsn, first in zip(position.lsns, after.lsns, strict=True)):
        return Unrelated(f"its lsns lie behind the beginning of epoch {after.id}, and its ts does not")
    return None


def _parted_inside(common: Epoch, position: HistoryPosition, problem: str) -> Diverged | Unrelated:
    """Two servers have gone on in one epoch, as if a directory had been copied: go back to its beginning."""
    return Diverged(common.last_ts, common.id, is_newer=False) if common.last_ts < position.ts else Unrelated(problem)


def _find_difference(journal: ReadableJournal, position: HistoryPosition) -> str | None:
    """What of a position is not as it is here; None: it is found here exactly."""
    visible = journal.writer.visible
    behind = journal.records_after(position.ts)
    for shard, (lsn, ts) in enumerate(position.shards):
        here = visible.lsns[shard] - behind[shard]
        if lsn != here:
            return f"shard {shard} has {here} records up to ts {position.ts} here, and {lsn} there"
        found = _ts_before(journal, visible, shard, lsn)
        if ts is not None and found is not None and ts != found:
            return f"record {lsn - 1} of shard {shard} has ts {found} here, and {ts} there"
    return None
