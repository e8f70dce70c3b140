"""An object store that counts what is asked of another one: for progress, and for what a command says at its end."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from tidelog.ports import Chunk, ObjectEntry, ObjectStore


class CountedStore:
    """`ports.ObjectStore` on another one. From any thread."""

    __slots__ = ("_lock", "_on_bytes", "_store", "bytes_put", "bytes_read", "requests")

    def __init__(self, store: ObjectStore, on_bytes: Callable[[], None] | None = None) -> None:
        """`on_bytes` is called after more bytes have moved, from the thread that has moved them."""
        self._store: Final = store
        self._on_bytes = on_bytes
        self._lock: Final = threading.Lock()
        self.requests: Final[Counter[str]] = Counter()
        """By the name of the call."""
        self.bytes_put = 0
        self.bytes_read = 0

    def _count(self, call: str, *, put: int = 0, read: int = 0) -> None:
        with self._lock:
            self.requests[call] += 1
            self.bytes_put += put
            self.bytes_read += read
        if (put or read) and self._on_bytes is not None:
            self._on_bytes()

    def put(self, name: str, chunks: Sequence[Chunk]) -> None:
        self._store.put(name, chunks)
        self._count("put", put=sum(map(len, chunks)))

    def read(self, name: str, position: int, length: int) -> bytes:
        data = self._store.read(name, position, length)
        self._count("read", read=len(data))
        return data

    def get(self, name: str) -> bytes:
        data = self._store.get(name)
        self._count("get", read=len(data))
        return data

    def size(self, name: str) -> int:
        self._count("size")
        return self._store.size(name)

    def folders(self, prefix: str) -> list[str]:
        self._count("folders")
        return self._store.folders(prefix)

    def delete(self, name: str) -> None:
        self._count("delete")
        self._store.delete(name)

    def list(self, prefix: str, after: str = "") -> list[ObjectEntry]:
        self._count("list")
        return self._store.list(prefix, after)
