"""A bounded cache of blocks of objects, on disk.

    DIR/<digest of the object's name>-<block>.block      | crc32c 4 | the bytes of the block |

Nothing depends on what is in it. Nothing is fsynced: each block carries a checksum over its name and its bytes, so one
that a crash has torn is a miss. Names of objects are never used twice, so a block stays right over restarts. The blocks
that were read least recently go first; after a start it is not known which those are.

A disk that is full, or fails, only means that nothing is kept. Calls may come from any thread.
"""

from __future__ import annotations

import contextlib
import logging
import struct
from collections import OrderedDict
from contextlib import AbstractContextManager
from hashlib import blake2b
from typing import Final

from crc32c import crc32c

from tidelog import limits
from tidelog.journal.layout import read_file, write_all
from tidelog.ports import Disk

_LOG: Final = logging.getLogger("tidelog")
_CRC: Final = struct.Struct("<I")
_SUFFIX: Final = ".block"


class BlockCache:
    """Blocks in one folder, which is made when the first comes."""

    def __init__(self, disk: Disk, folder: str, bytes_max: int, lock: AbstractContextManager[object]) -> None:
        self._disk = disk
        self._folder = folder
        self._bytes_max = bytes_max
        self._lock = lock
        """Held while what is known of the blocks changes, and not while the disk is used."""
        self._sizes: OrderedDict[str, int] | None = None
        """By name, those that were read least recently first; None: nobody has looked yet."""
        self._serial = 0
        self._has_failed = False
        self.size_bytes = 0

    def __repr__(self) -> str:
        return f"<BlockCache {self._folder!r} {self.size_bytes} of {self._bytes_max}>"

    def _known(self) -> OrderedDict[str, int]:
        """What there is; the lock is held."""
        if self._sizes is None:
            self._sizes = OrderedDict()
            try:
                self._look()
            except OSError as error:
                self._failed(error)
        return self._sizes

    def _look(self) -> None:
        assert self._sizes is not None
        for name in self._disk.list(self._folder) if self._disk.exists(self._folder) else []:
            path = f"{self._folder}/{name}"
            if not name.endswith(_SUFFIX):
                self._disk.remove(path)  # it was being written when the process ended
                continue
            file = self._disk.open(path, "read")
            try:
                self._sizes[name] = file.size()
            finally:
                file.close()
            self.size_bytes += self._sizes[name]
        for name in self._too_many(0):
            self._disk.remove(f"{self._folder}/{name}")

    def _too_many(self, room: int) -> list[str]:
        """Names that are to go, so that there is room for so many bytes; the lock is held."""
        assert self._sizes is not None
        going: list[str] = []
        while self._sizes and self.size_bytes + room > self._bytes_max:
            name, size = self._sizes.popitem(last=False)
            self.size_bytes -= size
            going.append(name)
        return going

    def get(self, object_name: str, block: int) -> bytes | None:
        """The bytes of a block; None: it is not here."""
        name = _name(object_name, block)
        with self._lock:
            known = self._known()
            if name not in known:
                return None
            known.move_to_end(name)
        try:
            found = read_file(self._disk, f"{self._folder}/{name}")
        except OSError:
            found = b""
        if len(found) >= _CRC.size and _CRC.unpack_from(found)[0] == _checksum(name, found[_CRC.size :]):
            return found[_CRC.size :]
        self._forget(name)
        return None

    def put(self, object_name: str, block: int, data: bytes) -> None:
        """Keep a block, in the place of older ones."""
        name = _name(object_name, block)
        size = _CRC.size + len(data)
        with self._lock:
            if size > self._bytes_max or name in self._known():
                return
            going = self._too_many(size)
            self._serial += 1
            temporary = f"{self._folder}/{name}.{self._serial:x}"
        try:
            for old in going:
                self._remove(old)
            if not self._disk.exists(self._folder):
                self._disk.make_folder(self._folder)
            if self._disk.free_bytes(self._folder) < limits.HISTORY_FREE_BYTES_MIN + size:
                return
            self._write(temporary, name, data)
        except OSError as error:
            self._failed(error)
            with contextlib.suppress(OSError):
                self._disk.remove(temporary)
            return
        with self._lock:
            known = self._known()
            if name not in known:
                known[name] = size
                self.size_bytes += size

    def _write(self, temporary: str, name: str, data: bytes) -> None:
        file = self._disk.open(temporary, "create")
        try:
            write_all(file, 0, [_CRC.pack(_checksum(name, data)), data])
        finally:
            file.close()
        self._disk.rename(temporary, f"{self._folder}/{name}")

    def forget(self, object_name: str, block: int) -> None:
        """Keep a block no longer: its bytes are as they came, and still not what they should be."""
        self._forget(_name(object_name, block))

    def _forget(self, name: str) -> None:
        with self._lock:
            self.size_bytes -= self._known().pop(name, 0)
        with contextlib.suppress(OSError):  # it is not read again, whatever is left of it
            self._remove(name)

    def _remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._disk.remove(f"{self._folder}/{name}")

    def _failed(self, error: OSError) -> None:
        if not self._has_failed:
            self._has_failed = True
            _LOG.warning("the cache of history in %s is not of much use: %s", self._folder, error)


def _name(object_name: str, block: int) -> str:
    return f"{blake2b(object_name.encode(), digest_size=16).hexdigest()}-{block:x}{_SUFFIX}"


def _checksum(name: str, data: bytes) -> int:
    return crc32c(data, crc32c(name.encode()))
