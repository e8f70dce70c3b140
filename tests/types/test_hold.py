"""Operations on named holders: what they do, and their payloads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import FormatError
from tidelog.ids import U64_MAX, Ts
from tidelog.journal.operation import encode_items
from tidelog.journal.retention import Holder
from tidelog.store.keyspace import Database
from tidelog.types.hold import HOLD_OPCODES, Release, SetHold, effects

BY_OPERATION = {effect.operation: effect for effect in effects()}
NUMBERS = st.integers(0, U64_MAX)
TEXTS = st.text(max_size=20)


def test_holders_come_move_and_go() -> None:
    database = Database(0)
    one, two = Holder("one", Ts(1), 5), Holder("two", Ts(2), 5)
    for operation in (SetHold(one, Ts(0)), SetHold(two, Ts(0)), SetHold(one._replace(ts=Ts(9)), Ts(8))):
        BY_OPERATION[SetHold].apply(database, operation)
    BY_OPERATION[Release].apply(database, Release(["two", "none"], Ts(8)))
    assert database.holds.by_name == {"one": Holder("one", Ts(9), 5)}


@given(st.builds(Holder, TEXTS, NUMBERS, NUMBERS, st.none() | st.text(min_size=1), NUMBERS, NUMBERS), NUMBERS)
def test_a_holder_is_read_as_it_was_written(holder: Holder, data_ts: Ts) -> None:
    kind = BY_OPERATION[SetHold].kind
    operation = SetHold(holder, data_ts)
    assert kind.decode(kind.encode(operation), None) == operation
    assert kind.opcode in HOLD_OPCODES


@given(st.lists(TEXTS), NUMBERS)
def test_a_release_is_read_as_it_was_written(names: list[str], data_ts: Ts) -> None:
    kind = BY_OPERATION[Release].kind
    operation = Release(names, data_ts)
    assert kind.decode(kind.encode(operation), None) == operation
    assert kind.opcode in HOLD_OPCODES


def test_they_name_no_key_and_feeds_do_not_tell_of_them() -> None:
    for operation in (SetHold(Holder("n", Ts(1), 2), Ts(3)), Release(["n"], Ts(3))):
        effect = BY_OPERATION[type(operation)]
        assert effect.kind.keys(effect.kind.encode(operation)) == ()
        assert effect.changes(operation) == []


@pytest.mark.parametrize(
    ("operation", "items"),
    [
        (SetHold, []),
        (SetHold, [b"n", bytes(40)]),
        (SetHold, [b"n", bytes(39), b""]),
        (SetHold, [b"\xff", bytes(40), b""]),
        (Release, []),
        (Release, [bytes(7), b"n"]),
        (Release, [bytes(8), b"\xff"]),
    ],
)
def test_other_payloads_are_refused(operation: type, items: list[bytes]) -> None:
    with pytest.raises(FormatError):
        BY_OPERATION[operation].kind.decode(encode_items(items), None)
