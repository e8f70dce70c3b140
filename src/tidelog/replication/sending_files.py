"""The files of a snapshot as they are sent to a follower, piece by piece.

A file that the follower has in part is sent from there on. The checksum of the whole is made from what lies here: the
part that is not sent is read too, so that a follower which has something else finds out. The first file is the
description of the snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from crc32c import crc32c

from tidelog import limits
from tidelog.journal.layout import META
from tidelog.journal.pins import PinnedSnapshot
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
        self._pieces = self._read()
        self.has_described = False
        """The description of the snapshot was handed out: the history beside it needs that."""
        self.is_over = False

    def read(self) -> list[LinkMessage]:
        """The next piece, or none of a part that is only read; after the last, `is_over`."""
        for messages in self._pieces:
            return messages
        self.is_over = True
        return []

    def _read(self) -> Iterator[list[LinkMessage]]:
        for listed in self.listed:
            file = self._pinned.open(listed.name)
            try:
                at = crc = 0
                while at < listed.size:
                    end = listed.begin if at < listed.begin else listed.size
                    data = file.read(at, min(limits.REPLICATION_PAYLOAD_BYTES, end - at))
                    if not data:
                        raise OSError(f"{file.path} is shorter than it was")
                    crc = crc32c(data, crc)
                    if at < listed.begin:
                        yield []
                    else:
                        self.bytes_left -= len(data)
                        yield [FilePiece(listed.number, at, data)]
                    at += len(data)
            finally:
                file.close()
            self.has_described = True
            yield [FileEnd(listed.number, crc)]

    def close(self) -> None:
        self._pieces = iter(())
        self._pinned.release()
