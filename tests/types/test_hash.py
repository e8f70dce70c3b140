"""Operations on hashes: what they do to a keyspace, and that they come back from their payloads."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog import limits
from tidelog.errors import FormatError
from tidelog.journal.operation import encode_items
from tidelog.store.keyspace import Database
from tidelog.types.effect import Effect
from tidelog.types.hash import HDel, HSet, HSets, effects, hdel, hset
from tidelog.types.hash_value import Hash

EFFECTS: dict[type[Any], Effect] = {effect.operation: effect for effect in effects()}
NAME = st.sampled_from([b"", b"a", b"b", b"c", b"\x00\xff"])
OPERATION = st.one_of(
    st.lists(st.tuples(NAME, NAME), min_size=1, max_size=4).map(
        lambda pairs: HSet(b"k", [item for pair in pairs for item in pair])
    ),
    st.lists(NAME, min_size=1, max_size=4).map(lambda fields: HDel(b"k", fields)),
)


def apply(database: Database, *operations: Any) -> None:
    for operation in operations:
        EFFECTS[type(operation)].apply(database, operation)


def fields(database: Database, key: bytes = b"k") -> dict[bytes, bytes]:
    value = database.find(key)
    return {} if value is None else value.fields()


def test_fields_are_set() -> None:
    database = Database(0)
    apply(database, HSet(b"k", [b"a", b"1", b"b", b"2"]), HSet(b"k", [b"a", b"3"]))
    value = database.find(b"k")
    assert type(value) is Hash
    assert value.fields() == {b"a": b"3", b"b": b"2"}
    assert list(value) == [b"a", b"b"]


def test_a_hash_without_fields_is_gone() -> None:
    database = Database(0)
    apply(database, HSet(b"k", [b"a", b"1"]), HDel(b"k", [b"no"]))
    assert len(database) == 1
    apply(database, HDel(b"k", [b"a", b"a"]))
    assert database.find(b"k") is None
    assert len(database) == 0
    apply(database, HDel(b"k", [b"a"]))
    assert len(database) == 0


def test_a_change_keeps_the_expiry_and_is_told() -> None:
    database = Database(0)
    apply(database, HSet(b"k", [b"a", b"1"]))
    database.set_expiry(b"k", 1000)
    seen: list[bytes | None] = []
    database.observer = lambda _, key: seen.append(key)
    apply(database, HSet(b"k", [b"a", b"2"]))
    assert database.expiries == {b"k": 1000}
    assert seen == [b"k"]


@given(st.lists(OPERATION, max_size=10))
def test_payloads_have_the_same_effect(operations: list[HSet | HDel]) -> None:
    live, replayed = Database(0), Database(0)
    model: dict[bytes, bytes] = {}
    for operation in operations:
        kind = EFFECTS[type(operation)].kind
        again = kind.decode(kind.encode(operation), None)
        assert again == operation
        assert kind.keys(kind.encode(operation)) == [b"k"]
        apply(live, operation)
        apply(replayed, again)
        if isinstance(operation, HSet):
            model.update(zip(operation.items[::2], operation.items[1::2], strict=True))
        else:
            for field in operation.fields:
                model.pop(field, None)
        assert fields(live) == fields(replayed) == model


def test_fields_of_several_hashes() -> None:
    operation = HSets([b"a", b"f", b"1", b"b", b"f", b"2", b"", b"", b""])
    kind = EFFECTS[HSets].kind
    assert kind.keys(kind.encode(operation)) == [b"a", b"b", b""]
    database = Database(0)
    apply(database, HSet(b"b", [b"g", b"0"]), kind.decode(kind.encode(operation), None))
    assert [fields(database, key) for key in (b"a", b"b", b"")] == [{b"f": b"1"}, {b"g": b"0", b"f": b"2"}, {b"": b""}]
    for items in ([], [b"a", b"f"], [b"a", b"f", b"1", b"b"]):
        with pytest.raises(FormatError):
            kind.decode(encode_items(items), None)


def test_long_operations_are_several() -> None:
    items = [b"%d" % number for number in range(2 * limits.RECORD_MEMBERS_MAX + 2)]
    operations = [*hset(b"k", items), *hdel(b"k", items[::2])]
    assert [type(operation) for operation in operations] == [HSet, HSet, HDel, HDel]
    database = Database(0)
    apply(database, *operations[:2])
    assert len(database.find(b"k") or ()) == limits.RECORD_MEMBERS_MAX + 1
    apply(database, *operations[2:])
    assert len(database) == 0


def test_a_field_without_a_value_is_refused() -> None:
    with pytest.raises(FormatError):
        EFFECTS[HSet].kind.decode(encode_items([b"k", b"field"]), None)
