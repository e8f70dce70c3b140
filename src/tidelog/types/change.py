"""A change of a key, as feeds tell it: what each type says about its operations and its values.

A change carries its value encoded already (RESP). Only the head of an event and nil differ between the two protocols,
so a change is encoded once for all feeds of a protocol. `feeds/event.py` makes events of changes.
"""

from __future__ import annotations

from typing import NamedTuple

NONE = b"none"
"""The type of a key that was deleted: the journal does not say what it was."""

EXPIRY = b"expire"
"""In place of a type: not the value has changed, but when the key expires. Only for feeds that asked for it."""


class Change(NamedTuple):
    """What happened to a key, or to a field of it."""

    key: bytes
    type: bytes
    field: bytes | None
    value: bytes | None
    """Encoded; None: deleted."""
    is_of_group: bool = False
    """Only for feeds that asked for the changes of groups."""


def expiry_change(key: bytes, expire_ms: int | None) -> Change:
    """When a key expires (absolute ms); None: never."""
    return Change(key, EXPIRY, None, None if expire_ms is None else number(expire_ms))


def bulk(data: bytes) -> bytes:
    """A string, encoded."""
    return b"$%d\r\n%b\r\n" % (len(data), data)


def number(value: int) -> bytes:
    """An integer, encoded."""
    return b":%d\r\n" % value


def array(items: list[bytes]) -> bytes:
    """An array of items that are encoded already."""
    return b"*%d\r\n%b" % (len(items), b"".join(items))
