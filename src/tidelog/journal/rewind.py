"""Going back: what a former leader has beyond the history of the new one is set aside, and then cut.

    plan     read only: the newest complete cycle that is shared, or `NoWayBack`
    aside    everything after it is written to `diverged-<since>.partial` as a journal of its own (`excerpt`), and node
             files that snapshots from after it list get second names there, so that they stay readable
    intent   `rewind-unfinished` says where each shard is to be cut; from here on there is no way but forward
    finish   the folder gets its name, snapshots from after the cut are moved into it, and the shards are cut
    done     the file with the intent is renamed to `rewound.json`

History can only be cut where a cycle ends. So a few transactions at or below `since` may be set aside with the others,
if they were written together: the leader sends them again.

A crash before the intent leaves a directory that opens as before, and a half-made folder, which the next start or
rewind removes. After it, whoever comes next finishes first: a start, another rewind or a repair. Every step can be
repeated. A rewind that is asked for again, and after which nothing was written, answers what it answered before.

The stop before it no longer counts as a clean one: who goes on from here as a leader begins an epoch.
"""

from __future__ import annotations

import contextlib
import errno
import posixpath
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from tidelog.errors import Corruption, DataDirectoryError, NoWayBack
from tidelog.hlc import mark_unclean, read_stored_ts
from tidelog.ids import Cycle, Lsn, Ts
from tidelog.journal import layout
from tidelog.journal.beginning import has_beginning
from tidelog.journal.control import Epoch
from tidelog.journal.cycles import CompleteCycle
from tidelog.journal.excerpt import Excerpt, write_excerpt
from tidelog.journal.layout import Meta
from tidelog.journal.loader import RecoveryPlan, cut_tails, plan_recovery_from
from tidelog.journal.scan import IsKnown, ValidMark
from tidelog.journal.segment import FilePosition
from tidelog.journal.snapshot import Snapshot, list_snapshot_paths, newest_snapshot, open_snapshot, remove_tree
from tidelog.journal.snapshot_nodes import keep_listed
from tidelog.journal.tail import TornTail, set_aside_tail
from tidelog.ports import Disk

_PARTIAL: Final = re.compile(r"diverged-[0-9]+(?:-[0-9]+)?\.partial")


class Rewound(NamedTuple):
    """What a rewind has set aside, and where history ends now."""

    path: str
    """The folder; empty: there was nothing to set aside."""
    records: int
    """After `since`, as all below: what else is in the folder, the leader has too."""
    size_bytes: int
    """Of the journal in the folder."""
    first_ts: Ts
    last_ts: Ts
    """Of the oldest and the newest transaction; 0: there was none."""
    ends_ts: Ts
    """Of the last transaction that is still here."""

    def __str__(self) -> str:
        if not self.path:
            return f"nothing to set aside; history ends at ts {self.ends_ts}"
        span = f" (ts {self.first_ts} to {self.last_ts})" if self.records else ""
        return f"{self.records} records{span} set aside in {self.path}; history ends at ts {self.ends_ts}"


def rewind(disk: Disk, folder: str, since: Ts, epoch: int, is_known: IsKnown | None = None) -> Rewound:
    """Go back to where a directory that nobody has open shares its history with another.

    Transactions after `since` are not shared, nor are epochs after the one with the id `epoch` (0: none is).
    `NoWayBack`: the directory does not reach back as far, and nothing was changed.
    """
    folder = posixpath.normpath(folder)
    meta = layout.read_meta(disk, folder)
    if meta.point is not None:
        raise DataDirectoryError(f"{folder} is a snapshot: it holds no history to go back in")
    lock = layout.lock_directory(disk, folder)
    try:
        finish_rewind(disk, folder, meta)
        return _Rewind(disk, folder, meta, since, epoch, is_known).run()
    finally:
        lock.release()


class _Shared:
    """Tells where in the journal the shared history ends, and gathers the epochs up to there."""

    def __init__(self, since: Ts | None, forgotten: frozenset[int]) -> None:
        self._since = since
        """None: everything is shared."""
        self._forgotten = forgotten
        self.epochs: dict[int, Epoch] = {}
        self.is_over = False

    def is_beyond(self, marks: Sequence[ValidMark]) -> bool:
        begun = {epoch.id: epoch for found in marks for epoch in found.epochs}
        last_ts = marks[0].mark.last_ts
        self.is_over = (self._since is not None and last_ts > self._since) or not self._forgotten.isdisjoint(begun)
        if not self.is_over:
            self.epochs.update(begun)
        return self.is_over

    def begin_with(self, snapshot: Snapshot, disk: Disk) -> bool:
        """Take over the epochs of a snapshot; false: some of them are not shared."""
        self.epochs = {epoch.id: epoch for epoch in snapshot.epochs(disk)}
        return self._forgotten.isdisjoint(self.epochs)


class _Rewind:
    """One run of `rewind`."""

    def __init__(self, disk: Disk, folder: str, meta: Meta, since: Ts, epoch: int, is_known: IsKnown | None) -> None:
        self._disk = disk
        self._folder = folder
        self._meta = meta
        self._since = since
        self._epoch = epoch
        self._is_known = is_known

    def run(self) -> Rewound:
        layout.check_shard_metas(self._disk, self._folder, self._meta)
        newest = newest_snapshot(self._disk, self._folder)
        everything = _Shared(None, frozenset())
        if newest is not None:
            everything.begin_with(newest, self._disk)
        now = self._plan(newest, everything)
        done = self._done_before(now)
        if done is not None:
            return done
        shared = _Shared(self._since, self._forgotten(list(everything.epochs)))
        back = self._way_back(shared, now)
        if back.complete.cycle == now.complete.cycle:
            return Rewound("", 0, 0, Ts(0), Ts(0), back.last_ts)
        members = self._intent(back)
        self._cut_torn_tail(now)
        self._set_aside(back, now, list(shared.epochs), members)
        done = finish_rewind(self._disk, self._folder, self._meta)
        assert done is not None
        return done

    def _plan(self, snapshot: Snapshot | None, shared: _Shared) -> RecoveryPlan:
        return plan_recovery_from(self._disk, self._folder, self._meta, snapshot, self._is_known, shared.is_beyond)

    def _done_before(self, now: RecoveryPlan) -> Rewound | None:
        """What this rewind did when it was asked for before, if nothing was written since."""
        try:
            members = layout.read_json(self._disk, f"{self._folder}/{layout.REWOUND}")
        except (Corruption, FileNotFoundError):
            return None
        asked = members["since"], members["epoch"]
        is_same = asked == (self._since, self._epoch) and members["cycle"] == now.complete.cycle
        return _rewound(self._folder, members) if is_same and tuple(members["lsns"]) == now.lsns else None

    # --- how far back -------------------------------------------------------------------------------------------

    def _forgotten(self, known: list[int]) -> frozenset[int]:
        """The ids of the epochs that are not shared."""
        if not self._epoch:
            return frozenset(known)
        if self._epoch not in known:
            raise NoWayBack(f"{self._folder} does not know epoch {self._epoch}, up to which it is to go back")
        return frozenset(known[known.index(self._epoch) + 1 :])

    def _way_back(self, shared: _Shared, now: RecoveryPlan) -> RecoveryPlan:
        """The newest cycle that is shared, from a snapshot that is. `shared` gets the epochs up to there."""
        snapshot = self._newest_shared_snapshot(shared)
        try:
            plan = self._plan(snapshot, shared)
        except Corruption as error:
            raise NoWayBack(f"{self._folder} cannot go back to ts {self._since}: {error}") from error
        if not shared.is_over and plan.complete.cycle != now.complete.cycle:
            raise NoWayBack(
                f"{self._folder} cannot go back to ts {self._since}: its journal is not whole after cycle "
                f"{plan.complete.cycle}"
            )
        return plan

    def _newest_shared_snapshot(self, shared: _Shared) -> Snapshot | None:
        """None: the journal itself goes back to the beginning."""
        for path in reversed(list_snapshot_paths(self._disk, self._folder)):
            with contextlib.suppress(Corruption):  # then an older one has to do
                snapshot = open_snapshot(self._disk, path)
                if snapshot.point.ts <= self._since and shared.begin_with(snapshot, self._disk):
                    snapshot.check(self._disk, is_known=self._is_known)
                    return snapshot
        shared.epochs = {}
        if not has_beginning(self._disk, self._folder, self._meta.shard_count):
            raise NoWayBack(f"{self._folder} has no whole snapshot at or below ts {self._since}, and no journal before")
        return None

    def _stored_ts(self, name: str) -> Ts:
        if not self._disk.exists(f"{self._folder}/{name}"):
            return Ts(0)
        stored = read_stored_ts(self._disk, self._folder, name)
        return Ts(0) if stored is None else stored.ts

    # --- what is set aside --------------------------------------------------------------------------------------

    def _cut_torn_tail(self, now: RecoveryPlan) -> None:
        """What a crash has torn was never history: it goes where a start puts it."""
        cut_tail = set_aside_tail(self._disk, self._folder, now.tail, now.complete.cycle, now.cuts)
        cut_tails(self._disk, self._folder, self._meta, now, None if cut_tail is None else cut_tail.path)

    def _intent(self, back: RecoveryPlan) -> dict[str, Any]:
        """All that is left to do after the copy, so that nobody has to find it out again."""
        self._stored_ts(layout.CLOCK)  # a damaged one is refused now, and not half-way
        kept = back.snapshot.path if back.snapshot is not None else ""
        return {
            "since": self._since,
            "epoch": self._epoch,
            "cycle": back.complete.cycle,
            "lsns": list(back.lsns),
            "cuts": _to_json(back.cuts),
            "synced_places": _to_json(back.complete.synced_places),
            "snapshots": [
                posixpath.basename(path) for path in list_snapshot_paths(self._disk, self._folder) if path > kept
            ],
            "ends_ts": back.last_ts,
        }

    def _set_aside(self, back: RecoveryPlan, now: RecoveryPlan, known: list[int], members: dict[str, Any]) -> None:
        """Copy what is about to be cut; afterwards the intent is durable."""
        excerpt, name = Excerpt(0, Ts(0), Ts(0), 0), ""
        try:
            if now.lsns != back.lsns or members["snapshots"]:
                name = self._free_name()
                target = _partial(self._folder, name)
                excerpt = write_excerpt(self._disk, self._folder, self._meta, back, now, known, target, self._since)
                self._keep_nodes(members["snapshots"], target)
            members |= {"aside": name, **excerpt._asdict()}
            layout.write_json(self._disk, f"{self._folder}/{layout.REWINDING}", members)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            _remove_half_made(self._disk, self._folder)
            raise DataDirectoryError(
                f"there is no space in {self._folder} to set aside what it has after ts {self._since}: make room, or "
                f"move folders that begin with diverged- elsewhere"
            ) from error

    def _keep_nodes(self, snapshots: list[str], target: str) -> None:
        """What snapshots that are about to be moved list; one that cannot be read keeps nothing."""
        for name in snapshots:
            with contextlib.suppress(Corruption):
                snapshot = open_snapshot(self._disk, f"{self._folder}/{layout.SNAPSHOTS}/{name}")
                keep_listed(self._disk, self._folder, snapshot, target)

    def _free_name(self) -> str:
        name, number = f"diverged-{self._since}", 1
        while self._disk.exists(f"{self._folder}/{name}"):
            number += 1
            name = f"diverged-{self._since}-{number}"
        return name


# --- what can be repeated ---------------------------------------------------------------------------------------------


def finish_rewind(disk: Disk, folder: str, meta: Meta) -> Rewound | None:
    """Finish a rewind that was cut short; None: there is none. The caller has the lock."""
    # Whoever made the intent, or did away with it, may have been killed before that was durable. It must not vanish
    # while we cut, nor come back after something new was written.
    disk.sync_folder(folder)
    unfinished = f"{folder}/{layout.REWINDING}"
    if not disk.exists(unfinished):
        _remove_half_made(disk, folder)
        return None
    members = layout.read_json(disk, unfinished)
    _move_aside(disk, folder, members)
    mark_unclean(disk, folder, layout.CLOCK)
    cut_tails(disk, folder, meta, _plan_of(members))
    disk.rename(unfinished, f"{folder}/{layout.REWOUND}")
    disk.sync_folder(folder)
    return _rewound(folder, members)


def _move_aside(disk: Disk, folder: str, members: dict[str, Any]) -> None:
    """Give the folder its name, and move the snapshots into it."""
    name = members["aside"]
    if not name:
        return
    if disk.exists(_partial(folder, name)):
        disk.rename(_partial(folder, name), f"{folder}/{name}")
    if not members["snapshots"]:
        return
    parent, target = f"{folder}/{layout.SNAPSHOTS}", f"{folder}/{name}/{layout.SNAPSHOTS}"
    disk.make_folder(target)
    disk.sync_folder(f"{folder}/{name}")
    for snapshot in reversed(members["snapshots"]):
        if disk.exists(f"{parent}/{snapshot}"):
            disk.rename(f"{parent}/{snapshot}", f"{target}/{snapshot}")
        disk.sync_folder(target)
        disk.sync_folder(parent)


def _partial(folder: str, name: str) -> str:
    return f"{folder}/{name}.partial"


def _remove_half_made(disk: Disk, folder: str) -> None:
    """Remove copies that crashes left half-made: nothing was cut for them."""
    half_made = [name for name in disk.list(folder) if _PARTIAL.fullmatch(name)]
    for name in half_made:
        remove_tree(disk, f"{folder}/{name}")
    if half_made:
        disk.sync_folder(folder)


def _rewound(folder: str, members: dict[str, Any]) -> Rewound:
    path = f"{folder}/{members['aside']}" if members["aside"] else ""
    ts = Ts(members["first_ts"]), Ts(members["last_ts"]), Ts(members["ends_ts"])
    return Rewound(path, members["records"], members["size_bytes"], *ts)


def _to_json(places: Sequence[FilePosition | None]) -> list[list[int] | None]:
    return [None if place is None else list(place) for place in places]


def _from_json(places: list[list[int] | None]) -> tuple[FilePosition | None, ...]:
    return tuple(None if place is None else FilePosition(Lsn(place[0]), place[1]) for place in places)


def _plan_of(members: dict[str, Any]) -> RecoveryPlan:
    """As much of a plan as it takes to cut."""
    lsns = tuple(map(Lsn, members["lsns"]))
    cycle, places = Cycle(members["cycle"]), _from_json(members["synced_places"])
    complete = CompleteCycle(cycle, Ts(members["ends_ts"]), lsns, (None,) * len(lsns), cycle, places)
    return RecoveryPlan(None, complete, _from_json(members["cuts"]), lsns, TornTail())
