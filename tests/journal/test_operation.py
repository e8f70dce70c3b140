"""The table of operations and the payloads that the journal itself knows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidelog.errors import FormatError, InternalError
from tidelog.ids import U64_MAX, ShardId, Ts
from tidelog.journal import operation
from tidelog.journal.operation import (
    DEL,
    FLUSHDB,
    START,
    VAL,
    Del,
    FlushDb,
    OperationKind,
    OperationTable,
    Start,
    Val,
    core_table,
    encode_items,
    encode_pairs,
    first_item,
    head_of_pair,
)

KEYS = st.lists(st.binary(max_size=200), max_size=20)
PAIRS = st.lists(st.tuples(st.binary(max_size=200), st.binary(max_size=200)), max_size=20)


def kind(opcode: int, name: str) -> OperationKind:
    return OperationKind(opcode, name, lambda _: b"", lambda payload, _: payload, lambda payload: [payload])


def encoded(table: OperationTable, name: str, value: object) -> bytes:
    row = table.named(name)
    assert row is not None
    return row.encode(value)


# --- payloads ---------------------------------------------------------------------------------------------------


@given(PAIRS, st.none() | st.integers(0, 2**63))
@example([(b"foo", b"bar")], None)
@example([(b"", b"")], 5)
@example([(b"k" * 64, b"v" * 63)], None)
@example([(b"k" * 63, b"v" * 64)], None)
def test_val_is_decoded_as_it_was_encoded(pairs: list[tuple[bytes, bytes]], expire_ms: int | None) -> None:
    table = core_table()
    payload = encoded(table, "val", Val(pairs))
    assert table.decode(VAL, payload, expire_ms) == Val(pairs, expire_ms)
    assert table.keys(VAL, payload) == [key for key, _ in pairs]


@given(KEYS)
def test_del_is_decoded_as_it_was_encoded(keys: list[bytes]) -> None:
    table = core_table()
    payload = encoded(table, "del", Del(keys))
    assert table.decode(DEL, payload, None) == Del(keys)
    assert table.keys(DEL, payload) == keys


def test_flushdb_has_no_payload_and_names_every_key() -> None:
    table = core_table()
    assert encoded(table, "flushdb", FlushDb()) == b""
    assert table.decode(FLUSHDB, b"", None) == FlushDb()
    assert table.keys(FLUSHDB, b"") is None


@given(st.integers(0, U64_MAX), st.lists(st.integers(0, 300), max_size=20))
def test_start_is_decoded_as_it_was_encoded_and_names_no_key(ts: int, shards: list[int]) -> None:
    table = core_table()
    start = Start(Ts(ts), [ShardId(shard) for shard in shards])
    payload = encoded(table, "start", start)
    assert table.decode(START, payload, None) == start
    assert table.keys(START, payload) == ()


MALFORMED = [
    (VAL, b"", "ends inside"),
    (VAL, b"\x03\x07", "ends inside"),
    (VAL, b"\x03\x07\x07foobarX", "has items for 9"),
    (VAL, b"\x03\x07\x07fooba", "has items for 9"),
    (VAL, b"\xff\x03\x03", "claims 254 items"),
    (DEL, b"", "ends inside"),
    (DEL, b"\xff", "claims 127 items"),
    (DEL, b"\x03\x00" + b"\xff" * 8, "has items for"),
    (FLUSHDB, b"x", "a payload of 1 bytes"),
    (START, bytes(7), "cut short"),
    (START, bytes(8), "cut short"),
    (START, bytes(8) + b"\x05\x03", "cut short"),
    (START, bytes(8) + b"\x03\x03\x03", "for 1 shards"),
    (START, bytes(8) + b"\x00" + b"\xff" * 8, "cut short"),
]


@pytest.mark.parametrize(("opcode", "payload", "says"), MALFORMED)
def test_a_malformed_payload_is_a_format_error_that_says_why(opcode: int, payload: bytes, says: str) -> None:
    with pytest.raises(FormatError, match=says):
        core_table().decode(opcode, payload, None)


@given(st.sampled_from([VAL, DEL, FLUSHDB, START]), st.binary(max_size=60))
def test_any_payload_is_decoded_or_a_format_error(opcode: int, payload: bytes) -> None:
    table = core_table()
    for decode in (lambda: table.decode(opcode, payload, None), lambda: table.keys(opcode, payload)):
        try:
            decode()
        except FormatError:
            continue


@given(st.binary(max_size=12), st.binary(max_size=100))
def test_the_short_way_of_one_pair_agrees_with_the_general_one(lengths: bytes, rest: bytes) -> None:
    payload = b"\x03" + lengths + rest

    def outcome(decode: Callable[[], list[tuple[bytes, bytes]]]) -> object:
        try:
            return decode()
        except FormatError:
            return "malformed"

    def in_general() -> list[tuple[bytes, bytes]]:
        key, value = operation._decode_blocks(payload, 2)
        return [(key, value)]

    assert outcome(lambda: operation.decode_pairs(payload)) == outcome(in_general)


# --- the table --------------------------------------------------------------------------------------------------


def test_the_core_table_has_the_four_that_the_journal_knows() -> None:
    assert core_table().names() == ["del", "flushdb", "start", "val"]


def test_tables_are_independent() -> None:
    mine = core_table()
    mine.register(kind(0x50, "mine"))
    assert core_table().get(0x50) is None


@pytest.mark.parametrize(("opcode", "name"), [(0x50, "other"), (0x51, "taken")])
def test_an_opcode_or_a_name_is_registered_once(opcode: int, name: str) -> None:
    table = OperationTable([kind(0x50, "taken")])
    with pytest.raises(InternalError, match="registered already"):
        table.register(kind(opcode, name))
    assert table.names() == ["taken"]


@pytest.mark.parametrize("opcode", [0, -1, 0xF0, 0xFF, 0x100])
def test_an_opcode_outside_of_operations_is_refused(opcode: int) -> None:
    with pytest.raises(InternalError, match="not one of an operation"):
        OperationTable([kind(opcode, "strange")])


def test_a_registered_operation_is_found_by_opcode_and_name() -> None:
    row = kind(0x50, "mine")
    table = OperationTable([row])
    assert table.get(0x50) is table.named("mine") is row
    assert table.get(0x51) is None
    assert table.named("other") is None


def test_an_unknown_opcode_cannot_be_decoded_and_may_name_any_key() -> None:
    table = core_table()
    with pytest.raises(FormatError, match="0x77 is unknown: a newer version wrote it"):
        table.decode(0x77, b"", None)
    assert table.keys(0x77, b"") is None


@given(st.lists(st.tuples(st.binary(max_size=200), st.binary(max_size=300)), min_size=1, max_size=10), st.data())
def test_keys_of_pairs_without_their_values(pairs: list[tuple[bytes, bytes]], data: st.DataObject) -> None:
    payload = operation.encode_pairs(pairs)
    assert operation.pair_keys(payload) == [key for key, _ in operation.decode_pairs(payload)]
    broken = payload[: data.draw(st.integers(0, len(payload) - 1))]
    with pytest.raises(FormatError):
        operation.pair_keys(broken)


@given(st.lists(st.binary(max_size=300), max_size=5))
def test_the_first_item_alone(items: list[bytes]) -> None:
    payload = encode_items(items)
    assert first_item(payload) == (items[0] if items else None)
    if payload:
        with pytest.raises(FormatError):
            first_item(payload[:-1] if items and items[-1] else payload + b"x")


def test_the_parts_of_a_payload_are_what_it_consists_of() -> None:
    kind, val = core_table().kind(VAL), Val([(b"k", bytes(300)), (b"l", b"2")])
    assert kind.parts is not None
    assert kind.last is not None
    assert b"".join(kind.parts(val)) == kind.encode(val)
    assert kind.parts(val)[-1] is kind.last(val)


@given(st.binary(max_size=200), st.binary(max_size=200), st.integers(0, 500))
def test_the_head_of_a_pair_is_found_in_its_beginning(key: bytes, value: bytes, size: int) -> None:
    payload = encode_pairs([(key, value)])
    value_at = len(payload) - len(value)
    expected = (key, value_at) if size >= value_at else None
    assert head_of_pair(payload[:size], len(payload)) == expected
    assert head_of_pair(payload[:size], len(payload) + 1) is None
    assert head_of_pair(encode_pairs([(key, value), (key, value)]), 2 * len(payload)) is None
