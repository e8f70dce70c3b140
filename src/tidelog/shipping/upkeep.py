"""What goes: history that is too old, and objects that nothing refers to.

    expire     lineages, snapshots and segments that no restore within the time that is kept needs leave the archive
    sweep      a listing of all objects, page by page: those that nothing refers to are announced in a manifest
    delete     what was announced a day ago

So whatever a manifest refers to stays for a day after it, and a restore that began with it finds all its files. The
sweep also finds what shippers have left that died, or lost their lease, before a manifest named it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from tidelog import limits
from tidelog.ids import Lsn, Ts
from tidelog.journal.layout import shard_folder
from tidelog.journal.node_format import inner_path, shard_of_inner_path
from tidelog.journal.segment import owner_of
from tidelog.ports import ObjectStore
from tidelog.shipping.archive import Archive
from tidelog.shipping.lineage import Lineage, snapshot_folder
from tidelog.shipping.manifest import FORMAT, Going, manifest_number, pack, unpack
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
        self._unnamed = unnamed
        self._needs = needs
        self._swept_us: int | None = None
        """When the last sweep began (monotonic)."""
        self._after: str | None = None
        """Where the sweep goes on; None: none is under way."""
        self._found: list[str] = []
        """What it has found ..."""
        self._oldest_manifest = 0
        """... and the oldest manifest that it leaves alone."""
        self._ages: list[tuple[int, int]] = []
        """The wall clock at each sweep, and the newest manifest then."""
        self._deleting: list[str] = []
        self.deleted_count = 0

    def step(self, wall_us: int, monotonic_us: int, number: int) -> bool:
        """A little of it; whether there is more to do now. `number`: of the newest manifest."""
        if self._deleting:
            self._delete()
            return True
        if self._after is not None:
            self._sweep_page(wall_us)
            return True
        for each in self.going:
            if wall_us - each.announced_us >= limits.SHIP_NOTICE_US:
                self._begin_deleting(each)
                return True
        if self._swept_us is None or monotonic_us - self._swept_us >= limits.SHIP_SWEEP_US:
            self._swept_us = monotonic_us
            self._expire(Ts(max(0, wall_us - self.keep_us)))
            self._begin_sweep(wall_us, number)
            return True
        return False

    # --- history that is too old --------------------------------------------------------------------------------

    def _expire(self, cutoff: Ts) -> None:
        for lineage in self._archive.lineages[:-1]:
            if lineage.history_ts < cutoff:
                self._archive.drop(lineage)
        for lineage in self._archive.lineages:
            older = [ts for ts in lineage.snapshots if ts <= cutoff]
            if older and lineage.begins_ts is not None and max(older) > lineage.begins_ts:
                self._begin_later(lineage, max(older))

    def _begin_later(self, lineage: Lineage, ts: Ts) -> None:
        """Let a lineage begin with one of its snapshots."""
        point = lineage.snapshots[ts]
        for old in [each for each in lineage.snapshots if each < ts]:
            del lineage.snapshots[old]
            for path in [path for path in lineage.files if path.startswith(f"{snapshot_folder(old)}/")]:
                self._archive.remove_file(lineage, path)
        listed = {inner_path(each) for kept in lineage.snapshots.values() for each in kept.node_files}
        firsts: list[Lsn] = []
        segments: dict[str, Lsn] = {}
        for path in list(lineage.files):
            if shard_of_inner_path(path) is not None and path not in listed and not self._needs(path):
                self._archive.remove_file(lineage, path)
            elif path.startswith("shard-") and (owner := owner_of(path.rpartition("/")[2])) is not None:
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

    # --- objects that nothing refers to -------------------------------------------------------------------------

    def _begin_sweep(self, wall_us: int, number: int) -> None:
        aged = [newest for then_us, newest in self._ages if wall_us - then_us >= limits.SHIP_NOTICE_US]
        self._oldest_manifest = max(aged, default=0)
        self._ages = [each for each in self._ages if each[1] >= self._oldest_manifest]
        self._ages.append((wall_us, number))
        self._after, self._found = "", []

    def _needed(self) -> set[str]:
        needed = {name for lineage in self._archive.lineages for name in lineage.objects()}
        needed.update(self._unnamed(), (each.object for each in self.going), [self._archive.base])
        return needed

    def _sweep_page(self, wall_us: int) -> None:
        assert self._after is not None
        page = self._objects.list(self._prefix, self._after)
        needed = self._needed()
        for entry in page:
            name = entry.name.removeprefix(self._prefix)
            number = manifest_number(name)
            if name not in needed and (number is None or number < self._oldest_manifest):
                self._found.append(name)
        self._after = page[-1].name if page else None
        if self._after is None or len(self._found) >= limits.GOING_NAMES_MAX:
            self._announce(wall_us)

    def _announce(self, wall_us: int) -> None:
        known: set[str] = set()
        for each in self.going:
            known.update(self._names(each))
        names = [name for name in self._found if name not in known]
        self._found = []
        if names:
            object_name = self._uploads.put("going", pack({"format": FORMAT, "names": names}))
            self.going.append(Going(object_name, wall_us, len(names)))

    def _names(self, going: Going) -> list[str]:
        name = self._prefix + going.object
        names = unpack(self._objects.get(name), name)["names"]
        assert isinstance(names, list)
        return names

    def _begin_deleting(self, going: Going) -> None:
        needed = self._needed()
        names = self._names(going)
        self._deleting = [name for name in names if name not in needed]
        if len(self._deleting) < len(names):  # cannot be; but a copy must not lose what it says that it has
            _LOG.error("%d objects were announced to go and are needed: they stay", len(names) - len(self._deleting))
        self.going.remove(going)

    def _delete(self) -> None:
        self._objects.delete(self._prefix + self._deleting[-1])
        self._deleting.pop()
        self.deleted_count += 1
