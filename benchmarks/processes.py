"""What a process costs, as the kernel counts it: processor time and memory.

A server that forks, as Redis does for a snapshot or a full sync, shares its pages with the child until one of the two
writes to them. So its memory is its own resident pages, and those of its children that nobody else has (Private_Clean
and Private_Dirty in `smaps_rollup`): the pages that were copied because the server changed them meanwhile. That is what
the machine must have; the sum of both VmRSS would count shared pages twice.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from pathlib import Path
from typing import Final

SAMPLE_S: Final = 0.1
_VM_RSS: Final = re.compile(r"^VmRSS:\s+(\d+) kB", re.MULTILINE)
_PRIVATE: Final = re.compile(r"^Private_(?:Clean|Dirty):\s+(\d+) kB", re.MULTILINE)
_PARENT, _USER_TICKS, _SYSTEM_TICKS = 1, 11, 12
"""Places in `stat`, after the name of the program."""


def processor_s(pid: int) -> float:
    """That it has used so far, all threads, in the program and in the kernel; exact to a hundredth of a second."""
    fields = _stat(pid)
    return (int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])) / os.sysconf("SC_CLK_TCK")


def memory_bytes(pid: int) -> int:
    """Its resident memory, with what its children have alone."""
    own = _VM_RSS.search(Path(f"/proc/{pid}/status").read_text())
    if own is None:
        raise SystemExit(f"process {pid} has ended")
    return 1024 * int(own[1]) + sum(map(_private_bytes, children(pid)))


def children(pid: int) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):  # it has ended since
                if int(_stat(int(folder.name))[_PARENT]) == pid:
                    found.append(int(folder.name))
    return found


def _private_bytes(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0  # it has ended since
    return 1024 * sum(map(int, _PRIVATE.findall(text)))


def _stat(pid: int) -> list[str]:
    """Its fields after the name of the program, which may have anything in it."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


class MemoryWatch:
    """Looks at the memory of a process again and again, on a thread of its own; leaving the block ends that."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._is_over = threading.Event()
        self._peak_bytes = 0
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._look)

    def _look(self) -> None:
        while not self._is_over.wait(SAMPLE_S):
            self._sample()

    def _sample(self) -> None:
        with self._lock, contextlib.suppress(OSError):  # whoever waits for a process that has ended notices elsewhere
            self._peak_bytes = max(self._peak_bytes, memory_bytes(self._pid))

    def take_peak(self) -> int:
        """The highest so far; from here on it counts anew."""
        self._sample()
        with self._lock:
            peak_bytes, self._peak_bytes = self._peak_bytes, 0
        return peak_bytes

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
