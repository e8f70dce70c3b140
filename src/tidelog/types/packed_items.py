"""Items in one string, each with its length before it: what small collections are packed as.

    | length | item | length | item | ...          a length is one byte

A Python object costs 33 bytes beside what it says, and a dict some 200: in a small collection they are most of it. An
item that is longer than `ITEM_BYTES_MAX`, or a collection with more than `PACKED_BYTES_MAX`, is not packed: every
change copies the whole string, and every search passes over what stands before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mypy_extensions import i64

ITEM_BYTES_MAX: Final = 255
PACKED_BYTES_MAX: Final = 448
"""Python's own allocator takes a string up to 512 bytes with its head; others cost more time and memory."""
PACKED_ITEMS_MAX: Final = 16
"""More of them (fields, members, elements) take longer to pass over than a dict takes to find one."""

LENGTHS: Final = [bytes([length]) for length in range(256)]
"""A byte for each number."""


def pass_over(data: bytes, at: i64, count: i64) -> i64:
    """The place after so many items. Hot."""
    while count > 0:
        at += 1 + data[at]
        count -= 1
    return at


def find_item(data: bytes, at: i64, count: i64, item: bytes) -> i64:
    """Which of so many items is this one; -1: none. Hot."""
    size: i64 = len(item)
    index: i64 = 0
    while index < count:
        length: i64 = data[at]
        at += 1
        if length == size and data[at : at + size] == item:
            return index
        at += length
        index += 1
    return -1


def unpack(data: bytes, at: i64, count: i64) -> list[bytes]:
    """So many items. Hot."""
    items: list[bytes] = []
    while count > 0:
        end: i64 = at + 1 + data[at]
        items.append(data[at + 1 : end])
        at = end
        count -= 1
    return items


def pack(head: bytes, items: Sequence[bytes]) -> bytes:
    """Items after a head; none is too long."""
    parts = [head]
    for item in items:
        parts.append(LENGTHS[len(item)])
        parts.append(item)
    return b"".join(parts)


def are_short(items: Sequence[bytes]) -> bool:
    """Whether they can be packed, for all that their sizes say."""
    size: i64 = len(items)
    for item in items:
        length: i64 = len(item)
        if length > ITEM_BYTES_MAX:
            return False
        size += length
    return size <= PACKED_BYTES_MAX
