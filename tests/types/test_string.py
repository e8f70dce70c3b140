"""Strings: effects on a keyspace, and which of them spell an integer."""

from __future__ import annotations

import pytest

from tidelog.journal.operation import Val
from tidelog.store.keyspace import Database
from tidelog.types.string import effects, integer_of, is_integer


def test_values() -> None:
    database = Database(0)
    (effect,) = effects()
    effect.apply(database, Val([(b"a", b"1"), (b"b", b"2")], 50))
    effect.apply(database, Val([(b"b", b"3"), (b"c", b"")]))
    assert {key: database.find(key) for key in database.all_keys()} == {b"a": b"1", b"b": b"3", b"c": b""}
    assert database.expiries == {b"a": 50}


@pytest.mark.parametrize("number", [0, 7, 9, 10, -7, 10**17, 10**18 - 1, 10**18, 2**63 - 1, -(2**63)])
def test_an_integer_has_one_spelling(number: int) -> None:
    assert integer_of(b"%d" % number) == number
    assert is_integer(b"%d" % number)


@pytest.mark.parametrize(
    "data", [b"", b"-", b"a", b"/", b":", b"-0", b"+1", b"00", b"01", b" 1", b"1 ", b"1.0", b"%d" % 2**63, b"1" * 30]
)
def test_what_is_no_integer(data: bytes) -> None:
    assert integer_of(data) is None
    assert not is_integer(data)
