"""When keys were last used, for OBJECT IDLETIME.

A value has no room for a time of its own, and a table with one per key would cost more than many values. So the keys of
a slot share one. What is told is the time since *a key of the slot* was used: never too long, and too short for a key
whose slot has another one in use. With a thousand keys in use that happens to one key in sixteen, with ten thousand to
nearly half. More times would tell more, but every command pays for them: four per slot, found by the key's last byte,
made GET a twentieth slower.

The clock is set from outside some times a second, and a time is a plain number of four bytes, so that a use costs one
store. A list of Python's numbers took 5 % of the time of a pipeline: its places are larger, and their objects counted.
"""

from __future__ import annotations

from typing import Final

from librt.vecs import vec
from mypy_extensions import i32, i64

from tidelog.ids import SLOT_COUNT

_TICK_US: Final = 100_000
"""The unit of times here: 31 bits of them are almost seven years."""
_TICKS_PER_S: Final = 10


class KeyUses:
    """The times of the last uses, for all databases of a store."""

    __slots__ = ("_forgotten", "_kept", "by_slot", "now_ticks")

    def __init__(self, now_us: int = 0) -> None:
        self.now_ticks: i32 = now_us // _TICK_US
        """The time that uses get: monotonic, and never later than now."""
        self.by_slot: vec[i32] = _times(self.now_ticks)
        self._kept: vec[i32] = self.by_slot
        self._forgotten: vec[i32] = vec[i32]()
        """Times that nobody reads; none until somebody needs them."""

    def set_now(self, now_us: int) -> None:
        self.now_ticks = now_us // _TICK_US

    def idle_s(self, slot: i64, now_us: int) -> int:
        """Seconds since a key of the slot was used."""
        used_ticks: i32 = self._kept[slot]
        return max(0, now_us // _TICK_US - int(used_ticks)) // _TICKS_PER_S

    def stop_noting(self) -> None:
        """Uses leave no trace from here on: for a client that asked for it (CLIENT NO-TOUCH) ..."""
        if not len(self._forgotten):
            self._forgotten = _times(0)
        self.by_slot = self._forgotten

    def note_again(self) -> None:
        """... and until its command is done."""
        self.by_slot = self._kept


def _times(ticks: i32) -> vec[i32]:
    return vec[i32]([ticks] * SLOT_COUNT)
