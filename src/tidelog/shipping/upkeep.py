"""What goes: history that is too old, and objects that nothing refers to.

    expire     lineages, snapshots and segments that no restore within the time that is kept needs leave the archive
    sweep      a listing of all objects, page by page: those that nothing refers to are announced in a manifest
    delete     what was announced a day ago

Manifests at which a server took over are never deleted: they are what stops the one before (`fence`).

So whatever a manifest refers to stays for a day after it, and a restore that began with it finds all its files. The
sweep also finds what shippers have left that died, or lost their lease, before a manifest named it.

What is announced counts from the manifest that says so: before that, whoever takes over goes on with a manifest that
may still refer to it. A day is measured by a clock that does not jump, as far as this process has seen it pass.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from tidelog import limits
from tidelog.errors import Corruption
from tidelog.ids import Lsn, Ts
from tidelog.journal.layout import shard_folder
from tidelog.journal.node_format import inner_path, shard_of_inner_path
from tidelog.journal.segment import owner_of
from tidelog.ports import ObjectStore
from tidelog.shipping.archive import Archive
from tidelog.shipping.fence import lease_number
from tidelog.shipping.lineage import Lineage, snapshot_folder
from tidelog.shipping.manifest import FORMAT, Aged, Going, manifest_number, pack, unpack
from tidelog.shipping.uploads import Uploads

_LOG: Final = logging.getLogger("tidelog")


class Upkeep:
    """Keeps one database in order, for its shipper."""

    def __init__(
        self,
        objects: ObjectStore,
        database_id: str,
        archive: Archive,
        uploads: Uploads,
        keep_us: int,
        going: Iterable[Going] = (),
        ages: Iterable[Aged] = (),
        unnamed: Callable[[], Iterator[str]] = lambda: iter(()),
        needs: Callable[[str], bool] = lambda _path: False,
    ) -> None:
        """`unnamed`: objects that are there and will be referred to; `needs`: whether a path will be."""
        self._objects = objects
        self._prefix = f"{database_id}/"
        self._archive = archive
        self._uploads = uploads
        self.keep_us = keep_us
        self.going = list(going)
        self._unconfirmed: set[str] = set()
        """Of these, those that no manifest tells of yet."""
        self._since_us: dict[str, int] = {}
        """When the others were announced, by the monotonic clock: before it began, if it was that long ago."""
        self._unnamed = unnamed
        self._needs = needs
        self._swept_us: int | None = None
        """When the last sweep began (monotonic)."""
        self._after: str | None = None
        """Where the sweep goes on; None: none is under way."""
        self._referred: set[str] = set()
        """What was needed when it began: what is needed since then as well is taken out at its end."""
        self._found: list[str] = []
        """What it has found ..."""
        self._oldest_manifest = 0
        """... and the oldest manifest that it leaves alone."""
        self._leases: set[int] = set()
        """The numbers of takeovers that it has come upon: the names of their objects come before those of manifests."""
        self.ages = list(ages)
        """Of manifests, oldest first: one at each sweep. They are in every manifest, or a server that is started again
        every day would never delete one."""
        self._deleting: list[str] = []
        self._is_delete_failing = False
        self.deleted_count = 0

    def step(self, earliest_us: int, latest_us: int, monotonic_us: int, number: int) -> bool:
        """A little of it; whether there is more to do now. `number`: of the newest manifest; it is between the earliest
        and the latest time by the wall clock (`doubted_clock`)."""
        if self._deleting and not self._is_delete_failing:
            self._delete()
            return True
        if self._after is not None:
            self._sweep_page(latest_us)
            return True
        for each in self.going:
            if (
                not self._deleting
                and each.object not in self._unconfirmed
                and self._age_us(each, earliest_us, monotonic_us) >= limits.SHIP_NOTICE_US
            ):
                self._begin_deleting(each)
                return True
        if self._swept_us is None or monotonic_us - self._swept_us >= limits.SHIP_SWEEP_US:
            self._swept_us = monotonic_us
            self._expire(Ts(max(0, earliest_us - self.keep_us)))
            self._begin_sweep(earliest_us, latest_us, number)
            return True
        if self._deleting:  # after all else: history has to expire also if nothing may be deleted
            self._delete()
            return True
        return False

    def _age_us(self, going: Going, earliest_us: int, monotonic_us: int) -> int:
        since_us = self._since_us.setdefault(going.object, monotonic_us - max(0, earliest_us - going.announced_us))
        return monotonic_us - since_us

    def told(self, latest_us: int) -> tuple[Going, ...]:
        """What is announced, for a manifest that is made now."""
        self.going = [
            each._replace(announced_us=latest_us) if each.object in self._unconfirmed else each for each in self.going
        ]
        return tuple(self.going)

    def confirm(self, told: Iterable[Going], monotonic_us: int) -> None:
        """A manifest that tells of these is there."""
        for each in told:
            if each.object in self._unconfirmed:
                self._unconfirmed.remove(each.object)
                self._since_us[each.object] = monotonic_us

    # --- history that is too old --------------------------------------------------------------------------------

    def _expire(self, cutoff: Ts) -> None:
        newest = self._archive.lineages[-1]
        if newest.begins_ts is None or not newest.ends:
            return  # nothing can be restored from it yet: what there is before is all there is
        for lineage in self._archive.lineages[:-1]:
            if lineage.history_ts < cutoff:
                self._archive.drop(lineage)
        for lineage in self._archive.lineages:
            older = [ts for ts in lineage.snapshots if ts <= cutoff]
            if older and lineage.begins_ts is not None and max(older) > lineage.begins_ts:
                self._begin_later(lineage, max(older))
            self._thin_out(lineage, cutoff)

    def _begin_later(self, lineage: Lineage, ts: Ts) -> None:
        """Let a lineage begin with one of its snapshots."""
        point = lineage.snapshots[ts]
        self._drop_snapshots(lineage, [each for each in lineage.snapshots if each < ts])
        firsts: list[Lsn] = []
        segments: dict[str, Lsn] = {}
        for path in lineage.files:
            if path.startswith("shard-") and (owner := owner_of(path.rpartition("/")[2])) is not None:
                segments[path] = owner
        for shard, lsn in enumerate(point.lsns):
            folder = f"{shard_folder('', shard)[1:]}/"
            own = {path: owner for path, owner in segments.items() if path.startswith(folder)}
            first = max([owner for owner in own.values() if owner < lsn], default=lineage.first_segments[shard])
            firsts.append(first)
            for path in [path for path, owner in own.items() if owner < first]:
                self._archive.remove_file(lineage, path)
        lineage.first_segments = tuple(firsts)
        lineage.begins_ts = ts

    def _drop_snapshots(self, lineage: Lineage, going: Sequence[Ts]) -> None:
        if not going:
            return
        for ts in going:
            del lineage.snapshots[ts]
        folders = {snapshot_folder(ts) for ts in going}
        listed = {inner_path(each) for kept in lineage.snapshots.values() for each in kept.node_files}
        for path in list(lineage.files):
            is_node = shard_of_inner_path(path) is not None
            if (is_node and path not in listed and not self._needs(path)) or (
                not is_node and "/".join(path.split("/", 2)[:2]) in folders
            ):
                self._archive.remove_file(lineage, path)

    def _thin_out(self, lineage: Lineage, cutoff: Ts) -> None:
        """Keep one snapshot an hour, and one a day of those that are older than a day: the journal has what is between.

        A busy server makes one every few minutes, for weeks, and each manifest names all.
        """
        going: list[Ts] = []
        kept = lineage.begins_ts
        newest = max(lineage.snapshots, default=Ts(0))
        for ts in sorted(lineage.snapshots):
            gap_us = (
                limits.SHIP_SNAPSHOTS_YOUNG_US if newest - ts < 24 * limits.HOUR_US else limits.SHIP_SNAPSHOTS_OLD_US
            )
            if ts in (newest, lineage.begins_ts) or kept is None or ts - kept >= gap_us or ts <= cutoff:
                kept = ts
            else:
                going.append(ts)
        self._drop_snapshots(lineage, going)

    # --- objects that nothing refers to -------------------------------------------------------------------------

    def _begin_sweep(self, earliest_us: int, latest_us: int, number: int) -> None:
        aged = [each.number for each in self.ages if earliest_us - each.made_us >= limits.SHIP_NOTICE_US]
        self._oldest_manifest = max(aged, default=0)
        self.ages = [each for each in self.ages if each.number >= self._oldest_manifest]
        self.ages.append(Aged(latest_us, number))
        del self.ages[: -limits.SHIP_AGES_MAX]
        self._after, self._found, self._leases = "", [], set()
        self._referred = self._needed()

    def _needed(self) -> set[str]:
        needed = {name for lineage in self._archive.lineages for name in lineage.objects()}
        needed.update(self._unnamed(), (each.object for each in self.going), [self._archive.base])
        return needed

    def _sweep_page(self, latest_us: int) -> None:
        assert self._after is not None
        page = self._objects.list(self._prefix, self._after)
        for entry in page:
            name = entry.name.removeprefix(self._prefix)
            if (lease := lease_number(name)) is not None:
                self._leases.add(lease)
            elif name not in self._referred and self._may_go(manifest_number(name)):
                self._found.append(name)
        self._after = page[-1].name if page else None
        if self._after is None or len(self._found) >= limits.GOING_NAMES_MAX:
            self._announce(latest_us)

    def _may_go(self, number: int | None) -> bool:
        """Whether an object that nothing refers to may; `number`: of a manifest.

        A shipper that was replaced tries to put the manifest of the takeover, or, if it does not know whether its last
        one was put, the one before. So that it never succeeds, both stay for ever.
        """
        if number is None:
            return True
        return number < self._oldest_manifest and number not in self._leases and number + 1 not in self._leases

    def _announce(self, latest_us: int) -> None:
        known = self._needed()
        for each in list(self.going):
            known.update(self._names(each))
        names = [name for name in self._found if name not in known]
        self._found = []
        if self._after is None:
            self._referred = set()
        if names:
            object_name = self._uploads.put("going", pack({"format": FORMAT, "names": names}))
            self._unconfirmed.add(object_name)
            self.going.append(Going(object_name, latest_us, len(names)))

    def _names(self, going: Going) -> list[str]:
        """What was announced. If that cannot be known, nothing was: the sweep finds it once more."""
        name = self._prefix + going.object
        try:
            names = unpack(self._objects.get(name), name)["names"]
        except (FileNotFoundError, Corruption) as error:
            _LOG.error("the list %s of what goes cannot be read: all that is in it is announced again: %s", name, error)
            self._forget(going)
            return []
        assert isinstance(names, list)
        return names

    def _begin_deleting(self, going: Going) -> None:
        needed = self._needed()
        names = self._names(going)
        self._deleting = [name for name in names if name not in needed]
        if len(self._deleting) < len(names):  # cannot be; but a copy must not lose what it says that it has
            _LOG.error("%d objects were announced to go and are needed: they stay", len(names) - len(self._deleting))
        self._forget(going)

    def _forget(self, going: Going) -> None:
        if going in self.going:
            self.going.remove(going)
        self._since_us.pop(going.object, None)

    def _delete(self) -> None:
        self._is_delete_failing = True
        self._objects.delete(self._prefix + self._deleting[-1])
        self._is_delete_failing = False
        self._deleting.pop()
        self.deleted_count += 1
