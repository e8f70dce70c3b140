"""A change of a key, as feeds tell it: what each type says about its operations and its values.

A change carries its value encoded already (RESP). Only the head of an event and nil differ between the two protocols,
so a change is encoded once for all feeds of a protocol. `feeds/event.py` makes events of changes.

A string that is large is never copied into an event: the event refers to it, and whoever sends the event reads it in
pieces. So a feed holds a large value once at most, however many steps lie between the journal and the socket.
"""

from __future__ import annotations

from typing import NamedTuple

from tidelog import limits

NONE = b"none"
"""The type of a key that was deleted: the journal does not say what it was."""

EXPIRY = b"expire"
"""In place of a type: not the value has changed, but when the key expires. Only for feeds that asked for it."""


class LargeString:
    """A string of an event that is sent in pieces; this one lies in memory."""

    __slots__ = ("_data", "memory_bytes", "size")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)
        self.memory_bytes = len(data)
        """What it holds of the memory while it waits."""

    def read(self, at: int, size: int) -> bytes:
        """A piece of it; shorter only at the end."""
        return self._data[at : at + size]


Pieces = list[bytes | LargeString]
"""Something that is encoded, with large strings in it: each stands for the whole of an encoded string."""


class Change(NamedTuple):
    """What happened to a key, or to a field of it."""

    key: bytes
    type: bytes
    field: bytes | None
    value: bytes | Pieces | None
    """Encoded; None: deleted."""
    is_of_group: bool = False
    """Only for feeds that asked for the changes of groups."""


def expiry_change(key: bytes, expire_ms: int | None) -> Change:
    """When a key expires (absolute ms); None: never."""
    return Change(key, EXPIRY, None, None if expire_ms is None else number(expire_ms))


def bulk(data: bytes) -> bytes:
    """A string, encoded."""
    return b"$%d\r\n%b\r\n" % (len(data), data)


def text(data: bytes) -> bytes | Pieces:
    """A string that may be large, encoded."""
    return bulk(data) if len(data) <= limits.FEED_PIECE_BYTES else [LargeString(data)]


def joined(parts: list[bytes | Pieces]) -> bytes | Pieces:
    """Things that are encoded, one after the other."""
    found: Pieces = []
    small: list[bytes] = []
    for part in parts:
        for piece in [part] if isinstance(part, bytes) else part:
            if isinstance(piece, bytes):
                small.append(piece)
            else:
                found += [b"".join(small), piece]
                small = []
    return [*found, b"".join(small)] if found else b"".join(small)


def number(value: int) -> bytes:
    """An integer, encoded."""
    return b":%d\r\n" % value


def array(items: list[bytes]) -> bytes:
    """An array of items that are encoded already."""
    return b"*%d\r\n%b" % (len(items), b"".join(items))
