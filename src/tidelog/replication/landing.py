"""A full sync as it lands, in `sync/` of the data directory, which stays as it is until all is there.

    sync/snapshots/snapshot-<ts>/...   the files of the leader's snapshot, as they came
    sync/shard-<n>/                    a journal of our own that begins where the snapshot ends: what happened meanwhile
    sync/progress.json                 files that are whole, so that another link, or another process, goes on there

Files are taken up again where a link left them. The journal is not: it is sent from its beginning again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from crc32c import crc32c

from tidelog import limits
from tidelog.errors import Corruption, LinkMisused
from tidelog.hlc import HybridClock, TsFile
from tidelog.ids import Cycle, Lsn, Ts
from tidelog.journal import layout
from tidelog.journal.durability import FsyncPolicy, Resume
from tidelog.journal.layout import read_json, write_json
from tidelog.journal.merge import JournalTransaction
from tidelog.journal.replacement import mark_complete, remove_folder
from tidelog.journal.ring import Ring
from tidelog.journal.scan import IsKnown
from tidelog.journal.shard_writer import ShardState
from tidelog.journal.snapshot import snapshot_path
from tidelog.journal.writer import JournalWriter
from tidelog.ports import Clock, Disk, File
from tidelog.replication.incoming import Incoming, OrderedMessage
from tidelog.replication.message import (
    Acknowledgement,
    Announcement,
    EpochBegins,
    FileEnd,
    FilePart,
    FilePiece,
    FullSync,
    LinkMessage,
    LongPublication,
    LongRecord,
    PayloadPiece,
    Publication,
    Reached,
    SyncFile,
    TransactionParts,
    UnfinishedSync,
)

_PROGRESS: Final = "progress.json"


@dataclass(slots=True)
class LandingFile:
    """One file of the snapshot."""

    listed: SyncFile | None
    """As the leader lists it on this link."""
    size: int
    """What has come of it ..."""
    crc: int
    """... and its checksum."""
    file: File | None = None
    is_whole: bool = False


class Landing:
    """Takes full syncs, one at a time. `begin` for each link."""

    def __init__(self, disk: Disk, folder: str, clock: Clock, is_known: IsKnown) -> None:
        self._disk = disk
        self._folder = folder
        self._sync = f"{folder}/{layout.SYNC}"
        self._clock = clock
        self._is_known = is_known
        self._full: FullSync | None = None
        """The one that is under way on a link."""
        self._ts = Ts(0)
        """Of the snapshot whose files are there; 0: there are none."""
        self._files: dict[str, LandingFile] = {}
        self._listed: list[LandingFile] = []
        """As the leader numbers them."""
        self._unsynced = 0
        """Bytes of files that were written since the last fsync."""
        self._incoming: Incoming | None = None
        self._writer: JournalWriter | None = None
        self._hlc: HybridClock | None = None
        self._read_progress()

    def _read_progress(self) -> None:
        """Go on with what another process left."""
        path = f"{self._sync}/{_PROGRESS}"
        if not self._disk.exists(path):
            return
        try:
            members = read_json(self._disk, path)
            self._ts = Ts(members["ts"])
            for name, size, crc in members["files"]:
                self._files[name] = LandingFile(None, size, crc, is_whole=True)
        except (Corruption, KeyError, TypeError, ValueError):
            self._ts, self._files = Ts(0), {}  # it is sent again

    @property
    def bytes_total(self) -> int:
        return 0 if self._full is None else self._full.size

    @property
    def bytes_left(self) -> int:
        if self._full is None:
            return 0
        return self._full.size - sum(file.size for file in self._listed)

    def unfinished(self) -> UnfinishedSync | None:
        """What there is, for the hello."""
        if not self._ts or not self._files:
            return None
        parts = [FilePart(name, file.size, file.crc) for name, file in sorted(self._files.items()) if file.size]
        return UnfinishedSync(self._ts, tuple(parts[: limits.REPLICATION_UNFINISHED_MAX]))

    # --- a link -------------------------------------------------------------------------------------------------

    def begin(self, full: FullSync) -> None:
        """The leader is about to send a snapshot."""
        disk = self._disk
        if full.ts != self._ts:
            self.discard()
        disk.make_folder(self._sync)
        self._drop_journal()
        disk.make_folder(f"{self._sync}/{layout.SNAPSHOTS}")
        disk.make_folder(self._snapshot(full.ts))
        disk.sync_folder(f"{self._sync}/{layout.SNAPSHOTS}")
        disk.sync_folder(self._sync)
        disk.sync_folder(self._folder)
        self._full, self._ts = full, full.ts
        self._listed = []
        self._incoming = Incoming(Reached(full.ts, full.lsns), self._is_known)

    def _snapshot(self, ts: Ts) -> str:
        return snapshot_path(self._sync, ts)

    def _drop_journal(self) -> None:
        """What came beside the files on an earlier link is sent again."""
        self._close_journal()
        for name in self._disk.list(self._sync):
            if name.startswith("shard-"):
                remove_folder(self._disk, f"{self._sync}/{name}")

    def take(self, message: LinkMessage) -> None:
        """Something came, of whatever is sent during a full sync."""
        if isinstance(message, FilePiece):
            self._take_piece(message)
        elif isinstance(message, SyncFile):
            self._add_file(message)
        elif isinstance(message, FileEnd):
            self._end_file(message)
        elif isinstance(message, (TransactionParts, LongRecord, PayloadPiece, EpochBegins)):
            self._take_history(message)
        elif not isinstance(message, (Announcement, Publication, LongPublication)):
            raise LinkMisused(f"{type(message).__name__} came inside of a full sync")

    # --- files --------------------------------------------------------------------------------------------------

    def _add_file(self, listed: SyncFile) -> None:
        """The next file of the list."""
        if self._full is None or listed.number != len(self._listed) or len(self._listed) >= self._full.files:
            raise LinkMisused(f"file {listed.number} is listed where {len(self._listed)} is due")
        known = self._files.get(listed.name)
        if known is None or known.size < listed.begin:
            if listed.begin:
                raise LinkMisused(f"{listed.name} is sent from {listed.begin} on, and less of it is here")
            known = None
        if known is None or known.size > listed.begin:
            known = LandingFile(listed, 0, 0)
        known.listed, known.is_whole = listed, False
        self._files[listed.name] = known
        self._listed.append(known)

    def _take_piece(self, piece: FilePiece) -> None:
        """Hot while a full sync is under way."""
        file = self._at(piece.number)
        listed = file.listed
        assert listed is not None
        if piece.position != file.size or file.size + len(piece.data) > listed.size:
            raise LinkMisused(f"{listed.name} goes on at {piece.position} where {file.size} of {listed.size} are here")
        if file.file is None:
            file.file = self._open(listed.name)
        layout.write_all(file.file, piece.position, [piece.data])
        file.size += len(piece.data)
        file.crc = crc32c(piece.data, file.crc)
        self._unsynced += len(piece.data)
        if self._unsynced >= limits.LANDING_SYNC_BYTES:
            # Little by little: at the end of a large file, everyone here would wait for the disk.
            file.file.sync()
            self._unsynced = 0

    def _at(self, number: int) -> LandingFile:
        if not 0 <= number < len(self._listed):
            raise LinkMisused(f"file {number} was not listed")
        return self._listed[number]

    def _open(self, name: str) -> File:
        """For writing; folders on the way are made."""
        folder = self._snapshot(self._ts)
        *folders, _ = name.split("/")
        for each in folders:
            folder = f"{folder}/{each}"
            self._disk.make_folder(folder)
        path = f"{self._snapshot(self._ts)}/{name}"
        if not self._disk.exists(path):
            self._disk.open(path, "create").close()
        return self._disk.open(path, "write")

    def _end_file(self, end: FileEnd) -> None:
        file = self._at(end.number)
        listed = file.listed
        assert listed is not None
        if file.size != listed.size or file.crc != end.crc:
            del self._files[listed.name]
            self._write_progress()
            raise LinkMisused(
                f"{listed.name} has {file.size} of {listed.size} bytes, or another checksum than it should"
            )
        if file.file is None:
            file.file = self._open(listed.name)
        file.file.truncate(file.size)
        file.file.sync()
        file.file.close()
        file.file = None
        self._disk.sync_folder(f"{self._snapshot(self._ts)}/{listed.name}".rpartition("/")[0])
        self._disk.sync_folder(self._snapshot(self._ts))
        file.is_whole = True
        self._write_progress()
        if listed.name == layout.META:
            self._open_journal()

    def _write_progress(self) -> None:
        whole = [[name, file.size, file.crc] for name, file in sorted(self._files.items()) if file.is_whole]
        write_json(self._disk, f"{self._sync}/{_PROGRESS}", {"ts": self._ts, "files": whole})

    # --- what happens meanwhile ---------------------------------------------------------------------------------

    def _open_journal(self) -> None:
        """The snapshot says how its journal is to be laid out."""
        assert self._full is not None
        meta = replace(layout.read_meta(self._disk, self._snapshot(self._ts)), point=None)
        if meta.shard_count != len(self._full.lsns):
            raise LinkMisused(f"a snapshot of {meta.shard_count} shards, and a history of {len(self._full.lsns)}")
        layout.make_shard_folders(self._disk, self._sync, meta.shard_count)
        layout.write_shard_metas(self._disk, self._sync, meta)
        layout.write_meta(self._disk, self._sync, meta)
        self._hlc = HybridClock(self._clock, TsFile.open(self._disk, self._sync, layout.CLOCK))
        states = tuple(ShardState(None, lsn, Ts(0), 0, 0, 0) for lsn in self._full.lsns)
        resume = Resume(states, Cycle(0), Cycle(0), self._full.ts)
        self._writer = JournalWriter(
            self._disk, self._sync, meta, resume, self._hlc, FsyncPolicy.EVERYSEC, Ring(meta.shard_count, 0)
        )

    def _take_history(self, message: OrderedMessage) -> None:
        """Some of the history after the snapshot."""
        if self._writer is None or self._incoming is None:
            raise LinkMisused("history came before the description of the snapshot that it follows")
        for whole in self._incoming.take(message):
            if isinstance(whole, JournalTransaction):
                if self._writer.batch_bytes >= limits.BATCH_BYTES_FULL:
                    self._writer.write()
                self._writer.append_received(whole)
            elif isinstance(whole, EpochBegins):
                self._writer.append_epoch(whole.epoch, self._writer.last_ts or whole.epoch.first_ts)

    def write(self) -> None:
        """Write what has come."""
        if self._writer is not None:
            self._writer.write()
            if self._writer.unsynced_bytes >= limits.LANDING_SYNC_BYTES:
                self._writer.sync()

    def acknowledgement(self) -> Acknowledgement:
        """So that the leader need not keep its journal for us: what came beside the files is ours now."""
        assert self._full is not None
        reached = Reached(self._full.ts, self._full.lsns)
        if self._writer is not None:
            reached = Reached(self._writer.written.ts, self._writer.written.lsns)
        return Acknowledgement(reached, Reached(Ts(0), (Lsn(0),) * len(reached.lsns)))

    # --- the end ------------------------------------------------------------------------------------------------

    @property
    def is_whole(self) -> bool:
        """All files are there, and nothing of the history is half here."""
        return (
            self._full is not None
            and self._writer is not None
            and len(self._listed) == self._full.files
            and all(file.is_whole for file in self._listed)
        )

    def finish(self, *, keeps_old: bool) -> None:
        """Make it durable; from then on it counts, and `finish_replacement` puts it in its place."""
        assert self._full is not None
        assert self._writer is not None
        assert self._hlc is not None
        self._writer.close()
        self._hlc.close(clean=False)
        self._writer = self._hlc = None
        erased = TsFile.open(self._disk, self._sync, layout.ERASED)
        erased.store(self._full.ts)
        erased.close()
        self._disk.sync_folder(self._sync)
        mark_complete(self._disk, self._folder, keeps_old=keeps_old)
        self._forget()

    def interrupt(self) -> None:
        """The link is gone: keep what is there."""
        self._close_journal()
        for file in self._files.values():
            if file.file is not None:
                file.file.close()
                file.file = None
        self._full = self._incoming = None

    def _close_journal(self) -> None:
        if self._writer is not None:
            self._writer.abandon()
            self._writer = None
        if self._hlc is not None:
            self._hlc.close(clean=False)
            self._hlc = None

    def discard(self) -> None:
        """Nothing of it is wanted any more."""
        self.interrupt()
        self._forget()
        if self._disk.exists(self._sync):
            remove_folder(self._disk, self._sync)
            self._disk.sync_folder(self._folder)

    def _forget(self) -> None:
        self._full, self._ts, self._files, self._listed, self._incoming = None, Ts(0), {}, [], None
