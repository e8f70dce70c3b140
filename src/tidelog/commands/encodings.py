"""What Redis would call a value: its type, and how it would store it at its default settings."""

from __future__ import annotations

from typing import Final

from tidelog.commands.arguments import integer
from tidelog.errors import CommandError
from tidelog.streams.stream import Stream
from tidelog.types.effect import Value
from tidelog.types.hash import Hash
from tidelog.types.set import Set
from tidelog.types.zset import ZSet

_TYPES: Final = {type(None): "none", bytes: "string", Hash: "hash", Set: "set", ZSet: "zset", Stream: "stream"}
_EMBSTR_BYTES_MAX: Final = 44
_HASH_LISTPACK_ENTRIES_MAX: Final = 512
_ZSET_LISTPACK_ENTRIES_MAX: Final = 128
_LISTPACK_BYTES_MAX: Final = 64
_INTSET_ENTRIES_MAX: Final = 512
_SHARED_REFCOUNT: Final = 2**31 - 1


def type_name(value: Value | None) -> str:
    """The name that TYPE gives."""
    return _TYPES[type(value)]


def encoding_of(value: Value) -> bytes:
    """The name that OBJECT ENCODING gives."""
    kind = type(value)
    if kind is bytes:
        if len(value) <= 20 and _is_integer(value):
            return b"int"
        return b"embstr" if len(value) <= _EMBSTR_BYTES_MAX else b"raw"
    if kind is Hash:
        items = [item for pair in value.items() for item in pair] if len(value) <= _HASH_LISTPACK_ENTRIES_MAX else None
        return b"listpack" if _is_small(items) else b"hashtable"
    if kind is Set:
        return b"intset" if len(value) <= _INTSET_ENTRIES_MAX and all(map(_is_integer, value)) else b"hashtable"
    if kind is Stream:
        return b"stream"
    members = [member for _, member in value] if len(value) <= _ZSET_LISTPACK_ENTRIES_MAX else None
    return b"listpack" if _is_small(members) else b"skiplist"


def refcount_of(value: Value) -> int:
    """The number that OBJECT REFCOUNT gives: Redis has one object for all uses of a small integer."""
    is_shared = type(value) is bytes and value.isdigit() and len(value) <= 4 and _is_integer(value)
    return _SHARED_REFCOUNT if is_shared else 1


def _is_small(items: list[bytes] | None) -> bool:
    return items is not None and all(len(item) <= _LISTPACK_BYTES_MAX for item in items)


def _is_integer(value: bytes) -> bool:
    try:
        integer(value)
    except CommandError:
        return False
    return True
