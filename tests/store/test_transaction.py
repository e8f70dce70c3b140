"""What a command reads and writes through: expired keys go first, records gather, nothing is rolled back."""

from __future__ import annotations

import pytest

from tests.store.made import Machine
from tidelog import limits
from tidelog.errors import CommandError
from tidelog.ids import ShardId
from tidelog.journal.operation import DEL, VAL, Del, Val
from tidelog.journal.staging import StageJob
from tidelog.store.keyspace import Database
from tidelog.store.large import Joined, whole
from tidelog.store.slots import slot_of
from tidelog.store.transaction import InDatabase, Transaction
from tidelog.streams.operations import StreamAppend
from tidelog.types.hash import hset
from tidelog.types.hash_value import Hash
from tidelog.types.key import EXPIRE, Expire
from tidelog.types.set import sadd


def _fields(database: Database, key: bytes) -> dict[bytes, bytes]:
    value = database.find(key)
    assert isinstance(value, Hash)
    return value.fields()


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
    assert transaction.find_typed(b"h", Hash).fields() == {b"f": b"v"}
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


@pytest.mark.parametrize("shard_count", [1, 4])
def test_plain_strings_of_different_keys_share_records(shard_count: int) -> None:
    machine = Machine(shard_count)
    transaction = machine.store.begin()
    for number in range(2000):
        assert transaction.set_plain(b"{tag}%d" % number, b"%d" % number)
    assert transaction.find(b"{tag}1999") == b"1999"
    machine.store.commit(transaction)
    machine.restart()
    assert machine.store.database(0).size == 2000
    assert machine.store.database(0).find(b"{tag}7") == b"7"
    assert sum(machine.store.journal.recovered.lsns) == 4


def test_every_value_of_a_key_has_its_record_in_the_order_of_commands() -> None:
    machine = Machine()
    transaction = machine.store.begin()
    assert transaction.set_plain(b"a", b"1")
    assert transaction.set_plain(b"b", b"1")
    assert transaction.set_plain(b"a", b"2")
    transaction.run([Del([b"b"])])
    transaction.database = machine.store.database(3)
    assert transaction.set_plain(b"a", b"3")
    transaction.end_run()
    assert opcodes(transaction) == [(VAL, 0), (VAL, 0), (DEL, 0), (VAL, 3)]
    machine.store.commit(transaction)
    machine.restart()
    assert [machine.store.database(number).find(b"a") for number in (0, 3)] == [b"2", b"3"]
    assert machine.store.database(0).find(b"b") is None


def test_what_is_not_plain_is_left_to_the_general_path() -> None:
    machine = Machine()
    machine.store.database(0).put(b"h", {b"f": b"v"})
    machine.store.database(0).put(b"e", b"1", machine.now_ms + 10)
    transaction = machine.store.begin()
    assert not transaction.set_plain(b"h", b"1")
    assert not transaction.set_plain(b"e", b"2")
    assert not transaction.set_plain(b"a", bytes(limits.RECORD_SPLIT_BYTES))
    assert transaction.find(b"h") == {b"f": b"v"}
    assert transaction.find(b"e") == b"1"
    transaction.end_run()
    assert opcodes(transaction) == []


def staged_job(machine: Machine, value: bytes) -> StageJob:
    job = machine.store.journal.writer.begin_stage(ShardId(0), len(value), lambda: value)
    job.run()
    machine.store.journal.writer.finish_stage(job)
    machine.store.staged[id(job.blob.value)] = job.blob
    return job


def test_the_record_of_a_staged_value_has_only_its_head() -> None:
    machine = Machine()
    value = bytes(range(256)) * 4096
    staged_job(machine, value)
    transaction = machine.store.begin()
    transaction.run([Val([(b"k", value)]), Val([(b"again", value)]), *hset(b"h", [b"small", b"1", b"f", value])])
    assert [record.staged is not None for record in transaction.records] == [True, False, False, False]
    assert transaction.records[0].payload.endswith(b"k")
    assert not machine.store.staged, "a staged value is for one record"
    machine.store.commit(transaction)
    machine.restart()
    database = machine.store.database(0)
    assert database.find(b"k") == database.find(b"again") == value
    assert _fields(database, b"h") == {b"small": b"1", b"f": value}


def test_staged_values_of_hashes_sets_and_streams() -> None:
    machine = Machine()
    values = [bytes([number]) * 2_000_000 for number in range(3)]
    for value in values:
        staged_job(machine, value)
    transaction = machine.store.begin()
    append = StreamAppend(b"st", 1, 5, 0, 0, [b"tag"], [values[2]])
    transaction.run([*hset(b"h", [b"f", values[0]]), *sadd(b"s", [values[1]]), append])
    assert all(record.staged is not None for record in transaction.records)
    machine.store.commit(transaction)
    machine.restart()
    database = machine.store.database(0)
    assert _fields(database, b"h") == {b"f": values[0]}
    assert list(database.find(b"s") or ()) == [values[1]]
    stream = database.find(b"st")
    assert stream is not None
    assert stream.length == 1


def test_a_staged_value_of_another_shard_or_with_a_long_head_is_written_with_its_record() -> None:
    machine = Machine(4)
    value = bytes(2_000_000)
    staged_job(machine, value)
    keys = [b"%d" % number for number in range(50)]
    elsewhere = next(key for key in keys if machine.store.owners[slot_of(key)] != 0)
    here = next(b"{%s}%s" % (key, bytes(70_000)) for key in keys if machine.store.owners[slot_of(key)] == 0)
    transaction = machine.store.begin()
    transaction.run([Val([(elsewhere, value)]), Val([(here, value)])])
    assert all(record.staged is None for record in transaction.records)
    machine.store.commit(transaction)
    machine.restart()
    assert machine.store.database(0).find(elsewhere) == machine.store.database(0).find(here) == value


def test_a_string_is_joined_unless_it_was_made_before() -> None:
    machine = Machine()
    transaction = machine.store.begin()
    base = bytes(limits.STAGED_BYTES_MIN)
    pieces = [whole(base), whole(b"more")]
    assert transaction.join(pieces) == base + b"more"
    machine.store.joined.append(Joined([whole(base), whole(b"more")], b"made before"))
    assert transaction.join(pieces) == b"made before"
    assert transaction.join([whole(bytes(len(base))), whole(b"more")]) == base + b"more", "another object"
