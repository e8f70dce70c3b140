"""The elements of a list that is not packed: two Python lists whose open ends are the ends of the list.

       left                                      right
    front[n] ... front[1] front[0]   back[0] back[1] ... back[m]

So pushes and pops at both ends are appends and pops of Python, any index is reached at once, and a range is two slices.
A side that runs empty gets a part of the other: half of it, or `_MOVED_MAX` elements, so that nobody waits long for it.

A deque was rejected because its middle is walked to, and a single Python list because a pop at its left end moves all
that follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

_MOVED_MAX: Final = 64 * 1024
"""The most elements that go from one side to the other at a time."""
_COMPARED_AT_ONCE: Final = 4096
"""Elements that a search copies at a time."""
_DELETED_ONE_BY_ONE_MAX: Final = 8
"""More elements than this are removed by making their side anew."""


class TwoEndedList:
    """Elements in order; an index is how many elements stand before one."""

    __slots__ = ("back", "front")

    def __init__(self, elements: Sequence[bytes] = ()) -> None:
        self.front: list[bytes] = []
        """The left part, reversed."""
        self.back: list[bytes] = list(elements)
        """The right part."""

    # --- reading ------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.front) + len(self.back)

    def __iter__(self) -> Iterator[bytes]:
        return chain(reversed(self.front), self.back)

    def __repr__(self) -> str:
        return f"TwoEndedList({list(self)!r})"

    def at(self, index: int) -> bytes:
        """The element at an index that is there."""
        in_front = len(self.front)
        return self.front[in_front - 1 - index] if index < in_front else self.back[index - in_front]

    def slice(self, start: int, stop: int) -> list[bytes]:
        """The elements from an index to before another; 0 <= start <= stop <= len. Hot."""
        in_front = len(self.front)
        if start >= in_front:
            return self.back[start - in_front : stop - in_front]
        found = self.front[max(in_front - stop, 0) : in_front - start]
        found.reverse()
        if stop > in_front:
            found += self.back[: stop - in_front]
        return found

    def places_of(self, element: bytes, compared_max: int, *, is_backward: bool = False) -> Iterator[int]:
        """Where an element stands, from the left or from the right, among the first so many that are looked at. The
        list must not change meanwhile."""
        size = len(self)
        end = min(size, compared_max)
        for at in range(0, end, _COMPARED_AT_ONCE):
            until = min(at + _COMPARED_AT_ONCE, end)
            if is_backward:
                part = self.slice(size - until, size - at)
                part.reverse()
            else:
                part = self.slice(at, until)
            found = -1
            for _ in range(part.count(element)):
                found = part.index(element, found + 1)
                yield size - 1 - at - found if is_backward else at + found

    def copy(self) -> TwoEndedList:
        """One that changes by itself."""
        other = TwoEndedList()
        other.front, other.back = self.front[:], self.back[:]
        return other

    # --- changing -----------------------------------------------------------------------------------------------

    def first(self) -> bytes:
        """The element at the left end, if there is one; then it is at the end of `front`. Hot."""
        if not self.front:
            self._fill_front()
        return self.front[-1]

    def last(self) -> bytes:
        """The element at the right end, if there is one; then it is at the end of `back`. Hot."""
        if not self.back:
            self._fill_back()
        return self.back[-1]

    def push(self, elements: Sequence[bytes], is_left: bool) -> None:
        """Add elements at an end, one after the other. Hot."""
        if is_left:
            self.front.extend(elements)
        else:
            self.back.extend(elements)

    def pop(self, is_left: bool) -> None:
        """Remove the element at an end, if there is one. Hot."""
        if is_left:
            if not self.front:
                self._fill_front()
            self.front.pop()
        else:
            if not self.back:
                self._fill_back()
            self.back.pop()

    def drop_left(self, count: int) -> None:
        """Remove elements that are there."""
        if not self.front:
            self._fill_front()
        in_front = len(self.front)
        if count <= in_front:
            del self.front[in_front - count :]
        else:
            self.front = []
            del self.back[: count - in_front]

    def drop_right(self, count: int) -> None:
        """Remove elements that are there."""
        if not self.back:
            self._fill_back()
        in_back = len(self.back)
        if count <= in_back:
            del self.back[in_back - count :]
        else:
            self.back = []
            del self.front[: count - in_back]

    def set(self, index: int, element: bytes) -> None:
        in_front = len(self.front)
        if index < in_front:
            self.front[in_front - 1 - index] = element
        else:
            self.back[index - in_front] = element

    def insert(self, index: int, element: bytes) -> None:
        """The element has this index afterwards."""
        in_front = len(self.front)
        if index < in_front:
            self.front.insert(in_front - index, element)
        else:
            self.back.insert(index - in_front, element)

    def remove_at(self, positions: Sequence[int]) -> None:
        """Remove the elements at indexes that ascend."""
        in_front = len(self.front)
        in_back = [at - in_front for at in positions if at >= in_front]
        if len(in_back) < len(positions):
            self.front = _without(self.front, [in_front - 1 - at for at in reversed(positions) if at < in_front])
        if in_back:
            self.back = _without(self.back, in_back)

    def trim(self, start: int, stop: int) -> None:
        """Keep only the elements from an index to before another."""
        self.drop_right(len(self) - stop)
        self.drop_left(start)

    def _fill_front(self) -> None:
        """Nothing is left there, but elements may be in the other part."""
        count = min((len(self.back) + 1) // 2, _MOVED_MAX)
        self.front = self.back[:count]
        self.front.reverse()
        del self.back[:count]

    def _fill_back(self) -> None:
        count = min((len(self.front) + 1) // 2, _MOVED_MAX)
        self.back = self.front[:count]
        self.back.reverse()
        del self.front[:count]


def _without(items: list[bytes], gone: list[int]) -> list[bytes]:
    """Items without those at indexes that ascend; few are removed in place."""
    if len(gone) <= _DELETED_ONE_BY_ONE_MAX:
        for at in reversed(gone):
            del items[at]
        return items
    left: list[bytes] = []
    start = 0
    for at in gone:
        left += items[start:at]
        start = at + 1
    left += items[start:]
    return left
