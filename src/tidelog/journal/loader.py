"""Recovery, second half: decide what counts, cut the rest durably, and replay it.

    plan     read only: the newest complete snapshot, the newest complete cycle after it, or a refusal
    tail     what follows that cycle is set aside (`tail`)
    cut      truncate each shard after its newest mark at or below that cycle, move away what follows, fsync it all
    replay   hand the snapshot's records, then the journal's transactions, to the store

A crash at any moment leads back to the same plan: nothing that is cut could have counted, and nothing new is written
before the cut is durable. Segments go newest first, each durably: none may ever be missing before another. The part
that stays is fsynced too: it may have survived in the page cache alone, and from
now on readers see it as history.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from crc32c import crc32c

from tidelog.errors import Corruption, NewerFormat, UnreadableRecord
from tidelog.ids import Lsn, ShardId, Ts
from tidelog.journal import control
from tidelog.journal.blob import decode_reference
from tidelog.journal.cycles import CompleteCycle, IsBeyond, find_complete_cycle, find_damage
from tidelog.journal.durability import Resume
from tidelog.journal.frame import CRC_BYTES, Geometry, decode_header
from tidelog.journal.layout import Meta, check_shard_metas, read_file, shard_folder, write_all
from tidelog.journal.merge import JournalReader, JournalTransaction
from tidelog.journal.reader import LoadStrings, Part, Record
from tidelog.journal.record import BLOB, walk
from tidelog.journal.scan import IsKnown, ShardScan
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
from tidelog.journal.snapshot_nodes import check_lengths
from tidelog.journal.source import ShardSource
from tidelog.journal.tail import TornTail, find_tail, free_path
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
    tail: TornTail
    """What is cut: written, but never complete."""

    @property
    def tail_bytes(self) -> int:
        """How much of the journal is cut."""
        return self.tail.journal_bytes

    @property
    def last_ts(self) -> Ts:
        return max(self.complete.last_ts, self.snapshot.point.ts if self.snapshot else Ts(0))


def plan_recovery(disk: Disk, folder: str, meta: Meta, is_known: IsKnown | None = None) -> RecoveryPlan:
    """Decide what counts. Raises `Corruption` for rot: damage at or below what was known to be synced.

    `is_known`: which opcodes are; one that is not is refused, as a newer version may have written it.
    """
    check_shard_metas(disk, folder, meta)
    return plan_recovery_from(disk, folder, meta, newest_snapshot(disk, folder), is_known)


def plan_recovery_from(
    disk: Disk,
    folder: str,
    meta: Meta,
    snapshot: Snapshot | None,
    is_known: IsKnown | None = None,
    is_beyond: IsBeyond | None = None,
) -> RecoveryPlan:
    """The same from a given snapshot, or from the beginning of the journal, up to the first cycle that `is_beyond`."""
    if snapshot is not None:
        refuse_other(snapshot, meta)
        check_lengths(disk, snapshot)
    needed = snapshot.point.lsns if snapshot else (Lsn(0),) * meta.shard_count
    scans = start_scans(disk, folder, meta, needed, is_known)
    try:
        complete = find_complete_cycle(scans, is_beyond)
        if complete.cycle < complete.synced_cycle:
            # It will be refused, unless this is an audit beside a server, which went on between the ends of two shards.
            # What a mark calls fsynced lay in the files of all shards before that mark did: look again.
            _close(scans)
            scans = start_scans(disk, folder, meta, needed, is_known)
            complete = replace(find_complete_cycle(scans, is_beyond), synced_cycle=complete.synced_cycle)
        refuse_rot(scans, complete)
        if snapshot is not None:
            refuse_gap(snapshot, scans, complete)
        return plan_cuts(disk, folder, meta, snapshot, scans, complete)
    finally:
        _close(scans)


def _close(scans: list[ShardScan]) -> None:
    for scan in scans:
        scan.close()


def refuse_other(snapshot: Snapshot, meta: Meta) -> None:
    """A snapshot has the shards and the sizes of its directory, unless one of them is not what it was."""
    if snapshot.meta.shard_count != meta.shard_count:
        problem = f"it has {snapshot.meta.shard_count} shards, the journal {meta.shard_count}"
    elif snapshot.meta.geometry != meta.geometry:
        problem = f"its frames and segments are {snapshot.meta.geometry}, those of the journal {meta.geometry}"
    else:
        return
    raise Corruption(problem, path=snapshot.path)


def start_scans(
    disk: Disk, folder: str, meta: Meta, needed: tuple[Lsn, ...], is_known: IsKnown | None = None
) -> list[ShardScan]:
    """One scan a shard, each from the frame before the lsn that is needed."""
    sources = [
        ShardSource(disk, shard_folder(folder, shard), meta.geometry, ShardId(shard))
        for shard in range(meta.shard_count)
    ]
    try:
        starts = [_start_position(source, first) for source, first in zip(sources, needed, strict=True)]
    except BaseException:
        for source in sources:
            source.close()
        raise
    return [
        ShardScan(source, meta.shard_count, start, first, is_known)
        for source, start, first in zip(sources, starts, needed, strict=True)
    ]


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
            head = source.frame_header(segment, after)
        except Corruption:
            break
        if head.lsn >= lsn or not head.ts:  # without a ts, a crash has torn it, and perhaps its lsn
            break
        at = after
    return FilePosition(segment, at)


def refuse_rot(scans: list[ShardScan], complete: CompleteCycle) -> None:
    """Damage at or below the highest synced cycle is not a torn tail, and neither is what no crash leaves behind."""
    damaged = find_damage(scans, complete)
    for scan in damaged:
        damage = scan.damage
        if isinstance(damage, NewerFormat) and scan.is_refused:
            raise damage
        if damage is not None:
            is_known_synced = complete.cycle < complete.synced_cycle
            synced = f"; cycle {complete.synced_cycle} was fsynced, but only {complete.cycle} is whole"
            raise Corruption(
                f"{damage.problem}{synced if is_known_synced else ''}. "
                f"`tidelog journal repair` cuts here and sets aside what it cuts",
                path=damage.path,
                frame=damage.frame,
                position=damage.position,
            )
    if complete.cycle >= complete.synced_cycle:
        return
    folder = damaged[0].folder if damaged else scans[0].folder
    raise Corruption(
        f"cycle {complete.synced_cycle} was fsynced, but only cycle {complete.cycle} is whole: files are missing or "
        f"were cut. `tidelog journal repair` goes back to that cycle",
        path=folder,
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
    disk: Disk, folder: str, meta: Meta, snapshot: Snapshot | None, scans: list[ShardScan], complete: CompleteCycle
) -> RecoveryPlan:
    """Where each shard ends if the complete cycle is the last."""
    cuts: list[FilePosition | None] = []
    lsns: list[Lsn] = []
    for scan, mark, end in zip(scans, complete.marks, complete.ends, strict=True):
        if mark is None and scan.start is not None and scan.start.at:
            raise Corruption(
                f"no mark of shard {scan.shard} at or below cycle {complete.cycle}",
                path=scan.folder,
                position=scan.start.at,
            )
        cuts.append(mark.end if mark is not None else None)
        lsns.append(max(end, snapshot.point.lsns[scan.shard]) if snapshot else end)
    tail = find_tail(disk, folder, meta.geometry, tuple(cuts), complete.last_ts)
    return RecoveryPlan(snapshot, complete, tuple(cuts), tuple(lsns), tail)


def cut_tails(disk: Disk, folder: str, meta: Meta, plan: RecoveryPlan, aside: str | None = None) -> Resume:
    """Cut what does not count and make the rest durable; afterwards a writer may go on.

    `aside`: the folder that whole files are moved to; None: they are kept elsewhere already, and go.
    """
    states = []
    for shard in range(meta.shard_count):
        path = shard_folder(folder, shard)
        cut = plan.cuts[shard]
        _remove_after(disk, path, cut, None if aside is None else shard_folder(aside, shard))
        if cut is None:
            states.append(ShardState(None, plan.lsns[shard], Ts(0), 0, 0, 0))
            continue
        _truncate(disk, path, cut, meta.geometry.frame_bytes)
        _write_again(disk, path, meta.geometry, plan.complete.synced_places[shard], cut)
        _sync_all(disk, path)
        states.append(_state_at(disk, path, meta, cut, plan.lsns[shard]))
    return Resume(tuple(states), plan.complete.cycle, plan.complete.cycle, plan.last_ts)


def _remove_after(disk: Disk, folder: str, cut: FilePosition | None, aside: str | None) -> None:
    """Move away the segments behind the cut, newest first, and remove other files that no segment owns."""
    segments = list_segments(disk, folder)
    kept = {segment for segment in segments if cut is not None and segment <= cut.segment}
    owners = {owner for name in disk.list(folder) if (owner := owner_of(name)) is not None and owner not in kept}
    for owner in sorted(owners, reverse=True):
        if aside is not None and (cut is None or owner > cut.segment):
            disk.make_folder(aside)
            for name in (blob_name(owner), journal_name(owner)):
                if disk.exists(f"{folder}/{name}"):
                    disk.rename(f"{folder}/{name}", free_path(disk, f"{aside}/{name}"))
            disk.sync_folder(aside)
        remove_segment(disk, folder, owner)
        disk.sync_folder(folder)
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
    disk: Disk,
    folder: str,
    meta: Meta,
    plan: RecoveryPlan,
    apply: Apply,
    load_strings: LoadStrings | None = None,
    is_known: IsKnown | None = None,
) -> list[control.Epoch]:
    """Hand out everything that counts, in order; returns the epochs, oldest first."""
    epochs: list[control.Epoch] = []
    start: tuple[Lsn, ...] = (Lsn(0),) * meta.shard_count
    if plan.snapshot is not None:
        plan.snapshot.read(disk, apply, epochs.append, load_strings=load_strings, is_known=is_known)
        start = plan.snapshot.point.lsns
    reader = JournalReader(disk, folder, meta.geometry, meta.shard_count, lambda: plan.cuts, on_epoch=epochs.append)
    try:
        reader.seek_lsns(start)
        if load_strings is not None:
            reader.load(lambda transaction: apply(transaction, reader.payload_of), load_strings)
        else:
            for transaction in reader.read():
                apply(transaction, reader.payload_of)
    except UnreadableRecord as error:
        raise reader.located(error) from None
    finally:
        reader.close()
    return list({epoch.id: epoch for epoch in epochs}.values())  # the snapshot and the journal overlap
