"""Operations on keys of any type.

    0x05 expire     | key |          the header's expire is the new expiry; without one the key never expires
    0x06 delrange   | start, end |   every key from `start` to before `end` is gone; an empty end is unbounded

`del` and `flushdb` are operations that the journal itself knows; their effects are here.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from tidelog.errors import FormatError
from tidelog.journal.operation import (
    DEL,
    DELRANGE,
    FLUSHDB,
    Del,
    FlushDb,
    OperationKind,
    core_table,
    decode_items,
    encode_items,
)
from tidelog.types.change import NONE, Change
from tidelog.types.effect import Effect, Keyspace, decode_keyed, encode_keyed, keyed_keys, no_changes

EXPIRE: Final = 0x05


class Expire(NamedTuple):
    """Set when a key expires (absolute ms); None: never."""

    key: bytes
    expire_ms: int | None


class DelRange(NamedTuple):
    """Delete the keys from `start` to before `end` (empty: unbounded). Every shard has a record of it."""

    start: bytes
    end: bytes
    removal: Any = None
    """What was found when it was decided (`store/range_removal.py`); it is no part of the record."""


def decode_range(payload: bytes) -> DelRange:
    """The operation of a payload."""
    items = decode_items(payload)
    if len(items) != 2 or (items[1] and items[1] <= items[0]):
        raise FormatError(f"delrange has {len(items)} items, or ends before it begins")
    return DelRange(items[0], items[1])


def _apply_delrange(keyspace: Keyspace, op: DelRange) -> None:
    keyspace.remove_range(op.removal)


def _apply_del(keyspace: Keyspace, op: Del) -> None:
    for key in op.keys:
        keyspace.remove(key)


def _changes_of_del(op: Del) -> list[Change]:
    return [Change(key, NONE, None, None) for key in op.keys]


def _apply_flushdb(keyspace: Keyspace, _op: FlushDb) -> None:
    keyspace.clear()


def _apply_expire(keyspace: Keyspace, op: Expire) -> None:
    keyspace.set_expiry(op.key, op.expire_ms)


def effects() -> list[Effect]:
    """Every operation of this module."""
    known = core_table().kind
    expire = OperationKind(
        EXPIRE,
        "expire",
        lambda op: encode_keyed(op.key, ()),
        lambda payload, expire_ms: Expire(decode_keyed(payload)[0], expire_ms),
        keyed_keys,
    )
    delrange = OperationKind(
        DELRANGE,
        "delrange",
        lambda op: encode_items([op.start, op.end]),
        lambda payload, _: decode_range(payload),
        lambda _: None,
    )
    return [
        Effect(Del, known(DEL), _apply_del, _changes_of_del),
        # It names no keys: a feed is told of the whole span instead.
        Effect(FlushDb, known(FLUSHDB), _apply_flushdb, no_changes),
        Effect(DelRange, delrange, _apply_delrange, no_changes),
        # Setting an expiry is an event only for feeds that ask for it (`feeds/fanout.py`, from the record's header).
        # When the key expires, its deletion is one.
        Effect(Expire, expire, _apply_expire, no_changes, carries_expiry=True),
    ]
