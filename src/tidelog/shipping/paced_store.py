"""An object store that is not written to faster than so many bytes a second.

A put goes out at once and as fast as it can. What it cost is waited for by the next one: a put of ten seconds' worth
of bytes keeps others back for ten seconds from when it began. So something small after a long silence never waits, and
the first piece of something large is not held back for nothing. Over any time, what was sent is at most the rate times
the time, and one put.

A put that fails has cost the same, as its bytes may have left. Reading costs nothing. Puts that come from several
threads wait for their turn one after the other; if two come in the very same moment, one of them may go for free.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tidelog.limits import SECOND_US
from tidelog.ports import Chunk, Clock, ObjectEntry, ObjectStore


class PacedStore:
    """`ports.ObjectStore` on another one."""

    __slots__ = ("_bytes_per_s", "_clock", "_free_at_us", "_sleep", "_store")

    def __init__(self, store: ObjectStore, bytes_per_s: int, clock: Clock, sleep: Callable[[float], None]) -> None:
        """`sleep` takes seconds, and may raise to give up, when the server stops."""
        if bytes_per_s <= 0:
            raise ValueError(f"a rate of {bytes_per_s} bytes a second sends nothing")
        self._store: Final = store
        self._bytes_per_s: Final = bytes_per_s
        self._clock: Final = clock
        self._sleep: Final = sleep
        self._free_at_us = clock.monotonic_us()
        """When the next put may begin."""

    def put(self, name: str, chunks: Sequence[Chunk]) -> None:
        now_us = self._clock.monotonic_us()
        start_us = max(now_us, self._free_at_us)
        size = sum(len(chunk) for chunk in chunks)
        self._free_at_us = start_us + size * SECOND_US // self._bytes_per_s
        if start_us > now_us:
            self._sleep((start_us - now_us) / SECOND_US)
        self._store.put(name, chunks)

    def read(self, name: str, position: int, length: int) -> bytes:
        return self._store.read(name, position, length)

    def get(self, name: str) -> bytes:
        return self._store.get(name)

    def size(self, name: str) -> int:
        return self._store.size(name)

    def folders(self, prefix: str) -> list[str]:
        return self._store.folders(prefix)

    def delete(self, name: str) -> None:
        self._store.delete(name)

    def list(self, prefix: str, after: str = "") -> list[ObjectEntry]:
        return self._store.list(prefix, after)
