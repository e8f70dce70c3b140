"""The audit of a journal in parallel: the same as `journal.verify`, cut into tasks.

    runs of frames       every checksum, mark, blob and lsn, up to the first mark after the run
    snapshots            each of them, and what it refers to in node files
    node files           each of them: every node, and that references name nodes that are there
    ranges of time       every transaction between two ts, decoded

A run goes on into the next run until it has seen a mark there. So two neighbours both check the frame between them, and
a chain of sound runs is a sound shard. The driver finds how far the shards reach together: it walks on from the last
runs, as a recovery does from its snapshot.

Tasks only prove that a part is sound. If one of them cannot, `journal.verify` itself audits the directory on the
driver, so damage is always described by the same code, in the same words. All executors check a sound journal; a
damaged one, which is rare, takes as long as on one machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import chain, pairwise
from typing import NamedTuple

from tidelog import limits
from tidelog.errors import Corruption, TidelogError
from tidelog.ids import U64_MAX, Lsn, ShardId, Ts
from tidelog.journal import layout
from tidelog.journal.cycles import CompleteCycle, find_complete_cycle
from tidelog.journal.loader import refuse_gap, refuse_other, start_scans
from tidelog.journal.merge import JournalReader
from tidelog.journal.node_audit import KeptNode, prove_file
from tidelog.journal.scan import ShardScan
from tidelog.journal.segment import FilePosition
from tidelog.journal.snapshot import list_snapshot_paths, newest_snapshot, open_snapshot
from tidelog.journal.snapshot_nodes import check_lengths
from tidelog.journal.source import ShardSource
from tidelog.journal.verify import Audit, VerifyReport, verify
from tidelog.ports import Disk
from tidelog.spark.copies.address import HistoryAddress
from tidelog.store.type_table import operation_table


class FrameRun(NamedTuple):
    """Frames of one shard, from a position to that of the next run; `end` None: the last run of the shard."""

    shard: int
    start: FilePosition
    end: FilePosition | None


class KeptSnapshot(NamedTuple):
    """A snapshot of the data directory."""

    path: str


class NeededFile(NamedTuple):
    """A node file, as far as snapshots need it, and what they refer to in it."""

    path: str
    length: int
    references: tuple[KeptNode, ...]


class TimeRange(NamedTuple):
    """Transactions after one ts, up to another, and where each shard ends."""

    after: int
    last: int
    ends: tuple[FilePosition | None, ...]


Task = FrameRun | KeptSnapshot | NeededFile | TimeRange


class Proof(NamedTuple):
    """The result of a task."""

    problem: str | None = None
    """Why the part could not be proved; None: it is sound."""
    first_ts: int = 0
    """Of a run's first frame."""
    cycle: int = 0
    """Of the first mark of a run ..."""
    ends: tuple[int, ...] = ()
    """... and the end of every shard in it; empty: the run has no mark."""
    reached: int = 0
    """The lsn that a run's marks reach."""
    counts: tuple[tuple[int, int, int], ...] = ()
    """Of a range: transactions, records and blobs of each shard."""
    references: tuple[KeptNode, ...] = ()
    """Of a snapshot: the nodes that it needs."""
    nodes: tuple[int, int] = (0, 0)
    """Of a node file: nodes that are sound, and those that a repair has noted as lost."""


RunTasks = Callable[[Sequence[Task]], Sequence[Proof]]
"""Runs tasks wherever they run; the proofs are in the order of the tasks."""


class _Unproved(Exception):
    """Some task could not prove its part."""


# --- on the driver --------------------------------------------------------------------------------------------------


def audit_in_parallel(
    address: HistoryAddress, run_tasks: RunTasks, *, lineage: str = "", frames: int = limits.SPARK_PARTITION_FRAMES
) -> VerifyReport:
    """Audit a data directory or a lineage in parallel, or a snapshot as a whole. Raises only if it is none of them."""
    disk, folder = address.open_folder(lineage)
    meta = layout.read_meta(disk, folder)
    if meta.point is None:
        try:
            with closing(_AuditPlan(disk, folder, frames)) as plan:
                return plan.audit(run_tasks)
        except (_Unproved, TidelogError, OSError):
            pass  # the audit below says what is wrong, if anything is
    return verify(disk, folder, operation_table())


class _AuditPlan:
    def __init__(self, disk: Disk, folder: str, frames: int) -> None:
        self._disk, self._folder = disk, folder
        self._meta = layout.read_meta(self._disk, self._folder)
        self._audit = Audit(self._disk, self._folder, self._meta, operation_table(), None)
        self._run_bytes = frames * self._meta.geometry.frame_bytes

    def close(self) -> None:
        self._audit.close()

    def audit(self, run_tasks: RunTasks) -> VerifyReport:
        audit, report = self._audit, self._audit.report
        audit.check_small_files()
        starts = tuple(audit.first_kept(source) for source in audit.sources)
        runs = [run for shard, start in enumerate(starts) for run in self._runs(shard, start)]
        snapshots = [KeptSnapshot(path) for path in list_snapshot_paths(self._disk, self._folder)]
        proofs = _proved(run_tasks([*runs, *snapshots]))
        complete = self._complete_cycle(runs, proofs[: len(runs)])
        self._check_start(complete)
        if report.problems or complete.cycle < complete.synced_cycle:
            raise _Unproved
        report.snapshots = len(snapshots)
        report.cycle, report.synced_cycle, report.last_ts = complete.cycle, complete.synced_cycle, complete.last_ts
        ends = tuple(mark.end if mark else None for mark in complete.marks)
        for source, end in zip(audit.sources, ends, strict=True):
            report.tail_bytes += audit.bytes_after(source, end)
        cuts = [proof.first_ts for proof in proofs[: len(runs)]]
        files = self._needed_files(snapshots, proofs[len(runs) :])
        found = _proved(run_tasks([*files, *self._ranges(audit.first_ts(starts), cuts, ends)]))
        for proof in found[: len(files)]:
            report.nodes, report.lost_nodes = report.nodes + proof.nodes[0], report.lost_nodes + proof.nodes[1]
        audit.note_lost()
        audit.note_unneeded()
        for proof in found[len(files) :]:
            for figures, (transactions, records, blobs) in zip(report.shards, proof.counts, strict=True):
                figures.transactions += transactions
                figures.records += records
                figures.blobs += blobs
        audit.note_tail()
        return report

    def _needed_files(self, snapshots: Sequence[KeptSnapshot], proofs: Sequence[Proof]) -> list[NeededFile]:
        """Each once, as far as any snapshot needs it, with what all of them refer to."""
        nodes = self._audit.nodes
        for kept, proof in zip(snapshots, proofs, strict=True):
            nodes.add(open_snapshot(self._disk, kept.path))
            nodes.add_references(proof.references)
        if nodes.unlisted():
            raise _Unproved
        return [
            NeededFile(nodes.paths[file_id], nodes.listed[file_id].length, tuple(nodes.references_to(file_id)))
            for file_id in sorted(nodes.listed)
        ]

    def _check_start(self, complete: CompleteCycle) -> None:
        """What a start checks beside that: what it says of the shards, and that journal and snapshot meet."""
        layout.check_shard_metas(self._disk, self._folder, self._meta)
        snapshot = newest_snapshot(self._disk, self._folder)
        if snapshot is not None:
            refuse_other(snapshot, self._meta)
            check_lengths(self._disk, snapshot)
        needed = snapshot.point.lsns if snapshot is not None else (Lsn(0),) * self._meta.shard_count
        scans = start_scans(self._disk, self._folder, self._meta, needed)  # it refuses what no snapshot covers
        try:
            if snapshot is not None:
                refuse_gap(snapshot, scans, complete)
        finally:
            for scan in scans:
                scan.close()

    def _runs(self, shard: int, start: Lsn) -> list[FrameRun]:
        source = self._audit.sources[shard]
        places = [
            FilePosition(segment, at)
            for segment in source.segments()
            if segment >= start
            for at in range(0, max(1, source.size(segment)), self._run_bytes)
        ]
        return [FrameRun(shard, *pair) for pair in zip(places, [*places[1:], None], strict=True)]

    def _complete_cycle(self, runs: list[FrameRun], proofs: Sequence[Proof]) -> CompleteCycle:
        """Found from the newest vector that a last run begins with, if all shards are proved that far."""
        last = {run.shard: proof for run, proof in zip(runs, proofs, strict=True) if run.end is None}
        newest = max(last.values(), key=lambda proof: proof.cycle, default=None)
        if newest is None or not newest.ends:
            raise _Unproved
        if any(newest.ends[shard] > proof.reached for shard, proof in last.items()):
            raise _Unproved
        if any(end and shard not in last for shard, end in enumerate(newest.ends)):
            raise _Unproved
        scans = start_scans(self._disk, self._folder, self._meta, tuple(map(Lsn, newest.ends)))
        try:
            return find_complete_cycle(scans)
        finally:
            for scan in scans:
                scan.close()

    def _ranges(self, first: int, cuts: list[int], ends: tuple[FilePosition | None, ...]) -> list[TimeRange]:
        """As many ranges as a shard has runs: each task reads all shards, which were written in parallel."""
        chosen = sorted({cut for cut in cuts if cut > first})[:: self._meta.shard_count]
        bounds = [first, *chosen, U64_MAX]
        return [TimeRange(after, last, ends) for after, last in pairwise(bounds)]


def _proved(proofs: Sequence[Proof]) -> Sequence[Proof]:
    if any(proof.problem is not None for proof in proofs):
        raise _Unproved
    return proofs


# --- in a task --------------------------------------------------------------------------------------------------------


def prove_numbered(numbered: tuple[int, Task], *, address: HistoryAddress, lineage: str = "") -> tuple[int, Proof]:
    """The same, with the number that says which task it was."""
    return numbered[0], prove(numbered[1], address, lineage)


def prove(task: Task, address: HistoryAddress, lineage: str = "") -> Proof:
    """What an executor does."""
    disk, folder = address.open_folder(lineage)
    try:
        meta = layout.read_meta(disk, folder)
        if isinstance(task, KeptSnapshot):
            kept = open_snapshot(disk, task.path)
            with closing(Audit(disk, task.path, kept.meta, operation_table(), None)) as snapshot_audit:
                snapshot_audit.check_snapshot(kept)
                for problem in snapshot_audit.report.problems:
                    raise problem
                needed = snapshot_audit.nodes.references.values()
            return Proof(references=tuple(sorted(chain.from_iterable(needed))))
        if isinstance(task, NeededFile):
            found = prove_file(disk, task.path, task.length, task.references)
            for problem in found.problems:
                raise problem
            return Proof(nodes=(len(found.sound), found.lost))
        if isinstance(task, FrameRun):
            shard = ShardId(task.shard)
            source = ShardSource(disk, layout.shard_folder(folder, shard), meta.geometry, shard)
            try:
                return _prove_run(source, meta.shard_count, task)
            finally:
                source.close()
        ends = task.ends
        reader = JournalReader(disk, folder, meta.geometry, meta.shard_count, lambda: ends)
        with closing(Audit(disk, folder, meta, operation_table(), None)) as audit, closing(reader):
            return _prove_range(audit, reader, task)
    except (TidelogError, OSError) as error:
        return Proof(problem=str(error))


def _prove_run(source: ShardSource, shard_count: int, run: FrameRun) -> Proof:
    scan = ShardScan(source, shard_count, run.start, run.start.segment, operation_table().is_known)
    first = None
    reached: int = scan.start_lsn
    for found in scan.marks():
        first = first or found.mark
        reached = found.mark.ends[source.shard]
        if run.end is not None and found.end > run.end:
            break
    else:
        if run.end is not None:
            raise scan.damage or Corruption("the files end before the next run of frames", path=source.folder)
    if scan.is_refused and scan.damage is not None:
        raise scan.damage
    first_ts = source.frame_header(*run.start).ts if run.end is not None or first is not None else Ts(0)
    if first is None:
        return Proof(first_ts=first_ts, reached=reached)
    return Proof(first_ts=first_ts, cycle=first.cycle, ends=tuple(first.ends), reached=reached)


def _prove_range(audit: Audit, reader: JournalReader, task: TimeRange) -> Proof:
    reader.seek_ts(Ts(task.after))
    for transaction in reader.read():
        if transaction.ts > task.last:
            break
        audit.count(transaction, reader.payload_of)
    return Proof(counts=tuple((each.transactions, each.records, each.blobs) for each in audit.report.shards))
