"""Lists: elements under one key, in the order in which clients put them.

0x40 lpush    | key | element ... |          elements come to the left end, one after the other: the last is the first
0x41 rpush    | key | element ... |          elements come to the right end
0x42 lpop     | key | element ... |          so many went from the left end; these are they, in that order
0x43 rpop     | key | element ... |          the same for the right end
0x44 lset     | key, index, element |        the element at an index is another
0x45 linsert  | key, index, element |        an element comes before the one at an index, and has that index now
0x46 lrem     | key, positions, element |    the element is gone from these positions, which are 4 bytes each and ascend
0x47 ltrim    | key, start, stop |           only the elements from start to stop stay; there is at least one

An index is a flit, counts from 0 at the left and is never negative. A list without elements is gone. Pushes make a list
that is not there.

The record of a pop has the elements, because feeds tell them. If they are many megabytes, nobody shall wait until they
are written again: the pop is then journaled as the `ltrim`, or `del`, that has the same effect (`popped`).
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

from tidelog import limits
from tidelog.errors import FormatError
from tidelog.journal import flit
from tidelog.journal.operation import Del, OperationKind, decode_items, encode_items, item_parts
from tidelog.types.change import Change, Pieces, joined, number, text
from tidelog.types.effect import Effect, Keyspace, keyed_effect, keyed_keys, split_long
from tidelog.types.encoding_bounds import EncodingBounds
from tidelog.types.list_value import List
from tidelog.types.string import integer_of
from tidelog.types.value_type import ValueType, in_pieces

LPUSH: Final = 0x40
RPUSH: Final = 0x41
LPOP: Final = 0x42
RPOP: Final = 0x43
LSET: Final = 0x44
LINSERT: Final = 0x45
LREM: Final = 0x46
LTRIM: Final = 0x47

_NAME: Final = b"list"
_POSITION_BYTES: Final = 4
_POSITIONS_MAX: Final = limits.RECORD_SPLIT_BYTES // _POSITION_BYTES
"""In one record."""
_LISTPACK_BYTES_MAX: Final = (4 * 1024, 8 * 1024, 16 * 1024, 32 * 1024, 64 * 1024)
"""By `list-max-listpack-size` -1, -2 ..."""
_LISTPACK_SAFE_BYTES: Final = 8 * 1024
"""If the parameter is a number of elements."""
_LISTPACK_FRAME_BYTES: Final = 7
_PLACE_BYTES: Final = 9
"""What a Python list keeps for an element, with what it holds in reserve."""


# --- operations -------------------------------------------------------------------------------------------------


class LPush(NamedTuple):
    """Add elements at the left end, one after the other."""

    key: bytes
    elements: Sequence[bytes]


class RPush(NamedTuple):
    """Add elements at the right end."""

    key: bytes
    elements: Sequence[bytes]


class LPop(NamedTuple):
    """Remove the elements at the left end, which are these."""

    key: bytes
    elements: Sequence[bytes]


class RPop(NamedTuple):
    """Remove the elements at the right end, which are these, the last one first."""

    key: bytes
    elements: Sequence[bytes]


class LSet(NamedTuple):
    """Replace an element."""

    key: bytes
    place: int
    element: bytes


class LInsert(NamedTuple):
    """Add an element, which has this index afterwards."""

    key: bytes
    place: int
    element: bytes


class LRem(NamedTuple):
    """Remove an element from positions, which ascend."""

    key: bytes
    positions: Sequence[int]
    element: bytes


class LTrim(NamedTuple):
    """Keep only the elements from an index to another, both included."""

    key: bytes
    start: int
    stop: int


def pushed(key: bytes, elements: Sequence[bytes], *, is_left: bool) -> list[Any]:
    """Add elements at an end, in as many records as they need."""
    runs = split_long(key, elements)
    return [LPush(key, run) for run in runs] if is_left else [RPush(key, run) for run in runs]


def popped(key: bytes, size: int, elements: Sequence[bytes], *, is_left: bool) -> list[Any]:
    """Remove the elements at an end of a list of this size, which are these in the order of popping, in as many records
    as they need."""
    count = len(elements)
    if sum(map(len, elements)) >= limits.STAGED_BYTES_MIN:
        return kept(key, size, count, size) if is_left else kept(key, size, 0, size - count)
    runs = split_long(key, elements)
    return [LPop(key, run) for run in runs] if is_left else [RPop(key, run) for run in runs]


def kept(key: bytes, size: int, start: int, stop: int) -> list[Any]:
    """Of a list of this size keep only the elements from an index to before another; without any, the key is gone."""
    if start >= stop:
        return [Del([key])]
    return [LTrim(key, start, stop - 1)] if stop - start < size else []


def removed(key: bytes, positions: Sequence[int], element: bytes) -> list[Any]:
    """Remove an element from positions, which ascend, in as many records as they need. The last positions go first, so
    that each record has positions that the one before it has not moved."""
    starts = range(0, len(positions), _POSITIONS_MAX)
    return [LRem(key, positions[start : start + _POSITIONS_MAX], element) for start in reversed(starts)]


def _apply_lpush(keyspace: Keyspace, op: LPush) -> None:
    _to_push(keyspace, op.key).push(op.elements, True)


def _apply_rpush(keyspace: Keyspace, op: RPush) -> None:
    _to_push(keyspace, op.key).push(op.elements, False)


def _to_push(keyspace: Keyspace, key: bytes) -> List:
    value: List | None = keyspace.change(key)
    if value is None:
        value = List()
        keyspace.put(key, value)
    return value


def _apply_lpop(keyspace: Keyspace, op: LPop) -> None:
    value: List | None = keyspace.change(op.key)
    if value is not None:
        value.drop(min(len(op.elements), len(value)), True)
        _remove_empty(keyspace, op.key, value)


def _apply_rpop(keyspace: Keyspace, op: RPop) -> None:
    value: List | None = keyspace.change(op.key)
    if value is not None:
        value.drop(min(len(op.elements), len(value)), False)
        _remove_empty(keyspace, op.key, value)


def _remove_empty(keyspace: Keyspace, key: bytes, value: List) -> None:
    if not len(value):
        keyspace.remove(key)


def _apply_lset(keyspace: Keyspace, op: LSet) -> None:
    value: List | None = keyspace.change(op.key)
    if value is not None:
        value.set(op.place, op.element)


def _apply_linsert(keyspace: Keyspace, op: LInsert) -> None:
    value: List | None = keyspace.change(op.key)
    if value is not None:
        value.insert(op.place, op.element)


def _apply_lrem(keyspace: Keyspace, op: LRem) -> None:
    value: List | None = keyspace.change(op.key)
    if value is not None:
        value.remove_at(op.positions)
        _remove_empty(keyspace, op.key, value)


def _apply_ltrim(keyspace: Keyspace, op: LTrim) -> None:
    value: List | None = keyspace.change(op.key)
    if value is not None:
        value.trim(op.start, op.stop + 1)


# --- records ----------------------------------------------------------------------------------------------------


def encode_element(key: bytes, element: bytes) -> bytes:
    """The payload of a push or a pop of one element. Hot."""
    key_size, size = len(key), len(element)
    if key_size < 128 and size < 128:
        return b"\5%c%c%b%b" % (key_size << 1 | 1, size << 1 | 1, key, element)
    return encode_items([key, element])


def _three_items(payload: bytes) -> list[bytes]:
    items = decode_items(payload)
    if len(items) != 3:
        raise FormatError(f"an operation on a list has {len(items)} items")
    return items


def _index(item: bytes) -> int:
    try:
        index, end = flit.decode(item, 0)
    except IndexError:
        raise FormatError("an index of a list is cut short") from None
    if end != len(item):
        raise FormatError(f"an index of a list has {len(item)} bytes")
    return index


def _decode_lset(payload: bytes, _expire_ms: int | None) -> LSet:
    key, index, element = _three_items(payload)
    return LSet(key, _index(index), element)


def _decode_linsert(payload: bytes, _expire_ms: int | None) -> LInsert:
    key, index, element = _three_items(payload)
    return LInsert(key, _index(index), element)


def _decode_lrem(payload: bytes, _expire_ms: int | None) -> LRem:
    key, packed, element = _three_items(payload)
    if not packed or len(packed) % _POSITION_BYTES:
        raise FormatError(f"positions in a list have {len(packed)} bytes")
    return LRem(key, list(struct.unpack(f"<{len(packed) // _POSITION_BYTES}I", packed)), element)


def _decode_ltrim(payload: bytes, _expire_ms: int | None) -> LTrim:
    key, start, stop = _three_items(payload)
    op = LTrim(key, _index(start), _index(stop))
    if op.stop < op.start:
        raise FormatError(f"a list is trimmed to nothing, from {op.start} to {op.stop}")
    return op


def _items_of_one(op: LSet | LInsert) -> list[bytes]:
    return [op.key, flit.encode(op.place), op.element]


def _items_of_lrem(op: LRem) -> list[bytes]:
    return [op.key, struct.pack(f"<{len(op.positions)}I", *op.positions), op.element]


def _items_of_ltrim(op: LTrim) -> list[bytes]:
    return [op.key, flit.encode(op.start), flit.encode(op.stop)]


# --- feeds ------------------------------------------------------------------------------------------------------


def _array(items: list[bytes | Pieces]) -> bytes | Pieces:
    return joined([b"*%d\r\n" % len(items), *items])


def _changes_of_elements(field: bytes) -> Callable[[Any], list[Change]]:
    return lambda op: [Change(op.key, _NAME, field, _array([text(element) for element in op.elements]))]


def _changes_of_one(field: bytes) -> Callable[[Any], list[Change]]:
    return lambda op: [Change(op.key, _NAME, field, _array([number(op.place), text(op.element)]))]


def _changes_of_lrem(op: LRem) -> list[Change]:
    positions = _array([number(at) for at in op.positions])
    return [Change(op.key, _NAME, b"lrem", _array([text(op.element), positions]))]


def _changes_of_ltrim(op: LTrim) -> list[Change]:
    return [Change(op.key, _NAME, b"ltrim", _array([number(op.start), number(op.stop)]))]


# --- the row ----------------------------------------------------------------------------------------------------


def _element_effect(
    opcode: int,
    name: str,
    operation: type[Any],
    items_of: Callable[[Any], list[bytes]],
    decode: Callable[[bytes, int | None], Any],
    apply: Callable[[Keyspace, Any], None],
    changes: Callable[[Any], list[Change]],
) -> Effect:
    """An operation with one element, which stands last."""
    kind = OperationKind(
        opcode,
        name,
        lambda op: encode_items(items_of(op)),
        decode,
        keyed_keys,
        lambda op: op.element,
        lambda op: item_parts(items_of(op)),
    )
    return Effect(operation, kind, apply, changes)


def effects() -> list[Effect]:
    """Every operation of this module."""
    ltrim = OperationKind(LTRIM, "ltrim", lambda op: encode_items(_items_of_ltrim(op)), _decode_ltrim, keyed_keys)
    return [
        keyed_effect(LPUSH, "lpush", LPush, _apply_lpush, _changes_of_elements(b"lpush")),
        keyed_effect(RPUSH, "rpush", RPush, _apply_rpush, _changes_of_elements(b"rpush")),
        keyed_effect(LPOP, "lpop", LPop, _apply_lpop, _changes_of_elements(b"lpop")),
        keyed_effect(RPOP, "rpop", RPop, _apply_rpop, _changes_of_elements(b"rpop")),
        _element_effect(LSET, "lset", LSet, _items_of_one, _decode_lset, _apply_lset, _changes_of_one(b"lset")),
        _element_effect(
            LINSERT, "linsert", LInsert, _items_of_one, _decode_linsert, _apply_linsert, _changes_of_one(b"linsert")
        ),
        _element_effect(LREM, "lrem", LRem, _items_of_lrem, _decode_lrem, _apply_lrem, _changes_of_lrem),
        Effect(LTrim, ltrim, _apply_ltrim, _changes_of_ltrim),
    ]


def _pushed_right(key: bytes, elements: Sequence[bytes]) -> list[Any]:
    return pushed(key, elements, is_left=False)


def _operations(key: bytes, value: List) -> list[Any]:
    return _pushed_right(key, list(value))


def _pieces(key: bytes, value: List) -> Iterator[Any]:
    return in_pieces(key, list(value), _pushed_right)


def _copy(value: List) -> List:
    return value.copy()


def _initial(key: bytes, value: List) -> Iterator[Change]:
    """The whole list; a long one is its beginning, and then the rest as if it were pushed."""
    return _told_whole(key, list(value))


def _told_whole(key: bytes, elements: list[bytes]) -> Iterator[Change]:
    field: bytes | None = None
    for op in in_pieces(key, elements, _pushed_right):
        yield Change(key, _NAME, field, _array([text(element) for element in op.elements]))
        field = b"rpush"


def _encoding(value: List, bounds: EncodingBounds) -> bytes:
    """What Redis 7.2 would choose if the last element had come last: a list that shrinks may be a quicklist longer."""
    if bounds.list_size >= 0:
        size_max, count_max = _LISTPACK_SAFE_BYTES, max(int(bounds.list_size), 1)
    else:
        size_max = count_max = _LISTPACK_BYTES_MAX[min(-int(bounds.list_size), len(_LISTPACK_BYTES_MAX)) - 1]
    if len(value) > count_max:
        return b"quicklist"
    size = _LISTPACK_FRAME_BYTES
    for element in value:
        size += _listpack_bytes(element)
    last = value.at(len(value) - 1)
    size += len(last) - _listpack_bytes(last)  # what it takes as it comes, before it is packed
    return b"listpack" if size <= size_max else b"quicklist"


def _listpack_bytes(element: bytes) -> int:
    """What an element takes in a listpack: its type and length, itself, and the length for reading backwards."""
    size = len(element)
    whole = integer_of(element) if size <= 20 else None
    if whole is not None:
        if 0 <= whole < 1 << 7:
            return 2
        for bits, entry in ((13, 2), (16, 3), (24, 4), (32, 5)):
            if -(1 << bits - 1) <= whole < 1 << bits - 1:
                return entry + 1
        return 10
    size += 1 if size < 1 << 6 else 2 if size < 1 << 12 else 5
    return size + (1 if size < 1 << 7 else 2 if size < 1 << 14 else 3 if size < 1 << 21 else 4)


def _size_bytes(value: List, samples: int) -> int:
    packed = value.packed
    if packed is not None:
        return sys.getsizeof(value) + sys.getsizeof(packed)
    looked_at = elements_bytes = 0
    for element in islice(value, samples or None):
        elements_bytes += sys.getsizeof(element) + _PLACE_BYTES
        looked_at += 1
    return sys.getsizeof(value) + (len(value) * elements_bytes // looked_at if looked_at else 0)


LIST_TYPE: Final = ValueType(
    name=_NAME,
    value_class=List,
    effects=effects(),
    operations=_operations,
    pieces=_pieces,
    copy=_copy,
    initial=_initial,
    encoding=_encoding,
    size_bytes=_size_bytes,
)
