"""Recovery, second half: decide what counts, cut the rest durably, and replay it.

    plan     read only: the newest complete snapshot, the newest complete cycle after it, or a refusal
    cut      truncate each shard after its newest mark at or below that cycle, remove what follows, fsync it all
    replay   hand the snapshot's records, then the journal's transactions, to the store

A crash at any moment leads back to the same plan: nothing that is cut could have counted, and nothing new is written
before the cut is durable. The part that stays is fsynced too: it may have survived in the page cache alone, and from
now on readers see it as history.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from crc32c import crc32c

from tidelog.errors import Corruption
from tidelog.ids import Lsn, ShardId, Ts
from tidelog.journal import control
from tidelog.journal.blob import decode_reference
from tidelog.journal.durability import Resume
from tidelog.journal.frame import CRC_BYTES, Geometry, decode_header
from tidelog.journal.layout import Meta, read_file, shard_folder, write_all
from tidelog.journal.merge import JournalReader, JournalTransaction
from tidelog.journal.reader import LoadStrings, Part, Record
from tidelog.journal.record import BLOB, walk
from tidelog.journal.scan import CompleteCycle, ShardScan, find_complete_cycle
from tidelog.journal.segment import (
    FilePosition,
    blob_name,
    journal_name,
    list_segments,
    owner_of,
    remove_segment,
    sidecar_name,
)
from tidelog.journal.shard_writer import ShardState
from tidelog.journal.sidecar import decode_summaries
from tidelog.journal.snapshot import Snapshot, newest_snapshot
from tidelog.journal.source import ShardSource
from tidelog.ports import Disk

PayloadOf = Callable[[Part, Record], bytes]
Apply = Callable[[JournalTransaction, PayloadOf], None]
"""Takes one transaction after the other; the second argument gives a record's payload, wherever it lies."""


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """What a recovery will do."""

    snapshot: Snapshot | None
    complete: CompleteCycle
    cuts: tuple[FilePosition | None, ...]
    """Per shard, where its journal ends; None: it has none."""
    lsns: tuple[Lsn, ...]
    """Per shard, the next lsn."""
    tail_bytes: int
    """How much is cut: written, but never complete."""

    @property
    def last_ts(self) -> Ts:
        return max(self.complete.last_ts, self.snapshot.point.ts if self.snapshot else Ts(0))


def plan_recovery(disk: Disk, folder: str, meta: Meta) -> RecoveryPlan:
    """Decide what counts. Raises `Corruption` for rot: damage at or below what was known to be synced."""
    return plan_recovery_from(disk, folder, meta, newest_snapshot(disk, folder))


def plan_recovery_from(disk: Disk, folder: str, meta: Meta, snapshot: Snapshot | None) -> RecoveryPlan:
    """The same from a given snapshot, or from the beginning of the journal."""
    if snapshot is not None and snapshot.meta.shard_count != meta.shard_count:
        raise Corruption(
            f"it has {snapshot.meta.shard_count} shards, the journal {meta.shard_count}", path=snapshot.path
        )
    needed = snapshot.point.lsns if snapshot else (Lsn(0),) * meta.shard_count
    scans = start_scans(disk, folder, meta, needed)
    try:
        complete = find_complete_cycle(scans)
        refuse_rot(scans, complete)
        if snapshot is not None:
            refuse_gap(snapshot, scans, complete)
        return plan_cuts(disk, folder, snapshot, scans, complete)
    finally:
        for scan in scans:
            scan.close()


def start_scans(disk: Disk, folder: str, meta: Meta, needed: tuple[Lsn, ...]) -> list[ShardScan]:
    """One scan a shard, each from the frame before the lsn that is needed."""
    scans = []
    for shard in range(meta.shard_count):
        source = ShardSource(disk, shard_folder(folder, shard), meta.geometry, ShardId(shard))
        scans.append(ShardScan(source, meta.shard_count, _start_position(source, needed[shard]), needed[shard]))
    return scans


def _start_position(source: ShardSource, lsn: Lsn) -> FilePosition | None:
    """The newest frame that begins before `lsn`, so that the mark under which `lsn` ends lies in or after it."""
    segments = source.segments()
    if not segments:
        return None
    if segments[0] > lsn:
        raise Corruption(
            f"the journal begins at lsn {segments[0]}, but no snapshot reaches further than {lsn}",
            path=source.path(segments[0]),
        )
    segment = max([first for first in segments if first < lsn], default=segments[0])
    at = 0
    for after in range(source.geometry.frame_bytes, source.geometry.segment_bytes, source.geometry.frame_bytes):
        try:
            if source.frame_header(segment, after).lsn >= lsn:
                break
        except Corruption:
            break
        at = after
    return FilePosition(segment, at)


def refuse_rot(scans: list[ShardScan], complete: CompleteCycle) -> None:
    """Damage at or below the highest synced cycle is not a torn tail."""
    if complete.cycle >= complete.synced_cycle:
        return
    for scan in scans:
        if scan.damage is not None:
            damage = scan.damage
            raise Corruption(
                f"{damage.problem}; cycle {complete.synced_cycle} was fsynced, but only {complete.cycle} is whole. "
                f"`tidelog journal repair` cuts here and sets aside what it cuts",
                path=damage.path,
                frame=damage.frame,
                position=damage.position,
            )
    raise Corruption(
        f"cycle {complete.synced_cycle} was fsynced, but only cycle {complete.cycle} is whole: files are missing or "
        f"were cut. `tidelog journal repair` goes back to that cycle",
        path=scans[0].folder,
    )


def refuse_gap(snapshot: Snapshot, scans: list[ShardScan], complete: CompleteCycle) -> None:
    """A journal that ends before the snapshot has lost what was fsynced."""
    for scan, end, needed in zip(scans, complete.ends, snapshot.point.lsns, strict=True):
        if end < needed:
            damage = scan.damage
            raise Corruption(
                f"the journal of shard {scan.shard} ends at lsn {end}, before the snapshot at lsn {needed}: "
                f"`tidelog journal repair` sets it aside",
                path=damage.path if damage else scan.folder,
                frame=damage.frame if damage else None,
                position=damage.position if damage else None,
            )


def plan_cuts(
    disk: Disk, folder: str, snapshot: Snapshot | None, scans: list[ShardScan], complete: CompleteCycle
) -> RecoveryPlan:
    """Where each shard ends if the complete cycle is the last."""
    cuts: list[FilePosition | None] = []
    lsns: list[Lsn] = []
    tail_bytes = 0
    for scan, mark, end in zip(scans, complete.marks, complete.ends, strict=True):
        if mark is None and scan.start is not None and scan.start.at:
            raise Corruption(
                f"no mark of shard {scan.shard} at or below cycle {complete.cycle}",
                path=scan.folder,
                position=scan.start.at,
            )
        cut = mark.end if mark is not None else None
        cuts.append(cut)
        lsns.append(max(end, snapshot.point.lsns[scan.shard]) if snapshot else end)
        tail_bytes += _bytes_after(disk, shard_folder(folder, scan.shard), scan.start, cut)
    return RecoveryPlan(snapshot, complete, tuple(cuts), tuple(lsns), tail_bytes)


def _bytes_after(disk: Disk, folder: str, start: FilePosition | None, cut: FilePosition | None) -> int:
    if start is None:
        return 0
    total = 0
    for segment in list_segments(disk, folder):
        if segment < start.segment or (cut is not None and segment < cut.segment):
            continue
        file = disk.open(f"{folder}/{journal_name(segment)}", "read")
        kept = cut.at if cut is not None and cut.segment == segment else 0
        total += max(0, file.size() - kept)
        file.close()
    return total


def cut_tails(disk: Disk, folder: str, meta: Meta, plan: RecoveryPlan) -> Resume:
    """Cut what does not count and make the rest durable; afterwards a writer may go on."""
    states = []
    for shard in range(meta.shard_count):
        path = shard_folder(folder, shard)
        cut = plan.cuts[shard]
        _remove_after(disk, path, cut)
        if cut is None:
            states.append(ShardState(None, plan.lsns[shard], Ts(0), 0, 0, 0))
            continue
        _truncate(disk, path, cut, meta.geometry.frame_bytes)
        _write_again(disk, path, meta.geometry, plan.complete.synced_places[shard], cut)
        _sync_all(disk, path)
        states.append(_state_at(disk, path, meta, cut, plan.lsns[shard]))
    return Resume(tuple(states), plan.complete.cycle, plan.complete.cycle, plan.last_ts)


def _remove_after(disk: Disk, folder: str, cut: FilePosition | None) -> None:
    """Remove the segments behind the cut, newest first, and files that no segment owns."""
    segments = list_segments(disk, folder)
    for segment in reversed(segments):
        if cut is None or segment > cut.segment:
            remove_segment(disk, folder, segment)
    kept = {segment for segment in segments if cut is not None and segment <= cut.segment}
    for name in disk.list(folder):
        owner = owner_of(name)
        if owner is not None and owner not in kept:
            disk.remove(f"{folder}/{name}")
    disk.sync_folder(folder)


def _truncate(disk: Disk, folder: str, cut: FilePosition, frame_bytes: int) -> None:
    file = disk.open(f"{folder}/{journal_name(cut.segment)}", "write")
    try:
        if file.size() > cut.at:
            file.truncate(cut.at)
    finally:
        file.close()
    _remove_stale_sidecar(disk, folder, cut, frame_bytes)


def _write_again(disk: Disk, folder: str, geometry: Geometry, start: FilePosition | None, cut: FilePosition) -> None:
    """Write what is kept and not known to be fsynced in its own place again, with its blobs.

    If an fsync failed and only the process was restarted, the kernel may hold pages that never reached the disk and
    that it takes for clean: an fsync alone would change nothing about them.
    """
    assert start is not None
    source = ShardSource(disk, folder, geometry, ShardId(0))
    for segment in [each for each in list_segments(disk, folder) if start.segment <= each <= cut.segment]:
        begin = start.at if segment == start.segment else 0
        end = cut.at if segment == cut.segment else geometry.segment_bytes
        file = disk.open(f"{folder}/{journal_name(segment)}", "write")
        try:
            for frame_start in range(begin - begin % geometry.frame_bytes, end, geometry.frame_bytes):
                data = file.read(frame_start, min(geometry.frame_bytes, end - frame_start))
                first = max(begin - frame_start, 0)
                for found in walk(data, decode_header(data).size, min(len(data), geometry.frame_bytes - CRC_BYTES)):
                    if found.start >= first and found.flags & BLOB:
                        source.write_blob_again(decode_reference(data[found.payload : found.payload_end]))
                write_all(file, frame_start + first, [data[first:]])
        finally:
            file.close()
    source.close()


def _sync_all(disk: Disk, folder: str) -> None:
    for segment in list_segments(disk, folder):
        for name in (blob_name(segment), journal_name(segment)):
            if disk.exists(f"{folder}/{name}"):
                file = disk.open(f"{folder}/{name}", "write")
                try:
                    file.sync()
                finally:
                    file.close()
    disk.sync_folder(folder)


def _remove_stale_sidecar(disk: Disk, folder: str, cut: FilePosition, frame_bytes: int) -> None:
    """Remove one that speaks of frames which are open again, be it that we cut them or that the power cut took them."""
    path = f"{folder}/{sidecar_name(cut.segment)}"
    if disk.exists(path) and len(decode_summaries(read_file(disk, path))) > cut.at // frame_bytes:
        disk.remove(path)


def _state_at(disk: Disk, folder: str, meta: Meta, end: FilePosition, next_lsn: Lsn) -> ShardState:
    """What a writer must know of the frame that is open at `end`."""
    frame_start = end.at - end.at % meta.geometry.frame_bytes
    file = disk.open(f"{folder}/{journal_name(end.segment)}", "read")
    try:
        data = file.read(frame_start, end.at - frame_start)
    finally:
        file.close()
    header = decode_header(data)
    database = 0
    for found in walk(data, header.size, len(data)):
        if found.opcode == control.SELECT:
            database = control.decode_select(data[found.payload : found.payload_end])
    blob_path = f"{folder}/{blob_name(end.segment)}"
    blob_end = 0
    if disk.exists(blob_path):
        file = disk.open(blob_path, "read")
        blob_end = file.size()
        file.close()
    return ShardState(end, next_lsn, header.ts, crc32c(data), database, blob_end)


def replay(
    disk: Disk, folder: str, meta: Meta, plan: RecoveryPlan, apply: Apply, load_strings: LoadStrings | None = None
) -> list[control.Epoch]:
    """Hand out everything that counts, in order; returns the epochs, oldest first."""
    epochs: list[control.Epoch] = []
    start: tuple[Lsn, ...] = (Lsn(0),) * meta.shard_count
    if plan.snapshot is not None:
        plan.snapshot.read(disk, apply, epochs.append, load_strings=load_strings)
        start = plan.snapshot.point.lsns
    reader = JournalReader(disk, folder, meta.geometry, meta.shard_count, lambda: plan.cuts, on_epoch=epochs.append)
    try:
        reader.seek_lsns(start)
        if load_strings is not None:
            reader.load(lambda transaction: apply(transaction, reader.payload_of), load_strings)
        else:
            for transaction in reader.read():
                apply(transaction, reader.payload_of)
    finally:
        reader.close()
    return list({epoch.id: epoch for epoch in epochs}.values())  # the snapshot and the journal overlap
