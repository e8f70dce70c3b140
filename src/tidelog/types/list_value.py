"""The value of a list: elements in order.

    packed     up to PACKED_ITEMS_MAX short elements     | count | elements |
    otherwise                                            a `TwoEndedList`

    count      one byte
    elements   as `packed_items` has them

A list that was once too large to be packed is not packed again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from mypy_extensions import i64, mypyc_attr

from tidelog.types.packed_items import (
    ITEM_BYTES_MAX,
    LENGTHS,
    PACKED_BYTES_MAX,
    PACKED_ITEMS_MAX,
    are_short,
    pack,
    pass_over,
    unpack,
)
from tidelog.types.two_ended_list import TwoEndedList

_EMPTY: Final = b"\0"


@mypyc_attr(acyclic=True)
class List:
    """Elements; an index is how many elements stand before one. One slot, and none of the garbage collector."""

    __slots__ = ("_data",)

    def __init__(self) -> None:
        self._data: object = _EMPTY
        """`bytes`, or a `TwoEndedList`."""

    # --- reading ------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        data = self._data
        return data[0] if isinstance(data, bytes) else len(_ends(data))

    def __iter__(self) -> Iterator[bytes]:
        data = self._data
        return iter(unpack(data, 1, data[0])) if isinstance(data, bytes) else iter(_ends(data))

    def __repr__(self) -> str:
        return f"List({list(self)!r})"

    def at(self, index: int) -> bytes:
        """The element at an index that is there."""
        data = self._data
        if not isinstance(data, bytes):
            return _ends(data).at(index)
        at = pass_over(data, 1, index)
        return data[at + 1 : at + 1 + data[at]]

    def slice(self, start: int, stop: int) -> list[bytes]:
        """The elements from an index to before another; 0 <= start <= stop <= len. Hot."""
        data = self._data
        if not isinstance(data, bytes):
            return _ends(data).slice(start, stop)
        return unpack(data, pass_over(data, 1, start), stop - start)

    def places_of(self, element: bytes, compared_max: int, *, is_backward: bool = False) -> Iterator[int]:
        """Where an element stands, from the left or from the right, among the first so many that are looked at. The
        list must not change meanwhile."""
        data = self._data
        ends = TwoEndedList(unpack(data, 1, data[0])) if isinstance(data, bytes) else _ends(data)
        return ends.places_of(element, compared_max, is_backward=is_backward)

    @property
    def packed(self) -> bytes | None:
        """What it is packed as; None: it is too large for that."""
        data = self._data
        return data if isinstance(data, bytes) else None

    def copy(self) -> List:
        """One that changes by itself."""
        other, data = List(), self._data
        other._data = data if isinstance(data, bytes) else _ends(data).copy()
        return other

    # --- the ends -----------------------------------------------------------------------------------------------

    def push(self, elements: Sequence[bytes], is_left: bool) -> None:
        """Add elements at an end, one after the other. Hot."""
        data = self._data
        if not isinstance(data, bytes):
            _ends(data).push(elements, is_left)
            return
        count: i64 = data[0]
        if len(elements) == 1:
            element = elements[0]
            size: i64 = len(element)
            if count < PACKED_ITEMS_MAX and size <= ITEM_BYTES_MAX and len(data) + 1 + size <= PACKED_BYTES_MAX:
                head = LENGTHS[count + 1]
                if is_left:
                    self._data = b"%b%b%b%b" % (head, LENGTHS[size], element, data[1:])
                else:
                    self._data = b"%b%b%b%b" % (head, data[1:], LENGTHS[size], element)
                return
        there = unpack(data, 1, count)
        self._replace([*reversed(elements), *there] if is_left else [*there, *elements])

    def peek(self, is_left: bool) -> bytes:
        """The element at an end; there is one. Hot."""
        data = self._data
        if not isinstance(data, bytes):
            ends = _ends(data)
            return ends.first() if is_left else ends.last()
        at = 1 if is_left else pass_over(data, 1, data[0] - 1)
        return data[at + 1 : at + 1 + data[at]]

    def pop(self, is_left: bool) -> None:
        """Remove the element at an end; there is one. Hot."""
        data = self._data
        if not isinstance(data, bytes):
            _ends(data).pop(is_left)
        elif is_left:
            self._data = LENGTHS[data[0] - 1] + data[2 + data[1] :]
        else:
            self._data = LENGTHS[data[0] - 1] + data[1 : pass_over(data, 1, data[0] - 1)]

    def drop(self, count: int, is_left: bool) -> None:
        """Remove so many elements at an end; they are there."""
        data = self._data
        if not isinstance(data, bytes):
            ends = _ends(data)
            if is_left:
                ends.drop_left(count)
            else:
                ends.drop_right(count)
            return
        left = data[0] - count
        if is_left:
            self._data = LENGTHS[left] + data[pass_over(data, 1, count) :]
        else:
            self._data = LENGTHS[left] + data[1 : pass_over(data, 1, left)]

    # --- the middle ---------------------------------------------------------------------------------------------

    def set(self, index: int, element: bytes) -> None:
        data = self._data
        if not isinstance(data, bytes):
            _ends(data).set(index, element)
            return
        place = pass_over(data, 1, index)
        after = place + 1 + data[place]
        if len(element) <= ITEM_BYTES_MAX and len(data) + len(element) <= PACKED_BYTES_MAX:
            self._data = b"%b%b%b%b" % (data[:place], LENGTHS[len(element)], element, data[after:])
        else:
            elements = unpack(data, 1, data[0])
            elements[index] = element
            self._replace(elements)

    def insert(self, index: int, element: bytes) -> None:
        """The element has this index afterwards."""
        data = self._data
        if isinstance(data, bytes):
            elements = unpack(data, 1, data[0])
            elements.insert(index, element)
            self._replace(elements)
        else:
            _ends(data).insert(index, element)

    def remove_at(self, positions: Sequence[int]) -> None:
        """Remove the elements at indexes that ascend."""
        data = self._data
        if isinstance(data, bytes):
            gone = set(positions)
            self._replace([each for index, each in enumerate(unpack(data, 1, data[0])) if index not in gone])
        else:
            _ends(data).remove_at(positions)

    def trim(self, start: int, stop: int) -> None:
        """Keep only the elements from an index to before another."""
        self.drop(len(self) - stop, False)
        self.drop(start, True)

    def _replace(self, elements: list[bytes]) -> None:
        """Other elements, of a list that was packed."""
        if len(elements) <= PACKED_ITEMS_MAX and are_short(elements):
            self._data = pack(LENGTHS[len(elements)], elements)
        else:
            self._data = TwoEndedList(elements)


def list_of(elements: Sequence[bytes]) -> List:
    """A list of elements."""
    value = List()
    value.push(elements, False)
    return value


def _ends(data: object) -> TwoEndedList:
    assert isinstance(data, TwoEndedList)
    return data
