"""A simulated disk with one file, and what crashes leave of it."""

from __future__ import annotations

from collections import Counter

from tidelog.testing.disk import CrashStyle, SimulatedDisk
from tidelog.testing.file import SimulatedFile

SECTOR = 512


def new_file(seed: int = 0, contents: bytes = b"") -> tuple[SimulatedDisk, SimulatedFile]:
    """A disk with one file, durable with its contents, and open."""
    disk = SimulatedDisk(seed)
    disk.write_file("/file", contents)
    return disk, disk.open("/file", "write")


def fates(disk: SimulatedDisk, count: int = 500, style: CrashStyle | None = None) -> Counter[bytes]:
    """What crashes leave of `/file`, and how often."""
    seen: Counter[bytes] = Counter()
    for seed in range(count):
        clone = disk.clone(seed)
        clone.crash(style)
        seen[clone.read_file("/file")] += 1
    return seen
