"""A whole value as operations: for a copy, a new name, a snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from tidelog import limits
from tidelog.journal.operation import Val
from tidelog.streams.stream import Stream
from tidelog.streams.whole import whole_stream
from tidelog.types.effect import Value
from tidelog.types.hash import Hash, hset
from tidelog.types.set import Set, sadd
from tidelog.types.string import Expire
from tidelog.types.zset import ZSet, zadd


def whole_value(key: bytes, value: Value, expire_ms: int | None) -> list[Any]:
    """Operations that make this value under a key that is not there."""
    kind = type(value)
    if kind is bytes:
        return [Val([(key, value)], expire_ms)]
    if kind is Stream:
        operations = whole_stream(key, value)
    else:
        operations = _members(key, kind, value.items() if kind is Hash else value)
    if expire_ms is not None:
        operations.append(Expire(key, expire_ms))
    return operations


def _members(key: bytes, kind: type[Any], members: Iterable[Any]) -> list[Any]:
    """Operations that add members to a collection."""
    if kind is Hash:
        return list(hset(key, [item for pair in members for item in pair]))
    if kind is Set:
        return list(sadd(key, list(members)))
    if kind is ZSet:
        return list(zadd(key, members))
    raise TypeError(f"a value cannot be a {kind.__name__}")


def whole_value_in_pieces(key: bytes, value: Value, expire_ms: int | None) -> Iterator[Any]:
    """The same for a large collection, a record or so at a time; the collection may change meanwhile."""
    kind = type(value)
    if kind is Stream:
        return iter(whole_value(key, value.copy(), expire_ms))
    # Copied before anyone asks for the first piece. The entries of a sorted set are tuples that it has already.
    members = iter(copy_value(value).items() if kind is Hash else list(value))

    def pieces() -> Iterator[Any]:
        while run := list(islice(members, limits.RECORD_MEMBERS_MAX)):
            yield from _members(key, kind, run)
        if expire_ms is not None:
            yield Expire(key, expire_ms)

    return pieces()


def copy_value(value: Value) -> Value:
    """An independent copy: strings are immutable, collections are copied one level deep."""
    kind = type(value)
    if kind is bytes:
        return value
    if kind is ZSet or kind is Stream:
        return value.copy()
    return kind(value)
