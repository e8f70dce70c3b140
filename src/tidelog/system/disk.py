"""The disk of this machine: `ports.Disk` on POSIX calls, one call an operation.

What holds here and is easy to break:

- Nothing is buffered between the caller and the kernel. What `write` counted survives the death of the process.
- No descriptor outlives an exec, so that no child keeps a lock or a deleted segment alive.
- Modes are 0600 and 0700 whatever the umask: it only ever takes bits away, and the ones it took are put back.
- A lock is an flock on an open file, not the existence of one: the kernel frees it with its holder, however that
  ends. The file says the holder's process id, but only for a message; nobody decides by it. It is never removed,
  because two processes could then hold the "same" lock on two files.

POSIX record locks (fcntl) were rejected: closing any descriptor of the file drops them, and they do not exclude
within one process.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import stat
from collections.abc import Sequence
from typing import Final

from tidelog.ports import Chunk, OpenMode

_FILE_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700
_OPEN_FLAGS: Final[dict[OpenMode, int]] = {
    "read": os.O_RDONLY | os.O_CLOEXEC,
    "write": os.O_RDWR | os.O_CLOEXEC,
    "create": os.O_RDWR | os.O_CLOEXEC | os.O_CREAT | os.O_EXCL,
}
_CHUNKS_PER_WRITE_MAX: Final = 1024
"""IOV_MAX of Linux: pwritev(2) refuses more."""
_PROCESS_ID_BYTES_MAX: Final = 32


class SystemFile:
    """`ports.File` on a descriptor."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path: Final = path
        self._fd = fd
        """-1 once closed: the kernel may give the number to another file at once, so it must not be used again."""

    def __repr__(self) -> str:
        return f"<SystemFile {self.path!r} {'closed' if self._fd < 0 else f'fd {self._fd}'}>"

    def size(self) -> int:
        return os.fstat(self._descriptor()).st_size

    def read(self, position: int, length: int) -> bytes:
        fd = self._descriptor()
        data = os.pread(fd, length, position)
        if len(data) == length or not data:
            return data
        # Short: at the end of the file, or Linux gave its most for one call (2 GiB less a page).
        parts = [data]
        missing = length - len(data)
        position += len(data)
        while missing and (data := os.pread(fd, missing, position)):
            parts.append(data)
            missing -= len(data)
            position += len(data)
        return b"".join(parts)

    def write(self, position: int, chunks: Sequence[Chunk]) -> int:
        if len(chunks) == 1 and position >= 0 and self._fd >= 0:  # hot: once a cycle of the journal
            return os.pwrite(self._fd, chunks[0], position)
        if position < 0:
            # Python calls pwritev2(2), which takes -1 for the descriptor's own cursor and writes there.
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), self.path)
        if len(chunks) > _CHUNKS_PER_WRITE_MAX:
            # Empty ones are passed over, so that only writing nothing returns 0.
            chunks = list(itertools.islice(filter(len, chunks), _CHUNKS_PER_WRITE_MAX))
        return os.pwritev(self._descriptor(), chunks, position)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor(), size)

    def sync(self) -> None:
        os.fdatasync(self._descriptor())

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _descriptor(self) -> int:
        if self._fd < 0:
            raise ValueError(f"{self.path}: the file is closed")
        return self._fd


class SystemLock:
    """`ports.Lock` on an flocked descriptor."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path: Final = path
        self._fd = fd

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            # A forked child may still have the descriptor, and closing ours alone would leave the lock with it.
            fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)


class SystemDisk:
    """`ports.Disk` on the file system of this machine."""

    __slots__ = ()

    def open(self, path: str, mode: OpenMode) -> SystemFile:
        fd = os.open(path, _OPEN_FLAGS[mode], _FILE_MODE)
        try:
            if mode == "create":
                os.fchmod(fd, _FILE_MODE)
            elif stat.S_ISDIR(os.fstat(fd).st_mode):
                # A folder opens for reading and fails at the first read; say it where the mistake is.
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        except BaseException:
            os.close(fd)
            raise
        return SystemFile(path, fd)

    def exists(self, path: str) -> bool:
        # Not os.path.exists: it says False for what may not be looked at, and a store would be made anew over it.
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def make_folder(self, path: str) -> None:
        try:
            os.mkdir(path, _FOLDER_MODE)
        except FileExistsError:
            if not os.path.isdir(path):
                raise
        else:
            os.chmod(path, _FOLDER_MODE)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def link(self, old: str, new: str) -> None:
        os.link(old, new)

    def remove(self, path: str) -> None:
        if stat.S_ISDIR(os.lstat(path).st_mode):
            os.rmdir(path)
        else:
            os.unlink(path)

    def sync_folder(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> SystemLock:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BlockingIOError(errno.EAGAIN, f"held by {_holder(fd)}", path) from None
            os.fchmod(fd, _FILE_MODE)
            # Written before it is cut, so that who reads it meanwhile finds a first line.
            line = b"%d\n" % os.getpid()
            os.pwrite(fd, line, 0)
            os.ftruncate(fd, len(line))
        except BaseException:
            os.close(fd)
            raise
        return SystemLock(path, fd)

    def free_bytes(self, path: str) -> int:
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def list(self, folder: str) -> list[str]:
        return sorted(os.listdir(folder))


def _holder(fd: int) -> str:
    """The process that holds a lock, as it wrote into the file; it may not have written yet."""
    first_line = os.pread(fd, _PROCESS_ID_BYTES_MAX, 0).split(b"\n")[0]
    return f"process {int(first_line)}" if first_line.isdigit() else "another process"
