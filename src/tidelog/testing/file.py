"""An open file of a simulated disk, and a lock: what a process holds, and loses when it dies."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Final

from tidelog.ports import Chunk
from tidelog.testing.faults import DeadHandle, FaultPlan, os_error
from tidelog.testing.inode import Inode


class SimulatedProcess:
    """Everything that dies with the process that uses a disk."""

    __slots__ = ("files", "locks", "number")

    def __init__(self, number: int) -> None:
        self.number: Final = number
        self.files: set[SimulatedFile] = set()
        """The files that it has open."""
        self.locks: dict[Inode, SimulatedLock] = {}
        """The locks that it holds."""

    def die(self) -> None:
        for file in self.files:
            file.die()
        self.files.clear()
        self.locks.clear()


class SimulatedFile:
    """`ports.File` on an inode."""

    __slots__ = ("_bytes_read_by_path", "_inode", "_is_dead", "_is_writable", "_plan", "_process", "path")

    def __init__(
        self,
        path: str,
        inode: Inode,
        process: SimulatedProcess,
        plan: FaultPlan,
        bytes_read_by_path: dict[str, int],
        *,
        is_writable: bool,
    ) -> None:
        self.path: Final = path
        self._inode: Inode | None = inode
        """None once it cannot be used any more."""
        self._is_dead = False
        """Its process is dead; otherwise a file without an inode was closed."""
        self._is_writable = is_writable
        self._process = process
        self._plan = plan
        self._bytes_read_by_path = bytes_read_by_path
        process.files.add(self)

    def size(self) -> int:
        inode = self._inode or self._unusable()
        self._plan.check_alive()
        return len(inode.data)

    def read(self, position: int, length: int) -> bytes:
        inode = self._inode or self._unusable()
        if position < 0 or length < 0:
            raise os_error(errno.EINVAL, self.path)
        self._plan.look("read", self.path)
        with memoryview(inode.data) as view:
            data = bytes(view[position : position + length])
        counts = self._bytes_read_by_path
        counts[self.path] = counts.get(self.path, 0) + len(data)
        return data

    def write(self, position: int, chunks: Sequence[Chunk]) -> int:
        """Hot: the crash tests spend most of their simulated I/O here."""
        inode = self._inode or self._unusable()
        if position < 0 or not self._is_writable:
            raise os_error(errno.EINVAL if self._is_writable else errno.EBADF, self.path)
        data = b"".join(chunks)
        if not data:
            return 0
        plan = self._plan
        number = plan.operations = plan.operations + 1
        if number >= plan.attention_at:
            return self._write_as_planned(inode, position, data)
        inode.write(number, position, data)
        return len(data)

    def truncate(self, size: int) -> None:
        inode = self._inode or self._unusable()
        if size < 0 or not self._is_writable:
            raise os_error(errno.EINVAL, self.path)
        self._plan.perform("truncate", self.path, lambda: inode.truncate(self._plan.operations, size))

    def sync(self) -> None:
        inode = self._inode or self._unusable()
        try:
            self._plan.perform("sync", self.path, inode.sync, lambda: inode.sync_partly(self._plan.rng))
        except OSError:
            inode.fail_sync()
            raise

    def close(self) -> None:
        """Never raises, not even while the process dies: then it is part of unwinding, which must go on."""
        self._inode = None
        self._process.files.discard(self)

    def die(self) -> None:
        self._inode = None
        self._is_dead = True

    def _write_as_planned(self, inode: Inode, position: int, data: bytes) -> int:
        plan = self._plan
        moment = plan.moment_of_crash("write", self.path)
        length = plan.length_of_write(self.path, len(inode.data), position, len(data), moment)
        if length:
            inode.write(plan.operations, position, data[:length])
        if moment is not None:
            plan.halt("write", self.path, moment)
        return length

    def _unusable(self) -> Inode:
        if self._is_dead:
            raise DeadHandle(self.path)
        raise ValueError(f"{self.path}: the file is closed")


class SimulatedLock:
    """`ports.Lock` on an inode. As with flock(2), the process that has it cannot take it again."""

    __slots__ = ("_inode", "_process", "path")

    def __init__(self, path: str, inode: Inode, process: SimulatedProcess) -> None:
        self.path: Final = path
        self._inode = inode
        self._process = process
        if inode in process.locks:
            raise BlockingIOError(errno.EAGAIN, f"held by process {process.number}", path)
        process.locks[inode] = self

    def release(self) -> None:
        """Never raises. With its process dead there is nothing left to release."""
        if self._process.locks.get(self._inode) is self:
            del self._process.locks[self._inode]
