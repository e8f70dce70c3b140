"""Operations on lists: what they do to a keyspace, what feeds tell, and that they come back from their payloads."""

from __future__ import annotations

from typing import Any

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog import limits
from tidelog.errors import FormatError
from tidelog.journal.operation import Del, encode_items
from tidelog.store.keyspace import Database
from tidelog.types.change import Change, LargeString
from tidelog.types.effect import Effect
from tidelog.types.encoding_bounds import EncodingBounds
from tidelog.types.list import (
    LIST_TYPE,
    LInsert,
    LPop,
    LPush,
    LRem,
    LSet,
    LTrim,
    RPop,
    RPush,
    effects,
    encode_element,
    kept,
    popped,
    pushed,
    removed,
)
from tidelog.types.list_value import List, list_of

EFFECTS: dict[type[Any], Effect] = {effect.operation: effect for effect in effects()}
OPERATIONS = [
    LPush(b"k", [b"a", b""]),
    RPush(b"k", [b"b", b"x" * 1000]),
    LPop(b"k", [b"a"]),
    RPop(b"k", [b"a", b"b"]),
    LSet(b"k", 0, b"a"),
    LSet(b"k", 2**33, b"a"),
    LInsert(b"k", 300, b""),
    LRem(b"k", [0, 7, 2**32 - 1], b"a"),
    LTrim(b"k", 0, 300),
    LTrim(b"k", 5, 5),
]


def apply(database: Database, *operations: Any) -> None:
    for operation in operations:
        effect = EFFECTS[type(operation)]
        effect.apply(database, effect.kind.decode(effect.kind.encode(operation), None))


def elements(database: Database) -> list[bytes] | None:
    value = database.find(b"k")
    assert value is None or type(value) is List
    return None if value is None else list(value)


def told(change: Change) -> tuple[bytes | None, Any]:
    """The field of a change and its value, as a client of a feed reads it."""
    assert (change.key, change.type) == (b"k", b"list")
    reader = hiredis.Reader()
    for piece in [change.value] if isinstance(change.value, bytes) else change.value or []:
        reader.feed(piece if isinstance(piece, bytes) else b"$%d\r\n%b\r\n" % (piece.size, piece.read(0, piece.size)))
    return change.field, reader.gets()


@pytest.mark.parametrize("operation", OPERATIONS, ids=str)
def test_payloads(operation: Any) -> None:
    kind = EFFECTS[type(operation)].kind
    payload = kind.encode(operation)
    assert kind.decode(payload, None) == operation
    assert kind.keys(payload) == [b"k"]
    if kind.last is not None and kind.parts is not None:
        assert b"".join(kind.parts(operation)) == payload
        assert payload.endswith(kind.last(operation))
    for size in range(len(payload)):
        with pytest.raises(FormatError):
            kind.decode(payload[:size], None)


@pytest.mark.parametrize(
    ("operation", "payload"),
    [
        (LPush(b"key", [b"a", b""]), "07 07 03 01 6b6579 61"),
        (RPush(b"key", [b"ab"]), "05 07 05 6b6579 6162"),
        (LPop(b"key", [b"a"]), "05 07 03 6b6579 61"),
        (RPop(b"key", [b"a", b"b"]), "07 07 03 03 6b6579 61 62"),
        (LSet(b"key", 5, b"a"), "07 07 03 03 6b6579 0b 61"),
        (LInsert(b"key", 300, b"a"), "07 07 05 03 6b6579 b204 61"),
        (LRem(b"key", [0, 258], b"a"), "07 07 11 03 6b6579 0000000002010000 61"),
        (LTrim(b"key", 1, 2), "07 07 03 03 6b6579 03 05"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_bytes_of_payloads_stay_as_they_are(operation: Any, payload: str) -> None:
    assert EFFECTS[type(operation)].kind.encode(operation) == bytes.fromhex(payload)


def test_opcodes_stay_as_they_are() -> None:
    found = {effect.kind.name: effect.kind.opcode for effect in effects()}
    names = ["lpush", "rpush", "lpop", "rpop", "lset", "linsert", "lrem", "ltrim"]
    assert found == {name: opcode for opcode, name in enumerate(names, start=0x40)}


@pytest.mark.parametrize(
    ("kind", "items"),
    [
        (LSet, [b"k", b"\1"]),
        (LSet, [b"k", b"", b"a"]),
        (LSet, [b"k", b"\2", b"a"]),
        (LInsert, [b"k", b"\1\1", b"a"]),
        (LRem, [b"k", b"", b"a"]),
        (LRem, [b"k", b"\0\0\0", b"a"]),
        (LTrim, [b"k", b"\1"]),
        (LTrim, [b"k", b"\5", b"\3"]),
    ],
)
def test_other_payloads_are_refused(kind: type[Any], items: list[bytes]) -> None:
    with pytest.raises(FormatError):
        EFFECTS[kind].kind.decode(encode_items(items), None)


def test_what_operations_do() -> None:
    database = Database(0)
    for operation, expected in [
        (RPush(b"k", [b"a", b"b"]), [b"a", b"b"]),
        (LPush(b"k", [b"c", b"d"]), [b"d", b"c", b"a", b"b"]),
        (LSet(b"k", 1, b"C"), [b"d", b"C", b"a", b"b"]),
        (LInsert(b"k", 4, b"e"), [b"d", b"C", b"a", b"b", b"e"]),
        (LInsert(b"k", 0, b"a"), [b"a", b"d", b"C", b"a", b"b", b"e"]),
        (LRem(b"k", [0, 3], b"a"), [b"d", b"C", b"b", b"e"]),
        (LTrim(b"k", 1, 3), [b"C", b"b", b"e"]),
        (LPop(b"k", [b"C"]), [b"b", b"e"]),
        (RPop(b"k", [b"e", b"b"]), None),
        (LPop(b"k", [b"a"]), None),
        (RPop(b"k", [b"a"]), None),
        (LSet(b"k", 0, b"a"), None),
        (LInsert(b"k", 0, b"a"), None),
        (LRem(b"k", [0], b"a"), None),
        (LTrim(b"k", 0, 0), None),
        (LPush(b"k", [b"a"]), [b"a"]),
        (LRem(b"k", [0], b"a"), None),
    ]:
        apply(database, operation)
        assert elements(database) == expected
    assert len(database) == 0


def test_a_change_keeps_the_expiry_and_is_told() -> None:
    database = Database(0)
    apply(database, RPush(b"k", [b"a", b"b", b"c"]))
    database.set_expiry(b"k", 1000)
    seen: list[bytes | None] = []
    database.observer = lambda _, key: seen.append(key)
    changes = [LPush(b"k", [b"x"]), LPop(b"k", [b"x"]), RPop(b"k", [b"c"]), LSet(b"k", 0, b"y"),
               LInsert(b"k", 0, b"z"), LRem(b"k", [0], b"z"), LTrim(b"k", 0, 0)]  # fmt: skip
    apply(database, *changes)
    assert database.expiries == {b"k": 1000}
    assert seen == [b"k"] * len(changes)


def test_what_feeds_tell() -> None:
    found = [told(change) for operation in OPERATIONS for change in EFFECTS[type(operation)].changes(operation)]
    assert found == [
        (b"lpush", [b"a", b""]),
        (b"rpush", [b"b", b"x" * 1000]),
        (b"lpop", [b"a"]),
        (b"rpop", [b"a", b"b"]),
        (b"lset", [0, b"a"]),
        (b"lset", [2**33, b"a"]),
        (b"linsert", [300, b""]),
        (b"lrem", [b"a", [0, 7, 2**32 - 1]]),
        (b"ltrim", [0, 300]),
        (b"ltrim", [5, 5]),
    ]


def test_large_elements_are_told_in_pieces() -> None:
    large = b"x" * (limits.FEED_PIECE_BYTES + 1)
    for operation, expected in [
        (LPush(b"k", [b"a", large]), [b"a", large]),
        (LSet(b"k", 1, large), [1, large]),
        (LRem(b"k", [1], large), [large, [1]]),
    ]:
        (change,) = EFFECTS[type(operation)].changes(operation)
        assert any(isinstance(piece, LargeString) for piece in change.value or ())
        assert told(change)[1] == expected


def test_the_whole_of_a_list() -> None:
    assert [told(change) for change in LIST_TYPE.initial(b"k", list_of([b"a", b"b"]))] == [(None, [b"a", b"b"])]


def test_a_long_list_is_told_as_its_beginning_and_pushes() -> None:
    model = [b"%d" % number for number in range(3 * limits.RECORD_MEMBERS_MAX)]
    value = list_of(model)
    changes = LIST_TYPE.initial(b"k", value)
    value.drop(1000, True)
    found = [told(change) for change in changes]
    assert [field for field, _ in found] == [None, b"rpush", b"rpush"]
    assert [element for _, run in found for element in run] == model


@pytest.mark.parametrize("make", [LIST_TYPE.operations, lambda key, value: list(LIST_TYPE.pieces(key, value))])
def test_a_long_list_is_made_of_several_operations(make: Any) -> None:
    value = list_of([b"%d" % number for number in range(2 * limits.RECORD_MEMBERS_MAX)])
    value.push([b"first"], True)
    operations = make(b"k", value)
    assert len(operations) == 3
    database = Database(0)
    apply(database, *operations)
    assert elements(database) == list(value)


def test_long_pushes_and_pops_are_several() -> None:
    model = [b"%d" % number for number in range(limits.RECORD_MEMBERS_MAX + 1)]
    database = Database(0)
    apply(database, *pushed(b"k", model, is_left=True))
    assert elements(database) == model[::-1]
    operations = popped(b"k", len(model), model[::-1][:-1], is_left=True)
    assert [type(operation) for operation in operations] == [LPop]
    operations = popped(b"k", len(model), model, is_left=False)
    assert [type(operation) for operation in operations] == [RPop, RPop]
    apply(database, *operations)
    assert elements(database) is None


def test_many_positions_are_several_records_from_the_right() -> None:
    model = [b"a", b"b"] * 100_000
    value = list_of(model)
    operations = removed(b"k", list(value.places_of(b"a", len(value))), b"a")
    assert len(operations) == 2
    database = Database(0)
    apply(database, *pushed(b"k", model, is_left=False), *operations)
    assert elements(database) == [b"b"] * 100_000


@pytest.mark.parametrize("is_left", [False, True])
def test_a_pop_of_many_bytes_does_not_repeat_them(is_left: bool) -> None:
    large = b"x" * limits.STAGED_BYTES_MIN
    model = [large, b"a", large]
    assert popped(b"k", 3, [large], is_left=is_left) == [LTrim(b"k", 1, 2) if is_left else LTrim(b"k", 0, 1)]
    assert popped(b"k", 3, model, is_left=is_left) == [Del([b"k"])]


def test_what_is_kept() -> None:
    assert kept(b"k", 3, 0, 3) == []
    assert kept(b"k", 3, 1, 2) == [LTrim(b"k", 1, 1)]
    assert kept(b"k", 3, 1, 1) == [Del([b"k"])]


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_one_element_is_encoded_as_many_are(key: bytes, element: bytes) -> None:
    assert encode_element(key, element) == EFFECTS[LPush].kind.encode(LPush(key, [element]))


@pytest.mark.parametrize(
    ("model", "encoding"),
    [
        ([b"a"], b"listpack"),
        ([b"x" * 8185], b"listpack"),
        ([b"x" * 8186], b"quicklist"),
        ([b"0123456789"] * 682, b"listpack"),
        ([b"0123456789"] * 683, b"quicklist"),
        ([b"1"] * 4092, b"listpack"),
        ([b"1"] * 4095, b"quicklist"),
        ([b"-1000"] * 2700, b"listpack"),
        ([b"-1000"] * 2750, b"quicklist"),
        ([b"30000"] * 2040, b"listpack"),
        ([b"-8000000"] * 1630, b"listpack"),
        ([b"2000000000"] * 1360, b"listpack"),
        ([b"9000000000000000000"] * 810, b"listpack"),
        ([b"9000000000000000000"] * 820, b"quicklist"),
        ([b"x" * 100] * 79, b"listpack"),
        ([b"x" * 100] * 80, b"quicklist"),
        ([b"a"] * 10_000, b"quicklist"),
    ],
    ids=lambda value: None if isinstance(value, list) else value.decode(),
)
def test_encodings_are_those_of_redis_7_2(model: list[bytes], encoding: bytes) -> None:
    assert LIST_TYPE.encoding(list_of(model), EncodingBounds()) == encoding


def test_size() -> None:
    value = list_of([b"x" * 100] * 1000)
    whole = LIST_TYPE.size_bytes(value, 0)
    assert 133 * 1000 + 8 * 1000 < whole < 150 * 1000
    assert abs(LIST_TYPE.size_bytes(value, 5) - whole) < 2000
