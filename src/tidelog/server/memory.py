"""How much memory the process has, and whether that is too much.

`maxmemory` is compared with the resident size, because that is what the machine runs out of. It is sampled some times a
second, so a write costs nothing more. Python keeps freed memory for itself as long as it can. So while there is too
much, it is asked to give memory back: otherwise deleting keys would not help.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Final

from tidelog import limits

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_TRIM_EVERY_US: Final = 1_000_000


def resident_bytes() -> int:
    """The memory of this process, as the kernel counts it."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * _PAGE_BYTES


def total_bytes() -> int:
    """The memory of the machine."""
    return os.sysconf("SC_PHYS_PAGES") * _PAGE_BYTES


def give_back() -> None:
    """Let the allocator return what is free to the kernel; nothing where it is not glibc's."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class Memory:
    """The newest sample and the limits."""

    def __init__(
        self, limit_bytes: int, hot_stream_bytes: int = 0, *, resident: Callable[[], int] = resident_bytes
    ) -> None:
        self._resident = resident
        self.limit_bytes = limit_bytes
        """0: none."""
        self.hot_stream_bytes = hot_stream_bytes or int(limits.HOT_STREAM_PART * total_bytes())
        """What sealed nodes of streams may take, roughly: past it they become cold sooner."""
        self.used_bytes = resident()
        self.peak_bytes = self.used_bytes
        self._trimmed_us = 0

    @property
    def is_exceeded(self) -> bool:
        return 0 < self.limit_bytes < self.used_bytes

    @property
    def is_tight(self) -> bool:
        """It is nearly too much: what can be written to disk instead should be."""
        return 0 < limits.TIGHT_MEMORY_PART * self.limit_bytes < self.used_bytes

    def sample(self, now_us: int) -> bool:
        """Look again; returns whether there is too much."""
        self.used_bytes = self._resident()
        if self.is_exceeded and now_us - self._trimmed_us >= _TRIM_EVERY_US:
            self._trimmed_us = now_us
            give_back()
            self.used_bytes = self._resident()
        self.peak_bytes = max(self.peak_bytes, self.used_bytes)
        return self.is_exceeded
