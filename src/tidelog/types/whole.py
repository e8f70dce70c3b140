"""A whole value as operations: for a copy, a new name, a snapshot."""

from __future__ import annotations

from typing import Any

from tidelog.journal.operation import Val
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
    operations: list[Any]
    if kind is Hash:
        operations = list(hset(key, [item for pair in value.items() for item in pair]))
    elif kind is Set:
        operations = list(sadd(key, list(value)))
    elif kind is ZSet:
        operations = list(zadd(key, value))
    else:
        raise TypeError(f"a value cannot be a {kind.__name__}")
    if expire_ms is not None:
        operations.append(Expire(key, expire_ms))
    return operations


def copy_value(value: Value) -> Value:
    """An independent copy: strings are immutable, collections are copied one level deep."""
    kind = type(value)
    if kind is bytes:
        return value
    if kind is ZSet:
        return value.copy()
    return kind(value)
