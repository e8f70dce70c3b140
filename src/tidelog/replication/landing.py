"""A full sync as it lands, in `sync/` of the data directory, which stays as it is until all is there.

    sync/snapshots/snapshot-<ts>/...   the files of the leader's snapshot, as they came
    sync/shard-<n>/                    a journal of our own that begins where the snapshot ends: what happened meanwhile
                                       ... and the node files that the snapshot lists, as they came
    sync/progress.json                 files that are whole, so that another link, or another process, goes on there

Files are taken up again where a link left them. The journal is not: it is sent from its beginning again.

Here it is decided what may come, and when all is there. A thread writes and fsyncs it, in the order in which it came
(`landing_disk`), while clients are served from what the server had before. Nothing counts before the thread is done
with it, and the link is not read from while too much waits for the thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from crc32c import crc32c

from tidelog import limits
from tidelog.errors import Corruption, EnvironmentFault, LinkMisused
from tidelog.ids import Lsn, Ts
from tidelog.journal import layout
from tidelog.journal.layout import read_json
from tidelog.journal.merge import JournalTransaction
from tidelog.journal.node_format import shard_of_inner_path
from tidelog.journal.replacement import mark_complete
from tidelog.journal.scan import IsKnown
from tidelog.ports import Clock, Disk, Worker
from tidelog.replication.disk_queue import DiskQueue
from tidelog.replication.incoming import Incoming, LongTransaction, OrderedMessage, Whole
from tidelog.replication.landing_disk import PROGRESS, LandingDisk
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

_LOG: Final = logging.getLogger("tidelog")


@dataclass(slots=True)
class LandingFile:
    """One file of the snapshot."""

    listed: SyncFile | None
    """As the leader lists it on this link."""
    size: int
    """What has come of it ..."""
    crc: int
    """... and its checksum ..."""
    written: tuple[int, int]
    """... and the same of what is written."""
    has_ended: bool = False
    """All of it has come."""
    is_whole: bool = False
    """All of it is durable."""


class LandingOwner(Protocol):
    """Who receives a full sync. Both are called by the loop, never inside of a call of `Landing`."""

    def landing_went_on(self) -> None:
        """The thread has done some more."""

    def landing_failed(self, error: OSError | EnvironmentFault) -> None:
        """It could not: the link must end."""


class Landing:
    """Takes full syncs, one at a time; `begin` for each link. One per process: so it knows what a thread still does."""

    def __init__(self, disk: Disk, folder: str, clock: Clock, is_known: IsKnown, worker: Worker) -> None:
        self._disk = disk
        self._folder = folder
        self._is_known = is_known
        self._landing_disk = LandingDisk(disk, folder, clock)
        self._queue = DiskQueue(worker, _ignore, _tell_leftovers)
        self._full: FullSync | None = None
        """The one that is under way on a link."""
        self._database_id = ""
        """Whose it is."""
        self._ts = Ts(0)
        """Of the snapshot whose files are there; 0: there are none."""
        self._files: dict[str, LandingFile] = {}
        self._listed: list[LandingFile] = []
        """As the leader numbers them."""
        self._incoming: Incoming | None = None
        """What comes beside the files; None: not before the journal has its description."""
        self._has_journal = self._is_unwritten = False
        """There is a journal to append to, and something was appended that is to be written."""
        self._written = Reached(Ts(0), ())
        """How far the journal goes."""
        self._is_finishing = False
        """All is there: nothing more is taken."""
        self.has_landed = False
        """... and durable: it can be completed."""
        self._read_progress()

    def _read_progress(self) -> None:
        """Go on with what another process left."""
        path = f"{self._folder}/{layout.SYNC}/{PROGRESS}"
        if not self._disk.exists(path):
            return
        try:
            members = read_json(self._disk, path)
            self._ts = Ts(members["ts"])
            for name, size, crc in members["files"]:
                self._files[name] = LandingFile(None, size, crc, (size, crc), has_ended=True, is_whole=True)
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
        parts = [FilePart(name, *file.written) for name, file in sorted(self._files.items()) if file.written[0]]
        return UnfinishedSync(self._ts, tuple(parts[: limits.REPLICATION_UNFINISHED_MAX]))

    # --- a link -------------------------------------------------------------------------------------------------

    def begin(self, full: FullSync, database_id: str, owner: LandingOwner) -> None:
        """The leader is about to send a snapshot. The id is its own: its snapshot may be older than that."""
        self.interrupt()
        keeps_files = full.ts == self._ts
        if not keeps_files:
            self._forget()
        self._full, self._ts, self._database_id = full, full.ts, database_id
        self._incoming = Incoming(Reached(full.ts, full.lsns), self._is_known, leaves_large=True)
        self._written = Reached(full.ts, full.lsns)
        self._queue.on_end, self._queue.on_failure = owner.landing_went_on, partial(self._fail, owner)
        self._queue.add(partial(self._landing_disk.begin, full.ts, keeps_files=keeps_files))

    def _fail(self, owner: LandingOwner, error: OSError | EnvironmentFault) -> None:
        owner.landing_failed(error)
        if isinstance(error, Corruption):
            self.discard()  # it is not what came, or what came is damaged: all of it is sent again

    def take(self, message: LinkMessage) -> None:
        """Something came, of whatever is sent during a full sync."""
        if self._is_finishing:
            return  # it is sent again, to the store that is made of this
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

    def write(self) -> None:
        """Have written what has come; with the last of it, have it finished."""
        if self._is_unwritten:
            self._is_unwritten = False
            self._queue.add(self._landing_disk.write_journal, self._journal_written)
        if self.is_whole and not self._is_finishing:
            self._is_finishing = True
            self._queue.add(partial(self._landing_disk.finish, self._ts, self._is_known), self._finished)
        self._queue.go()

    @property
    def is_clogged(self) -> bool:
        """The disk does not keep up: take no more for now."""
        return self._is_finishing or self._queue.waiting_bytes >= limits.LANDING_WAITING_BYTES_MAX

    # --- files --------------------------------------------------------------------------------------------------

    def _add_file(self, listed: SyncFile) -> None:
        """The next file of the list."""
        if self._full is None or listed.number != len(self._listed) or len(self._listed) >= self._full.files:
            raise LinkMisused(f"file {listed.number} is listed where {len(self._listed)} is due")
        shard = shard_of_inner_path(listed.name)
        if shard is not None and shard >= len(self._full.lsns):
            raise LinkMisused(f"{listed.name} belongs to a shard that the snapshot does not have")
        old = self._files.get(listed.name)
        if listed.begin > (0 if old is None else old.size):
            raise LinkMisused(f"{listed.name} is sent from {listed.begin} on, and less of it is here")
        known = old
        if known is None or known.size > listed.begin:
            known = LandingFile(None, 0, 0, (0, 0))
        known.listed, known.has_ended, known.is_whole = listed, False, False
        self._files[listed.name] = known
        self._listed.append(known)
        if known is not old:
            self._add_progress()  # before it is written over, it is not said to be whole

    def _take_piece(self, piece: FilePiece) -> None:
        """Hot while a full sync is under way."""
        file = self._at(piece.number)
        listed, data = file.listed, piece.data
        assert listed is not None
        if piece.position != file.size or file.size + len(data) > listed.size:
            raise LinkMisused(f"{listed.name} goes on at {piece.position} where {file.size} of {listed.size} are here")
        file.size += len(data)
        file.crc = crc32c(data, file.crc)
        work = partial(self._landing_disk.write, self._ts, listed.name, piece.position, data)
        self._queue.add(work, partial(setattr, file, "written", (file.size, file.crc)), len(data))

    def _at(self, number: int) -> LandingFile:
        if not 0 <= number < len(self._listed):
            raise LinkMisused(f"file {number} was not listed")
        return self._listed[number]

    def _end_file(self, end: FileEnd) -> None:
        file = self._at(end.number)
        listed = file.listed
        assert listed is not None
        if file.size != listed.size or file.crc != end.crc:
            del self._files[listed.name]
            raise LinkMisused(
                f"{listed.name} has {file.size} of {listed.size} bytes, or another checksum than it should"
            )
        file.has_ended = True
        self._queue.add(partial(self._landing_disk.end_file, self._ts, listed.name, listed.size))
        self._add_progress(partial(setattr, file, "is_whole", True))
        if listed.name == layout.META:
            assert self._full is not None
            self._has_journal = True
            self._queue.add(partial(self._landing_disk.open_journal, self._full, self._database_id))

    def _add_progress(self, done: Callable[[], None] | None = None) -> None:
        """Steps are done in order: what has ended now is durable when this is written."""
        ended = [(name, file.size, file.crc) for name, file in sorted(self._files.items()) if file.has_ended]
        self._queue.add(partial(self._landing_disk.write_progress, self._ts, ended), done)

    # --- what happens meanwhile ---------------------------------------------------------------------------------

    def _take_history(self, message: OrderedMessage) -> None:
        """Some of the history after the snapshot."""
        if self._incoming is None or not self._has_journal:
            raise LinkMisused("history came before the description of the snapshot that it follows")
        history = self._incoming.take(message)
        if history:
            self._is_unwritten = True
            self._queue.add(partial(self._landing_disk.append, history), None, sum(map(_size_of, history)))

    def _journal_written(self) -> None:
        self._written = self._landing_disk.written

    def acknowledgement(self) -> Acknowledgement:
        """So that the leader need not keep its journal for us: what came beside the files is ours now."""
        return Acknowledgement(self._written, Reached(Ts(0), (Lsn(0),) * len(self._written.lsns)))

    # --- the end ------------------------------------------------------------------------------------------------

    @property
    def is_whole(self) -> bool:
        """All files are there, and the journal is."""
        return (
            self._full is not None
            and self._has_journal
            and len(self._listed) == self._full.files
            and all(file.is_whole for file in self._listed)
        )

    def _finished(self) -> None:
        self.has_landed = True

    def complete(self, *, keeps_old: bool) -> None:
        """Once it has landed: from then on it counts, and `finish_replacement` puts it in its place.

        Here and now, and not on the thread: whoever asks for something else in between would find that it still
        happens. Clients are about to be sent away in any case.
        """
        assert self.has_landed
        mark_complete(self._disk, self._folder, keeps_old=keeps_old)
        self._forget()

    def interrupt(self) -> None:
        """The link is gone: keep what is there."""
        if self._full is None:
            return
        self._queue.drop()
        self._queue.add(self._landing_disk.close)
        self._queue.go()
        self._queue.on_end, self._queue.on_failure = _ignore, _tell_leftovers
        for file in self._files.values():
            file.size, file.crc = file.written
            file.has_ended = file.is_whole
        self._full = self._incoming = None
        self._listed = []
        self._has_journal = self._is_unwritten = self._is_finishing = self.has_landed = False

    def discard(self) -> None:
        """Nothing of it is wanted any more."""
        self.interrupt()
        self._forget()
        if self._landing_disk.is_there():
            self._queue.add(self._landing_disk.remove)
            self._queue.go()

    def _forget(self) -> None:
        self._full, self._ts, self._files, self._listed, self._incoming = None, Ts(0), {}, [], None
        self._has_journal = self._is_unwritten = self._is_finishing = self.has_landed = False


def _ignore() -> None:
    return


def _tell_leftovers(error: OSError | EnvironmentFault) -> None:
    _LOG.warning("what is left of a full sync cannot be removed now: %s", error)


def _size_of(whole: Whole) -> int:
    """What it makes the server hold, about."""
    if isinstance(whole, LongTransaction):
        long_bytes = sum(len(piece) for payload in whole.payloads for piece in payload.pieces)
        return long_bytes + _size_of(whole.transaction)
    if isinstance(whole, JournalTransaction):
        return sum(len(record.payload) for part in whole.parts for record in part.records)
    return 0
