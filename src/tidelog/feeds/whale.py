"""A record whose payload lies in a blob file, on its way to the feeds.

All of it is proved by its checksum before any of it is handed out, some at a time, so that nobody waits for it. The
value of a string then stays in the file: events refer to it there, and it is read as it is sent. Anything else is read
as a whole, because its type has to decode it.
"""

from __future__ import annotations

from crc32c import crc32c

from tidelog import limits
from tidelog.errors import FormatError
from tidelog.journal import flit
from tidelog.journal.blob import BlobPieces
from tidelog.types.change import LargeString

_HEAD_BYTES = 64 * limits.KIB
"""Read to find the sizes of keys and values; more if they do not fit."""


class BlobString(LargeString):
    """A large string that lies in a blob file: it takes no memory."""

    __slots__ = ("_blob", "_position")

    def __init__(self, blob: BlobPieces, position: int, size: int) -> None:
        super().__init__(b"")
        self._blob = blob
        self._position = position
        self.size = size

    def read(self, at: int, size: int) -> bytes:
        return self._blob.read(self._position + at, min(size, self.size - at))


class Whale:
    """One such record."""

    def __init__(self, blob: BlobPieces) -> None:
        self._blob = blob
        self._crc = 0
        self._proved_bytes = 0

    def prove(self) -> bool:
        """Check some more of it; true: it is proved. `Corruption` if it is damaged."""
        data = self._blob.read(self._proved_bytes, limits.FEED_PROVED_BYTES_AT_ONCE)
        self._crc = crc32c(data, self._crc)
        self._proved_bytes += len(data)
        if self._proved_bytes < self._blob.size:
            return False
        self._blob.check(self._crc)
        return True

    def payload(self) -> bytes:
        """The whole of it."""
        return self._blob.read(0, self._blob.size)

    def pairs(self) -> list[tuple[bytes, bytes | BlobString]]:
        """The keys and values of a `val` record; large values stay where they are."""
        found: list[tuple[bytes, bytes | BlobString]] = []
        sizes, at = self._sizes()
        for index in range(0, len(sizes), 2):
            key_size, value_size = sizes[index], sizes[index + 1]
            key = self._blob.read(at, key_size)
            at += key_size
            if value_size > limits.FEED_PIECE_BYTES:
                found.append((key, BlobString(self._blob, at, value_size)))
            else:
                found.append((key, self._blob.read(at, value_size)))
            at += value_size
        if at != self._blob.size:
            raise FormatError(f"a payload of {self._blob.size} bytes has pairs for {at}")
        return found

    def _sizes(self) -> tuple[list[int], int]:
        """Of the key and the value of each pair, and where the first key begins."""
        head_bytes = _HEAD_BYTES
        while True:
            head = self._blob.read(0, head_bytes)
            try:
                count, at = flit.decode(head, 0)
                sizes = []
                for _ in range(2 * count):
                    size, at = flit.decode(head, at)
                    sizes.append(size)
            except IndexError:
                if len(head) < head_bytes:
                    raise FormatError("a payload ends inside its lengths") from None
                head_bytes *= 2
            else:
                return sizes, at
