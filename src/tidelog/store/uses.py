"""When keys were last used, for OBJECT IDLETIME.

A value has no room for a time of its own, and a table with one per key would cost more than many values. So keys share
a fixed number of cells, found by their slot and their last byte. What is told is the time since *a key of the cell* was
used: never too long, and too short for a key that shares its cell with one in use. With ten thousand keys in use that
happens to about one key in seven, with a hundred thousand to three of four. More cells would tell more, but every
command pays for them: four times as many, which no longer stay in the processor's cache, made SET a tenth slower.

The clock is set from outside some times a second, and a cell is a plain number of four bytes, so that a use costs one
store. A list of Python's numbers took 5 % of the time of a pipeline: its cells are larger, and their objects counted.
"""

from __future__ import annotations

from typing import Final

from librt.vecs import vec
from mypy_extensions import i32, i64

from tidelog.ids import SLOT_COUNT

_CELL_BITS: Final = 2
"""Of the last byte: a slot has as many cells as they make."""
_CELL_MASK: Final = (1 << _CELL_BITS) - 1
_CELL_COUNT: Final = SLOT_COUNT << _CELL_BITS
_TICK_US: Final = 100_000
"""The unit of times here: 31 bits of them are almost seven years."""
_TICKS_PER_S: Final = 10


class KeyUses:
    """The times of the last uses, for all databases of a store."""

    __slots__ = ("_forgotten", "_kept", "cells", "now_ticks")

    def __init__(self, now_us: int = 0) -> None:
        self.now_ticks: i32 = now_us // _TICK_US
        """The time that uses get: monotonic, and never later than now."""
        self.cells: vec[i32] = _cells(self.now_ticks)
        self._kept: vec[i32] = self.cells
        self._forgotten: vec[i32] = vec[i32]()
        """Cells that nobody reads; none until somebody needs them."""

    def set_now(self, now_us: int) -> None:
        self.now_ticks = now_us // _TICK_US

    def idle_s(self, slot: int, key: bytes, now_us: int) -> int:
        """Seconds since the key was used, or one that shares its cell."""
        used_ticks: i32 = self._kept[cell_of(slot, key)]
        return max(0, now_us // _TICK_US - int(used_ticks)) // _TICKS_PER_S

    def stop_noting(self) -> None:
        """Uses leave no trace from here on: for a client that asked for it (CLIENT NO-TOUCH) ..."""
        if not len(self._forgotten):
            self._forgotten = _cells(0)
        self.cells = self._forgotten

    def note_again(self) -> None:
        """... and until its command is done."""
        self.cells = self._kept


def _cells(ticks: i32) -> vec[i32]:
    return vec[i32]([ticks] * _CELL_COUNT)


def cell_of(slot: i64, key: bytes) -> i64:
    """Where the time of a key stands. Hot."""
    if not key:
        return slot << _CELL_BITS
    return (slot << _CELL_BITS) | (i64(key[-1]) & _CELL_MASK)
