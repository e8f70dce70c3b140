"""When keys were last used, for OBJECT IDLETIME.

A value has no room for a time of its own, and a table with one per key would cost more than many values. So keys share
a fixed number of cells, found by their slot and their last byte. What is told is the time since *a key of the cell* was
used: never too long, and too short for a key that shares its cell with one in use. With ten thousand keys in use that
happens to about one key in seven, with a hundred thousand to three of four. More cells would tell more, but every
command pays for them: four times as many, which no longer stay in the processor's cache, made SET a tenth slower.

The clock is set from outside some times a second, so that a use costs no more than a store into a list.
"""

from __future__ import annotations

from typing import Final, cast

from tidelog.ids import SLOT_COUNT

_CELL_BITS: Final = 2
"""Of the last byte: a slot has as many cells as they make."""
_CELL_MASK: Final = (1 << _CELL_BITS) - 1


class KeyUses:
    """The times of the last uses, for all databases of a store."""

    __slots__ = ("_forgotten", "_kept", "cells", "now")

    def __init__(self, now_us: int = 0) -> None:
        self.now: object = now_us
        """The time that uses get (monotonic µs). An object, so that a use stores it as it is."""
        self.cells: list[object] = [now_us] * (SLOT_COUNT << _CELL_BITS)
        self._kept = self.cells
        self._forgotten: list[object] | None = None

    def idle_s(self, slot: int, key: bytes, now_us: int) -> int:
        """Seconds since the key was used, or one that shares its cell."""
        used_us = cast("int", self._kept[cell_of(slot, key)])
        return max(0, now_us - used_us) // 1_000_000

    def stop_noting(self) -> None:
        """Uses leave no trace from here on: for a client that asked for it (CLIENT NO-TOUCH) ..."""
        if self._forgotten is None:
            self._forgotten = list(self._kept)
        self.cells = self._forgotten

    def note_again(self) -> None:
        """... and until its command is done."""
        self.cells = self._kept


def cell_of(slot: int, key: bytes) -> int:
    """Where the time of a key stands. Hot."""
    if not key:
        return slot << _CELL_BITS
    return (slot << _CELL_BITS) | (key[-1] & _CELL_MASK)
