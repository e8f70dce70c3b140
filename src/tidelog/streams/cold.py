"""Nodes that were compressed and are read again: the newest of them stay open, within a bound of bytes.

One cache for the process: it holds copies of what is kept elsewhere, so nothing depends on what is in it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import pyarrow as pa

from tidelog import limits


class OpenedNodes:
    """Least recently used first. One thread."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._batches: OrderedDict[object, pa.RecordBatch] = OrderedDict()
        self.bytes_held = 0

    def open(self, node: object, data: bytes, read: Callable[[bytes], pa.RecordBatch]) -> pa.RecordBatch:
        """The record batch of a node, read from its compressed bytes unless it is here."""
        batch = self._batches.get(node)
        if batch is not None:
            self._batches.move_to_end(node)
            return batch
        batch = read(data)
        if batch.nbytes <= self._bytes_max:
            self._batches[node] = batch
            self.bytes_held += batch.nbytes
        while self.bytes_held > self._bytes_max:
            _, gone = self._batches.popitem(last=False)
            self.bytes_held -= gone.nbytes
        return batch

    def clear(self) -> None:
        self._batches.clear()
        self.bytes_held = 0


OPENED: Final = OpenedNodes(limits.OPENED_NODES_BYTES_MAX)
