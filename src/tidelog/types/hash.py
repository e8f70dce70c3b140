"""Hashes: fields and values under one key, in the order in which the fields came.

0x10 hset   | key | field, value ... |     fields are set; the hash is made if it is not there
0x11 hdel   | key | field ... |            fields are gone; a hash without fields is gone too
0x12 hsets  | key, field, value ... |      a field each of different hashes, which were set together
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from tidelog.errors import FormatError
from tidelog.journal.operation import OperationKind, decode_items, encode_items
from tidelog.types.change import Change, text
from tidelog.types.effect import Effect, Keyspace, encode_keyed, keyed_effect, split_long
from tidelog.types.encoding_bounds import EncodingBounds
from tidelog.types.hash_value import Hash
from tidelog.types.value_type import ValueType, in_pieces, sampled_bytes

HSET: Final = 0x10
HDEL: Final = 0x11
HSETS: Final = 0x12

_NAME: Final = b"hash"


class HSet(NamedTuple):
    """Set fields; `items` is field, value, field, value ..."""

    key: bytes
    items: Sequence[bytes]


class HSets(NamedTuple):
    """Set a field each of different hashes; `items` is key, field, value, key, field, value ..."""

    items: Sequence[bytes]


class HDel(NamedTuple):
    """Remove fields."""

    key: bytes
    fields: Sequence[bytes]


def hset(key: bytes, items: Sequence[bytes]) -> list[HSet]:
    """Set fields, in as many records as they need."""
    return [HSet(key, run) for run in split_long(key, items, 2)]


def encode_field(key: bytes, field: bytes, value: bytes) -> bytes:
    """The payload of an `HSet` of one field. Hot."""
    key_size, field_size, value_size = len(key), len(field), len(value)
    if key_size < 128 and field_size < 128 and value_size < 128:
        sizes = key_size << 1 | 1, field_size << 1 | 1, value_size << 1 | 1
        return b"\7%c%c%c%b%b%b" % (*sizes, key, field, value)
    return encode_keyed(key, (field, value))


def hdel(key: bytes, fields: Sequence[bytes]) -> list[HDel]:
    """Remove fields, in as many records as they need."""
    return [HDel(key, run) for run in split_long(key, fields)]


def _apply_hset(keyspace: Keyspace, op: HSet) -> None:
    value: Hash | None = keyspace.change(op.key)
    if value is None:
        value = Hash()
        keyspace.put(op.key, value)
    value.update(op.items, keyspace.bounds)


def _apply_hsets(keyspace: Keyspace, op: HSets) -> None:
    for at in range(0, len(op.items), 3):
        _apply_hset(keyspace, HSet(op.items[at], op.items[at + 1 : at + 3]))


def _decode_hsets(payload: bytes, _expire_ms: int | None) -> HSets:
    items = decode_items(payload)
    if not items or len(items) % 3:
        raise FormatError(f"hsets has {len(items)} items")
    return HSets(items)


def _apply_hdel(keyspace: Keyspace, op: HDel) -> None:
    value: Hash | None = keyspace.change(op.key)
    if value is None:
        return
    value.discard(op.fields)
    if not len(value):
        keyspace.remove(op.key)


def _changes_of_hset(op: HSet) -> list[Change]:
    items = op.items
    return [Change(op.key, _NAME, items[at], text(items[at + 1])) for at in range(0, len(items), 2)]


def _changes_of_hsets(op: HSets) -> list[Change]:
    items = op.items
    return [Change(items[at], _NAME, items[at + 1], text(items[at + 2])) for at in range(0, len(items), 3)]


def _changes_of_hdel(op: HDel) -> list[Change]:
    return [Change(op.key, _NAME, field, None) for field in op.fields]


def effects() -> list[Effect]:
    """Every operation of this module."""
    return [
        keyed_effect(HSET, "hset", HSet, _apply_hset, _changes_of_hset, step=2),
        keyed_effect(HDEL, "hdel", HDel, _apply_hdel, _changes_of_hdel),
        Effect(
            HSets,
            OperationKind(
                HSETS,
                "hsets",
                lambda op: encode_items(op.items),
                _decode_hsets,
                lambda payload: _decode_hsets(payload, None).items[::3],
            ),
            _apply_hsets,
            _changes_of_hsets,
        ),
    ]


def _hset_pairs(key: bytes, pairs: Iterable[tuple[bytes, bytes]]) -> list[Any]:
    return list(hset(key, [item for pair in pairs for item in pair]))


def _operations(key: bytes, value: Hash) -> list[Any]:
    return _hset_pairs(key, value.fields().items())


def _pieces(key: bytes, value: Hash) -> Iterator[Any]:
    return in_pieces(key, value.copy().fields().items(), _hset_pairs)


def _copy(value: Hash) -> Hash:
    return value.copy()


def _initial(key: bytes, value: Hash) -> Iterator[Change]:
    fields, values = value.names(), value.values()  # a pair of each would take four times the memory
    return (Change(key, _NAME, field, text(data)) for field, data in zip(fields, values, strict=True))


def _encoding(value: Hash, _bounds: EncodingBounds) -> bytes:
    return b"hashtable" if value.is_large else b"listpack"


def _size_bytes(value: Hash, samples: int) -> int:
    packed = value.packed
    if packed is not None:
        return sys.getsizeof(value) + sys.getsizeof(packed)
    fields = value.fields()
    return sys.getsizeof(value) + sampled_bytes(fields, fields.items(), samples)


HASH_TYPE: Final = ValueType(
    name=_NAME,
    value_class=Hash,
    effects=effects(),
    operations=_operations,
    pieces=_pieces,
    copy=_copy,
    initial=_initial,
    encoding=_encoding,
    size_bytes=_size_bytes,
)
