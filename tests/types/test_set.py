"""Operations on sets: what they do to a keyspace, and that they come back from their payloads."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog import limits
from tidelog.store.keyspace import Database
from tidelog.types.effect import Effect
from tidelog.types.encoding_bounds import EncodingBounds
from tidelog.types.set import SET_TYPE, SAdd, SRem, effects, sadd, srem
from tidelog.types.set_value import Set, set_of

EFFECTS: dict[type[Any], Effect] = {effect.operation: effect for effect in effects()}
MEMBERS = st.lists(st.sampled_from([b"", b"a", b"b", b"c", b"\x00\xff"]), min_size=1, max_size=4)
OPERATION = st.one_of(
    MEMBERS.map(lambda members: SAdd(b"k", members)), MEMBERS.map(lambda members: SRem(b"k", members))
)


def apply(database: Database, *operations: Any) -> None:
    for operation in operations:
        EFFECTS[type(operation)].apply(database, operation)


def test_members_are_added() -> None:
    database = Database(0)
    apply(database, SAdd(b"k", [b"a", b"b"]), SAdd(b"k", [b"a", b"c"]))
    value = database.find(b"k")
    assert type(value) is Set
    assert list(value) == [b"a", b"b", b"c"]  # also in the next process, so that one seed draws the same from it


def test_a_set_without_members_is_gone() -> None:
    database = Database(0)
    apply(database, SAdd(b"k", [b"a"]), SRem(b"k", [b"no"]))
    assert len(database) == 1
    apply(database, SRem(b"k", [b"a", b"a"]))
    assert database.find(b"k") is None
    assert len(database) == 0
    apply(database, SRem(b"k", [b"a"]))
    assert len(database) == 0


def test_a_change_keeps_the_expiry_and_is_told() -> None:
    database = Database(0)
    apply(database, SAdd(b"k", [b"a"]))
    database.set_expiry(b"k", 1000)
    seen: list[bytes | None] = []
    database.observer = lambda _, key: seen.append(key)
    apply(database, SAdd(b"k", [b"b"]))
    assert database.expiries == {b"k": 1000}
    assert seen == [b"k"]


@given(st.lists(OPERATION, max_size=10))
def test_payloads_have_the_same_effect(operations: list[SAdd | SRem]) -> None:
    live, replayed = Database(0), Database(0)
    model: set[bytes] = set()
    for operation in operations:
        kind = EFFECTS[type(operation)].kind
        again = kind.decode(kind.encode(operation), None)
        assert again == operation
        assert kind.keys(kind.encode(operation)) == [b"k"]
        apply(live, operation)
        apply(replayed, again)
        if isinstance(operation, SAdd):
            model.update(operation.members)
        else:
            model.difference_update(operation.members)
        assert set(live.find(b"k") or ()) == set(replayed.find(b"k") or ()) == model


@pytest.mark.parametrize(
    ("members", "encoding"),
    [
        ([b"%d" % number for number in range(512)], b"intset"),
        ([b"%d" % number for number in range(513)], b"hashtable"),
        ([b"x", b"1"], b"listpack"),
        ([b"x" * 64], b"listpack"),
        ([b"x" * 65], b"hashtable"),
        ([b"x%d" % number for number in range(128)], b"listpack"),
        ([b"x%d" % number for number in range(129)], b"hashtable"),
    ],
)
def test_encodings_are_those_of_redis_7_2(members: list[bytes], encoding: bytes) -> None:
    assert SET_TYPE.encoding(set_of(members), EncodingBounds()) == encoding


def test_long_operations_are_several() -> None:
    members = [b"%d" % number for number in range(limits.RECORD_MEMBERS_MAX + 1)]
    operations = [*sadd(b"k", members), *srem(b"k", members)]
    assert [type(operation) for operation in operations] == [SAdd, SAdd, SRem, SRem]
    database = Database(0)
    apply(database, *operations[:2])
    assert len(database.find(b"k") or ()) == limits.RECORD_MEMBERS_MAX + 1
    apply(database, *operations[2:])
    assert len(database) == 0
