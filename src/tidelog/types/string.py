"""Strings, and what concerns keys of any type.

    0x05 expire   | key |     the header's expire is the new expiry; without one the key never expires

`val`, `del` and `flushdb` are the journal's own operations; their effects are here.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tidelog.journal.operation import DEL, FLUSHDB, VAL, Del, FlushDb, OperationKind, Val, core_table
from tidelog.types.effect import Effect, Keyspace, decode_keyed, encode_keyed, keyed_keys

EXPIRE: Final = 0x05


class Expire(NamedTuple):
    """Set when a key expires (absolute ms); None: never."""

    key: bytes
    expire_ms: int | None


def _apply_val(keyspace: Keyspace, op: Val) -> None:
    for key, value in op.pairs:
        keyspace.put(key, value, op.expire_ms)


def _apply_del(keyspace: Keyspace, op: Del) -> None:
    for key in op.keys:
        keyspace.remove(key)


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
    return [
        Effect(Val, known(VAL), _apply_val, carries_expiry=True),
        Effect(Del, known(DEL), _apply_del),
        Effect(FlushDb, known(FLUSHDB), _apply_flushdb),
        Effect(Expire, expire, _apply_expire, carries_expiry=True),
    ]
