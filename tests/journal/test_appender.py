"""Received transactions: journaled exactly as they came, or not at all."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.journal.machine import Machine
from tidelog import limits
from tidelog.errors import InternalError, JournalFull, LimitExceeded, TidelogError
from tidelog.ids import Lsn, ShardId, Ts
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.merge import JournalTransaction
from tidelog.journal.new_record import NewRecord
from tidelog.journal.operation import DEL, START, VAL, Start, encode_items, encode_pairs, encode_start
from tidelog.journal.reader import Part, Record
from tidelog.journal.record import BLOB, EXPIRE, FINISH, TS


def received(machine: Machine, since: int = 0) -> list[JournalTransaction]:
    """What a machine has, as a link brings it: with whole payloads."""
    reader = machine.journal.reader_since(Ts(since))
    found = []
    for transaction in reader.read():
        parts = []
        for part in transaction.parts:
            records = [
                each._replace(payload=reader.payload_of(part, each), flags=each.flags & ~BLOB) for each in part.records
            ]
            parts.append(part._replace(records=records, is_last=True))
        found.append(JournalTransaction(transaction.ts, parts))
    reader.close()
    return found


def follower(**settings: Any) -> Machine:
    return Machine(leads=False, policy=FsyncPolicy.NEVER, **settings)


def lived(seed: int, shards: int) -> Machine:
    """A leader with transactions of all kinds."""
    rng = random.Random(seed)
    machine = Machine(shards=shards, seed=seed, policy=FsyncPolicy.NEVER)
    for number in range(120):
        records = []
        for _ in range(rng.choice([1, 1, 1, 2, 5])):
            size = rng.choice([0, 5, 100, 300, 700, 3000])
            expire_ms = rng.choice([None, None, 0, 1_800_000_000_000])
            payload = encode_pairs([(b"k%d" % number, rng.randbytes(size))])
            shard, database = ShardId(rng.randrange(shards)), rng.choice([0, 0, 3])
            records.append(NewRecord(shard, VAL, payload, expire_ms, database))
        if rng.random() < 0.2:
            records.append(NewRecord(ShardId(0), DEL, encode_items([b"k1"])))
        machine.clock.advance(rng.choice([1, 1000, 5_000_000_000]))
        machine.journal.writer.append(machine.journal.hlc.next(), records)
        machine.journal.writer.write()
    return machine


@pytest.mark.parametrize("shards", [1, 2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_a_follower_has_what_its_leader_has_in_frames_of_its_own(seed: int, shards: int) -> None:
    leader = lived(seed, shards)
    history = received(leader)
    assert any(len(transaction.parts) > 1 for transaction in history) == (shards > 1)
    made = follower(shards=shards, frame_bytes=2048)
    made.journal.append_received_epoch(leader.journal.epochs[0])
    for number, transaction in enumerate(history):
        made.journal.writer.append_received(transaction)
        if number % 7 == 0:
            made.journal.writer.write()
    made.journal.writer.write()
    assert received(made) == history
    assert made.journal.writer.visible.lsns == leader.journal.writer.visible.lsns
    assert made.journal.writer.visible.ts == leader.journal.writer.visible.ts
    made.journal.writer.sync()
    made.disk.crash()
    made.open(leads=False)
    assert received(made) == history
    assert made.journal.epochs == leader.journal.epochs
    leader.disk.kill()
    leader.open()
    assert made.state == leader.state
    assert made.state


def test_what_is_gathered_is_counted_as_that_of_a_leader_is() -> None:
    leader, made = Machine(policy=FsyncPolicy.NEVER), follower()
    for puts in ([(0, b"a", b"1")], [(0, b"a", bytes(300)), (0, b"b", b"2")], [(1, b"c", b""), (0, b"d", bytes(2000))]):
        leader.append(*puts)
    counted = leader.journal.writer.batch_bytes
    leader.journal.writer.write()
    for transaction in received(leader):
        made.journal.writer.append_received(transaction)
    starts = sum(len(encode_start(Start(each.ts, [ShardId(0), ShardId(1)]))) + 16 for each in received(leader)[2:])
    assert made.journal.writer.batch_bytes == counted + starts


# --- what is refused --------------------------------------------------------------------------------------------

_TS = Ts(1_700_000_000_000_000)


def record(lsn: int = 0, flags: int = TS | FINISH, **changes: Any) -> Record:
    return Record(Lsn(lsn), _TS, VAL, flags, 0, -1, encode_pairs([(b"k", b"v")]))._replace(**changes)


def part(*records: Record, shard: int = 0, ts: Ts = _TS) -> Part:
    return Part(ts, ShardId(shard), list(records), True)


def start(*shards: int, ts: Ts = _TS) -> Record:
    return record(0, TS, opcode=START, payload=encode_start(Start(ts, [ShardId(shard) for shard in shards])))


WHOLE = [
    [part(record())],
    [part(record(opcode=0x77))],
    [part(record(expire_ms=5, flags=TS | FINISH | EXPIRE))],
    [part(record(0, TS), record(1, 0), record(2, FINISH))],
    [part(start(0, 1), record(1, FINISH)), part(record(), shard=1)],
    [part(record(), shard=0), part(start(0, 1), record(1, FINISH), shard=1)],
]


@pytest.mark.parametrize("parts", WHOLE)
def test_what_is_whole_is_taken(parts: list[Part]) -> None:
    machine = follower()
    machine.journal.writer.append_received(JournalTransaction(_TS, parts))
    machine.journal.writer.write()
    assert received(machine) == [JournalTransaction(_TS, parts)]


@pytest.mark.parametrize("parts", WHOLE)
def test_the_clock_goes_on_above_what_was_taken_and_never_back(parts: list[Part]) -> None:
    machine = follower()
    hlc = machine.journal.hlc
    assert hlc.last < _TS
    machine.journal.writer.append_received(JournalTransaction(_TS, parts))
    assert hlc.last == _TS
    ahead = Ts(_TS + 1_000_000)
    hlc.follow(ahead)
    machine.journal.writer.append_received(JournalTransaction(Ts(_TS + 5), later(machine)))
    assert hlc.last == ahead


def later(machine: Machine) -> list[Part]:
    return [part(record(machine.journal.writer.next_lsns[0]), ts=Ts(_TS + 5))]


NOT_WHOLE = [
    [],
    [part()],
    [part(record(1))],
    [part(record(), shard=2)],
    [part(record(), shard=-1)],
    [part(record(), ts=Ts(_TS + 1))],
    [part(record(opcode=0))],
    [part(record(opcode=0xF0))],
    [part(record(database=-1))],
    [part(record(flags=TS))],
    [part(record(flags=FINISH))],
    [part(record(flags=0))],
    [part(record(flags=TS | FINISH | BLOB))],
    [part(record(flags=TS | FINISH | EXPIRE))],
    [part(record(expire_ms=5))],
    [part(record(0, TS), record(2, FINISH))],
    [part(record(0, TS), record(1, 0))],
    [part(record(0, TS), record(1, TS | FINISH))],
    [part(record(0, TS | FINISH), record(1, FINISH))],
    [part(record(0, TS), record(1, FINISH, opcode=0xF1))],
    [part(record()), part(record(), shard=1)],
    [part(record()), part(record(1))],
    [part(record(0, TS)), part(record(1, FINISH))],
    [part(start(0, 1), record(1, FINISH))],
    [part(start(0, 1), record(1, FINISH)), part(record(1), shard=1)],
    [part(start(0), record(1, FINISH)), part(record(), shard=1)],
    [part(start(0, 1, ts=Ts(5)), record(1, FINISH)), part(record(), shard=1)],
]


@pytest.mark.parametrize("parts", NOT_WHOLE)
def test_what_is_not_whole_or_not_due_leaves_nothing_behind(parts: list[Part]) -> None:
    machine = follower()
    refuses(machine, JournalTransaction(_TS, parts), TidelogError)


def refuses(machine: Machine, transaction: JournalTransaction, error: type[Exception]) -> None:
    writer = machine.journal.writer
    before, clock = (writer.next_lsns, writer.last_ts, writer.batch_bytes, writer.written), machine.journal.hlc.last
    with pytest.raises(error):
        writer.append_received(transaction)
    assert (writer.next_lsns, writer.last_ts, writer.batch_bytes, writer.written) == before
    assert machine.journal.hlc.last == clock
    if writer.refusal is None:
        writer.write()
        assert writer.written == before[3]
        writer.append_received(JournalTransaction(Ts(_TS + 5), [part(record(writer.next_lsns[0]), ts=Ts(_TS + 5))]))


def moved(parts: list[Part]) -> list[Part]:
    """The same after a record of shard 0."""
    return [
        each._replace(records=[one._replace(lsn=Lsn(one.lsn + 1)) for one in each.records]) if each.shard == 0 else each
        for each in parts
    ]


@pytest.mark.parametrize("parts", WHOLE)
def test_a_ts_that_is_not_above_the_last_is_refused(parts: list[Part]) -> None:
    machine = follower()
    machine.journal.writer.append_received(JournalTransaction(_TS, [part(record())]))
    machine.journal.writer.write()
    refuses(machine, JournalTransaction(_TS, moved(parts)), InternalError)


@pytest.mark.parametrize("parts", WHOLE)
def test_without_space_it_is_refused(parts: list[Part]) -> None:
    machine = follower()
    machine.disk.capacity_bytes = machine.disk.used_bytes
    machine.journal.writer.append_received(JournalTransaction(Ts(_TS - 1), [part(record(), ts=Ts(_TS - 1))]))
    with pytest.raises(JournalFull):
        machine.journal.writer.write()
    refuses(machine, JournalTransaction(_TS, moved(parts)), JournalFull)
    machine.disk.capacity_bytes = None
    machine.journal.writer.write()
    assert machine.journal.writer.next_lsns == (1, 0)


@pytest.mark.parametrize(
    ("bound", "make"),
    [
        ("PAYLOAD_BYTES_MAX", lambda: [part(record())]),
        ("BATCH_BYTES_MAX", lambda: [part(record())]),
        ("PAYLOAD_BYTES_MAX", lambda: [part(record(0, TS), record(1, FINISH))]),
        ("TRANSACTION_BYTES_MAX", lambda: [part(record(0, TS), record(1, FINISH))]),
        ("BATCH_BYTES_MAX", lambda: [part(record(0, TS), record(1, FINISH))]),
    ],
)
def test_what_is_too_large_is_refused(
    bound: str, make: Callable[[], list[Part]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, bound, len(record().payload) - 1)
    machine = follower()
    writer = machine.journal.writer
    with pytest.raises(LimitExceeded):
        writer.append_received(JournalTransaction(_TS, make()))
    assert (writer.next_lsns, writer.last_ts, writer.batch_bytes) == ((0, 0), 0, 0)
