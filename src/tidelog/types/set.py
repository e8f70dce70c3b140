"""Sets: members under one key, in the order in which they came.

0x20 sadd   | key | member ... |     members are in; the set is made if it is not there
0x21 srem   | key | member ... |     members are out; a set without members is gone too

No command promises an order, but one seed must draw the same members in every process, and a Python set is in the
order of hashes, which are salted anew each time. A dict has an order, takes less memory while it is small, and adding,
asking and SINTER are as fast; only SDIFF of small sets takes longer, by a fifth.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from tidelog.types.change import Change, bulk
from tidelog.types.effect import Effect, Keyspace, keyed_effect, split_long
from tidelog.types.string import integer_of
from tidelog.types.value_type import ValueType, in_pieces, sampled_bytes

SADD: Final = 0x20
SREM: Final = 0x21

_NAME: Final = b"set"
_IS_IN: Final = bulk(b"1")
"""The value of a member in an event."""
_INTSET_MEMBERS_MAX: Final = 512
_LISTPACK_MEMBERS_MAX: Final = 128
_LISTPACK_BYTES_MAX: Final = 64


class Set(dict[bytes, None]):
    """Members: `Set.fromkeys` makes one."""

    __slots__ = ()


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
    value = keyspace.change(op.key)
    if value is None:
        value = Set()
        keyspace.put(op.key, value)
    for member in op.members:
        value[member] = None


def _apply_srem(keyspace: Keyspace, op: SRem) -> None:
    value = keyspace.change(op.key)
    if value is None:
        return
    for member in op.members:
        value.pop(member, None)
    if not value:
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
    return list(sadd(key, list(value)))


def _pieces(key: bytes, value: Set) -> Iterator[Any]:
    return in_pieces(key, list(value), sadd)


def _initial(key: bytes, value: Set) -> Iterator[Change]:
    return (Change(key, _NAME, member, _IS_IN) for member in list(value))


def _encoding(value: Set) -> bytes:
    """What Redis 7.2 would choose for such a set."""
    if len(value) <= _INTSET_MEMBERS_MAX and all(integer_of(member) is not None for member in value):
        return b"intset"
    is_small = len(value) <= _LISTPACK_MEMBERS_MAX and all(len(member) <= _LISTPACK_BYTES_MAX for member in value)
    return b"listpack" if is_small else b"hashtable"


def _size_bytes(value: Set, samples: int) -> int:
    return sampled_bytes(value, value.items(), samples)


SET_TYPE: Final = ValueType(
    name=_NAME,
    value_class=Set,
    effects=effects(),
    operations=_operations,
    pieces=_pieces,
    copy=Set,
    initial=_initial,
    encoding=_encoding,
    size_bytes=_size_bytes,
)
