"""Planted bugs of shipping and of restores: each must be caught by `shipping_world`."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants import FIRST_SEED, Mutant


def _mutant(name: str, file: str, old: str, new: str, why: str, seed: int = FIRST_SEED) -> Mutant:
    return Mutant(name, f"shipping/{file}", old, new, why, "shipping", seed)


_SHIPPED: Final = (
    _mutant(
        "blobs-not-shipped",
        "shipper.py",
        "            self._ship_blobs()\n            self._ship_journal(point)\n",
        "            self._ship_journal(point)\n",
        "records of large values are there, and their values are not",
    ),
    _mutant(
        "blob-forgotten-after-a-failure",
        "shipper.py",
        "        self._owed += point.extents\n",
        "        self._owed = list(point.extents)\n",
        "a value whose put failed once is never shipped",
    ),
    _mutant(
        "blobs-of-full-segments-not-shipped",
        "shipper.py",
        "                    self._ship_range(blobs, 0, self._size(blobs))\n",
        "                    pass\n",
        "the large values of a segment that was full when shipping began are missing",
    ),
    _mutant(
        "written-taken-for-durable",
        "point.py",
        "    durable = writer.durable\n",
        "    durable = writer.written\n",
        "bytes are shipped that a power cut takes back",
    ),
    _mutant(
        "closed-before-it-is-over",
        "shipper.py",
        "            closed_ts=closed_ts,\n",
        "            closed_ts=max(closed_ts, point.closed_ts),\n",
        "a manifest says that nothing is to come of a moment whose changes are not shipped",
    ),
    _mutant(
        "gap-not-noticed",
        "shipper.py",
        "            if not segments or segments[0] > first:\n",
        "            if not segments:\n",
        "the journal was erased before it was shipped, and nobody says so",
    ),
    _mutant(
        "first-segment-too-late",
        "shipper.py",
        "firsts.append(max([first for first in segments if first < needed[shard]], default=needed[shard]))",
        "firsts.append(max([first for first in segments if first <= needed[shard]], default=needed[shard]))",
        "the journal of a lineage begins behind the frame that a recovery begins with",
    ),
)
_LEASES: Final = (
    _mutant(
        "another-lease-ignored",
        "shipper.py",
        "        if found is None or found.lease != self.lease:\n",
        "        if found is None:\n",
        "a shipper that was replaced goes on beside the one that replaced it",
    ),
    _mutant(
        "own-manifest-taken-for-another",
        "shipper.py",
        "        if found is None or found.lease != self.lease:\n",
        "        if found is None or found.lease == self.lease:\n",
        "a manifest that was put, although its shipper was told that it failed, ends shipping",
    ),
    _mutant(
        "other-history-accepted",
        "succession.py",
        "    if last is not None and newest.number != restored and all(epoch.id != last.id for epoch in point.epochs):\n",  # noqa: E501
        "    if last is None and newest.number != restored:\n",
        "a server that was replaced takes over again, with a history that is over",
    ),
    _mutant(
        "lineage-goes-on-by-its-length",
        "succession.py",
        '        if not last or not _holds(disk, f"{folder}/{path}", last[0]):\n            return False\n',
        "        if not last:\n            return False\n",
        "a server goes on with a lineage whose bytes are those of another history",
    ),
    _mutant(
        "foreign-extents-kept",
        "succession.py",
        '            if extent.end > at and not _holds(disk, f"{folder}/{path}", extent)\n',
        "            if extent.end > at and extent.end < 0\n",
        "what a server shipped that no manifest counted, and that was lost, is taken for what came in its place",
    ),
    _mutant(
        "lineage-not-cut",
        "shipper.py",
        "                last = lineage.ts if cut is None else min(lineage.ts, cut)\n",
        "                last = lineage.ts\n",
        "what was lost in a failover is still shown",
    ),
    _mutant(
        "cut-at-the-newest-epoch",
        "succession.py",
        "    return after[0].last_ts if after else None\n",
        "    return after[-1].last_ts if after else None\n",
        "of several epochs that the copy does not know, the last one ends the lineages before",
    ),
    _mutant(
        "names-without-the-lease",
        "uploads.py",
        '        name = f"{stem}.{self._lease:x}-{self._serial:x}"\n        self._put(name, chunks, end - start)\n',
        '        name = f"{stem}.{self._serial:x}"\n        self._put(name, chunks, end - start)\n',
        "two shippers give objects the same name",
    ),
)
_WORK: Final = (
    _mutant(
        "merged-object-lacks-its-end",
        "bulk.py",
        '                        self._disk, f"{self._folder}/{path}", first.position, last.end, name, first.level + 1\n',  # noqa: E501
        '                        self._disk, f"{self._folder}/{path}", first.position, last.position, name, 1\n',
        "small objects are made one that has not all of them",
    ),
    _mutant(
        "merged-extents-dropped",
        "lineage.py",
        "        kept = [each for each in self.extents if each.end <= extent.position or each.position >= extent.end]\n",  # noqa: E501
        "        kept = [each for each in self.extents if each.end < extent.position or each.position >= extent.end]\n",
        "the object before the one that was made of several is dropped",
    ),
    _mutant(
        "snapshot-counts-before-the-journal",
        "bulk.py",
        "        if lineage.ts < point.ts:\n            return False  # the journal comes first\n",
        "",
        "a snapshot counts whose moment the journal has not reached, and a restore of a moment before it shows more",
    ),
    _mutant(
        "node-file-as-it-is-elsewhere",
        "bulk.py",
        "            for start, stop in lineage.file(path).missing(0, size):\n                until",
        "            for start, stop in lineage.file(path).missing(0, 0 if is_node and lineage.file(path).size else size):\n"  # noqa: E501
        "                until",
        "a node file that has grown since the last snapshot is not shipped any further",
    ),
    _mutant(
        "full-segment-forgets-its-end",
        "bulk.py",
        "            if start < size:\n                until",
        "            if start < size and not made:\n                until",
        "a full segment that takes several objects is replaced by the first of them",
    ),
    _mutant(
        "base-without-what-changed-since",
        "manifest.py",
        "                    lineage.files[path] = _read_file(extents)\n",
        "                    lineage.files.setdefault(path, _read_file(extents))\n",
        "a file is read as the base has it, without what came since",
    ),
)
_GOING: Final = (
    _mutant(
        "deleted-without-notice",
        "upkeep.py",
        ">= limits.SHIP_NOTICE_US\n            ):",
        ">= 0\n            ):",
        "a restore that is under way loses its files",
    ),
    _mutant(
        "needed-objects-go",
        "upkeep.py",
        "        known = self._needed()\n",
        "        known = set[str]()\n",
        "objects are announced that were shipped while the sweep was under way",
    ),
    _mutant(
        "snapshot-that-is-needed-expires",
        "upkeep.py",
        "                self._begin_later(lineage, max(older))\n",
        "                self._begin_later(lineage, max(lineage.snapshots))\n",
        "more history goes than was to be kept, and the manifest still says that it covers it",
    ),
    _mutant(
        "segments-of-the-oldest-snapshot-expire",
        "upkeep.py",
        "            for path in [path for path, owner in own.items() if owner < first]:\n",
        "            for path in [path for path, owner in own.items() if owner <= first]:\n",
        "the journal that follows the oldest snapshot goes",
    ),
    _mutant(
        "nodes-of-kept-snapshots-go",
        "upkeep.py",
        "        listed = {inner_path(each) for kept in lineage.snapshots.values() for each in kept.node_files}\n",
        "        listed = {inner_path(each) for each in lineage.snapshots[max(lineage.snapshots)].node_files}\n",
        "node files go that an older snapshot lists, which is kept",
    ),
    _mutant(
        "the-only-lineage-expires",
        "upkeep.py",
        "            return  # nothing can be restored from it yet: what there is before is all there is\n",
        "            pass\n",
        "old history goes before there is any that is newer",
    ),
    _mutant(
        "base-goes",
        "upkeep.py",
        "[self._archive.base])",
        "[])",
        "the object that has all files is taken for one that nothing refers to",
    ),
)
_READ: Final = (
    _mutant(
        "lost-history-is-shown",
        "lineage.py",
        "        return self.ts if self.ends_ts is None else min(self.ts, self.ends_ts)\n",
        "        return self.ts\n",
        "a restore of the newest moment of an older lineage shows what was lost",
    ),
    _mutant(
        "restored-to-any-lineage",
        "moments.py",
        "    for each in reversed(covered):\n",
        "    for each in covered:\n",
        "a moment after a failover is shown by the lineage before",
    ),
    _mutant(
        "journal-beyond-its-end",
        "shipped_disk.py",
        "                size = end.at\n",
        "                size = file.size\n",
        "bytes that no manifest counts yet are read",
    ),
    _mutant(
        "clock-of-a-restored-directory",
        "fetch.py",
        "        _store_ts(disk, target, layout.CLOCK, clock_bound)\n",
        "",
        "a restored server gives out a ts again that the lost one gave out",
    ),
    _mutant(
        "restore-forgets-where-it-came-from",
        "fetch.py",
        "        write_restored(disk, target, manifest)\n        new.finish()\n",
        "        new.finish()\n",
        "a restored server lacks an epoch that had begun, and never ships again",
    ),
)
SHIPPING_MUTANTS: Final = (*_SHIPPED, *_LEASES, *_WORK, *_GOING, *_READ)
