"""Operations on keys of any type: effects on a keyspace, and their way through the journal's bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import FormatError
from tidelog.journal.operation import Del, FlushDb, Val, encode_items
from tidelog.store.keyspace import Database
from tidelog.types.key import EXPIRE, DelRange, Expire, effects
from tidelog.types.string import STRING_TYPE

BY_OPERATION = {effect.operation: effect for effect in [*STRING_TYPE.effects, *effects()]}


def apply(database: Database, *operations: object) -> None:
    for operation in operations:
        BY_OPERATION[type(operation)].apply(database, operation)


def test_deleting() -> None:
    database = Database(0)
    apply(database, Val([(b"a", b"1"), (b"b", b"2")], 50), Del([b"a", b"none", b"a"]))
    assert list(database.all_keys()) == [b"b"]
    assert database.expiries == {b"b": 50}
    apply(database, FlushDb())
    assert len(database) == 0
    assert database.expiries == {}


def test_expiring() -> None:
    database = Database(0)
    apply(database, Val([(b"a", b"1")]), Expire(b"a", 50), Expire(b"none", 50))
    assert database.expiries == {b"a": 50}
    apply(database, Expire(b"a", None))
    assert database.expiries == {}


@given(st.binary(max_size=300), st.one_of(st.none(), st.integers(0, 2**63 - 1)))
def test_expiry_comes_back_from_its_payload(key: bytes, expire_ms: int | None) -> None:
    kind = BY_OPERATION[Expire].kind
    operation = Expire(key, expire_ms)
    payload = kind.encode(operation)
    assert kind.decode(payload, expire_ms) == operation
    assert kind.keys(payload) == [key]
    assert kind.opcode == EXPIRE


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_a_range_comes_back_from_its_payload(start: bytes, end: bytes) -> None:
    kind = BY_OPERATION[DelRange].kind
    payload = kind.encode(DelRange(start, end))
    assert kind.keys(payload) is None
    if end and end <= start:
        with pytest.raises(FormatError):
            kind.decode(payload, None)
    else:
        assert kind.decode(payload, None) == DelRange(start, end)
        for cut in range(len(payload)):
            with pytest.raises(FormatError):
                kind.decode(payload[:cut], None)


def test_a_payload_without_a_key() -> None:
    with pytest.raises(FormatError):
        BY_OPERATION[Expire].kind.decode(encode_items([]), None)
