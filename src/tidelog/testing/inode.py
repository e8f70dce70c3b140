"""The contents of one simulated file, and what a crash makes of them.

Memory holds the file as a process sees it (`data`) and, since the last sync, what each change replaced: an undo log.
So a write is one copy, a sync forgets the log, and only a crash pays for what it takes back.

The unit of loss is the sector: 512 bytes at a multiple of 512. Every change gives each sector that it touches a new
*version*, which is all of the sector as it read right after the change. A crash leaves each sector at one of the
versions that it had since it was last durable, independently of the others. Hence

- a sector is never half of one version and half of another;
- a later write may survive where an earlier one is lost, except within one sector, which holds both or the earlier;
- the size is apart from the sectors, as it is in an inode: it may be old over new sectors (which are then cut off) or
  new over lost ones (which then read as zeros).

A sync that fails dooms the changes that it was for, as on Linux, where their pages are marked clean: later syncs
neither write nor report them. A doomed sector becomes durable only if it is written again.

Versions that must not be lost although older changes of the log still can be (a sync half done; a sync after a failed
one) have a *floor*: the index of the change from which on a version of the sector is durable.
"""

from __future__ import annotations

from random import Random
from typing import Final

SECTOR_BYTES: Final = 512
_SHIFT: Final = 9
assert 1 << _SHIFT == SECTOR_BYTES

InodeChange = tuple[int, int, int, bytes | bytearray, int]
"""A write or truncate, to be undone: its number on the disk, start and end of the bytes that it set or cut, those that
were there before (fewer, if the file was shorter), and the file's size before. A tuple: one is made for each write."""


class Inode:
    """A file without a name."""

    __slots__ = ("changes", "data", "doomed_count", "floors", "is_shared", "size_floor")

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        """The contents as a process reads them now."""
        self.is_shared = False
        """`data` also belongs to a clone: it is copied before the first change."""
        self.changes: list[InodeChange] = []
        """The changes that a crash may undo, oldest first."""
        self.doomed_count = 0
        """How many of the first changes a failed sync has doomed."""
        self.floors: dict[int, int] = {}
        """Sector: index of the change that is its oldest version that a crash can leave."""
        self.size_floor = 0
        """How many of the first changes have their size durable."""

    # --- what a process does ------------------------------------------------------------------------------------

    def write(self, number: int, position: int, new: bytes) -> None:
        """Hot: every simulated write comes through here."""
        if self.is_shared:
            self._unshare()
        data = self.data
        size = len(data)
        end = position + len(new)
        if position < size:
            old = data[position:end]
            data[position:end] = new
            self.changes.append((number, position, end, old, size))
        elif new:
            if position > size:
                data.extend(bytes(position - size))
            data += new
            self.changes.append((number, position, end, b"", size))

    def truncate(self, number: int, size: int) -> None:
        if self.is_shared:
            self._unshare()
        data = self.data
        size_before = len(data)
        if size < size_before:
            self.changes.append((number, size, size_before, data[size:], size_before))
            del data[size:]
        elif size > size_before:
            self.changes.append((number, size_before, size, b"", size_before))
            data.extend(bytes(size - size_before))

    def sync(self) -> None:
        if not self.doomed_count:
            self.settle()
            return
        self.floors.update(self._newest_versions(self.doomed_count))
        self.size_floor = len(self.changes)

    def sync_partly(self, rng: Random) -> None:
        """A sync that the crash cut short: some sectors reached the disk, and perhaps the size."""
        newest = self._newest_versions(self.doomed_count)
        self.floors.update({sector: index for sector, index in newest.items() if rng.random() < 0.5})
        if rng.random() < 0.5:
            self.size_floor = len(self.changes)

    def fail_sync(self) -> None:
        self.doomed_count = len(self.changes)

    # --- what a test does ---------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Make everything that can be read now durable."""
        self.changes.clear()
        self.floors.clear()
        self.doomed_count = self.size_floor = 0

    def replace(self, data: bytes) -> None:
        self.data = bytearray(data)
        self.is_shared = False
        self.settle()

    def flip_bit(self, bit_index: int) -> None:
        """Let a bit rot in every version of its sector that has it."""
        position, mask = bit_index >> 3, 1 << (bit_index & 7)
        self._unshare()
        self.data[position] ^= mask
        for index, (number, start, end, old, size_before) in enumerate(self.changes):
            if start <= position < start + len(old):
                rotten = bytearray(old)
                rotten[position - start] ^= mask
                self.changes[index] = (number, start, end, rotten, size_before)

    def clone(self) -> Inode:
        twin = Inode()
        twin.data = self.data
        twin.is_shared = self.is_shared = True
        twin.changes = self.changes.copy()
        twin.doomed_count = self.doomed_count
        twin.floors = self.floors.copy()
        twin.size_floor = self.size_floor
        return twin

    # --- what a crash does --------------------------------------------------------------------------------------

    def lose_all(self) -> None:
        """Nothing that was not synced had reached the disk."""
        if self.floors or self.size_floor:
            self._rebuild({}, self._size_after(self.size_floor))
        else:
            self._rewind(0)
        self.settle()

    def keep_before(self, number: int, rng: Random) -> None:
        """Changes reached the disk in their order, up to the one with this number, which may be torn."""
        changes = self.changes
        kept = len(changes)
        while kept and changes[kept - 1][0] >= number:
            kept -= 1
        if self.floors or self.size_floor:
            versions = self._newest_versions(0, kept)
            self._rebuild(versions, self._size_after(max(kept, self.size_floor)))
        elif kept < len(changes) and changes[kept][0] == number:
            self._rewind(kept + 1)
            self._tear_last(rng)
        else:
            self._rewind(kept)
        self.settle()

    def scatter(self, rng: Random, chance: float) -> None:
        """Every version of every sector had reached the disk by that chance; the last that did is there."""
        random = rng.random
        versions: dict[int, int] = {}
        for index, (_, start, end, _, _) in enumerate(self.changes):
            for sector in range(start >> _SHIFT, ((end - 1) >> _SHIFT) + 1):
                if random() < chance:
                    versions[sector] = index
        self._rebuild(versions, self._any_size(rng))
        self.settle()

    def _any_size(self, rng: Random) -> int:
        """A size that the file had since it was last durable, or one that a growing write passed on its way."""
        count = len(self.changes)
        if rng.random() < 0.5:
            return len(self.data)  # the new size over lost sectors: holes, which are the worst to recover from
        kept = rng.randint(self.size_floor, count)
        size = self._size_after(kept)
        if kept < count and rng.random() < 0.5:
            larger = self._size_after(kept + 1)
            if larger > size:
                cut = rng.randint(size, larger)
                size = max(size, cut & -SECTOR_BYTES) if rng.random() < 0.5 else cut
        return size

    def _size_after(self, count: int) -> int:
        """The size after the first `count` changes of the log."""
        return self.changes[count][4] if count < len(self.changes) else len(self.data)

    def _newest_versions(self, first: int, end: int | None = None) -> dict[int, int]:
        """For each sector that changes from `first` on touch: the index of the last of them."""
        newest: dict[int, int] = {}
        for index, (_, start, stop, _, _) in enumerate(self.changes[first:end], first):
            for sector in range(start >> _SHIFT, ((stop - 1) >> _SHIFT) + 1):
                newest[sector] = index
        return newest

    def _rewind(self, count: int) -> None:
        """Undo all but the first `count` changes, newest first."""
        if count == len(self.changes):
            return
        self._unshare()
        data = self.data
        for _, start, _, old, size_before in reversed(self.changes[count:]):
            del data[size_before:]
            if old:
                data[start : start + len(old)] = old
        del self.changes[count:]

    def _tear_last(self, rng: Random) -> None:
        """Of the last change, keep the sectors below one of its boundaries. A truncate is lost whole."""
        _, start, end, old, size_before = self.changes[-1]
        first, last = start >> _SHIFT, (end - 1) >> _SHIFT
        cut = rng.randint(first, last) << _SHIFT
        if cut <= start or len(self.data) < size_before:
            self._rewind(len(self.changes) - 1)
            return
        self._unshare()
        del self.data[max(cut, size_before) :]
        if cut < start + len(old):
            self.data[cut : start + len(old)] = old[cut - start :]
        self.changes.pop()

    def _rebuild(self, versions: dict[int, int], size: int) -> None:
        """Make the contents of each sector's version, by index of its change, and cut or fill them to `size`.

        A sector that is not named gets what was durable, and none gets less than its floor.
        """
        for sector, floor in self.floors.items():
            if versions.get(sector, -1) < floor:
                versions[sector] = floor
        sectors_by_change: dict[int, list[int]] = {}
        for sector, index in versions.items():
            sectors_by_change.setdefault(index, []).append(sector)
        self._unshare()
        data = self.data
        survivors: list[tuple[int, bytearray]] = []
        for index in range(len(self.changes) - 1, -1, -1):
            for sector in sectors_by_change.get(index, ()):
                position = sector << _SHIFT
                survivors.append((position, data[position : position + SECTOR_BYTES]))
            _, start, _, old, size_before = self.changes[index]
            del data[size_before:]
            if old:
                data[start : start + len(old)] = old
        if len(data) < size:
            data.extend(bytes(size - len(data)))
        for position, survivor in survivors:
            if position < size:
                # A short survivor ended the file when it was written; zeros follow in its sector.
                data[position : position + SECTOR_BYTES] = survivor.ljust(SECTOR_BYTES, b"\0")
        del data[size:]

    def _unshare(self) -> None:
        if self.is_shared:
            self.data = self.data.copy()
            self.is_shared = False
