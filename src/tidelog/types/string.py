"""Strings: `bytes`, set as a whole.

`val` is an operation that the journal itself knows; its effect is here.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any, Final

from mypy_extensions import i64

from tidelog.journal.operation import VAL, Val, core_table, decode_pairs
from tidelog.types.change import Change, text
from tidelog.types.effect import Effect, Keyspace
from tidelog.types.encoding_bounds import EncodingBounds
from tidelog.types.value_type import ValueType

_NAME: Final = b"string"
_INTEGER: Final = re.compile(rb"0|-?[1-9][0-9]{0,18}")
_INTEGER_BYTES_MAX: Final = 20
_ZERO: Final = ord("0")
_NINE: Final = ord("9")
_DIGITS_SAFE: Final = 19
"""With fewer digits every number fits."""
_EMBSTR_BYTES_MAX: Final = 44


def integer_of(data: bytes) -> int | None:
    """A signed 64-bit integer in its only spelling: no plus, no leading zeros, no spaces. None: it is not one."""
    size = len(data)
    if size == 1:
        return data[0] - _ZERO if _ZERO <= data[0] <= _NINE else None
    if size == 0 or data[0] > _NINE:  # hot: most words
        return None
    if size < _DIGITS_SAFE and data.isdigit():  # hot: no pattern, and no number that is too large
        return int(data) if data[0] != _ZERO else None
    if _INTEGER.fullmatch(data):
        found = int(data)
        if -(2**63) <= found < 2**63:
            return found
    return None


def is_integer(data: bytes) -> bool:
    """Whether `integer_of` takes it for one. Hot: no number is made of it."""
    size: i64 = len(data)
    if size == 0 or size >= _DIGITS_SAFE or data[0] <= _ZERO:  # long, negative, zero, or no number
        return integer_of(data) is not None
    at: i64 = 0
    while at < size:
        if not _ZERO <= data[at] <= _NINE:
            return False
        at += 1
    return True


def _apply_val(keyspace: Keyspace, op: Val) -> None:
    for key, value in op.pairs:
        keyspace.put(key, value, op.expire_ms)


def _changes_of_val(op: Val) -> list[Change]:
    return [Change(key, _NAME, None, text(value)) for key, value in op.pairs]


def changes_of_payload(payload: bytes) -> list[Change]:
    """What feeds tell about a `val` record, without making its operation first. Hot."""
    return [Change(key, _NAME, None, text(value)) for key, value in decode_pairs(payload)]


def effects() -> list[Effect]:
    """Every operation of this module."""
    return [Effect(Val, core_table().kind(VAL), _apply_val, _changes_of_val, carries_expiry=True)]


def _operations(key: bytes, value: bytes) -> list[Any]:
    return [Val([(key, value)])]


def _pieces(key: bytes, value: bytes) -> Iterator[Any]:
    return iter(_operations(key, value))


def _copy(value: bytes) -> bytes:
    return value


def _initial(key: bytes, value: bytes) -> Iterator[Change]:
    return iter([Change(key, _NAME, None, text(value))])


def _encoding(value: bytes, _bounds: EncodingBounds) -> bytes:
    if len(value) <= _INTEGER_BYTES_MAX and integer_of(value) is not None:
        return b"int"
    return b"embstr" if len(value) <= _EMBSTR_BYTES_MAX else b"raw"


def _size_bytes(value: bytes, _samples: int) -> int:
    return sys.getsizeof(value)


STRING_TYPE: Final = ValueType(
    name=_NAME,
    value_class=bytes,
    effects=effects(),
    operations=_operations,
    pieces=_pieces,
    copy=_copy,
    initial=_initial,
    encoding=_encoding,
    size_bytes=_size_bytes,
)
