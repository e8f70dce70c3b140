"""The audit: every byte of a data directory or snapshot, checked against everything that vouches for it.

First it does what a start does, with the same code (`loader`), and nothing is changed: what a start would refuse is a
problem, and a directory without problems starts. A start needs only the newest snapshot and what follows it, so damage
in older history or in an older snapshot is a problem that lets a server start all the same.

Then, per shard, every frame's checksum, every mark, every blob, dense lsns; a damaged frame does not end the audit, the
frames after it are checked by themselves. Over the shards, that the newest synced cycle is whole, and that every
transaction below it is. Beside them, the snapshots with the nodes that they refer to, and the small files.

It reads only, takes no lock, and holds a frame a shard: it may run beside the server that writes. What that server is
writing at the moment is a tail like any other: noted, not a problem.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Final

from tidelog.errors import Corruption, DataDirectoryError, TooOld, TransactionTorn, UnreadableRecord
from tidelog.hlc import read_stored_ts
from tidelog.ids import Cycle, Lsn, ShardId, Ts
from tidelog.journal import layout
from tidelog.journal.cycles import CompleteCycle, find_complete_cycle, find_damage
from tidelog.journal.holders_file import read_holders_file
from tidelog.journal.loader import RecoveryPlan, plan_recovery, refuse_rot, replay
from tidelog.journal.merge import JournalReader, JournalTransaction, unreadable
from tidelog.journal.node_audit import FileProof, NodesNeeded, missing_list, unneeded_files
from tidelog.journal.operation import OperationTable
from tidelog.journal.reader import Part, Record
from tidelog.journal.record import BLOB
from tidelog.journal.scan import ShardScan
from tidelog.journal.segment import FilePosition, blob_name, list_segments
from tidelog.journal.snapshot import Snapshot, list_snapshot_paths, open_snapshot
from tidelog.journal.source import ShardSource
from tidelog.ports import Disk, is_remote

_ATTEMPTS_MAX: Final = 10

OnProgress = Callable[[int, int], None]
"""Called with the bytes done and the bytes in all."""


@dataclass(slots=True)
class ShardFigures:
    """What was found in one shard."""

    shard: int
    segments: int = 0
    frames: int = 0
    records: int = 0
    transactions: int = 0
    bytes: int = 0
    """Of the journal files."""
    blobs: int = 0


@dataclass(slots=True)
class VerifyReport:
    """The outcome of an audit."""

    shards: list[ShardFigures]
    problems: list[Corruption] = field(default_factory=list)
    """Damage; each names its file, and frame and position where that makes sense."""
    refusal: Corruption | None = None
    """The one of them that keeps a server from starting."""
    notes: list[str] = field(default_factory=list)
    """What is worth knowing and no damage."""
    snapshots: int = 0
    nodes: int = 0
    """Of streams, in node files: those that are sound."""
    lost_nodes: int = 0
    """Those that a repair has noted as lost: no problem any more, but reads of their entries fail."""
    remote_files: int = 0
    """Node files that lie only in an object store: they are there, but their nodes were not read."""
    cycle: Cycle = Cycle(0)
    """The newest complete one."""
    synced_cycle: Cycle = Cycle(0)
    """The newest that is known to be fsynced."""
    last_ts: Ts = Ts(0)
    tail_bytes: int = 0
    """Behind the newest complete cycle: the next start cuts them."""

    @property
    def is_sound(self) -> bool:
        return not self.problems


def verify(disk: Disk, folder: str, table: OperationTable, on_progress: OnProgress | None = None) -> VerifyReport:
    """Audit a data directory or a snapshot. Only a directory that is neither raises.

    A server may erase segments and snapshots under the audit. What is missing then is no damage: if problems were found
    and the directory has lost files meanwhile, the audit begins anew.
    """
    meta = layout.read_meta(disk, folder)
    for _ in range(_ATTEMPTS_MAX - 1):
        before = _oldest_names(disk, folder, meta)
        try:
            report = _audit(disk, folder, meta, table, on_progress)
        except (TooOld, FileNotFoundError):
            continue
        if report.is_sound or _oldest_names(disk, folder, meta) == before:
            return report
    return _audit(disk, folder, meta, table, on_progress)


def _oldest_names(disk: Disk, folder: str, meta: layout.Meta) -> list[str]:
    """What retention erases first: the oldest segment of each shard, and the snapshots."""
    folders = [layout.shard_folder(folder, shard) for shard in range(meta.shard_count)]
    return [*(str(list_segments(disk, each)[:1]) for each in folders), *list_snapshot_paths(disk, folder)[:1]]


def _audit(
    disk: Disk, folder: str, meta: layout.Meta, table: OperationTable, on_progress: OnProgress | None
) -> VerifyReport:
    with closing(Audit(disk, folder, meta, table, on_progress)) as audit:
        if meta.point is not None:
            audit.check_snapshot(Snapshot(folder, meta, meta.point))
            audit.check_nodes()
        else:
            audit.check_small_files()
            audit.check_start()
            for path in list_snapshot_paths(disk, folder):
                audit.check_kept_snapshot(path)
            audit.check_nodes()
            audit.note_unneeded()
            audit.check_journal_if_readable()
            audit.note_start()
        return audit.report


class Audit:
    """One run of `verify`, in parts, so that `spark.jobs.verify` can check a journal side by side."""

    def __init__(
        self, disk: Disk, folder: str, meta: layout.Meta, table: OperationTable, on_progress: OnProgress | None
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._meta = meta
        self._table = table
        self.report = VerifyReport([ShardFigures(shard) for shard in range(meta.shard_count)])
        self.nodes = NodesNeeded(disk, table)
        """By the snapshots that could be read."""
        self._plan: RecoveryPlan | None = None
        """What a start would do; None: it would refuse, or was not tried."""
        self._on_progress = on_progress
        self._total = self._done = 0
        self.sources = [
            ShardSource(disk, layout.shard_folder(folder, shard), meta.geometry, ShardId(shard), on_read=self._advance)
            for shard in range(meta.shard_count)
        ]
        for source, figures in zip(self.sources, self.report.shards, strict=True):
            self._measure(source, figures)

    def close(self) -> None:
        """Close the files. What was found refers to them, and would keep them open."""
        for source in self.sources:
            source.close()

    def _measure(self, source: ShardSource, figures: ShardFigures) -> None:
        for segment in source.segments():
            size = source.size(segment)
            figures.segments += 1
            figures.bytes += size
            figures.frames += -(-size // self._meta.geometry.frame_bytes)
            self._total += 2 * size  # once for the marks, once for the transactions
            if self._disk.exists(f"{source.folder}/{blob_name(segment)}"):
                self._total += source.blob_size(segment)

    def _advance(self, count: int) -> None:
        self._done = min(self._done + count, self._total)
        if self._on_progress is not None:
            self._on_progress(self._done, self._total)

    # --- beside the journal -------------------------------------------------------------------------------------

    def check_small_files(self) -> None:
        """A start needs them all."""
        if self._disk.exists(f"{self._folder}/{layout.RESTORING}"):
            problem = "a restore that did not finish was filling this directory: run `tidelog restore` on it again"
            self.report.problems.append(Corruption(problem, path=f"{self._folder}/{layout.RESTORING}"))
        for name in (layout.CLOCK, layout.ERASED):
            if self._disk.exists(f"{self._folder}/{name}"):
                self._attempt(lambda name=name: read_stored_ts(self._disk, self._folder, name))  # type: ignore[misc]
        self._attempt(lambda: read_holders_file(self._disk, self._folder))
        self.report.refusal = next(iter(self.report.problems), None)

    def check_start(self) -> None:
        """Do what a start does: decide what counts, and read all of it."""
        problems = len(self.report.problems)
        self._attempt(self._start)
        for problem in self.report.problems[problems:]:
            self.report.refusal = self.report.refusal or problem

    def _start(self) -> None:
        is_known = self._table.is_known
        plan = plan_recovery(self._disk, self._folder, self._meta, is_known)
        self._plan = plan
        try:
            replay(self._disk, self._folder, self._meta, plan, self._decode, lambda _, __, ___: None, is_known)
        except TransactionTorn as error:
            raise Corruption(str(error), path=self._folder) from None

    def note_start(self) -> None:
        report = self.report
        if report.problems and report.refusal is None:
            report.notes.append("a server starts all the same: only what its start does not need is damaged")

    def check_kept_snapshot(self, path: str) -> None:
        """A snapshot of the data directory: proved, but not counted."""
        self.report.snapshots += 1
        self._attempt(lambda: self.nodes.read(open_snapshot(self._disk, path), self._table.is_known))

    def check_snapshot(self, snapshot: Snapshot) -> None:
        """The snapshot that is the subject of the audit."""
        self.report.last_ts = snapshot.point.ts
        is_known = self._table.is_known
        self.nodes.add(snapshot)

        def take(transaction: JournalTransaction, payload_of: Callable[[Part, Record], bytes]) -> None:
            self.count(transaction, payload_of)
            self.nodes.note(transaction, payload_of)

        self._attempt(lambda: snapshot.read(self._disk, take, lambda _: None, self._advance, is_known=is_known))

    def check_nodes(self) -> None:
        """Prove the nodes that the snapshots refer to, file by file."""
        self._total += sum(each.length for each in self.nodes.listed.values())
        for file_id in sorted(self.nodes.listed):
            self._attempt(lambda file_id=file_id: self.add_proof(self.nodes.prove(file_id, self._advance)))  # type: ignore[misc]
        for node in self.nodes.unlisted():
            self._add(missing_list(node, self._folder))
        self.note_lost()
        if self.report.remote_files:
            files = [self.nodes.paths[each] for each in sorted(self.nodes.listed)]
            for path in [path for path in files if is_remote(self._disk, path)]:
                self.report.notes.append(f"{path} lies only in the object store: its nodes were not checked")

    def add_proof(self, proof: FileProof) -> None:
        """What was found in a node file."""
        self.report.nodes += len(proof.sound)
        self.report.lost_nodes += proof.lost
        self.report.remote_files += proof.is_remote
        for problem in proof.problems:
            self._add(problem)

    def note_lost(self) -> None:
        if self.report.lost_nodes:
            self.report.notes.append(
                f"{self.report.lost_nodes} nodes of streams are lost since a repair: reads of their entries fail"
            )

    def note_unneeded(self) -> None:
        """Node files that no snapshot needs: those that a server has made since, or left behind."""
        if not self.report.is_sound:
            return  # what a damaged snapshot needs is unknown
        for name in unneeded_files(self._disk, self._folder, self._meta.shard_count, self.nodes.listed):
            self.report.notes.append(f"no snapshot needs {name}: if no server does either, the next start removes it")

    def _attempt(self, check: Callable[[], object]) -> None:
        try:
            check()
        except Corruption as error:
            self._add(error)
        except FileNotFoundError:
            raise  # a server erases under us: the audit begins anew
        except OSError as error:
            problem = f"the disk cannot read it ({error.strerror})"
            self._add(Corruption(problem, path=str(error.filename or self._folder)))
        except DataDirectoryError as error:
            self._add(Corruption(str(error), path=self._folder))

    def _add(self, error: Corruption) -> None:
        """Once for each place: a start stops at the first, and everything is read more than once."""
        places = [(known.path, known.frame, known.position) for known in self.report.problems]
        if (error.path, error.frame, error.position) not in places:
            self.report.problems.append(error)

    # --- the journal --------------------------------------------------------------------------------------------

    def check_journal_if_readable(self) -> None:
        self._attempt(self._check_journal)

    def _check_journal(self) -> None:
        starts = tuple(self.first_kept(source) for source in self.sources)
        scans = self._start_scans(starts)
        complete = find_complete_cycle(scans)
        if complete.cycle < complete.synced_cycle:
            # A server may have gone on between the ends of two shards. What a mark calls fsynced lay in the files of
            # all shards before that mark did, so that a second look finds it, unless it is gone.
            scans = self._start_scans(starts)
            complete = replace(find_complete_cycle(scans), synced_cycle=complete.synced_cycle)
        ends = [mark.end if mark else None for mark in complete.marks]
        tail_bytes = sum(self.bytes_after(source, end) for source, end in zip(self.sources, ends, strict=True))
        # Damage in older history ends these scans, and does not concern a start.
        found = complete if self._plan is None else self._plan.complete
        report = self.report
        report.cycle, report.synced_cycle, report.last_ts = found.cycle, found.synced_cycle, found.last_ts
        report.tail_bytes = tail_bytes if self._plan is None else self._plan.tail_bytes
        self._attempt(lambda: refuse_rot(scans, complete))
        for scan in find_damage(scans, complete):
            self._check_rest(scan)
        self._attempt(lambda: self._check_transactions(complete, starts))
        self.note_tail()

    def note_tail(self) -> None:
        report = self.report
        if report.is_sound and report.tail_bytes:
            report.notes.append(
                f"{report.tail_bytes} bytes follow the newest complete cycle {report.cycle}: written but never "
                f"complete, or being written right now; the next start sets them aside"
            )

    def first_kept(self, source: ShardSource) -> Lsn:
        """The first segment that is not being erased: a crash may have left some of the files of one that is."""
        segments = source.segments()
        while len(segments) > 1 and self._is_erased(source, segments[1]):
            segments = segments[1:]
        return segments[0] if segments else Lsn(0)

    def _is_erased(self, source: ShardSource, after: Lsn) -> bool:
        """Whether the segment before `after` is."""
        try:
            erased = read_stored_ts(self._disk, self._folder, layout.ERASED)
            return erased is not None and source.proved_header(after).ts <= erased.ts
        except (Corruption, FileNotFoundError):
            return False

    def _start_scans(self, starts: tuple[Lsn, ...]) -> list[ShardScan]:
        return [
            ShardScan(
                source,
                self._meta.shard_count,
                FilePosition(start, 0) if source.segments() else None,
                start,
                self._table.is_known,
            )
            for source, start in zip(self.sources, starts, strict=True)
        ]

    def _check_rest(self, scan: ShardScan) -> None:
        """A shard was damaged somewhere: there may be more damage further on."""
        damage = scan.damage
        if damage is None:
            return
        self._add(damage)
        source = self.sources[scan.shard]
        frame_bytes = self._meta.geometry.frame_bytes
        for segment in source.segments():
            for at in range(0, source.size(segment) - frame_bytes + 1, frame_bytes):
                if source.path(segment) < damage.path or (
                    source.path(segment) == damage.path and at // frame_bytes <= (damage.frame or 0)
                ):
                    continue
                self._attempt(lambda segment=segment, at=at: source.sealed_frame(segment, at))  # type: ignore[misc]

    def bytes_after(self, source: ShardSource, end: FilePosition | None) -> int:
        total = 0
        for segment in source.segments():
            if end is None or segment >= end.segment:
                total += source.size(segment) - (end.at if end is not None and segment == end.segment else 0)
        return total

    def _check_transactions(self, complete: CompleteCycle, starts: tuple[Lsn, ...]) -> None:
        """Read everything that counts the way a loader does, and decode it."""
        ends = tuple(mark.end if mark else None for mark in complete.marks)
        reader = JournalReader(
            self._disk,
            self._folder,
            self._meta.geometry,
            self._meta.shard_count,
            lambda: ends,
            on_read=self._advance,
        )
        try:
            reader.seek_ts(self.first_ts(starts))
            for transaction in reader.read():
                self.count(transaction, reader.payload_of)
        except UnreadableRecord as error:
            raise reader.located(error) from None
        except TransactionTorn as error:
            raise Corruption(str(error), path=self._folder) from None
        finally:
            reader.close()

    def first_ts(self, starts: tuple[Lsn, ...]) -> Ts:
        """Transactions after it are whole. Erased prefixes end at different ones: below the last, parts may be gone."""
        firsts = [source.frame_header(start, 0).ts for source, start in zip(self.sources, starts, strict=True) if start]
        return max(firsts, default=Ts(0))

    def count(self, transaction: JournalTransaction, payload_of: Callable[[Part, Record], bytes]) -> None:
        for part in transaction.parts:
            figures = self.report.shards[part.shard]
            figures.transactions += 1
            figures.records += len(part.records)
            figures.blobs += sum(bool(record.flags & BLOB) for record in part.records)
        self._decode(transaction, payload_of)

    def _decode(self, transaction: JournalTransaction, payload_of: Callable[[Part, Record], bytes]) -> None:
        """As a start does before it applies a record."""
        for part in transaction.parts:
            for record in part.records:
                try:
                    self._table.decode(
                        record.opcode, payload_of(part, record), record.expire_ms if record.expire_ms >= 0 else None
                    )
                except (OSError, MemoryError):
                    raise
                except Exception as error:  # whatever it is, it is told with the place
                    raise unreadable(part, record, error) from error
