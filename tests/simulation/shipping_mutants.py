"""Planted bugs of shipping and of restores: each must be caught by `shipping_world`."""

from __future__ import annotations

from typing import Final

from tests.simulation.mutants import FIRST_SEED, Mutant


def _mutant(name: str, file: str, old: str, new: str, why: str, seed: int = FIRST_SEED) -> Mutant:
    return Mutant(name, f"shipping/{file}", old, new, why, "shipping", seed)


_SHIPPED: Final = (
    _mutant(
        "blob-lacks-its-last-byte",
        "shipper.py",
        "                self._ship_range(path, at, at + extent.size)\n",
        "                self._ship_range(path, at, at + extent.size - 1)\n",
        "a large value of the segment that is being written is there but for its end",
    ),
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
        7_000_001,
    ),
    _mutant(
        "closed-before-it-is-over",
        "shipper.py",
        "            closed_ts=closed_ts,\n",
        "            closed_ts=max(closed_ts, point.closed_ts),\n",
        "a manifest says that nothing is to come of a moment whose changes are not shipped",
        7_000_005,
    ),
)
_LEASES: Final = (
    _mutant(
        "another-lease-ignored",
        "fence.py",
        "        if found != lease:\n",
        "        if found is None:\n",
        "a shipper that was replaced goes on beside the one that replaced it",
        7_000_001,
    ),
    _mutant(
        "own-manifest-taken-for-another",
        "fence.py",
        "        if found != lease:\n",
        "        if found == lease:\n",
        "a manifest that was put, although its shipper was told that it failed, ends shipping",
        7_000_001,
    ),
    _mutant(
        "takeovers-deleted",
        "upkeep.py",
        "number not in self._leases and number + 1 not in self._leases\n",
        "number is not None\n",
        "a shipper that was stopped for days in the middle of a put finds its number free, and goes on",
        7_000_095,
    ),
    _mutant(
        "other-history-accepted",
        "succession.py",
        "    if all(epoch.id != last.id for epoch in point.epochs):\n",
        "    if all(epoch.id != last.id for epoch in newest.epochs):\n",
        "a server that was replaced takes over again, with a history that is over",
        7_000_002,
    ),
    _mutant(
        "restored-from-the-beginning",
        "succession.py",
        "    return max((epoch.last_ts for epoch in point.epochs if not any(epoch.lsns)), default=Ts(0))\n",
        "    return min((epoch.last_ts for epoch in point.epochs if not any(epoch.lsns)), default=Ts(0))\n",
        "a restored directory goes on with a lineage that shows moments from before its restore",
        7_000_039,
    ),
    _mutant(
        "restored-in-vain",
        "succession.py",
        "    if restored is not None and restored.epoch == last.id:\n",
        "    if restored is not None and restored.epoch is None:\n",
        "a machine that was restored cuts off what the one before has shipped meanwhile",
    ),
    _mutant(
        "older-state-accepted",
        "succession.py",
        "    if last.id == point.epochs[-1].id and shipped_ts > point.durable.ts:\n",
        "    if last.id != point.epochs[-1].id and shipped_ts > point.durable.ts:\n",
        "a copy of the files of a server that was stopped cuts off what that ships after it",
    ),
    _mutant(
        "lineage-not-cut",
        "shipper.py",
        "                last = lineage.ts if cut is None else min(lineage.ts, cut)\n",
        "                last = lineage.ts\n",
        "what was lost in a failover is still shown",
        7_000_001,
    ),
    _mutant(
        "names-without-the-lease",
        "uploads.py",
        '        name = f"{stem}.{self._lease:x}-{self._serial:x}"\n        self._put(name, chunks, end - start)\n',
        '        name = f"{stem}.{self._serial:x}"\n        self._put(name, chunks, end - start)\n',
        "two shippers give objects the same name",
        7_000_034,
    ),
)
_WORK: Final = (
    _mutant(
        "merged-extents-dropped",
        "lineage.py",
        "if each.end <= extent.position or each.position >= extent.end]\n",
        "if each.end < extent.position or each.position >= extent.end]\n",
        "the object before the one that was made of several is dropped",
    ),
    _mutant(
        "node-file-as-it-is-elsewhere",
        "bulk.py",
        "            for start, stop in lineage.file(path).missing(0, size):\n                until",
        "            has_any = is_node and lineage.file(path).size\n"
        "            for start, stop in lineage.file(path).missing(0, 0 if has_any else size):\n                until",
        "a node file that has grown since the last snapshot is not shipped any further",
        7_000_002,
    ),
    _mutant(
        "full-segment-forgets-its-end",
        "bulk.py",
        "            if start < size:\n                until",
        "            if start < size and not made:\n                until",
        "a full segment that takes several objects is replaced by the first of them",
        7_000_001,
    ),
    _mutant(
        "base-without-what-changed-since",
        "manifest.py",
        "                    lineage.files[path] = _read_file(extents)\n",
        "                    lineage.files.setdefault(path, _read_file(extents))\n",
        "a file is read as the base has it, without what came since",
        7_000_001,
    ),
)
_FILES: Final = (
    _mutant(
        "first-file-of-a-snapshot-skipped",
        "bulk.py",
        "for name, size in pinned.files[self._next :]:",
        "for name, size in pinned.files[max(self._next, 1) :]:",
        "a snapshot counts that lacks a file",
    ),
    _mutant(
        "end-of-the-round-before",
        "shipper.py",
        "            lineage.lsns, lineage.ends = durable.lsns, durable.ends\n",
        "            lineage.lsns, lineage.ends = durable.lsns, lineage.ends or durable.ends\n",
        "a manifest says that its journal ends where the first one did",
        7_000_002,
    ),
)
_GOING: Final = (
    _mutant(
        "deleted-without-notice",
        "upkeep.py",
        ">= limits.SHIP_NOTICE_US\n            ):",
        ">= 0\n            ):",
        "a restore that is under way loses its files",
        7_000_003,
    ),
    _mutant(
        "clock-believed",
        "upkeep.py",
        "            self._expire(Ts(max(0, earliest_us - self.keep_us)))\n",
        "            self._expire(Ts(max(0, latest_us - self.keep_us)))\n",
        "a clock that is wrong for a moment ends all of history",
    ),
    _mutant(
        "bytes-dropped-in-the-middle-not-shipped-again",
        "shipper.py",
        "shipped.at if shipped is not None and segment == shipped.segment else 0, size)\n",
        "lineage.file(path).size, size)\n",
        "a part is kept of what a server before has shipped and no manifest counts, and what is before it never comes",
        7_000_028,
    ),
    _mutant(
        "segment-without-bytes-kept",
        "archive.py",
        "        if left.extents:\n",
        "        if left is not None:\n",
        "a segment that a server before had begun, and of which nothing is left, is taken for one that begins there",
        160,
    ),
    _mutant(
        "segments-of-the-oldest-snapshot-expire",
        "upkeep.py",
        "            for path in [path for path, owner in own.items() if owner < first]:\n",
        "            for path in [path for path, owner in own.items() if owner <= first]:\n",
        "the journal that follows the oldest snapshot goes",
        7_000_004,
    ),
)
_READ: Final = (
    _mutant(
        "lost-history-is-shown",
        "lineage.py",
        "        return self.ts if self.ends_ts is None else min(self.ts, self.ends_ts)\n",
        "        return self.ts\n",
        "a restore of the newest moment of an older lineage shows what was lost",
        7_000_001,
    ),
    _mutant(
        "restore-forgets-where-it-came-from",
        "fetch.py",
        "            write_restored(disk, target, manifest)\n        else:\n",
        "            pass\n        else:\n",
        "a restored server lacks an epoch that had begun, and never ships again",
        7_000_001,
    ),
)
SHIPPING_MUTANTS: Final = (*_SHIPPED, *_LEASES, *_WORK, *_FILES, *_GOING, *_READ)
