"""A snapshot shows the store at one moment, whatever happens while it is written."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.store.changes import change, open_store, run, state
from tests.store.made import Machine
from tidelog import limits
from tidelog.ids import ShardId
from tidelog.store.range_removal import RangeRemoval
from tidelog.store.store import Store
from tidelog.streams.operations import StreamAppend
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk
from tidelog.types.hash_value import hash_of
from tidelog.types.set_value import set_of


@pytest.mark.parametrize("is_small", [False, True])
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("seed", range(12))
def test_a_snapshot_equals_the_state_at_its_moment(
    seed: int, shards: int, is_small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_small:  # slots with buckets, and collections that are written in pieces
        monkeypatch.setattr(limits, "SLOT_KEYS_SPLIT", 4)
        monkeypatch.setattr(limits, "RECORD_MEMBERS_MAX", 3)
        monkeypatch.setattr(limits, "STAGED_BYTES_MIN", 6)
        monkeypatch.setattr(limits, "STAGED_HEAD_BYTES_MAX", 64)
    rng = random.Random(seed)
    disk = SimulatedDisk(seed)
    store = open_store(disk, shards)
    for _ in range(rng.randrange(400)):
        change(store, rng)
    store.journal.writer.write()
    expected = state(store)
    capture = store.begin_capture()
    assert capture is not None
    while not capture.is_done:
        for _ in range(rng.choice([1, 5, 20])):
            if not capture.is_done:
                capture.step()
        for _ in range(rng.randrange(6)):
            change(store, rng)
    store.journal.writer.write()
    snapshot = store.journal.finish_snapshot(capture.snapshot)
    store.end_capture()

    shown = Store(SimulatedClock(), random.Random(1))
    shown.slots = store.slots
    snapshot.read(disk, shown.replay, lambda _epoch: None)
    assert state(shown) == expected

    final = state(store)
    store.journal.close()
    assert state(open_store(disk, shards)) == final, "the snapshot and the journal after it give everything"


def test_keys_that_go_with_several_ranges_keep_their_expiries() -> None:
    disk = SimulatedDisk()
    store = open_store(disk, 1)
    for number in range(4):
        store.database(0).put(b"{t}%d" % number, b"x", 10**15 + number)
    expected = state(store)
    capture = store.begin_capture()
    assert capture is not None
    for prefix in (b"{t}1", b"{t}2"):
        removal = RangeRemoval(store.database(0), prefix, prefix + b"\xff")
        removal.look_at_rest()
        store.database(0).remove_range(removal)
    while not capture.is_done:
        capture.step()
    snapshot = store.journal.finish_snapshot(capture.snapshot)
    shown = Store(SimulatedClock(), random.Random(1))
    shown.slots = store.slots
    snapshot.read(disk, shown.replay, lambda _epoch: None)
    assert state(shown) == expected


def test_plain_strings_share_records(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimulatedDisk()
    store = open_store(disk, 1)
    for number in range(1000):
        store.database(0).put(b"%d" % number, b"x")
    change(store, random.Random(1))
    capture = store.begin_capture()
    assert capture is not None
    added: list[int] = []
    add = capture.snapshot.add

    def count(shard: ShardId, opcode: int, *rest: Any) -> None:
        added.append(opcode)
        add(shard, opcode, *rest)

    monkeypatch.setattr(capture.snapshot, "add", count)
    while not capture.is_done:
        capture.step()
    assert capture.keys_written >= 1000
    assert len(added) < 10


LARGE = b"x" * 1500


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize(
    "commands",
    [
        pytest.param([[b"HSET", b"k", b"f", LARGE], [b"PEXPIRE", b"k", b"9999999"]], id="the expiry of a hash"),
        pytest.param([[b"SADD", b"k", LARGE], [b"PEXPIRE", b"k", b"9999999"]], id="the expiry of a set"),
        pytest.param([[b"ZADD", b"k", b"1", LARGE], [b"PEXPIRE", b"k", b"9999999"]], id="the expiry of a sorted set"),
        pytest.param([[b"RPUSH", b"k", b"a", LARGE, b"b"], [b"RPUSH", b"k", LARGE, b"c"]], id="elements of a list"),
        pytest.param([[b"XADD", b"k", b"1-1", b"f", LARGE], [b"XADD", b"k", b"1-2", b"f", b"v"]], id="entries"),
        pytest.param(
            [
                [b"TWRITE", b"k", b"ENTRIES", b"tag", LARGE],
                [b"TREAD", b"k", b"0", b"1", b"GROUP", b"g", b"RETRY", b"20", b"500"],
            ],
            id="pending entries",
        ),
    ],
)
def test_what_follows_a_large_value_stays_behind_it(
    commands: list[list[bytes]], shards: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STAGED_BYTES_MIN", 1000)
    monkeypatch.setattr(limits, "RECORD_SPLIT_BYTES", 500)
    disk = SimulatedDisk()
    store = open_store(disk, shards)
    for words in commands:
        run(store, words)
    store.journal.writer.write()
    expected = state(store)
    store.save()
    store.journal.close()
    assert state(open_store(disk, shards)) == expected


@pytest.mark.parametrize("shards", [1, 3])
def test_large_values_are_written_beside_the_loop_and_loaded_again(
    shards: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STAGED_BYTES_MIN", 1000)
    machine = Machine(shards)
    database, large = machine.store.database(2), random.Random(1).randbytes(5000)
    database.put(b"string", large)
    database.put(b"expiring", large + b"e", machine.now_ms + 10_000)
    database.put(b"hash", hash_of({b"small": b"1", b"large": large + b"h"}))
    database.put(b"set", set_of([large + b"s"]))
    database.put(b"small", b"1")
    transaction = machine.store.begin(2)
    transaction.run([StreamAppend(b"stream", 1, 5, 0, 0, [b"tag"], [large + b"x"])])
    machine.store.commit(transaction)
    capture = machine.store.begin_capture()
    assert capture is not None
    jobs = 0
    while not capture.is_done:
        if capture.has_large:
            capture.begin_large().run()
            database.put(b"string", b"changed while it was written")
            capture.end_large()
            jobs += 1
        else:
            capture.step()
    machine.store.journal.finish_snapshot(capture.snapshot)
    machine.store.end_capture()
    assert jobs == 5
    machine.restart()
    database = machine.store.database(2)
    assert database.find(b"string") == large
    assert database.find(b"expiring") == large + b"e"
    assert b"expiring" in database.expiries
    found = database.find(b"hash")
    assert found is not None
    assert found.fields() == {b"small": b"1", b"large": large + b"h"}
    stream = database.find(b"stream")
    assert stream is not None
    assert stream.length == 1
