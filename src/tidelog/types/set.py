"""Sets: members under one key, in the order in which they came.

0x20 sadd   | key | member ... |     members are in; the set is made if it is not there
0x21 srem   | key | member ... |     members are out; a set without members is gone too

`set_value` has the value.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from tidelog.types.change import Change, bulk
from tidelog.types.effect import Effect, Keyspace, keyed_effect, split_long
from tidelog.types.encoding_bounds import EncodingBounds
from tidelog.types.set_value import Set
from tidelog.types.value_type import ValueType, in_pieces, sampled_bytes

SADD: Final = 0x20
SREM: Final = 0x21

_NAME: Final = b"set"
_IS_IN: Final = bulk(b"1")
"""The value of a member in an event."""


class SAdd(NamedTuple):
    """Add members."""

    key: bytes
    members: Sequence[bytes]


class SRem(NamedTuple):
    """Remove members."""

    key: bytes
    members: Sequence[bytes]


def sadd(key: bytes, members: Sequence[bytes]) -> list[SAdd]:
    """Add members, in as many records as they need."""
    return [SAdd(key, run) for run in split_long(key, members)]


def srem(key: bytes, members: Sequence[bytes]) -> list[SRem]:
    """Remove members, in as many records as they need."""
    return [SRem(key, run) for run in split_long(key, members)]


def _apply_sadd(keyspace: Keyspace, op: SAdd) -> None:
    value: Set | None = keyspace.change(op.key)
    if value is None:
        value = Set()
        keyspace.put(op.key, value)
    value.update(op.members, keyspace.bounds)


def _apply_srem(keyspace: Keyspace, op: SRem) -> None:
    value: Set | None = keyspace.change(op.key)
    if value is None:
        return
    value.discard(op.members)
    if not len(value):
        keyspace.remove(op.key)


def _changes_of_sadd(op: SAdd) -> list[Change]:
    return [Change(op.key, _NAME, member, _IS_IN) for member in op.members]


def _changes_of_srem(op: SRem) -> list[Change]:
    return [Change(op.key, _NAME, member, None) for member in op.members]


def effects() -> list[Effect]:
    """Every operation of this module."""
    return [
        keyed_effect(SADD, "sadd", SAdd, _apply_sadd, _changes_of_sadd),
        keyed_effect(SREM, "srem", SRem, _apply_srem, _changes_of_srem),
    ]


def _operations(key: bytes, value: Set) -> list[Any]:
    return list(sadd(key, list(value.members())))


def _pieces(key: bytes, value: Set) -> Iterator[Any]:
    return in_pieces(key, list(value.members()), sadd)


def _copy(value: Set) -> Set:
    return value.copy()


def _initial(key: bytes, value: Set) -> Iterator[Change]:
    return (Change(key, _NAME, member, _IS_IN) for member in list(value.members()))


def _encoding(value: Set, _bounds: EncodingBounds) -> bytes:
    return value.encoding


def _size_bytes(value: Set, samples: int) -> int:
    packed = value.packed
    if packed is not None:
        return sys.getsizeof(value) + sys.getsizeof(packed)
    members = value.members()
    return sys.getsizeof(value) + sampled_bytes(members, ((member,) for member in members), samples)


SET_TYPE: Final = ValueType(
    name=_NAME,
    value_class=Set,
    effects=effects(),
    operations=_operations,
    pieces=_pieces,
    copy=_copy,
    initial=_initial,
    encoding=_encoding,
    size_bytes=_size_bytes,
)
