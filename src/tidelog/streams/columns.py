"""The columns of a sealed node: what is read of its record batch, without asking Arrow for each entry.

A binary column is positions and bytes: entry `i` is what lies between positions `i` and `i + 1`.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidelog.streams.rows import Rows

_COPIED_AT_ONCE: Final = 128
"""Entries whose bytes are copied together before they are taken apart: few enough to stay in a cache."""


class Columns:
    """Of one record batch, which they keep alive."""

    __slots__ = ("batch", "entries", "kind", "kinds", "ms", "offsets", "seqs", "size_bytes", "tags")

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        self.size_bytes = int(batch.nbytes)
        names = batch.schema.names
        self.ms = numbers(batch, "ms")
        self.seqs = numbers(batch, "seq")
        self.offsets: Any = numbers(batch, "offset") if "offset" in names else None
        """None: they count up from the first one."""
        self.kind = 0 if "kind" in names else int(batch.schema.metadata[b"kind"])
        """Of all entries ..."""
        self.kinds: bytes | None = bytes(batch.column("kind").to_pylist()) if "kind" in names else None
        """... or of each."""
        self.tags = Texts(batch.column("tag"))
        self.entries = Texts(batch.column("entry"))

    def rows(self, first_offset: int, start: int, stop: int) -> Rows:
        """The entries between two places."""
        offsets: Sequence[int] = range(first_offset + start, first_offset + stop)
        if self.offsets is not None:
            offsets = self.offsets[start:stop].tolist()
        kinds = bytes((self.kind,)) * (stop - start) if self.kinds is None else self.kinds[start:stop]
        return Rows(
            offsets,
            self.ms[start:stop].tolist(),
            self.seqs[start:stop].tolist(),
            kinds,
            self.tags.between(start, stop),
            self.entries.between(start, stop),
        )


class Texts:
    """A binary column."""

    __slots__ = ("_data", "_positions")

    def __init__(self, column: pa.Array) -> None:
        _, positions, data = column.buffers()
        start = column.offset  # not 0: the node has lost its first entries
        self._positions: Any = memoryview(positions).cast("i")[start : start + len(column) + 1]
        self._data: Any = memoryview(data if data is not None else b"")

    def between(self, start: int, stop: int) -> list[bytes]:
        """The entries between two places. Hot."""
        found: list[bytes] = []
        while start < stop:
            end = min(start + _COPIED_AT_ONCE, stop)
            positions: list[int] = self._positions[start : end + 1].tolist()
            first = positions[0]
            data: bytes = self._data[first : positions[-1]].tobytes()
            at = 0
            for index in range(1, len(positions)):
                after = positions[index] - first
                found.append(data[at:after])
                at = after
            start = end
        return found


def numbers(batch: pa.RecordBatch, name: str) -> Any:
    """A column of whole numbers without copying it."""
    column = batch.column(name)
    start = column.offset
    return memoryview(column.buffers()[1]).cast("Q")[start : start + len(column)]


def u64_column(items: Sequence[int]) -> pa.Array:
    kept = items if isinstance(items, array) else array("Q", items)
    return pa.Array.from_buffers(pa.uint64(), len(kept), [None, pa.py_buffer(kept)])


def binary_column(items: Sequence[bytes]) -> pa.Array:
    """Strings; one alone, which may be large, is not copied.

    Not by `pa.array`: that imports pandas if it is there, which takes as much memory as half a million entries.
    """
    positions = np.zeros(len(items) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, items), np.int32, len(items)), out=positions[1:])
    data = items[0] if len(items) == 1 else b"".join(items)
    return pa.Array.from_buffers(pa.binary(), len(items), [None, pa.py_buffer(positions), pa.py_buffer(data)])
