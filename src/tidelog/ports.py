"""The edges of the machine, as protocols: clock, timers, randomness and disk.

Everything above `system/` receives these through its constructor, so that the whole of it runs on real files or
inside a simulation that can crash at any write. `system/` has the real ones, `testing/` the simulated ones, and
one conformance suite (`tests/conformance/`) holds both to what is written here.

Paths are `str` with `/` between parts. A disk raises plain `OSError` with an errno: what that means is for the
caller to say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeVar

Chunk = bytes | bytearray | memoryview

OpenMode = Literal["read", "write", "create"]
"""read: must exist, reads only. write: must exist, reads and writes. create: must not exist, reads and writes."""


class Clock(Protocol):
    """Where time comes from."""

    def wall_us(self) -> int:
        """Microseconds since 1970 in UTC; may step backwards."""

    def monotonic_us(self) -> int:
        """Microseconds since some moment; never steps backwards."""


class Timer(Protocol):
    """A call that was asked for and has not happened yet."""

    def cancel(self) -> None: ...


class Loop(Protocol):
    """Where calls are put off to; asyncio's and uvloop's loops are one."""

    def call_soon(self, call: Callable[[], None], /) -> Timer:
        """As soon as the loop comes round to it."""

    def call_later(self, seconds: float, call: Callable[[], None], /) -> Timer: ...


_Drawn = TypeVar("_Drawn")


class Random(Protocol):
    """Where chance comes from; `random.Random` is one, with a seed wherever a run must be repeatable."""

    def randrange(self, stop: int, /) -> int:
        """One of 0 to stop - 1."""

    def sample(self, population: Sequence[_Drawn], k: int) -> list[_Drawn]:
        """`k` different places of a sequence, in random order."""


class File(Protocol):
    """One open file. Reads and writes name their position; there is no cursor to share."""

    @property
    def path(self) -> str: ...

    def size(self) -> int: ...

    def read(self, position: int, length: int) -> bytes:
        """Up to `length` bytes from `position`; fewer only at the end of the file."""

    def write(self, position: int, chunks: Sequence[Chunk]) -> int:
        """Write chunks one after the other from `position` and return how many bytes were written.

        It may be fewer than asked for (a short write), like pwritev(2). Past the end, a gap reads as zeros.
        """

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Make the contents and the size durable (fdatasync). The name is durable by `Disk.sync_folder` only."""

    def close(self) -> None:
        """Closing twice is fine. It makes nothing durable."""


class Lock(Protocol):
    """A lock on a file that one process holds; the operating system frees it when the process dies."""

    def release(self) -> None: ...


class Disk(Protocol):
    """A file system. Files are made 0600 and folders 0700."""

    def open(self, path: str, mode: OpenMode) -> File: ...

    def exists(self, path: str) -> bool: ...

    def list(self, folder: str) -> list[str]:
        """The names in a folder, sorted."""

    def make_folder(self, path: str) -> None:
        """Make one folder; fine if it exists, an error if its parent does not."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file or folder atomically; a file that has the new name is replaced."""

    def remove(self, path: str) -> None:
        """Remove a file, or a folder that is empty."""

    def sync_folder(self, path: str) -> None:
        """Make the names in a folder durable: what was created, renamed or removed in it."""

    def lock(self, path: str) -> Lock:
        """Take the lock or raise `BlockingIOError` at once; the file is made if it is missing."""

    def free_bytes(self, path: str) -> int:
        """How much can still be written on the file system that holds `path`."""
