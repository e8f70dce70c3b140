"""A new database that begins with any moment of a copy: what that takes, and doing it.

    plan       from a manifest alone: the lineage that shows the moment, the snapshot to begin with, what is fetched
    restore    `store.restore` on that lineage, as if it were a directory of this machine
    fetch      the files of the newest moment as they are, without those of old nodes: a server reads them in the copy

What was announced to go stays for a day, so a restore that takes less than that finds all its files. If one is gone all
the same, the newest manifest says whether retention has taken it, or the copy is damaged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from tidelog import limits
from tidelog.errors import Corruption, DataDirectoryError, ObjectGone
from tidelog.ids import Lsn, Ts
from tidelog.journal.node_format import shard_of_inner_path
from tidelog.journal.segment import owner_of
from tidelog.ports import Disk, ObjectStore
from tidelog.shipping.fetch import FilePlan, LeftBehind, RunAll, fetch_directory, plan_files
from tidelog.shipping.lineage import Lineage
from tidelog.shipping.manifest import Manifest
from tidelog.shipping.manifest_log import ManifestLog
from tidelog.shipping.moments import lineage_at
from tidelog.shipping.shipped_disk import FetchAhead, Scratch, ShippedDisk
from tidelog.store.restore import OnProgress, Restored, restore
from tidelog.store.store import Store

_ROOT: Final = "/shipped"
_NODES: Final = "nodes"
PARTS: Final = ("snapshot", _NODES, "journal", "other")


class PartPlan(NamedTuple):
    """What is fetched of one kind of files, at most."""

    part: str
    """One of `PARTS`."""
    files: int
    objects: int
    size: int


class RestorePlan(NamedTuple):
    """What a restore of one moment begins with."""

    manifest: Manifest
    lineage: Lineage
    until: Ts
    """The last ts that is taken."""
    snapshot_ts: Ts
    """Of the snapshot that it begins with; 0: the journal has everything."""
    parts: tuple[PartPlan, ...]
    left: PartPlan | None = None
    """What stays in the copy, if something is to."""


def plan_restore(manifest: Manifest, at: Ts | None) -> RestorePlan:
    """For a moment (None: the newest). `DataDirectoryError`: the copy does not cover it. Nothing is fetched."""
    lineage, until = lineage_at(manifest, at)
    if not until and lineage.ts:
        raise DataDirectoryError(f"database {manifest.database_id} has nothing as old as ts {at}")
    snapshot_ts = max((ts for ts in lineage.snapshots if ts <= until), default=Ts(0))
    files: dict[str, list[FilePlan]] = {part: [] for part in PARTS}
    for plan in _needed(lineage, until):
        files[_part(plan.path)].append(plan)
    parts = tuple(
        PartPlan(
            part,
            len(plans),
            len({extent.object for plan in plans for extent in plan.extents}),
            sum(min(extent.end, plan.size) - extent.position for plan in plans for extent in plan.extents),
        )
        for part, plans in files.items()
    )
    return RestorePlan(manifest, lineage, until, snapshot_ts, parts)


def plan_lazy(plan: RestorePlan) -> RestorePlan:
    """The same, with node files left in the copy. `DataDirectoryError`: they have to be written anew."""
    if plan.until != plan.lineage.ts:
        raise DataDirectoryError(
            f"ts {plan.until} is not the last moment of its lineage (ts {plan.lineage.ts}): what came after it has to "
            f"be taken out, so old entries of streams are written anew and cannot stay in the copy. Leave out --lazy, "
            f"or leave out --at to restore the newest moment"
        )
    [left] = [part for part in plan.parts if part.part == _NODES]
    return plan._replace(parts=tuple(part for part in plan.parts if part is not left), left=left)


def _needed(lineage: Lineage, until: Ts) -> Iterator[FilePlan]:
    """The files of a moment. The next snapshot after it says in which segments the journal had got no further."""
    later = min((ts for ts in lineage.snapshots if ts >= until), default=None)
    ends = None if later is None else lineage.snapshots[later].lsns
    for plan in plan_files(lineage, until):
        folder, _, name = plan.path.rpartition("/")
        segment = owner_of(name) if folder.startswith("shard-") else None
        if segment is None or ends is None or segment < ends[int(folder.removeprefix("shard-"))] or segment == Lsn(0):
            yield plan


def _part(path: str) -> str:
    if path.startswith("snapshots/"):
        return "snapshot"
    if shard_of_inner_path(path) is not None:
        return _NODES
    is_journal = path.startswith("shard-") and owner_of(path.rpartition("/")[2]) is not None
    return "journal" if is_journal else "other"


def restore_shipped(
    disk: Disk,
    store: Store,
    objects: ObjectStore,
    plan: RestorePlan,
    target: str,
    *,
    shard_count: int | None = None,
    on_progress: OnProgress | None = None,
    fetch_ahead: FetchAhead | None = None,
    scratch: Scratch | None = None,
) -> Restored:
    """Fill a new directory, which is a database of its own. `store` is an empty one without a journal."""
    database_id = plan.manifest.database_id
    source = ShippedDisk(objects, database_id, plan.lineage, _ROOT, fetch_ahead, scratch=scratch)
    with _explained(objects, plan):
        return restore(
            disk,
            store,
            _ROOT,
            target,
            shard_count=shard_count,
            until=plan.until if plan.lineage.ts else None,  # nothing was ever written
            on_progress=on_progress,
            source_disk=source,
            will_read=source.will_read if fetch_ahead is not None else None,
        )


def fetch_shipped(
    disk: Disk,
    objects: ObjectStore,
    plan: RestorePlan,
    target: str,
    left: LeftBehind,
    run_all: RunAll,
    on_fetched: Callable[[int], None] | None = None,
) -> int:
    """Fill a new directory, which is a database of its own, with what a lazy plan fetches; returns how many bytes."""
    with _explained(objects, plan):
        return fetch_directory(
            disk, target, objects, plan.manifest, plan.lineage, run_all, on_fetched, left, goes_on=False
        )


@contextmanager
def _explained(objects: ObjectStore, plan: RestorePlan) -> Iterator[None]:
    """An object that is gone was deleted by retention, or by somebody else: say which."""
    try:
        yield
    except ObjectGone as error:
        database_id = plan.manifest.database_id
        newest = ManifestLog(objects, database_id).newest()
        place = f"{database_id}/{error.name}"
        if newest is None or error.name in _all_objects(newest.lineages):
            problem = "a manifest names it, and it is gone: it was deleted by something else than Tidelog"
            raise Corruption(problem, path=place) from None
        hours = limits.SHIP_NOTICE_US // limits.HOUR_US
        raise ObjectGone(
            f"{place} is needed, and is gone: the copy was tidied since manifest {plan.manifest.number}. What goes is "
            f"announced {hours} hours ahead, so this restore has taken longer than that. Begin it again, with a moment "
            f"that `tidelog backups ls` shows",
            name=error.name,
        ) from None


def _all_objects(lineages: Iterable[Lineage]) -> set[str]:
    return {name for lineage in lineages for name in lineage.objects()}
