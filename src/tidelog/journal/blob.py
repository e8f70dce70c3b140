"""Whales: payloads too large for a frame, in a file beside the segment.

    reference  | blob file 8 | position 8 | length 8 | crc32c 4 |      the payload of a record with the flag BLOB

The blob file is named by the first lsn of its segment and erased with it. Its bytes are written before the record
that refers to them, and a cycle counts as synced only with its blobs; the crc in the reference is what proves them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from crc32c import crc32c

from tidelog import limits
from tidelog.errors import Corruption, FormatError
from tidelog.ids import Lsn
from tidelog.ports import Disk, File

_REFERENCE: Final = struct.Struct("<QQQI")
REFERENCE_BYTES: Final = _REFERENCE.size
_CHECK_CHUNK_BYTES: Final = 1 * limits.MIB


class BlobReference(NamedTuple):
    """Where a whale lies."""

    segment: Lsn
    """The first lsn of the segment beside which the blob file lies."""
    position: int
    length: int
    crc: int


def encode_reference(reference: BlobReference) -> bytes:
    return _REFERENCE.pack(*reference)


def decode_reference(payload: bytes) -> BlobReference:
    if len(payload) != REFERENCE_BYTES:
        raise FormatError(f"a reference to a blob has {len(payload)} bytes instead of {REFERENCE_BYTES}")
    segment, position, length, crc = _REFERENCE.unpack(payload)
    if length > limits.PAYLOAD_BYTES_MAX:
        raise FormatError(f"a reference to a blob claims {length} bytes")
    return BlobReference(Lsn(segment), position, length, crc)


def read_blob(file: File, reference: BlobReference) -> bytes:
    """The whale itself, checked."""
    data = file.read(reference.position, reference.length)
    _check(file, reference, len(data), crc32c(data))
    return data


def check_blob(file: File, reference: BlobReference) -> None:
    """Check a whale without holding it in memory."""
    crc, at, end = 0, reference.position, reference.position + reference.length
    while at < end:
        data = file.read(at, min(_CHECK_CHUNK_BYTES, end - at))
        if not data:
            break
        crc = crc32c(data, crc)
        at += len(data)
    _check(file, reference, at - reference.position, crc)


class BlobPieces:
    """A whale that is read in pieces. No file stays open in between: one may be erased while its reader is slow."""

    def __init__(self, disk: Disk, path: str, reference: BlobReference, missing: Callable[[], Exception]) -> None:
        self._disk = disk
        self._path = path
        self._reference = reference
        self._missing = missing
        """Makes the error for a file that is not there."""
        self.size = reference.length

    def read(self, at: int, size: int) -> bytes:
        """A piece; shorter only at the end of the whale. What it says is not proved."""
        wanted = min(size, self.size - at)
        try:
            file = self._disk.open(self._path, "read")
        except FileNotFoundError:
            raise self._missing() from None
        try:
            data = file.read(self._reference.position + at, wanted)
            if len(data) < wanted:
                _check(file, self._reference, at + len(data), self._reference.crc)
        finally:
            file.close()
        return data

    def check(self, crc: int) -> None:
        """`Corruption` unless it is the checksum of the whole."""
        if crc != self._reference.crc:
            raise Corruption(
                f"the checksum of a blob of {self.size} bytes is wrong",
                path=self._path,
                position=self._reference.position,
            )


def _check(file: File, reference: BlobReference, length: int, crc: int) -> None:
    if length != reference.length:
        raise Corruption(
            f"a blob of {reference.length} bytes is cut short at {length}", path=file.path, position=reference.position
        )
    if crc != reference.crc:
        raise Corruption(
            f"the checksum of a blob of {reference.length} bytes is wrong", path=file.path, position=reference.position
        )
