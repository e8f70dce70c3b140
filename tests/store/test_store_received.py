"""A follower's store: what it receives has every effect that it has where it is made, and nothing is made here."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.commands.running import Commands
from tests.store.changes import change, open_store, state
from tidelog import limits
from tidelog.errors import ApplyFailed, JournalFull
from tidelog.ids import Ts
from tidelog.journal.merge import JournalTransaction
from tidelog.journal.operation import DELRANGE, FLUSHDB, Del, FlushDb, Val
from tidelog.journal.record import BLOB
from tidelog.store.dead_letters import PendingExpiry
from tidelog.store.expiry import remove_due
from tidelog.store.range_removal import RangeRemoval
from tidelog.store.store import Store
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk
from tidelog.types.key import DelRange, Expire
from tidelog.types.library import LibLoad

SHARDS = pytest.mark.parametrize("shards", [1, 3])
SMALL = pytest.mark.parametrize("is_small", [False, True])


class Link:
    """Hands over what a leader's journal has, once."""

    def __init__(self, leader: Store) -> None:
        self._leader = leader
        self._reader = leader.journal.reader_since(Ts(0))

    def read(self) -> Iterator[JournalTransaction]:
        """With whole payloads, as they come over a link."""
        self._leader.journal.writer.write()
        for transaction in self._reader.read():
            parts = []
            for part in transaction.parts:
                payloads = [self._reader.payload_of(part, record) for record in part.records]
                records = [
                    record._replace(payload=payload, flags=record.flags & ~BLOB)
                    for record, payload in zip(part.records, payloads, strict=True)
                ]
                parts.append(part._replace(records=records))
            yield JournalTransaction(transaction.ts, parts)


class Pair:
    """A leader and a follower."""

    def __init__(self, shards: int = 1) -> None:
        self.leader = Commands(shards)
        self.follower = Commands(shards, leads=False)
        self.follower.store.journal.append_received_epoch(self.leader.store.journal.epochs[0])
        self._link = Link(self.leader.store)

    @property
    def store(self) -> Store:
        return self.follower.store

    def sync(self) -> int:
        """Hand over what is new; returns how many transactions that are."""
        count = 0
        for transaction in self._link.read():
            self.store.apply_received(transaction)
            count += 1
        self.store.journal.writer.write()
        return count

    def __call__(self, *words: bytes | str | int) -> Any:
        """Run a command on the leader and hand it over."""
        reply = self.leader(*words)
        self.sync()
        return reply

    def operate(self, *operations: Any, database: int = 0) -> None:
        transaction = self.leader.store.begin(database)
        transaction.run(operations)
        self.leader.store.commit(transaction)
        self.sync()


class Client:
    """A watcher."""

    def __init__(self) -> None:
        self.watched: set[tuple[int, bytes]] = set()
        self.is_dirty = False


def make_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots with buckets, and collections that are written in pieces."""
    monkeypatch.setattr(limits, "SLOT_KEYS_SPLIT", 4)
    monkeypatch.setattr(limits, "RECORD_MEMBERS_MAX", 3)


# --- state and journal ------------------------------------------------------------------------------------------


@SMALL
@SHARDS
@pytest.mark.parametrize("seed", range(4))
def test_a_follower_is_as_its_leader_also_after_a_restart(
    seed: int, shards: int, is_small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_small:
        make_small(monkeypatch)
    rng = random.Random(seed)
    leader, disk = open_store(SimulatedDisk(seed), shards), SimulatedDisk(seed)
    follower = open_store(disk, shards, leads=False)
    link = Link(leader)
    seen_opcodes = set()
    for _ in range(40):
        for _ in range(10):
            change(leader, rng)
        for transaction in link.read():
            follower.apply_received(transaction)
            seen_opcodes |= {record.opcode for part in transaction.parts for record in part.records}
        assert state(follower) == state(leader)
        follower.journal.writer.write()
        assert follower.journal.writer.visible.lsns == leader.journal.writer.visible.lsns
    assert {FLUSHDB, DELRANGE} <= seen_opcodes
    follower.journal.writer.sync()
    disk.crash()
    again = open_store(disk, shards, leads=False)
    assert state(again) == state(leader)
    assert again.is_follower


@SMALL
@SHARDS
@pytest.mark.parametrize("seed", range(6))
def test_a_snapshot_of_a_follower_shows_its_own_moment(
    seed: int, shards: int, is_small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_small:
        make_small(monkeypatch)
    rng = random.Random(seed)
    leader, disk = open_store(SimulatedDisk(seed), shards), SimulatedDisk(seed)
    follower = open_store(disk, shards, leads=False)
    link = Link(leader)
    for _ in range(rng.randrange(100, 400)):
        change(leader, rng)
    for transaction in link.read():
        follower.apply_received(transaction)
    expected = state(follower)
    capture = follower.begin_capture()
    assert capture is not None
    while not capture.is_done:
        for _ in range(rng.choice([1, 5, 20])):
            if not capture.is_done:
                capture.step()
        for _ in range(rng.randrange(6)):
            change(leader, rng)
        for transaction in link.read():
            follower.apply_received(transaction)
    follower.journal.writer.write()
    snapshot = follower.journal.finish_snapshot(capture.snapshot)
    follower.end_capture()

    shown = Store(SimulatedClock(), random.Random(1))
    shown.slots = follower.slots
    snapshot.read(disk, shown.replay, lambda _epoch: None)
    assert state(shown) == expected
    follower.journal.close()
    assert state(open_store(disk, shards, leads=False)) == state(leader)


@pytest.mark.parametrize("flush", ["FLUSHDB", "DELRANGE"])
def test_a_snapshot_sees_nothing_of_what_came_before_a_flush_in_the_same_transaction(flush: str) -> None:
    """Also in a shard whose part is applied after that of a shard which has flushed."""
    pair = Pair(3)
    keys = [b"key%d" % number for number in range(30)]
    pair.operate(Val([(key, b"old") for key in keys], 10**15))
    capture = pair.store.begin_capture()
    assert capture is not None
    before = state(pair.store)
    transaction = pair.leader.store.begin()
    transaction.run([Val([(key, b"new") for key in keys])])
    transaction.run([FlushDb()] if flush == "FLUSHDB" else [_range(pair.leader.store, b"key", b"kez")])
    transaction.run([Val([(keys[0], b"newest")])])
    pair.leader.store.commit(transaction)
    pair.sync()
    assert state(pair.store) == state(pair.leader.store) == {(0, keys[0]): (b"newest", None)}
    while not capture.is_done:
        capture.step()
    snapshot = pair.store.journal.finish_snapshot(capture.snapshot)
    shown = Store(SimulatedClock(), random.Random(1))
    shown.slots = pair.store.slots
    snapshot.read(pair.follower.disk, shown.replay, lambda _epoch: None)
    assert state(shown) == before


def _range(store: Store, start: bytes, end: bytes) -> DelRange:
    removal = RangeRemoval(store.database(0), start, end)
    removal.look_at_rest()
    return DelRange(start, end, removal)


# --- those who look on ------------------------------------------------------------------------------------------


@SHARDS
def test_who_watches_is_told(shards: int) -> None:
    pair = Pair(shards)
    pair("MSET", "a", 1, "b", 1, "c", 1)
    changes: list[list[Any]] = [
        [Val([(b"a", b"2")])],
        [Del([b"a"])],
        [Expire(b"a", 10**15)],
        [FlushDb()],
        [_range(pair.leader.store, b"a", b"b")],
        [Val([(b"new", b"1")]), FlushDb()],
    ]
    for operations in changes:
        pair("MSET", "a", 1, "b", 1)
        client, other, elsewhere = Client(), Client(), Client()
        pair.store.watch(client, 0, b"a")
        pair.store.watch(other, 0, b"b")
        pair.store.watch(elsewhere, 5, b"a")
        if type(operations[0]) is DelRange:
            operations = [_range(pair.leader.store, b"a", b"b")]
        pair.operate(*operations)
        assert client.is_dirty, operations
        assert not elsewhere.is_dirty
        assert other.is_dirty == (FlushDb() in operations)
        for each in (client, other, elsewhere):
            pair.store.unwatch(each)


@SHARDS
def test_who_waits_is_signalled(shards: int) -> None:
    pair = Pair(shards)
    pair("SET", "there", 1)
    pair.store.database(0).waiting.update((b"stream", b"list", b"there"))
    assert pair.follower("XREAD", "BLOCK", 0, "STREAMS", "stream", "0") == "it waits"
    pair("SET", "other", 1)
    assert pair.store.signals == {}
    pair("XADD", "stream", "1-1", "f", "v")
    pair("RPUSH", "list", "1")
    pair("SET", "there", 2)
    assert pair.store.signals == {(0, b"stream"): True, (0, b"list"): True, (0, b"there"): False}
    assert pair.follower("XREAD", "BLOCK", 0, "STREAMS", "stream", "0") == [[b"stream", [[b"1-1", [b"f", b"v"]]]]]
    pair.store.signals.clear()
    pair("FLUSHDB")
    assert set(pair.store.signals) == {(0, b"stream"), (0, b"list"), (0, b"there")}


@SHARDS
def test_scans_of_feeds_are_told_of_a_range_once_with_its_ts(shards: int) -> None:
    pair = Pair(shards)
    told: list[tuple[Ts, int, bytes, bytes]] = []
    pair.store.on_range = lambda ts, number, found: told.append((ts, number, found.start, found.end))
    pair("MSET", "a", 1, "b", 1, "c", 1)
    cleared = pair.store.database(0).cleared_count
    pair("DELRANGE", "a", "c")
    ts = pair.leader.store.journal.writer.last_ts
    assert told == [(ts, 0, b"a", b"c")]
    pair("FLUSHDB")
    assert len(told) == 1
    assert pair.store.database(0).cleared_count == cleared + 1, "once, whatever the number of shards"


@SHARDS
def test_times_of_keys_and_of_what_is_in_them_come_along(shards: int) -> None:
    pair = Pair(shards)
    pair("SET", "a", 1, "PX", 1000)
    pair("TWRITE", "t", "tag", "entry")
    pair("TREAD", "t", 1, 1, "GROUP", "g", "RETRY", 10, 500)
    ours, theirs = pair.store.database(0), pair.leader.store.database(0)
    assert ours.expiries == theirs.expiries == {b"a": pair.leader.now_ms + 1000}
    assert ours.alarms.times == theirs.alarms.times
    assert ours.alarms.times


def test_libraries_come_along() -> None:
    pair = Pair()
    version = pair.store.libraries.version
    transaction = pair.leader.store.begin()
    transaction.run([LibLoad(b"lib", b"code")])
    pair.leader.store.commit(transaction)
    pair.sync()
    assert pair.store.libraries.codes == {b"lib": b"code"}
    assert pair.store.libraries.version > version


# --- what goes wrong --------------------------------------------------------------------------------------------


@SHARDS
def test_what_the_journal_refuses_is_not_applied(shards: int) -> None:
    pair = Pair(shards)
    pair("SET", "a", 1)
    pair.follower.disk.capacity_bytes = pair.follower.disk.used_bytes
    pair.leader("SET", "a", 2)
    with pytest.raises(JournalFull):
        pair.sync()
    pair.leader("SET", "a", 3)
    [transaction] = pair._link.read()
    before = state(pair.store), pair.store.journal.writer.last_ts
    with pytest.raises(JournalFull):
        pair.store.apply_received(transaction)
    assert (state(pair.store), pair.store.journal.writer.last_ts) == before
    pair.follower.disk.capacity_bytes = None
    pair.store.journal.writer.write()
    pair.store.apply_received(transaction)
    assert state(pair.store) == state(pair.leader.store)


@SHARDS
def test_what_cannot_be_applied_stops_the_process(shards: int) -> None:
    pair = Pair(shards)
    pair.leader("SET", "a", 1)
    [transaction] = pair._link.read()
    part = transaction.parts[0]
    broken = part._replace(records=[part.records[0]._replace(payload=b"\xff\xff")])
    with pytest.raises(ApplyFailed, match=f"transaction {transaction.ts} could not be applied"):
        pair.store.apply_received(JournalTransaction(transaction.ts, [broken]))


# --- expired keys -----------------------------------------------------------------------------------------------


def expired(shards: int) -> Pair:
    """A pair whose follower has keys of every kind that have expired and that nobody has deleted."""
    pair = Pair(shards)
    pair("SET", "string", 1)
    pair("HSET", "hash", "f", "v")
    pair("RPUSH", "list", "x")
    pair("SADD", "set", "m")
    pair("ZADD", "zset", 1, "m")
    pair("XADD", "stream", "1-1", "f", "v")
    for key in ("string", "hash", "list", "set", "zset", "stream"):
        pair("PEXPIRE", key, 10)
    pair("SET", "stays", 1)
    pair.follower.wait(20)
    return pair


READS: list[tuple[tuple[Any, ...], Any]] = [
    (("GET", "string"), None),
    (("MGET", "string", "stays"), [None, b"1"]),
    (("EXISTS", "string", "hash", "stays"), 1),
    (("TYPE", "zset"), b"none"),
    (("TTL", "list"), -2),
    (("HGETALL", "hash"), []),
    (("LRANGE", "list", 0, -1), []),
    (("SMEMBERS", "set"), []),
    (("ZRANGE", "zset", 0, -1), []),
    (("XRANGE", "stream", "-", "+"), []),
    (("XLEN", "stream"), 0),
    (("XREAD", "STREAMS", "stream", "0"), None),
    (("TREAD", "stream", 0, 5), []),
    (("KEYS", "*"), [b"stays"]),
    (("SCAN", 0, "COUNT", 100), [b"0", [b"stays"]]),
    (("RANDOMKEY",), b"stays"),
    (("STRLEN", "string"), 0),
    (("TOUCH", "string"), 0),
]


@SHARDS
@pytest.mark.parametrize(("words", "reply"), READS)
def test_expired_keys_are_read_as_missing_and_stay(shards: int, words: tuple[Any, ...], reply: Any) -> None:
    pair = expired(shards)
    before = state(pair.store)
    ts = pair.store.journal.writer.last_ts
    assert pair.follower.quietly(*words) == reply
    assert state(pair.store) == before
    assert pair.store.journal.writer.last_ts == ts
    assert pair.store.expired_count == 0


@SHARDS
def test_nothing_that_falls_due_is_done_by_a_follower(shards: int) -> None:
    pair = expired(shards)
    pair("TGROUP", "t", "g", "DEADLETTER", "dead", "MAXDELIVERIES", 1)
    pair("TWRITE", "t", "tag", "entry")
    pair("TREAD", "t", 1, 1, "GROUP", "g", "RETRY", 1, 5)
    pair.follower.wait(100)
    before = state(pair.store)
    heaps = [database.expiring.waiting() for database in pair.store.databases]
    alarms = dict(pair.store.database(0).alarms.times)
    assert remove_due(pair.store) == 0
    assert PendingExpiry(pair.store).run() == 0
    assert pair.store.journal.writer.batch_bytes == 0
    assert state(pair.store) == before
    assert [database.expiring.waiting() for database in pair.store.databases] == heaps
    assert pair.store.database(0).alarms.times == alarms
    assert alarms


@SHARDS
def test_a_leader_deletes_what_expired_while_it_followed(shards: int) -> None:
    pair = expired(shards)
    assert pair.follower("GET", "string") is None
    epoch = pair.store.journal.begin_epoch(77, above=Ts(pair.follower.clock.wall_us() + 5_000_000))
    assert not pair.store.is_follower
    assert pair.follower("GET", "string") is None
    assert pair.store.expired_count == 1
    assert remove_due(pair.store) == 5
    assert pair.follower("SET", "mine", 1) == b"OK"
    assert pair.store.journal.writer.last_ts > epoch.first_ts
    assert {key for _, key in state(pair.store)} == {b"stays", b"mine"}
    pair.follower.restart()
    assert {key for _, key in state(pair.store)} == {b"stays", b"mine"}


def test_a_leader_that_begins_to_follow_deletes_no_more() -> None:
    leader = Commands()
    leader("SET", "a", 1, "PX", 10)
    leader.wait(20)
    leader.store.is_follower = True
    assert leader.quietly("GET", "a") is None
    assert remove_due(leader.store) == 0
    leader.store.is_follower = False
    assert leader("GET", "a") is None
    assert leader.store.database(0).size == 0
