"""The pending entries of a group in order of their ids, for X commands.

The list is kept beside the entries themselves, from the first time that a command needs it. New deliveries have larger
ids than those before, so they go to the end. An acknowledged id stays in the list until half of the list is gone, so
neither a delivery nor an acknowledgement moves all the others.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

_GONE_MIN = 64
"""Fewer ids that are gone are not worth the work."""


class PendingIds:
    """Id -> offset, and the ids in order."""

    __slots__ = ("_ordered", "offsets")

    def __init__(self, pairs: Iterable[tuple[int, int]]) -> None:
        self.offsets: dict[int, int] = dict(pairs)
        self._ordered = sorted(self.offsets)
        """With some that are gone."""

    def add(self, number: int, offset: int) -> None:
        if number not in self.offsets:
            ordered = self._ordered
            if not ordered or number > ordered[-1]:
                ordered.append(number)
            else:
                at = bisect_left(ordered, number)
                if at == len(ordered) or ordered[at] != number:
                    ordered.insert(at, number)
        self.offsets[number] = offset

    def add_all(self, ids: list[int], offsets: list[int]) -> None:
        """Ids in order, none of which is there. Hot."""
        is_behind = bool(self._ordered) and ids[0] <= self._ordered[-1]
        known = self.offsets
        for index in range(len(ids)):
            if is_behind:
                self.add(ids[index], offsets[index])
            else:
                known[ids[index]] = offsets[index]
        if not is_behind:
            self._ordered += ids

    def remove(self, number: int) -> None:
        self.offsets.pop(number, None)
        if len(self._ordered) > 2 * len(self.offsets) + _GONE_MIN:
            self._ordered = [each for each in self._ordered if each in self.offsets]

    def from_id(self, first: int) -> Iterator[int]:
        """The ids at or after one, in order; nothing may change meanwhile."""
        ordered, offsets = self._ordered, self.offsets
        for at in range(bisect_left(ordered, first), len(ordered)):
            if ordered[at] in offsets:
                yield ordered[at]

    @property
    def largest(self) -> int:
        """The largest id; there must be one."""
        return next(number for number in reversed(self._ordered) if number in self.offsets)
