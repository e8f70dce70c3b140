"""Operations on libraries of functions: their effects, and their way through the journal's bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.errors import FormatError
from tidelog.store.keyspace import Database
from tidelog.types.library import LIBRARY_OPCODES, LibDel, LibLoad, effects

BY_OPERATION = {effect.operation: effect for effect in effects()}


def test_loading_and_deleting() -> None:
    database = Database(0)
    for operation in (LibLoad(b"a", b"1"), LibLoad(b"b", b"2"), LibLoad(b"a", b"3"), LibDel([b"b", b"none"])):
        BY_OPERATION[type(operation)].apply(database, operation)
    assert database.libraries.codes == {b"a": b"3"}
    assert len(database) == 0
    database.clear()
    assert database.libraries.codes == {b"a": b"3"}


@given(st.binary(max_size=300), st.binary(max_size=3000), st.lists(st.binary(max_size=200), max_size=5))
def test_they_come_back_from_their_payloads(name: bytes, code: bytes, names: list[bytes]) -> None:
    for operation in (LibLoad(name, code), LibDel(names)):
        effect = BY_OPERATION[type(operation)]
        payload = effect.kind.encode(operation)
        assert effect.kind.decode(payload, None) == operation
        assert effect.kind.keys(payload) == ()
        assert effect.kind.opcode in LIBRARY_OPCODES
        assert effect.changes(operation) == []


def test_payloads_that_are_cut_are_refused() -> None:
    load, delete = BY_OPERATION[LibLoad].kind, BY_OPERATION[LibDel].kind
    payload = load.encode(LibLoad(b"name", b"code"))
    for size in range(len(payload)):
        with pytest.raises(FormatError):
            load.decode(payload[:size], None)
    with pytest.raises(FormatError, match="libload has 3 items"):
        load.decode(delete.encode(LibDel([b"a", b"b", b"c"])), None)
