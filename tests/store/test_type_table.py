"""Whole values: the operations of a copy make the same value again, and a copy is independent."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog import limits
from tidelog.store.keyspace import Database
from tidelog.store.type_table import TypeTable, value_types
from tidelog.types.encoding_bounds import EncodingBounds
from tidelog.types.hash_value import Hash, hash_of
from tidelog.types.list_value import List, list_of
from tidelog.types.set_value import Set, set_of
from tidelog.types.zset import zadd
from tidelog.types.zset_value import ZSet

TYPES = TypeTable(value_types())
MEMBERS = st.lists(st.binary(max_size=6), min_size=1, max_size=20, unique=True)


def apply(database: Database, operations: list[Any]) -> None:
    """Apply operations as the journal would give them back."""
    for operation in operations:
        effect = TYPES.effect_of[type(operation)]
        expire_ms = getattr(operation, "expire_ms", None)
        effect.apply(database, effect.kind.decode(effect.kind.encode(operation), expire_ms))


def sorted_set(members: list[bytes]) -> ZSet:
    database = Database(0)
    apply(database, list(zadd(b"z", [(float(at), member) for at, member in enumerate(members)])))
    value = database.find(b"z")
    assert isinstance(value, ZSet)
    return value


def values(members: list[bytes]) -> list[Any]:
    hash_, set_ = hash_of({member: member for member in members}), set_of(members)
    return [members[0], hash_, set_, sorted_set(members), list_of(members)]


def plain(value: Any) -> Any:
    if isinstance(value, Hash):
        return value.fields()
    return list(value) if isinstance(value, ZSet | List | Set) else value


@given(MEMBERS, st.one_of(st.none(), st.integers(1, 2**62)))
def test_operations_make_the_value_again(members: list[bytes], expire_ms: int | None) -> None:
    for value in values(members):
        database = Database(0)
        apply(database, TYPES.operations_of(b"k", value, expire_ms))
        assert plain(database.find(b"k")) == plain(value)
        assert type(database.find(b"k")) is type(value)
        assert database.expiries == ({} if expire_ms is None else {b"k": expire_ms})


@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_a_large_value_takes_several_operations(at: int) -> None:
    members = [b"%d" % number for number in range(3 * limits.RECORD_MEMBERS_MAX)]
    value = values(members)[at]
    operations = TYPES.operations_of(b"k", value, None)
    assert len(operations) == 3
    database = Database(0)
    apply(database, operations)
    assert plain(database.find(b"k")) == plain(value)


@given(MEMBERS)
def test_a_copy_is_independent(members: list[bytes]) -> None:
    for value in values(members):
        copy = TYPES.of(value).copy(value)
        assert type(copy) is type(value)
        assert plain(copy) == plain(value)
        if type(value) is not bytes:
            assert copy is not value
    table = hash_of({b"f": b"v"})
    TYPES.of(table).copy(table).set_field(b"f", b"w", EncodingBounds())
    assert table.fields() == {b"f": b"v"}


def test_what_is_no_value() -> None:
    with pytest.raises(TypeError, match="no type has values of class int"):
        TYPES.operations_of(b"k", 5, None)
