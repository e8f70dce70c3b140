"""Operations on the holds of named feeds. They name no key, and their records are in the first shard.

    0x80 hold       | name, ts 8, moved_us 8, epoch 8, seen 8, data_ts 8, lapsed |    a hold as it is from now on
    0x81 release    | data_ts 8, name ... |                                           holds are gone

Both are items (`encode_items`); the numbers of a hold are one. `lapsed` says why a hold was let go; empty: it was not.

A hold belongs to no key: FLUSHALL leaves it where it is, and feeds do not tell of it. So a reader that has acknowledged
everything has everything, although its acknowledgement is a transaction that comes later. `data_ts` remembers which was
the newest transaction of another kind: 0 says that it may be the one that this record is in.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from tidelog.errors import FormatError
from tidelog.ids import Ts
from tidelog.journal.operation import OperationKind, decode_items, encode_items
from tidelog.journal.retention import Holder
from tidelog.types.effect import Effect, Keyspace, no_changes

HOLD_OPCODES: Final = range(0x80, 0x82)

_NUMBERS: Final = struct.Struct("<5Q")
_TS: Final = struct.Struct("<Q")


class SetHold(NamedTuple):
    """A hold begins, moves or is let go."""

    holder: Holder
    data_ts: Ts


class Release(NamedTuple):
    """Holds are gone."""

    names: Sequence[str]
    data_ts: Ts


def _encode_set(op: SetHold) -> bytes:
    holder = op.holder
    numbers = _NUMBERS.pack(holder.ts, holder.moved_us, holder.epoch, holder.seen, op.data_ts)
    return encode_items([holder.name.encode(), numbers, (holder.lapsed or "").encode()])


def _decode_set(payload: bytes, _expire_ms: int | None) -> SetHold:
    items = decode_items(payload)
    if len(items) != 3 or len(items[1]) != _NUMBERS.size:
        raise FormatError(f"hold has {len(items)} items, or numbers of another size")
    ts, moved_us, epoch, seen, data_ts = _NUMBERS.unpack(items[1])
    holder = Holder(_text(items[0]), Ts(ts), moved_us, _text(items[2]) or None, epoch, Ts(seen))
    return SetHold(holder, Ts(data_ts))


def _encode_release(op: Release) -> bytes:
    return encode_items([_TS.pack(op.data_ts), *(name.encode() for name in op.names)])


def _decode_release(payload: bytes, _expire_ms: int | None) -> Release:
    items = decode_items(payload)
    if not items or len(items[0]) != _TS.size:
        raise FormatError("release begins with no ts")
    return Release([_text(name) for name in items[1:]], Ts(_TS.unpack(items[0])[0]))


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise FormatError("a text of a hold is not UTF-8") from None


def _apply_set(keyspace: Keyspace, op: SetHold) -> None:
    keyspace.put_hold(op.holder, op.data_ts)


def _apply_release(keyspace: Keyspace, op: Release) -> None:
    for name in op.names:
        keyspace.remove_hold(name, op.data_ts)


def effects() -> list[Effect]:
    """Every operation of this module."""
    hold = OperationKind(0x80, "hold", _encode_set, _decode_set, lambda _: ())
    release = OperationKind(0x81, "release", _encode_release, _decode_release, lambda _: ())
    return [Effect(SetHold, hold, _apply_set, no_changes), Effect(Release, release, _apply_release, no_changes)]
