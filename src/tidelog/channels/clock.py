"""The clock of a channel: whole numbers on a ring, one a message.

    0, 1, 2 ... LARGEST, -LARGEST, -LARGEST + 1 ... -1, 0 ...          LARGEST = 2^53 - 1

Lua computes with doubles, which are exact only up to 2^53 - 1, so the clock wraps there. The ring has an odd number of
clocks: of two that differ, exactly one is less than half a ring ahead of the other, and that one is the later. A
channel and its subscribers are never nearly half a ring apart: it would take 285 years at a million messages a second.

`clock_lua.py` has the same arithmetic for scripts.
"""

from __future__ import annotations

from typing import Final

LARGEST: Final = 2**53 - 1
RING: Final = 2 * LARGEST + 1
"""How many clocks there are."""


def is_clock(number: int) -> bool:
    return -LARGEST <= number <= LARGEST


def after(clock: int, steps: int = 1) -> int:
    """The clock so many messages later."""
    return (clock + steps + LARGEST) % RING - LARGEST


def steps_between(earlier: int, later: int) -> int | None:
    """How many messages one clock is ahead of another; None if it is not ahead but behind."""
    steps = (later - earlier) % RING
    return steps if steps <= LARGEST else None


def is_at_or_before(clock: int, other: int) -> bool:
    return steps_between(clock, other) is not None
