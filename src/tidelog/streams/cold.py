"""Nodes that were compressed and are read again: the newest of them stay open, within a bound of bytes.

One cache for the process: it holds copies of what is kept elsewhere, so nothing depends on what is in it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import pyarrow as pa

from tidelog import limits
from tidelog.streams.columns import Columns


class OpenedNodes:
    """Least recently used first. One thread."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._opened: OrderedDict[object, Columns] = OrderedDict()
        self.bytes_held = 0

    def open(self, node: object, data: bytes, read: Callable[[bytes], pa.RecordBatch]) -> Columns:
        """The columns of a node, read from its compressed bytes unless they are here."""
        columns = self._opened.get(node)
        if columns is not None:
            self._opened.move_to_end(node)
            return columns
        columns = Columns(read(data))
        if columns.size_bytes <= self._bytes_max:
            self._opened[node] = columns
            self.bytes_held += columns.size_bytes
        while self.bytes_held > self._bytes_max:
            _, gone = self._opened.popitem(last=False)
            self.bytes_held -= gone.size_bytes
        return columns

    def clear(self) -> None:
        self._opened.clear()
        self.bytes_held = 0


OPENED: Final = OpenedNodes(limits.OPENED_NODES_BYTES_MAX)
