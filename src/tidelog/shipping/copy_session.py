"""What a copy in an object store answers to a server that follows it, in the words of a replication link.

    open     the newest manifest, and the journal of its newest lineage
    meet     the follower's hello ──► continue, full sync, refused: as a leader answers (`replication/meeting`)
    read     pieces of a snapshot; or the history after the follower's position, manifest by manifest, and after each an
             announcement: nothing at or below the moment up to which the manifest is complete will follow

A copy is a leader that never takes anything back, so all that a follower knows to do about leaders holds for it:
what has diverged after a failover is set aside, an interrupted full sync goes on, epochs come where they began. When
another lineage goes on, the link ends, and the next one finds out what that means for what the follower has.

All of it blocks, for one thread.
"""

from __future__ import annotations

import logging
from typing import Final

from tidelog import limits
from tidelog.errors import ReplicationError
from tidelog.ids import Ts
from tidelog.ports import Clock, Disk
from tidelog.replication.hello import leader_hello
from tidelog.replication.history import History
from tidelog.replication.meeting import ContinueAnswer, FullSyncAnswer, RefusedAnswer, answer
from tidelog.replication.message import (
    NOBODY_LEADS,
    Announcement,
    ContinueSync,
    FollowerHello,
    FullSync,
    LinkMessage,
    LinkRefused,
    LinkRole,
    Reached,
    RefusalReason,
    SyncReason,
)
from tidelog.replication.sending_files import SendingFiles
from tidelog.replication.wire import encode
from tidelog.shipping.copied_journal import CopiedJournal
from tidelog.shipping.copy_reader import CopyReader
from tidelog.shipping.manifest import Manifest

_LOG: Final = logging.getLogger("tidelog")
STALE: Final = "no manifest has come for a minute: nobody ships to the copy any more"


class CopySession:
    """One link to a copy: the other end of it."""

    def __init__(self, reader: CopyReader, clock: Clock, scratch: Disk) -> None:
        """`scratch`: for an empty snapshot, should there be none."""
        self._reader = reader
        self._clock = clock
        self._scratch = scratch
        self._manifest: Manifest
        self._journal: CopiedJournal
        self._history: History | None = None
        self._files: SendingFiles | None = None
        self._snapshot_path = ""
        """Of the snapshot that is sent."""
        self._announced = False
        """All that the manifest has was sent, and that was said."""
        self._failures = 0
        """To get the next manifest, in a row."""
        self.is_level = False
        """Nothing is left to be sent, as far as is known."""
        self.pause_s = 0.0
        """If so, when to ask for more."""

    @property
    def is_silent(self) -> bool:
        """All that there is was sent, and nobody ships any more. A full sync is still to be landed by the follower."""
        return self.is_level and self._files is None and self._reader.is_stale

    def open(self) -> None:
        self._manifest = self._reader.newest()
        self._journal = CopiedJournal(self._reader.objects, self._manifest)

    def meet(self, hello: FollowerHello) -> bytes:
        """The answer to a follower; what follows comes with `read`."""
        journal = self._journal
        found = answer(journal, hello, is_settled=True, is_returning=False)
        if isinstance(found, RefusedAnswer):
            return encode(found.refusal)
        if isinstance(found, ContinueAnswer):
            if self._reader.is_stale and hello.position.ts == journal.writer.visible.ts:
                return encode(LinkRefused(RefusalReason.NOT_SERVING, STALE))
            begin = Reached(hello.position.ts, hello.position.lsns)
            self._history = History(journal, begin, found.next_epoch)
            return self._opening(ContinueSync(begin.ts))
        assert isinstance(found, FullSyncAnswer)
        return self._begin_files(hello, found.reason)

    def _opening(self, *messages: LinkMessage) -> bytes:
        return b"".join(map(encode, (leader_hello(self._journal, LinkRole.LEADER, is_of_copy=True), *messages)))

    def _begin_files(self, hello: FollowerHello, reason: SyncReason) -> bytes:
        if reason is not SyncReason.EMPTY:
            _LOG.warning(
                "what is here cannot be led on by the copy (%s, it begins at ts %d): all of it is fetched again",
                *(reason.name.lower(), self._journal.erased_ts),
            )
        pinned = self._journal.pin_snapshot(self._scratch, self._reader.damaged)
        if pinned is None:
            text = "the server that ships now has not shipped its first snapshot yet"
            return encode(LinkRefused(RefusalReason.BEHIND, text))
        self._files = files = SendingFiles(pinned, hello.unfinished)
        self._snapshot_path = pinned.snapshot.path
        point = pinned.snapshot.point
        return self._opening(FullSync(reason, point.ts, point.lsns, len(files.listed), files.size), *files.listed)

    def distrust_snapshot(self) -> None:
        """The follower has found that the one it was sent is damaged."""
        self._reader.damaged.add(self._snapshot_path)

    # --- reading ------------------------------------------------------------------------------------------------

    def read(self) -> bytes:
        """Some more; `is_level` says whether it was all. `ReplicationError`: the link is to end, with the reason."""
        if self._files is not None:
            return self._read_files(self._files)
        history = self._history
        assert history is not None
        if self._announced and not self._look():
            self.is_level = True
            return b""
        self.is_level = False
        found: list[bytes] = []
        size = 0
        while size < limits.COPY_READ_BYTES and (messages := history.read()) is not None:
            found += map(encode, messages)
            size = sum(map(len, found))
        if size < limits.COPY_READ_BYTES:
            found.append(self._announcement(history))
            self._announced = True
        return b"".join(found)

    def _read_files(self, files: SendingFiles) -> bytes:
        """The follower ends the link when it has them all; the history after them is for the next link."""
        found: list[bytes] = []
        size = 0
        while size < limits.COPY_READ_BYTES and not files.is_over:
            unsent = files.bytes_unsent
            pieces = b"".join(map(encode, files.read()))
            found.append(pieces)
            size += len(pieces) + files.bytes_unsent - unsent
        self.is_level = files.is_over
        self.pause_s = limits.COPY_POLL_S
        return b"".join(found)

    def _look(self) -> bool:
        """Whether there is a later manifest."""
        self.pause_s = limits.COPY_POLL_S * 2**self._failures
        try:
            manifest = self._reader.newest()
        except OSError as error:
            self._failures += 1
            if self._failures > limits.COPY_POLL_FAILURES_MAX:
                raise
            _LOG.warning("the next manifest cannot be had, and is tried again: %s", error)
            return False
        self._failures = 0
        if manifest.number == self._manifest.number:
            return False
        if not self._journal.advance(manifest):
            raise ReplicationError("another server ships now")
        self._manifest = manifest
        self._announced = False
        return True

    def _announcement(self, history: History) -> bytes:
        manifest, visible = self._manifest, self._journal.writer.visible
        closed_ts = Ts(max(history.ts, manifest.closed_ts))
        distance = NOBODY_LEADS if self._reader.is_stale else 0
        return encode(
            Announcement(closed_ts, manifest.clock_bound, self._clock.wall_us(), distance, sum(visible.lsns), 0)
        )
