"""What follows a position: exactly what the journal has, from anywhere, from memory or disk, in bounded memory."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.journal.machine import FOLDER, Machine
from tests.replication.receiving import Receiver, journaled, positions
from tidelog import limits
from tidelog.errors import Corruption, InternalError, TooOld
from tidelog.ids import Lsn, ShardId, Ts
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.new_record import NewRecord
from tidelog.journal.operation import DEL, FLUSHDB, VAL, encode_items, encode_pairs
from tidelog.journal.retention import RetentionLimits
from tidelog.journal.segment import blob_name
from tidelog.replication.history import History, epochs_at
from tidelog.replication.message import (
    EpochBegins,
    HistoryPosition,
    LongRecord,
    PayloadPiece,
    Reached,
    ShardEnd,
    TransactionParts,
)
from tidelog.replication.shared_history import Shared, compare

SIZES = [0, 1, 20, 120, 250, 300, 700, 3000]
"""Of values, where a frame has 1024 bytes: some are split over frames, some are blobs."""


def some_records(rng: Random, shards: int) -> list[NewRecord]:
    found = []
    for _ in range(rng.choice([1, 1, 1, 2, 3, 8, 40])):
        shard, database = ShardId(rng.randrange(shards)), rng.choice([0, 0, 0, 1, 15])
        kind = rng.random()
        if kind < 0.1:
            found.append(NewRecord(shard, DEL, encode_items([b"a", b"b" * rng.randrange(100)]), None, database))
        elif kind < 0.15:
            found += [NewRecord(ShardId(each), FLUSHDB, b"", None, database) for each in range(shards)]
        else:
            value = bytes([rng.randrange(256)]) * rng.choice(SIZES)
            expire_ms = rng.choice([None, None, 0, 1_800_000_000_000])
            found.append(NewRecord(shard, VAL, encode_pairs([(b"k", value)]), expire_ms, database))
    return found


def work(machine: Machine, rng: Random, transactions: int, *, syncs: bool = True) -> None:
    """Some transactions, some of them written together."""
    for _ in range(transactions):
        machine.clock.advance(rng.choice([1, 1000, 100_000]))
        records = some_records(rng, machine.settings.shard_count)
        machine.journal.writer.append(machine.journal.hlc.next(), records)
        if rng.random() < 0.5:
            machine.journal.writer.write()
            if syncs and rng.random() < 0.5:
                machine.journal.writer.sync()
    machine.journal.writer.write()
    if syncs:
        machine.journal.writer.sync()


def small_pieces(patch: pytest.MonkeyPatch) -> None:
    """So that a few hundred bytes take several."""
    patch.setattr(limits, "REPLICATION_PARTS_BYTES", 400)
    patch.setattr(limits, "REPLICATION_LONG_BYTES", 200)
    patch.setattr(limits, "REPLICATION_PAYLOAD_BYTES", 150)
    patch.setattr(limits, "REPLICATION_READ_BYTES", 800)


@given(st.integers(0, 2**32), st.integers(1, 3), st.sampled_from([0, 3000, 10**6]), st.booleans())
@settings(max_examples=60)
def test_any_history_arrives_as_it_is_from_any_position(
    seed: int, shards: int, ring_bytes_max: int, is_small: bool
) -> None:
    rng = Random(seed)
    machine = Machine(seed=seed, shards=shards, ring_bytes_max=ring_bytes_max)
    work(machine, rng, rng.randrange(1, 25))
    places = positions(machine.journal)
    with pytest.MonkeyPatch.context() as patch:
        if is_small:
            small_pieces(patch)
        for position in {places[0], places[-1], rng.choice(places)}:
            assert compare(machine.journal, machine.journal.epochs, position) == Shared(1)
            receiver = Receiver(machine.journal, position, next_epoch=1)
            receiver.pull()
            assert receiver.transactions == journaled(machine.journal, position.ts)
            assert receiver.epochs == []
            assert receiver.incoming.reached == Reached(places[-1].ts, places[-1].lsns)
            assert receiver.history.records_behind == 0


@pytest.mark.parametrize("shards", [1, 2, 3])
@pytest.mark.parametrize("policy", [FsyncPolicy.ALWAYS, FsyncPolicy.EVERYSEC])
@pytest.mark.parametrize("seed", range(6))
def test_a_reader_that_falls_behind_the_ring_and_catches_up_misses_nothing_and_repeats_nothing(
    shards: int, policy: FsyncPolicy, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes what it likes between writes: all, some, or nothing for so long that memory has moved on."""
    small_pieces(monkeypatch)
    rng = Random(seed)
    machine = Machine(shards=shards, policy=policy, ring_bytes_max=6000)
    receiver = Receiver(machine.journal, positions(machine.journal)[0], next_epoch=0)
    came_from_disk = came_from_memory = 0
    for _ in range(60):
        work(machine, rng, rng.choice([1, 1, 2, 20]))
        before = receiver.history.bytes_read
        for _ in range(rng.choice([0, 1, 3, 1000])):
            if not receiver.step():
                break
            came_from_memory += receiver.history.bytes_read == before
        came_from_disk += receiver.history.bytes_read > before
    receiver.pull()
    assert receiver.transactions == journaled(machine.journal)
    assert came_from_disk
    assert came_from_memory


def test_only_what_is_visible_is_handed_out() -> None:
    machine = Machine(shards=2, policy=FsyncPolicy.ALWAYS)
    receiver = Receiver(machine.journal, positions(machine.journal)[0], next_epoch=1)
    machine.write((0, b"k", b"v"))
    receiver.pull()
    assert receiver.whole == []
    machine.journal.writer.sync()
    receiver.pull()
    assert len(receiver.whole) == 1


# --- epochs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shards", [1, 2])
def test_epochs_come_where_they_began(shards: int) -> None:
    machine = Machine(shards=shards)
    times: dict[int, list[Ts]] = {}
    for round_ in range(4):
        times[machine.journal.epochs[-1].id] = machine.fill(round_, shard=shards - 1)  # none in the first
        machine.disk.kill()
        machine.open()
    receiver = Receiver(machine.journal, HistoryPosition(Ts(0), (ShardEnd(Lsn(0), Ts(0)),) * shards))
    receiver.pull()
    expected: list[Ts | int] = []
    for epoch, written in times.items():
        expected += [epoch, *written]
    found = [each.epoch.id if isinstance(each, EpochBegins) else each.ts for each in receiver.whole]  # type: ignore[union-attr]
    assert found == [*expected, machine.journal.epochs[-1].id]
    assert receiver.history.read() is None


def test_an_epoch_that_begins_meanwhile_is_handed_out_once_its_time_has_come() -> None:
    """As on a follower that is followed itself, when its leader changes."""
    machine = Machine(shards=2)
    first = machine.fill(3)
    receiver = Receiver(machine.journal, positions(machine.journal)[0], next_epoch=1)
    receiver.pull()
    visible = machine.journal.writer.visible
    epoch = machine.journal.epochs[-1]._replace(id=77, lsns=visible.lsns, last_ts=visible.ts)
    machine.journal.epochs.append(epoch)
    machine.journal.writer.append_epoch(epoch, visible.ts)
    receiver.pull()
    assert receiver.epochs == [77]
    later = machine.fill(2, shard=1)
    receiver.pull()
    assert [ts for ts, _ in receiver.transactions] == first + later
    assert receiver.epochs == [77]


def test_an_epoch_that_does_not_begin_where_its_lsns_say_is_never_sent() -> None:
    machine = Machine(shards=1)
    machine.fill(3)
    wrong = machine.journal.epochs[-1]._replace(id=77, lsns=(Lsn(2),))
    machine.journal.epochs.append(wrong._replace(last_ts=machine.journal.writer.visible.ts))
    history = History(machine.journal, Reached(Ts(0), (Lsn(0),)), 1)
    assert history.read()
    with pytest.raises(InternalError, match="does not begin at lsns"):
        history.read()


def test_after_a_snapshot_no_epoch_is_missing() -> None:
    """Those that began at its moment come too, whether it has them or not."""
    machine = Machine(shards=2)
    machine.fill(2)
    machine.disk.kill()
    machine.open()
    machine.fill(2)
    point = machine.snapshot({}).point
    for _ in range(2):
        machine.disk.kill()
        machine.open()
    later = machine.fill(2)
    begin = Reached(point.ts, point.lsns)
    first = epochs_at(machine.journal.epochs, begin)
    place = HistoryPosition(point.ts, tuple(ShardEnd(lsn, None) for lsn in point.lsns))
    receiver = Receiver(machine.journal, place, first)
    receiver.pull()
    assert receiver.epochs == [epoch.id for epoch in machine.journal.epochs[2:]]
    assert [ts for ts, _ in receiver.transactions] == later
    assert epochs_at(machine.journal.epochs, Reached(Ts(0), (Lsn(0), Lsn(0)))) == 0
    end = machine.journal.writer.visible
    assert epochs_at(machine.journal.epochs, Reached(end.ts, end.lsns)) == 4


# --- erased, damaged --------------------------------------------------------------------------------------------


def erasing(shards: int) -> Machine:
    return Machine(
        shards=shards, frames_per_segment=2, ring_bytes_max=0, retention=RetentionLimits(bytes_max=0, snapshots_kept=1)
    )


@pytest.mark.parametrize("shards", [1, 3])
def test_a_position_before_what_was_erased_is_too_old_and_one_after_it_is_not(shards: int) -> None:
    machine = erasing(shards)
    for number in range(60):
        machine.commit((number % shards, b"k%d" % number, bytes(200)))
    all_places = positions(machine.journal)
    machine.snapshot({})
    machine.fill(1)
    assert machine.journal.erase()
    erased = machine.journal.erased_ts
    assert all_places[0].ts < erased < all_places[-1].ts
    for place in all_places:
        if place.ts < erased:
            with pytest.raises(TooOld) as caught:
                History(machine.journal, Reached(place.ts, place.lsns), 1)
            assert caught.value.oldest == erased
        else:
            receiver = Receiver(machine.journal, place, next_epoch=1)
            receiver.pull()
            assert receiver.transactions == journaled(machine.journal, place.ts)


@pytest.mark.parametrize("size", [200, 3000])
def test_a_reader_under_which_the_journal_is_erased_is_told_so(size: int) -> None:
    """Also in the middle of a blob, whose file goes with the segment."""
    machine = erasing(1)
    for number in range(60):
        machine.commit((0, b"k%d" % number, bytes(size if number % 7 == 0 else 200)))
    receiver = Receiver(machine.journal, HistoryPosition(Ts(0), (ShardEnd(Lsn(0), Ts(0)),)), next_epoch=1)
    with pytest.MonkeyPatch.context() as patch:
        small_pieces(patch)
        while receiver.history.is_inside is (size == 200):
            assert receiver.step()
        machine.snapshot({})
        machine.fill(1)
        machine.journal.erase()
        with pytest.raises(TooOld) as caught:
            receiver.pull()
    assert caught.value.oldest == machine.journal.erased_ts
    assert receiver.incoming.reached.ts < machine.journal.erased_ts
    assert receiver.incoming.is_inside is (size == 3000), "what came in part has had no effect"


def test_a_damaged_blob_never_becomes_whole() -> None:
    machine = Machine(shards=1)
    first = machine.fill(2, size=100)
    machine.commit((0, b"whale", bytes(5000)))
    path = f"{FOLDER}/shard-0/{blob_name(Lsn(0))}"
    data = bytearray(machine.disk.read_file(path))
    data[-1] ^= 1
    machine.disk.write_file(path, bytes(data))
    receiver = Receiver(machine.journal, HistoryPosition(Ts(0), (ShardEnd(Lsn(0), Ts(0)),)), next_epoch=1)
    with pytest.MonkeyPatch.context() as patch:
        small_pieces(patch)
        with pytest.raises(Corruption, match="the checksum of a blob of 5009 bytes is wrong"):
            receiver.pull()
    assert [ts for ts, _ in receiver.transactions] == first
    assert receiver.incoming.held_bytes >= 4500
    assert receiver.history.ts == first[-1]


def test_a_history_that_does_not_begin_at_its_lsns_is_never_sent() -> None:
    """`compare` has to be asked first: this is the last line."""
    machine = Machine(shards=1)
    times = machine.fill(5)
    receiver = Receiver(machine.journal, HistoryPosition(times[1], (ShardEnd(Lsn(1), times[1]),)), 1)
    with pytest.raises(InternalError, match="record 2 of shard 0 was read where 1 follows"):
        receiver.pull()
    assert receiver.whole == []


# --- bounds -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shards", [1, 3])
def test_pieces_are_small_whatever_a_transaction_has(shards: int) -> None:
    """A transaction of 60,000 records, one of some long values, and very many small ones."""
    machine = Machine(shards=shards, frame_bytes=limits.MIB, frames_per_segment=64, ring_bytes_max=0)
    writer, hlc = machine.journal.writer, machine.journal.hlc
    many = [NewRecord(ShardId(n % shards), VAL, encode_pairs([(b"k%d" % n, b"")])) for n in range(60_000)]
    writer.append(hlc.next(), many)
    long = [NewRecord(ShardId(n % shards), VAL, encode_pairs([(b"l", bytes(n * 30_000))])) for n in range(12)]
    writer.append(hlc.next(), long)
    writer.write()
    for number in range(3000):
        writer.append(hlc.next(), [NewRecord(ShardId(number % shards), VAL, encode_pairs([(b"k", bytes(50))]))])
    writer.write()
    writer.sync()
    receiver = Receiver(machine.journal, HistoryPosition(Ts(0), (ShardEnd(Lsn(0), Ts(0)),) * shards), next_epoch=1)
    receiver.pull()
    assert receiver.transactions == journaled(machine.journal)
    assert max(receiver.pieces) < 2 * limits.REPLICATION_PARTS_BYTES + 2 * limits.REPLICATION_LONG_BYTES
    assert sum(receiver.pieces) / len(receiver.pieces) > limits.REPLICATION_PARTS_BYTES / 4, "and not tiny"


def test_a_transaction_with_a_large_blob_takes_little_memory() -> None:
    """Of the sender: 256 MiB in two values go out while no more than a few pieces are held."""
    size = 128 * limits.MIB
    machine = Machine(shards=2, frame_bytes=limits.MIB, frames_per_segment=64, ring_bytes_max=0)
    value = encode_pairs([(b"k", bytes(size))])
    machine.journal.writer.append(
        machine.journal.hlc.next(), [NewRecord(ShardId(0), VAL, value), NewRecord(ShardId(1), VAL, value)]
    )
    machine.journal.writer.write()
    machine.journal.writer.sync()
    del value
    history = History(machine.journal, Reached(Ts(0), (Lsn(0), Lsn(0))), 1)
    tracemalloc.start()
    try:
        sent = calls = 0
        while (messages := history.read()) is not None:
            calls += 1
            sent += sum(len(message.data) for message in messages if isinstance(message, PayloadPiece))
        assert tracemalloc.get_traced_memory()[1] < 6 * limits.MIB
    finally:
        tracemalloc.stop()
    assert sent > 2 * size
    assert calls > 2 * size // limits.REPLICATION_READ_BYTES, "others have their turn in between"


def test_a_slow_reader_holds_no_more_than_a_frame_of_each_shard() -> None:
    machine = Machine(shards=2, frame_bytes=limits.MIB, frames_per_segment=64, ring_bytes_max=0)
    writer, hlc = machine.journal.writer, machine.journal.hlc
    for number in range(24_000):
        writer.append(hlc.next(), [NewRecord(ShardId(number % 2), VAL, encode_pairs([(b"k", bytes(1000))]))])
        if writer.batch_bytes > limits.BATCH_BYTES_FULL:
            writer.write()
    writer.write()
    writer.sync()
    history = History(machine.journal, Reached(Ts(0), (Lsn(0), Lsn(0))), 1)
    tracemalloc.start()
    try:
        for _ in range(20):
            messages = history.read()
            assert messages is not None
            del messages
        assert tracemalloc.get_traced_memory()[1] < 8 * limits.MIB
    finally:
        tracemalloc.stop()


def test_what_is_read_at_once_is_bounded_and_in_order() -> None:
    machine = Machine(shards=1, frame_bytes=limits.MIB, frames_per_segment=64)
    for _ in range(40):
        machine.append((0, b"k", bytes(30_000)))
    machine.journal.writer.write()
    machine.journal.writer.sync()
    history = History(machine.journal, Reached(Ts(0), (Lsn(0),)), 1)
    at_once = []
    times: list[Ts] = []
    while (messages := history.read()) is not None:
        parts = [part for message in messages if isinstance(message, TransactionParts) for part in message.parts]
        at_once.append(sum(len(record.payload) for part in parts for record in part.records))
        times += [part.ts for part in parts]
        assert not any(isinstance(message, LongRecord) for message in messages)
    assert max(at_once) < limits.REPLICATION_READ_BYTES + 31_000
    assert all(a < b for a, b in pairwise(times))
    assert len(times) == 40
