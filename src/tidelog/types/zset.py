"""Sorted sets: members with scores under one key, ordered by score and then by member.

0x30 zadd   | key | score, member ... |     a score is a double, 8 bytes; the set is made if it is not there
0x31 zrem   | key | member ... |            members are gone; a set without members is gone too

`zset_value` has the value. A score is never NaN, and a zero has no sign: `zadd` takes it away, as Redis does where it
stores small sets.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from tidelog.resp.encoder import format_double
from tidelog.types.change import Change, bulk
from tidelog.types.effect import Effect, Keyspace, keyed_effect, split_long
from tidelog.types.encoding_bounds import EncodingBounds
from tidelog.types.value_type import ValueType, in_pieces, sampled_bytes
from tidelog.types.zset_value import ZSet

ZADD: Final = 0x30
ZREM: Final = 0x31

_NAME: Final = b"zset"

_DOUBLE: Final = struct.Struct("<d")
pack_score = _DOUBLE.pack


class ZAdd(NamedTuple):
    """Set scores; `items` is score (8 bytes), member, score, member ..."""

    key: bytes
    items: Sequence[bytes]


_make_zadd: Final = partial(tuple.__new__, ZAdd)  # hot: the call of the class itself is Python


class ZRem(NamedTuple):
    """Remove members."""

    key: bytes
    members: Sequence[bytes]


def zadd(key: bytes, items: Iterable[tuple[float, bytes]]) -> list[ZAdd]:
    """Set scores, in as many records as they need."""
    flat: list[bytes] = []
    for score, member in items:
        flat += (pack_score(score + 0.0), member)  # adding it makes a zero positive
    return [ZAdd(key, run) for run in split_long(key, flat, 2)]


def zadd_one(key: bytes, score: float, member: bytes) -> list[ZAdd]:
    """Set one score: as `zadd`, and hot."""
    return [_make_zadd((key, [pack_score(score + 0.0), member]))]


def zrem(key: bytes, members: Sequence[bytes]) -> list[ZRem]:
    """Remove members, in as many records as they need."""
    return [ZRem(key, run) for run in split_long(key, members)]


def _apply_zadd(keyspace: Keyspace, op: ZAdd) -> None:
    key, items = op
    value: ZSet | None = keyspace.change(key)
    if value is None:
        value = ZSet()
        keyspace.put(key, value)
    if len(items) == 2:
        value.set_one(_DOUBLE.unpack(items[0])[0], items[1], keyspace.bounds)
        return
    scores = [_DOUBLE.unpack(score)[0] for score in items[::2]]
    value.update(list(zip(scores, items[1::2], strict=True)), keyspace.bounds)


def _apply_zrem(keyspace: Keyspace, op: ZRem) -> None:
    value: ZSet | None = keyspace.change(op.key)
    if value is None:
        return
    value.discard(op.members)
    if not len(value):
        keyspace.remove(op.key)


def _changes_of_zadd(op: ZAdd) -> list[Change]:
    items = op.items
    return [
        Change(op.key, _NAME, items[at + 1], bulk(format_double(_DOUBLE.unpack(items[at])[0])))
        for at in range(0, len(items), 2)
    ]


def _changes_of_zrem(op: ZRem) -> list[Change]:
    return [Change(op.key, _NAME, member, None) for member in op.members]


def effects() -> list[Effect]:
    """Every operation of this module."""
    return [
        keyed_effect(ZADD, "zadd", ZAdd, _apply_zadd, _changes_of_zadd, step=2),
        keyed_effect(ZREM, "zrem", ZRem, _apply_zrem, _changes_of_zrem),
    ]


def _operations(key: bytes, value: ZSet) -> list[Any]:
    return list(zadd(key, value.entries()))


def _pieces(key: bytes, value: ZSet) -> Iterator[Any]:
    return in_pieces(key, value.entries(), zadd)


def _copy(value: ZSet) -> ZSet:
    return value.copy()


def _initial(key: bytes, value: ZSet) -> Iterator[Change]:
    return (Change(key, _NAME, member, bulk(format_double(score))) for score, member in value.entries())


def _encoding(value: ZSet, _bounds: EncodingBounds) -> bytes:
    return b"skiplist" if value.is_large else b"listpack"


def _size_bytes(value: ZSet, samples: int) -> int:
    packed = value.packed
    return sys.getsizeof(value) + sys.getsizeof(packed) if packed is not None else sampled_bytes(value, value, samples)


ZSET_TYPE: Final = ValueType(
    name=_NAME,
    value_class=ZSet,
    effects=effects(),
    operations=_operations,
    pieces=_pieces,
    copy=_copy,
    initial=_initial,
    encoding=_encoding,
    size_bytes=_size_bytes,
)
