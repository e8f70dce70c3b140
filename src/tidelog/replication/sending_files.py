"""The files of a snapshot as they are sent to a follower, piece by piece.

A file that the follower has in part is sent from there on. The checksum of the whole is made from what lies here: the
part that is not sent is read too, so that a follower which has something else finds out. The first file is the
description of the snapshot. The node files that it lists are among them, as far as it needs them.
"""

from __future__ import annotations

from collections.abc import Mapping

from crc32c import crc32c

from tidelog import limits
from tidelog.journal.layout import META
from tidelog.journal.pins import PinnedSnapshot
from tidelog.ports import File
from tidelog.replication.message import FileEnd, FilePart, FilePiece, LinkMessage, SyncFile, UnfinishedSync


class SendingFiles:
    """Hands out the pieces of all files of one snapshot."""

    def __init__(self, pinned: PinnedSnapshot, unfinished: UnfinishedSync | None) -> None:
        self._pinned = pinned
        known: Mapping[str, FilePart] = {}
        if unfinished is not None and unfinished.ts == pinned.snapshot.point.ts:
            known = {part.name: part for part in unfinished.files}
        files = sorted(pinned.files, key=lambda file: (file[0] != META, file[0]))
        self.listed = [
            SyncFile(number, name, size, min(known[name].size, size) if name in known else 0)
            for number, (name, size) in enumerate(files)
        ]
        self.size = sum(file.size for file in self.listed)
        self.bytes_left = sum(file.size - file.begin for file in self.listed)
        self._number = 0
        """Of the file that is read ..."""
        self._file: File | None = None
        """... which is open ..."""
        self._at = self._crc = 0
        """... and read up to here, with this checksum."""
        self.bytes_unsent = 0
        """What was read and not sent, since the follower has it."""
        self.has_described = False
        """The description of the snapshot was handed out: the history beside it needs that."""
        self.is_over = False

    def read(self) -> list[LinkMessage]:
        """The next piece, or none of a part that is only read; after the last, `is_over`."""
        if self._number == len(self.listed):
            self.is_over = True
            return []
        listed = self.listed[self._number]
        if self._file is None:
            self._file = self._pinned.open(listed.name)
            self._at = self._crc = 0
        at = self._at
        if at == listed.size:
            self._close_file()
            self._number += 1
            self.has_described = True
            return [FileEnd(listed.number, self._crc)]
        end = listed.begin if at < listed.begin else listed.size
        data = self._file.read(at, min(limits.REPLICATION_PAYLOAD_BYTES, end - at))
        if not data:
            raise OSError(f"{self._file.path} is shorter than it was")
        self._crc = crc32c(data, self._crc)
        self._at += len(data)
        if at < listed.begin:
            self.bytes_unsent += len(data)
            return []
        self.bytes_left -= len(data)
        return [FilePiece(listed.number, at, data)]

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def close(self) -> None:
        """Also in the middle of a file."""
        self._close_file()
        self._pinned.release()
