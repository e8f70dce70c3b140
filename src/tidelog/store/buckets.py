"""A slot with many keys, as several dicts: what is visited in one step stays small."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from tidelog import limits
from tidelog.types.effect import StoredValue


class Buckets:
    """A slot with many keys: a power of two of dicts."""

    __slots__ = ("_count", "_mask", "dicts")

    def __init__(self, items: dict[bytes, StoredValue]) -> None:
        self._count = 0
        self._mask = 1
        self.dicts: list[dict[bytes, StoredValue]] = [{}, {}]
        for key, value in items.items():
            self[key] = value

    def replaced(self, dicts: list[dict[bytes, StoredValue]]) -> Buckets:
        """The same slot with as many other dicts."""
        made = Buckets({})
        made.dicts = dicts
        made._mask = len(dicts) - 1
        made._count = sum(map(len, dicts))
        return made

    def part_of(self, key: bytes) -> int:
        """Which of the dicts has a key, if any does."""
        return zlib.crc32(key) & self._mask

    def _dict(self, key: bytes) -> dict[bytes, StoredValue]:
        return self.dicts[zlib.crc32(key) & self._mask]

    def get(self, key: bytes) -> StoredValue | None:
        return self._dict(key).get(key)

    def __contains__(self, key: bytes) -> bool:
        return key in self._dict(key)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        for part in self.dicts:
            yield from part

    def __setitem__(self, key: bytes, value: StoredValue) -> None:
        part = self._dict(key)
        if key not in part:
            self._count += 1
        part[key] = value
        if len(part) > limits.SLOT_KEYS_SPLIT:
            self._grow()

    def __delitem__(self, key: bytes) -> None:
        del self._dict(key)[key]
        self._count -= 1

    def _grow(self) -> None:
        parts, self._mask = self.dicts, self._mask * 2 + 1
        self.dicts = [{} for _ in range(self._mask + 1)]
        for part in parts:
            for key, value in part.items():
                self._dict(key)[key] = value
