"""What a command reads and writes through: expired keys go first, records gather, nothing is rolled back."""

from __future__ import annotations

import pytest

from tests.store.made import Machine
from tidelog.errors import CommandError
from tidelog.journal.operation import DEL, VAL, Del, Val
from tidelog.store.transaction import InDatabase, Transaction
from tidelog.types.hash import Hash, hset
from tidelog.types.key import EXPIRE, Expire


def opcodes(transaction: Transaction) -> list[tuple[int, int]]:
    """Opcode and database of its records."""
    return [(record.opcode, record.database) for record in transaction.records]


def test_what_it_did_is_seen_at_once_and_journaled_together() -> None:
    machine = Machine()
    transaction = machine.store.begin()
    transaction.run([Val([(b"a", b"1")]), Val([(b"b", b"2")], machine.now_ms + 50)])
    assert transaction.find(b"a") == b"1"
    assert transaction.expiry(b"b") == machine.now_ms + 50
    transaction.run([Del([b"a"]), Expire(b"b", None)])
    assert transaction.find(b"a") is None
    assert opcodes(transaction) == [(VAL, 0), (VAL, 0), (DEL, 0), (EXPIRE, 0)]
    ts = machine.store.commit(transaction)
    assert ts is not None
    assert transaction.records == []
    machine.restart()
    assert list(machine.store.database(0).all_keys()) == [b"b"]
    assert machine.store.database(0).expiries == {}


def test_nothing_is_committed_without_a_change() -> None:
    machine = Machine()
    transaction = machine.store.begin()
    assert transaction.find(b"a") is None
    assert machine.store.commit(transaction) is None


def test_types() -> None:
    machine = Machine()
    transaction = machine.store.begin()
    transaction.run([Val([(b"s", b"1")]), *hset(b"h", [b"f", b"v"])])
    assert transaction.find_typed(b"s", bytes) == b"1"
    assert transaction.find_typed(b"h", Hash) == {b"f": b"v"}
    assert transaction.find_typed(b"none", Hash) is None
    with pytest.raises(CommandError, match="WRONGTYPE"):
        transaction.find_typed(b"s", Hash)


def test_an_expired_key_is_removed_before_what_is_new() -> None:
    machine = Machine()
    database = machine.store.database(0)
    for name in (b"a", b"b"):
        database.put(name, b"old", machine.now_ms + 10)
    machine.clock.advance(10_000)
    transaction = machine.store.begin()
    assert transaction.find(b"a") is None
    assert transaction.find(b"a") is None
    assert database.find(b"a") == b"old"  # reading changes nothing
    transaction.run([Val([(b"a", b"new")])])
    assert opcodes(transaction) == [(DEL, 0), (VAL, 0)]
    assert transaction.find(b"a") == b"new"
    assert transaction.expiry(b"a") is None
    assert database.find(b"b") == b"old"  # nobody came across it
    machine.store.commit(transaction)
    assert machine.store.expired_count == 1


def test_it_expires_at_its_moment_and_time_stands_still_inside() -> None:
    machine = Machine()
    machine.store.database(0).put(b"a", b"1", machine.now_ms + 10)
    machine.clock.advance(9_999)
    early = machine.store.begin()
    machine.clock.advance(1)
    late = machine.store.begin()
    assert early.find(b"a") == b"1"
    assert late.find(b"a") is None
    machine.clock.advance(60_000_000)
    assert early.find(b"a") == b"1"


def test_reading_an_expired_key_journals_its_end() -> None:
    machine = Machine()
    transaction = machine.store.begin()
    transaction.run([Val([(b"a", b"1")], machine.now_ms + 10)])
    machine.store.commit(transaction)
    machine.clock.advance(10_000)
    transaction = machine.store.begin()
    assert transaction.find(b"a") is None
    assert machine.store.commit(transaction) is not None
    machine.clock.step_wall(-5_000_000)  # a clock that was set back does not bring it back
    machine.restart()
    assert machine.store.begin().find(b"a") is None


@pytest.mark.parametrize("shard_count", [1, 3])
def test_other_databases(shard_count: int) -> None:
    machine = Machine(shard_count)
    machine.store.database(3).put(b"gone", b"1", machine.now_ms)
    transaction = machine.store.begin(1)
    assert transaction.find_in(machine.store.database(3), b"gone") is None
    transaction.run([Val([(b"a", b"1"), (b"b", b"2")]), InDatabase(3, Val([(b"a", b"3")], machine.now_ms + 5))])
    assert opcodes(transaction)[0] == (DEL, 3)
    assert {number for _, number in opcodes(transaction)[1:]} == {1, 3}
    machine.store.commit(transaction)
    machine.restart()
    assert machine.store.database(1).find(b"b") == b"2"
    assert machine.store.database(3).find(b"a") == b"3"
    assert machine.store.database(3).expiries == {b"a": machine.now_ms + 5}
    assert len(machine.store.database(0)) == 0


def test_keys_of_one_operation_go_to_their_shards() -> None:
    machine = Machine(3)
    keys = [b"key%d" % number for number in range(50)]
    transaction = machine.store.begin()
    transaction.run([Val([(key, b"v") for key in keys])])
    assert sorted({record.shard for record in transaction.records}) == [0, 1, 2]
    transaction.run([Del(keys[:25])])
    machine.store.commit(transaction)
    machine.restart()
    assert sorted(machine.store.database(0).all_keys()) == sorted(keys[25:])
