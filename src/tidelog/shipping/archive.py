"""What a shipper has shipped: the lineages, and what changed of them since the last base.

Everything in here is true before a manifest says it: objects are put first. A shipper that fails between the two has
left objects that no manifest names, and the sweep finds them (`upkeep`).
"""

from __future__ import annotations

from tidelog import limits
from tidelog.ids import Cycle, Ts
from tidelog.journal.layout import SnapshotPoint
from tidelog.shipping.lineage import Lineage, ShippedExtent, ShippedFile
from tidelog.shipping.manifest import Manifest


class Archive:
    """The lineages of one database, as its shipper knows them."""

    def __init__(self, manifest: Manifest | None) -> None:
        self.lineages = list(manifest.lineages) if manifest is not None else []
        """Oldest first."""
        self.base = "" if manifest is None else manifest.base
        """The object that has all files, except for those that have changed since; "": there is none."""
        self._changed: dict[str, set[str]] = {
            each.name: set(manifest.changed.get(each.name, ()) if manifest is not None and self.base else each.files)
            for each in self.lineages
        }
        self._in_base: dict[str, set[Ts]] = {
            each.name: set(manifest.in_base.get(each.name, ()) if manifest is not None and self.base else ())
            for each in self.lineages
        }
        self._told_count = 0
        """Changes that manifests have told of since the base; the same ones again and again."""
        self._unnamed: set[tuple[str, str]] = set()
        """Lineages and paths of files that no manifest names yet as they are."""
        self._named_snapshots: dict[str, list[SnapshotPoint]] = {}
        """By lineage, those that a manifest names."""
        self.restorable_ts = Ts(0)
        """The last transaction that a restore by the newest manifest has."""
        self.confirm()

    @property
    def changed(self) -> dict[str, frozenset[str]]:
        """The paths of files that the base does not have as they are, by lineage."""
        return {name: frozenset(paths) for name, paths in self._changed.items()}

    @property
    def in_base(self) -> dict[str, frozenset[Ts]]:
        """The snapshots that the base has, by lineage."""
        return {name: frozenset(moments) for name, moments in self._in_base.items()}

    def add(self, lineage: Lineage) -> None:
        self.lineages.append(lineage)
        self._changed[lineage.name] = set()
        self._in_base[lineage.name] = set()

    def drop(self, lineage: Lineage) -> None:
        self.lineages.remove(lineage)
        self._changed.pop(lineage.name, None)
        self._in_base.pop(lineage.name, None)

    def empty(self, lineage: Lineage) -> None:
        """Let a lineage that nobody can restore from begin anew."""
        for path in list(lineage.files):
            self.remove_file(lineage, path)
        lineage.ts, lineage.cycle, lineage.lsns, lineage.ends, lineage.first_segments = Ts(0), Cycle(0), (), (), ()

    def set_file(self, lineage: Lineage, path: str, file: ShippedFile) -> None:
        lineage.files[path] = file
        self._changed[lineage.name].add(path)
        self._unnamed.add((lineage.name, path))

    def remove_file(self, lineage: Lineage, path: str) -> None:
        if lineage.files.pop(path, None) is not None:
            self._changed[lineage.name].add(path)

    def remove_extent(self, lineage: Lineage, path: str, extent: ShippedExtent) -> None:
        """A file that is left with none is none: readers would take an empty segment for one that begins there."""
        left = lineage.file(path).minus(extent)
        if left.extents:
            self.set_file(lineage, path, left)
        else:
            self.remove_file(lineage, path)

    def rename_file(self, lineage: Lineage, old: str, new: str) -> None:
        self.set_file(lineage, new, lineage.files[old])
        self.remove_file(lineage, old)

    def confirm(self) -> None:
        """A manifest says all that is in here."""
        self._unnamed.clear()
        self._named_snapshots = {each.name: list(each.snapshots.values()) for each in self.lineages}
        shown = [each.shown_ts for each in self.lineages if each.shown_ts]
        self.restorable_ts = shown[-1] if shown else Ts(0)

    @property
    def has_unnamed(self) -> bool:
        """Whether there is something that no manifest says."""
        return bool(self._unnamed)

    @property
    def shows_more(self) -> bool:
        """Whether more can be restored by the next manifest, as when the first snapshot of a lineage is there."""
        return bool(self.lineages) and self.lineages[-1].shown_ts > self.restorable_ts

    def named_file(self, lineage: Lineage, path: str) -> ShippedFile | None:
        """A file as a manifest names it; None: there is none, or what is new of it is in no manifest yet."""
        return None if (lineage.name, path) in self._unnamed else lineage.files.get(path)

    def named_snapshots(self, lineage: Lineage) -> list[SnapshotPoint]:
        """The snapshots of a lineage that are in a manifest."""
        return [each for each in self._named_snapshots.get(lineage.name, ()) if each.ts in lineage.snapshots]

    @property
    def needs_base(self) -> bool:
        """Manifests have said as much since the last one as a new one has."""
        count = sum(len(each.files) for each in self.lineages)
        return self._told_count > max(limits.MANIFEST_CHANGES_MIN, count)

    def told(self) -> None:
        """A manifest was made."""
        self._told_count += sum(map(len, self._changed.values()))

    def set_base(self, name: str) -> None:
        """An object has all files as they are now."""
        self.base = name
        self._told_count = 0
        self._changed = {each.name: set() for each in self.lineages}
        self._in_base = {each.name: set(each.snapshots) for each in self.lineages}
