"""Repair, the only way past rot: go back to the newest sound point, and set aside the rest.

Nothing is deleted. All bytes that are cut are copied or moved to `set-aside-<n>/` in the data directory and fsynced
there before it is cut, under the path it had (`shard-0/journal-....dj0`; a tail gets `.from-<position>` behind its
name).

    damaged snapshot          set aside, if an older one or the beginning of the journal can take its place
    damage below a snapshot   the segments up to it are set aside: they are history that a start does not need
    rot behind a snapshot     every shard is cut after the newest complete cycle
    journal ends too early    the whole journal is set aside; it begins again behind the snapshot
    damaged node              an older snapshot takes over, if it does not need the node and the journal has all that
                              follows. Otherwise the entries in it are lost: they are named, and reads of them fail

The next start is then not a clean one, so it begins a new epoch, and clients that had seen more are told.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

from tidelog.errors import Corruption, DataDirectoryError, NewerFormat, TooOld
from tidelog.hlc import TsFile, mark_unclean, read_stored_ts
from tidelog.ids import Lsn, ShardId, Ts
from tidelog.journal import layout
from tidelog.journal.blob import decode_reference
from tidelog.journal.cycles import CompleteCycle, find_complete_cycle
from tidelog.journal.frame import CRC_BYTES, decode_header
from tidelog.journal.holders_file import read_holders_file
from tidelog.journal.layout import Meta, shard_folder
from tidelog.journal.loader import (
    RecoveryPlan,
    cut_tails,
    plan_cuts,
    plan_recovery,
    refuse_gap,
    refuse_rot,
    start_scans,
)
from tidelog.journal.node_format import inner_path
from tidelog.journal.node_repair import NodeRepair, describe
from tidelog.journal.operation import OperationTable
from tidelog.journal.record import BLOB, walk
from tidelog.journal.rewind import finish_rewind
from tidelog.journal.scan import IsKnown, ShardScan
from tidelog.journal.segment import list_segments, segment_file_names
from tidelog.journal.snapshot import Snapshot, list_snapshot_paths, open_snapshot
from tidelog.journal.snapshot_nodes import keep_listed
from tidelog.journal.source import ShardSource
from tidelog.journal.tail import TailPiece, copy_end
from tidelog.ports import Disk


@dataclass(slots=True)
class RepairReport:
    """What a repair did, or would do."""

    actions: list[str] = field(default_factory=list)
    set_aside: str | None = None
    """The folder that holds what was given up."""
    last_ts: Ts = Ts(0)
    """History ends with this transaction now."""

    @property
    def was_needed(self) -> bool:
        return bool(self.actions)


def repair(
    disk: Disk,
    folder: str,
    *,
    dry_run: bool = False,
    is_known: IsKnown | None = None,
    table: OperationTable | None = None,
) -> RepairReport:
    """Make a data directory open again. Raises `Corruption` if nothing whole is left to go back to.

    `NewerFormat`: it has an opcode that is not `is_known`, which is no damage. Without a `table` of operations, nobody
    knows what snapshots refer to, and node files are not looked at.
    """
    meta = layout.read_meta(disk, folder)
    if meta.point is not None:
        raise DataDirectoryError(f"{folder} is a snapshot: it has no tail to cut, take another one")
    lock = layout.lock_directory(disk, folder)
    try:
        if not dry_run:
            finish_rewind(disk, folder, meta)
        elif disk.exists(f"{folder}/{layout.REWINDING}"):
            raise DataDirectoryError(f"{folder} is half-way back to its leader's history: a start finishes that first")
        return _Repair(disk, folder, meta, dry_run, is_known or (table.is_known if table else None), table).run()
    finally:
        lock.release()


class _Repair:
    """One run of `repair`."""

    def __init__(
        self,
        disk: Disk,
        folder: str,
        meta: Meta,
        dry_run: bool,
        is_known: IsKnown | None,
        table: OperationTable | None,
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._meta = meta
        self._dry_run = dry_run
        self._is_known = is_known
        self._table = table
        self._aside = ""
        self._report = RepairReport()

    def run(self) -> RepairReport:
        if not self._dry_run:
            self._make_names_durable()
        self._set_aside_small_files()
        whole, damaged = self._whole_snapshots()
        nodes = None if self._table is None else NodeRepair(self._disk, self._folder, self._table, whole)
        kept = whole if nodes is None else self._without_hurt(nodes, whole)
        damaged += [(each.path, Corruption("nodes that it needs are damaged")) for each in whole[len(kept) :]]
        snapshot = kept[-1] if kept else None
        needed = snapshot.point.lsns if snapshot else (Lsn(0),) * self._meta.shard_count
        scans = self._scans(needed, damaged)
        if nodes is not None:
            self._mend_nodes(nodes, kept)
            self._keep_nodes_of(whole[len(kept) :])
        for path, error in damaged:
            self._move(path, f"{layout.SNAPSHOTS}/{path.rpartition('/')[2]}", f"damaged snapshot ({error})")
        complete = find_complete_cycle(scans)
        plan = self._plan(snapshot, scans, complete)
        if plan is not None:
            self._report.last_ts = plan.last_ts
        elif snapshot is not None:
            self._report.last_ts = snapshot.point.ts
        for scan in scans:
            scan.close()
        if snapshot is not None:
            self._set_aside_damaged_history(needed)
        if self._report.was_needed and not self._dry_run:
            mark_unclean(self._disk, self._folder, layout.CLOCK)  # a part of what the last stop left is gone
            plan_recovery(self._disk, self._folder, self._meta, self._is_known)  # it must open now
            self._report.set_aside = self._aside or None
        return self._report

    def _make_names_durable(self) -> None:
        """A repair that was killed may have put a file in its place, and a power cut would take it away again: what is
        found sound now must stay so."""
        for shard in range(self._meta.shard_count):
            folder = shard_folder(self._folder, ShardId(shard))
            if self._disk.exists(folder):
                self._disk.sync_folder(folder)

    # --- what to go back to -------------------------------------------------------------------------------------

    def _whole_snapshots(self) -> tuple[list[Snapshot], list[tuple[str, Corruption]]]:
        """The snapshots that are whole, oldest first, and those that are not. Nodes are not looked at."""
        damaged: list[tuple[str, Corruption]] = []
        whole: list[Snapshot] = []
        for path in list_snapshot_paths(self._disk, self._folder):
            try:
                snapshot = open_snapshot(self._disk, path)
                snapshot.check(self._disk)
                whole.append(snapshot)
            except Corruption as error:
                damaged.append((path, error))
        return whole, damaged

    # --- nodes --------------------------------------------------------------------------------------------------

    def _without_hurt(self, nodes: NodeRepair, whole: list[Snapshot]) -> list[Snapshot]:
        """The snapshots up to the newest that misses no node, if the journal has all that follows it; or all."""
        for count in range(len(whole), 0, -1):
            if not nodes.hurt_of(whole[count - 1]):
                return whole[:count] if count == len(whole) or self._reaches(whole[count - 1], whole[-1]) else whole
        return whole

    def _reaches(self, older: Snapshot, newest: Snapshot) -> bool:
        """Whether the journal behind a snapshot is whole, and goes further than the newest one."""
        try:
            scans = start_scans(self._disk, self._folder, self._meta, older.point.lsns, self._is_known)
        except Corruption:
            return False
        try:
            complete = find_complete_cycle(scans)
            refuse_rot(scans, complete)
            refuse_gap(newest, scans, complete)
        except Corruption:
            return False
        finally:
            for scan in scans:
                scan.close()
        return True

    def _mend_nodes(self, nodes: NodeRepair, kept: list[Snapshot]) -> None:
        listed = {each.id for snapshot in kept for each in snapshot.point.node_files}
        lost = sorted({node for snapshot in kept for node in nodes.hurt_of(snapshot)})
        for file in nodes.damaged:
            name = inner_path(file.listed)
            self._report.actions.append(f"set aside {name}: damaged nodes ({describe(file)})")
            for node in lost:
                if node.file_id == file.listed.id:
                    self._report.actions.append(f"give up {node.entries}: the node at {node.position} of {name}")
            if not self._dry_run:
                aside = self._folder_aside(f"shard-{file.listed.shard}").rpartition("/")[0]
                nodes.mend(file, aside, is_listed=file.listed.id in listed)

    def _keep_nodes_of(self, going: list[Snapshot]) -> None:
        """A snapshot that is set aside stays readable, as far as it was."""
        for snapshot in going if not self._dry_run else ():
            if snapshot.point.node_files:
                keep_listed(self._disk, self._folder, snapshot, self._folder_aside("snapshots").rpartition("/")[0])

    def _set_aside_small_files(self) -> None:
        """What a start does without: holders, the erased-through ts (the files say what is gone), second copies."""
        checks: list[tuple[str, Callable[[], object]]] = [
            (layout.HOLDERS, lambda: read_holders_file(self._disk, self._folder)),
            (layout.ERASED, lambda: read_stored_ts(self._disk, self._folder, layout.ERASED)),
        ]
        for shard in range(self._meta.shard_count):
            name = f"shard-{shard}/{layout.SHARD_META}"
            checks.append((name, partial(layout.read_json, self._disk, f"{self._folder}/{name}")))
        for name, check in checks:
            if not self._disk.exists(f"{self._folder}/{name}"):
                continue
            try:
                check()
            except Corruption as error:
                inner = name if "/" in name else f"files/{name}"
                self._move(f"{self._folder}/{name}", inner, f"damaged ({error.problem})")
        if not self._report.actions:
            layout.check_shard_metas(self._disk, self._folder, self._meta)  # which of both is wrong, nobody knows

    def _scans(self, needed: tuple[Lsn, ...], damaged: list[tuple[str, Corruption]]) -> list[ShardScan]:
        """A damaged snapshot can go only if an older one, or the beginning of the journal, takes its place."""
        try:
            return start_scans(self._disk, self._folder, self._meta, needed, self._is_known)
        except Corruption as gap:
            if not damaged:
                raise
            path, error = damaged[0]
            raise Corruption(f"{error}; nothing takes its place ({gap}): restore a backup", path=path) from None

    def _plan(self, snapshot: Snapshot | None, scans: list[ShardScan], complete: CompleteCycle) -> RecoveryPlan | None:
        """Cut what is not whole; None if the journal has to begin anew behind the snapshot."""
        try:
            refuse_rot(scans, complete)
            if snapshot is not None:
                refuse_gap(snapshot, scans, complete)
            # Nothing but a tail, if that: the next start sets it aside.
            return plan_cuts(self._disk, self._folder, self._meta, snapshot, scans, complete)
        except NewerFormat:
            raise  # nothing is damaged: a newer version can read it
        except Corruption as error:
            reason = str(error).partition("; cycle")[0]
        if snapshot is not None and any(
            end < needed for end, needed in zip(complete.ends, snapshot.point.lsns, strict=True)
        ):
            self._set_aside_journal(reason)
            return None
        plan = plan_cuts(self._disk, self._folder, self._meta, snapshot, scans, complete)
        for piece in plan.tail.pieces:
            self._copy(piece, reason)
        if not self._dry_run:
            cut_tails(self._disk, self._folder, self._meta, plan)
        return plan

    def _set_aside_journal(self, reason: str) -> None:
        for shard in range(self._meta.shard_count):
            folder = shard_folder(self._folder, shard)
            # Newest first: cut short, what is left still begins where it did, and the next repair goes on.
            for segment in reversed(list_segments(self._disk, folder)):
                self._move_segment(ShardId(shard), segment, f"the journal ends before the snapshot ({reason})")

    def _set_aside_damaged_history(self, needed: tuple[Lsn, ...]) -> None:
        """Segments that only readers of old history would want, up to the last that is damaged."""
        erased_ts = Ts(0)
        moves: list[tuple[ShardId, Lsn]] = []
        for shard in range(self._meta.shard_count):
            source = ShardSource(self._disk, shard_folder(self._folder, shard), self._meta.geometry, ShardId(shard))
            segments = source.segments()
            old = [first for first, after in pairwise(segments) if after < needed[shard]]
            damaged = [first for first in old if not _is_whole(source, first)]
            going = [first for first in old if damaged and first <= damaged[-1]]
            if going:
                erased_ts = max(erased_ts, _first_proved_ts(source, segments[len(going) :]))
            moves += [(ShardId(shard), first) for first in going]
            source.close()
        for shard_id, first in moves:
            self._move_segment(shard_id, first, "damaged history before the snapshot")
        if erased_ts and not self._dry_run:
            erased = TsFile.open(self._disk, self._folder, layout.ERASED)
            if erased.stored is None or erased.stored.ts < erased_ts:
                erased.store(erased_ts)
            erased.close()

    # --- setting aside ------------------------------------------------------------------------------------------

    def _folder_aside(self, inner: str) -> str:
        """The folder for what is given up, with a folder in it for the parts of one shard."""
        if not self._aside:
            number = 1
            while self._disk.exists(f"{self._folder}/set-aside-{number}"):
                number += 1
            self._aside = f"{self._folder}/set-aside-{number}"
            self._disk.make_folder(self._aside)
            self._disk.sync_folder(self._folder)
        path = f"{self._aside}/{inner}"
        self._disk.make_folder(path)
        self._disk.sync_folder(self._aside)
        return path

    def _move_segment(self, shard: ShardId, segment: Lsn, why: str) -> None:
        folder = shard_folder(self._folder, shard)
        for name in segment_file_names(segment):
            if self._disk.exists(f"{folder}/{name}"):
                self._move(f"{folder}/{name}", f"shard-{shard}/{name}", why)

    def _move(self, path: str, inner: str, why: str) -> None:
        self._report.actions.append(f"set aside {path[len(self._folder) + 1 :]}: {why}")
        if self._dry_run:
            return
        target = f"{self._folder_aside(inner.rpartition('/')[0])}/{inner.rpartition('/')[2]}"
        self._disk.rename(path, target)
        self._disk.sync_folder(target.rpartition("/")[0])
        self._disk.sync_folder(path.rpartition("/")[0])

    def _copy(self, piece: TailPiece, why: str) -> None:
        """Copy what is about to be cut: the rest of one segment, or a file behind it."""
        inner = f"shard-{piece.shard}"
        what = f"bytes {piece.start} to {piece.start + piece.size} of" if piece.start else "all of"
        self._report.actions.append(f"cut {what} {inner}/{piece.name}: {why}")
        if not self._dry_run:
            folder = self._folder_aside(inner)
            copy_end(self._disk, f"{self._folder}/{inner}/{piece.name}", piece, f"{folder}/{piece.kept_name}")
            self._disk.sync_folder(folder)


def _first_proved_ts(source: ShardSource, segments: list[Lsn]) -> Ts:
    """From when on history is whole: the ts of the first of these segments whose head is proved."""
    for segment in segments:
        with contextlib.suppress(Corruption):
            return source.proved_header(segment).ts
    return source.frame_header(segments[-1], 0).ts


def _is_whole(source: ShardSource, segment: Lsn) -> bool:
    """Whether every frame and blob of a full segment is as it was written."""
    frame_bytes = source.geometry.frame_bytes
    try:
        for start in range(0, source.geometry.segment_bytes, frame_bytes):
            data = source.sealed_frame(segment, start)
            for found in walk(data, decode_header(data).size, frame_bytes - CRC_BYTES):
                if found.flags & BLOB:
                    source.check_blob(decode_reference(data[found.payload : found.payload_end]))
    except (Corruption, TooOld):  # a damaged reference may name a file that was erased
        return False
    return True
