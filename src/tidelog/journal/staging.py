"""Large values that are written to the blob file before the command with them runs, so that nobody waits for the disk.

    reserve      room in the blob file of the segment that is being written      ┐ the writer's thread
      job.run    the value is written there, in pieces, with its checksum        │ any thread
    use          a record refers to it: only its head is left to be written      ┘ the writer's thread

A value that is made here is one piece. One that was received is never put together for this: its pieces are written as
they came, and are the whole payload of its record, so that it has no head.

    blob file    ... | room | head | value ............ |       the payload of the record is head and value
                                   ^ `StagedBlob.position`

To a reader this is a whale like any other: the reference says where the payload begins, how long it is and what its
checksum is. So the rules for whales hold: the value is written before its record, it is fsynced with the cycle of its
record, and it is erased with the segment of its record. For the last to hold, a record only refers to a value in its
own segment; if the segment has ended meanwhile, the value has to be staged or written again.

A value that no record refers to (its command was refused, its client went away, the process died) is garbage in the
blob file until the segment is erased. Nothing else needs to know of it.

The pieces are fsynced as they are written, except with `never`: otherwise hundreds of megabytes of dirty pages would
make the kernel slow down everybody's writes, and the fsync of the cycle would take seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from crc32c import crc32c

from tidelog import limits
from tidelog.ids import ShardId
from tidelog.journal.layout import write_all
from tidelog.journal.segment import FilePosition
from tidelog.ports import Chunk, Disk, File

_POLYNOMIAL: Final = 0x82F63B78
"""Of CRC32C, reflected."""


class StagedBlob:
    """A value in the blob file that no record refers to yet."""

    __slots__ = ("crc", "pieces", "position", "shard", "size")

    def __init__(self, shard: ShardId, position: FilePosition) -> None:
        self.shard = shard
        self.pieces: Sequence[bytes] = ()
        """What it consists of, once it is made ..."""
        self.size = 0
        """... and their size."""
        self.position = position
        """Where it begins."""
        self.crc = 0
        """CRC32C of the value, once it is written."""

    @property
    def value(self) -> bytes:
        """All of it; if it is one piece, that piece itself."""
        return self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)


class StageJob:
    """Makes and writes one value. `run` is for any thread; the rest is for the writer."""

    def __init__(
        self, disk: Disk, path: str, blob: StagedBlob, make: Callable[[], Sequence[bytes]], *, fsyncs: bool
    ) -> None:
        self._disk = disk
        self._path = path
        self._make = make
        self._fsyncs = fsyncs
        self.blob = blob
        self.is_given_up = False
        """Nobody wants it any more: `run` ends early."""
        self.error: OSError | None = None
        """Why it could not be written."""
        self.sync_error: OSError | None = None
        """Why it could not be fsynced; after that nothing in the file can be trusted to be durable."""

    def run(self) -> None:
        """Make and write the value. Errors are kept for the writer's thread. Once more writes it in the same place."""
        blob = self.blob
        self.error = None
        try:
            blob.pieces = self._make()
            blob.size = sum(map(len, blob.pieces))
            self._write()
        except FileNotFoundError:
            pass  # its segment was erased meanwhile, so no record can refer to it: it is staged again
        except OSError as error:
            self.error = error

    def _write(self) -> None:
        at, crc, unsynced = 0, 0, 0
        file = self._disk.open(self._path, "write")
        try:
            for chunks in _in_writes(self.blob.pieces):
                if self.is_given_up:
                    break
                write_all(file, self.blob.position.at + at, chunks)
                for chunk in chunks:
                    crc = crc32c(chunk, crc)
                    at += len(chunk)
                    unsynced += len(chunk)
                if self._fsyncs and (unsynced >= limits.STAGED_SYNC_BYTES or at == self.blob.size):
                    self._sync(file)
                    unsynced = 0
            self.blob.crc = crc
        finally:
            file.close()

    def _sync(self, file: File) -> None:
        try:
            file.sync()
        except OSError as error:
            self.sync_error = error
            raise


def _in_writes(pieces: Sequence[bytes]) -> Iterator[list[Chunk]]:
    """What is to be written, as much at a time as one write takes."""
    gathered: list[Chunk] = []
    room = limits.STAGED_PIECE_BYTES
    for piece in pieces:
        view, at = memoryview(piece), 0
        while at < len(view):
            chunk = view[at : at + room]
            gathered.append(chunk)
            at += len(chunk)
            room -= len(chunk)
            if not room:
                yield gathered
                gathered, room = [], limits.STAGED_PIECE_BYTES
    if gathered:
        yield gathered


def joined_crc(first: int, second: int, second_bytes: int) -> int:
    """The CRC32C of two pieces behind each other, from that of each and the length of the second.

    The first is multiplied by x to the power of the second's bits, modulo the polynomial (as in zlib's
    `crc32_combine`).
    """
    power, square, left = 1 << 31, 1 << 30, 8 * second_bytes  # x^0 and x^1: bit 31 is the lowest power
    while left:
        if left & 1:
            power = _multiplied(square, power)
        square = _multiplied(square, square)
        left >>= 1
    return _multiplied(power, first) ^ second


def _multiplied(one: int, other: int) -> int:
    product, bit = 0, 1 << 31
    while bit:
        if one & bit:
            product ^= other
        other = other >> 1 ^ (_POLYNOMIAL if other & 1 else 0)
        bit >>= 1
    return product
