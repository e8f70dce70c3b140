"""Snapshots: a journal of their own, complete or not there at all."""

from __future__ import annotations

import errno
from contextlib import suppress

import pytest

from tests.journal.machine import FOLDER, Machine, State, apply_to
from tidelog import limits
from tidelog.errors import Corruption, DataDirectoryError, SnapshotFailed
from tidelog.ids import Lsn, ShardId, Ts
from tidelog.journal.control import Epoch
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.operation import VAL, encode_pairs
from tidelog.journal.retention import RetentionLimits
from tidelog.journal.scan import ShardScan
from tidelog.journal.segment import FilePosition
from tidelog.journal.snapshot import (
    Snapshot,
    list_snapshots,
    newest_snapshot,
    open_snapshot,
    remove_partial_snapshots,
    remove_snapshot,
)
from tidelog.journal.source import ShardSource
from tidelog.testing.disk import SimulatedCrash

PARENT = f"{FOLDER}/snapshots"
STATE: State = {
    (0, 0, b"string"): b"value",
    (1, 0, b"other shard"): b"v",
    (0, 3, b"other database"): b"",
    (1, 0, b"whale"): bytes(range(256)) * 20,
    **{(number % 2, number % 3, b"k%d" % number): bytes(number) for number in range(100)},
}


def with_data(**options: object) -> Machine:
    machine = Machine(**options)  # type: ignore[arg-type]
    machine.commit((0, b"a", b"1"), (1, b"b", b"2"))
    return machine


def contents(machine: Machine, snapshot: Snapshot) -> tuple[State, list[Epoch]]:
    state: State = {}
    epochs: list[Epoch] = []
    snapshot.read(machine.disk, lambda transaction, payload_of: apply_to(state, transaction, payload_of), epochs.append)
    return state, epochs


def test_a_snapshot_holds_what_was_added_and_the_epochs() -> None:
    machine = with_data()
    machine.disk.kill()
    machine.open()
    snapshot = machine.snapshot(STATE)
    assert contents(machine, snapshot) == (STATE, machine.journal.epochs)
    assert len(machine.journal.epochs) == 2
    assert snapshot.epochs(machine.disk) == machine.journal.epochs


@pytest.mark.parametrize("state", [STATE, {}], ids=["full", "empty"])
def test_the_epochs_of_a_snapshot_are_known_without_reading_all_of_it(state: State) -> None:
    machine = with_data(frames_per_segment=64)
    for _ in range(60):  # more than a frame of them
        machine.disk.kill()
        machine.open()
    machine.commit((0, b"a", b"1"))
    snapshot = machine.snapshot({**state, **{key: bytes(250) for key in state}})
    machine.disk.bytes_read_by_path.clear()
    assert snapshot.epochs(machine.disk) == machine.journal.epochs
    assert len(machine.journal.epochs) == 61
    assert machine.disk.bytes_read < 10 * 1024
    assert not [path for path in machine.disk.open_paths if "snapshot" in path]


def test_the_point_lies_between_transactions_and_says_what_follows() -> None:
    machine = with_data()
    ts = machine.append((0, b"gathered", b""))
    snapshot = machine.snapshot({})
    assert snapshot.point.ts == ts
    assert snapshot.point.lsns == machine.journal.writer.written.lsns == (3, 1)
    assert snapshot.path == f"{PARENT}/snapshot-{ts:016x}"
    assert open_snapshot(machine.disk, snapshot.path) == snapshot


def test_what_is_written_while_it_is_made_is_not_in_it() -> None:
    machine = with_data()
    writer = machine.journal.begin_snapshot()
    assert writer is not None
    writer.add(ShardId(0), VAL, encode_pairs([(b"a", b"1")]))
    later = machine.commit((0, b"later", b""))
    snapshot = machine.journal.finish_snapshot(writer)
    assert snapshot.point.ts < later
    machine.disk.crash("lose_all")
    machine.open()
    assert machine.state == {(0, 0, b"a"): b"1", (0, 0, b"later"): b""}


def test_the_same_moment_is_not_taken_twice() -> None:
    machine = with_data()
    machine.snapshot({})
    assert machine.journal.begin_snapshot() is None
    machine.commit((0, b"k", b""))
    assert machine.journal.begin_snapshot() is not None


def test_a_snapshot_counts_only_after_the_journal_is_durable_through_its_point() -> None:
    machine = Machine(policy=FsyncPolicy.NEVER)
    ts = machine.write((0, b"k", b""))
    assert machine.journal.writer.durable_ts < ts
    machine.snapshot({})
    assert machine.journal.writer.durable_ts == ts


def test_every_record_is_a_transaction_of_its_own() -> None:
    machine = with_data()
    snapshot = machine.snapshot(STATE)
    sizes: list[int] = []
    snapshot.read(
        machine.disk, lambda transaction, _: sizes.append(sum(len(part.records) for part in transaction.parts)), print
    )
    assert sizes == [1] * len(STATE)


def test_a_large_snapshot_is_written_as_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SNAPSHOT_BATCH_BYTES", 2000)
    machine = with_data()
    writer = machine.journal.begin_snapshot()
    assert writer is not None
    written = []
    for number in range(100):
        writer.add(ShardId(number % 2), VAL, encode_pairs([(b"k%d" % number, bytes(100))]))
        written.append(writer.bytes_written)
    assert written[-1] >= 100 * 100 - 2000
    snapshot = machine.journal.finish_snapshot(writer)
    assert len(contents(machine, snapshot)[0]) == 100
    assert snapshot.size(machine.disk) == writer.bytes_written


# --- complete or not there --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_a_crash_anywhere_leaves_a_complete_snapshot_or_none(seed: int) -> None:
    undisturbed = with_data(seed=seed)
    before = undisturbed.disk.operations
    undisturbed.snapshot(STATE)
    for crash_at in range(1, undisturbed.disk.operations - before + 1):
        machine = with_data(seed=seed * 1000 + crash_at)
        machine.disk.crash_after(crash_at)
        with pytest.raises(SimulatedCrash):
            machine.snapshot(STATE)
        machine.disk.crash()
        found = newest_snapshot(machine.disk, FOLDER)
        if found is not None:
            assert contents(machine, found)[0] == STATE
        machine.open()
        assert machine.state == ({(0, 0, b"a"): b"1", (1, 0, b"b"): b"2"} if found is None else STATE)
        assert not [name for name in machine.disk.list(PARENT) if name.endswith(".partial")]


def test_a_snapshot_that_is_abandoned_does_not_count_and_is_removed_by_the_next() -> None:
    machine = with_data()
    writer = machine.journal.begin_snapshot()
    assert writer is not None
    writer.add(ShardId(0), VAL, encode_pairs([(b"whale", bytes(5000))]))
    before = machine.disk.open_paths
    writer.abandon()
    assert machine.disk.open_paths == before
    assert list_snapshots(machine.disk, FOLDER) == []
    assert machine.disk.list(PARENT) == [f"{writer.path.rpartition('/')[2]}.partial"]
    machine.commit((0, b"k", b""))
    snapshot = machine.snapshot({})
    assert machine.disk.list(PARENT) == [snapshot.path.rpartition("/")[2]]


@pytest.mark.parametrize("operation", ["write", "sync", "rename", "create"])
def test_a_disk_that_fails_leaves_the_snapshots_before_and_the_journal_goes_on(operation: str) -> None:
    machine = with_data()
    first = machine.snapshot({})
    machine.commit((0, b"k", b""))
    machine.disk.fail(operation, errno.EIO, path_contains=".partial")  # type: ignore[arg-type]
    with pytest.raises(SnapshotFailed, match=r"was given up .*EIO.* what was there before still counts"):
        machine.snapshot(STATE)
    assert list_snapshots(machine.disk, FOLDER) == [first]
    machine.commit((0, b"k", b""))
    machine.snapshot(STATE)
    assert len(list_snapshots(machine.disk, FOLDER)) == 2


def test_only_the_newest_are_kept() -> None:
    machine = Machine(retention=RetentionLimits(snapshots_kept=2))
    taken = []
    for _ in range(4):
        machine.commit((0, b"k", b""))
        taken.append(machine.snapshot({}))
    assert list_snapshots(machine.disk, FOLDER) == taken[-2:]
    assert newest_snapshot(machine.disk, FOLDER) == taken[-1]
    assert len(machine.disk.list(PARENT)) == 2


def test_removing_one_can_be_cut_short_anywhere() -> None:
    for crash_at in range(1, 12):
        machine = with_data(seed=crash_at)
        snapshot = machine.snapshot(STATE)
        machine.disk.crash_after(crash_at)
        with suppress(SimulatedCrash):
            remove_snapshot(machine.disk, snapshot.path)
        machine.disk.crash()
        for found in list_snapshots(machine.disk, FOLDER):
            assert contents(machine, found)[0] == STATE
        remove_partial_snapshots(machine.disk, FOLDER)
        assert all(not name.endswith(".partial") for name in machine.disk.list(PARENT))


# --- damage -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shard", [0, 1])
def test_a_flipped_bit_anywhere_is_refused(shard: int) -> None:
    machine = with_data()
    snapshot = machine.snapshot(STATE)
    folder = f"{snapshot.path}/shard-{shard}"
    for name in machine.disk.list(folder):
        path = f"{folder}/{name}"
        for bit in range(0, 8 * len(machine.disk.read_file(path)), 331):
            machine.disk.flip_bit(path, bit)
            with pytest.raises(Corruption):
                snapshot.check(machine.disk)
            machine.disk.flip_bit(path, bit)
    snapshot.check(machine.disk)


def test_a_snapshot_that_is_cut_anywhere_is_refused() -> None:
    machine = with_data()
    snapshot = machine.snapshot(STATE)
    path = f"{snapshot.path}/shard-0/journal-{0:016x}.dj0"
    data = machine.disk.read_file(path)
    for size in [*range(0, len(data), 29), len(data) - 1]:
        machine.disk.write_file(path, data[:size])
        with pytest.raises(Corruption):
            snapshot.check(machine.disk)


def test_a_snapshot_that_ends_with_an_earlier_batch_on_every_shard_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SNAPSHOT_BATCH_BYTES", 300)
    machine = Machine(shards=1)
    machine.commit((0, b"k", b""))
    snapshot = machine.snapshot({(0, 0, b"k%d" % number): bytes(50) for number in range(30)})
    path = f"{snapshot.path}/shard-0/journal-{0:016x}.dj0"
    source = ShardSource(machine.disk, f"{snapshot.path}/shard-0", machine.settings.geometry, ShardId(0))
    marks = list(ShardScan(source, 1, FilePosition(Lsn(0), 0), Lsn(0)).marks())
    assert len(marks) > 3
    data = machine.disk.read_file(path)
    for mark in marks[:-1]:
        machine.disk.write_file(path, data[: mark.end.at])
        with pytest.raises(Corruption, match="ends before its last mark"):
            snapshot.check(machine.disk)


def test_a_shard_that_is_missing_is_refused() -> None:
    machine = with_data()
    snapshot = machine.snapshot(STATE)
    for name in machine.disk.list(f"{snapshot.path}/shard-1"):
        machine.disk.remove(f"{snapshot.path}/shard-1/{name}")
    with pytest.raises(Corruption, match="ends before its last mark"):
        snapshot.check(machine.disk)


def test_a_data_directory_is_not_a_snapshot() -> None:
    machine = with_data()
    with pytest.raises(DataDirectoryError, match="is a data directory, not a snapshot"):
        open_snapshot(machine.disk, FOLDER)


def test_a_damaged_newest_snapshot_is_refused_and_not_passed_over_in_silence() -> None:
    machine = with_data()
    machine.snapshot({})
    machine.commit((0, b"k", b""))
    newest = machine.snapshot({})
    machine.journal.close()
    machine.disk.flip_bit(f"{newest.path}/shard-0/journal-{0:016x}.dj0", 8 * 30)
    with pytest.raises(Corruption) as caught:
        machine.open()
    assert caught.value.path.startswith(newest.path)


def test_a_snapshot_at_ts_0_of_an_empty_journal_is_complete() -> None:
    machine = Machine()
    snapshot = machine.snapshot({})
    assert snapshot.point.ts == Ts(0)
    assert snapshot.point.lsns == (Lsn(0), Lsn(0))
    machine.journal.close()
    machine.open()
    assert machine.state == {}
