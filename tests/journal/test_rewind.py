"""Going back: what is not shared is set aside and cut, and a crash anywhere changes nothing about the outcome."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import Final

import pytest

from tests.journal.earlier_holders import write_holders
from tests.journal.machine import FOLDER, Machine
from tests.journal.past import (
    Past,
    check_aside,
    check_rewound,
    lsns_of,
    steps_of,
    written,
)
from tests.journal.test_repair import files
from tidelog.errors import Corruption, DataDirectoryError, DirectoryInUse, NoWayBack, TooOld
from tidelog.hlc import TsFile, read_stored_ts
from tidelog.ids import Lsn, Ts
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.layout import CLOCK, ERASED, HOLDERS, REWOUND, read_meta, write_meta
from tidelog.journal.retention import Holder, RetentionLimits
from tidelog.journal.rewind import Rewound, rewind
from tidelog.journal.snapshot import Snapshot, list_snapshot_paths, open_snapshot, remove_snapshot
from tidelog.journal.tail import list_cut_tails
from tidelog.testing.disk import Operation, SimulatedDisk

LONG: Final = pytest.mark.long


# --- where it ends ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shards", [1, 2, 3])
@pytest.mark.parametrize("is_clean", [True, False], ids=["closed", "killed"])
def test_it_goes_back_to_the_last_transaction_that_is_shared(shards: int, is_clean: bool) -> None:
    past = written(shards=shards)
    past.machine.journal.close() if is_clean else past.machine.disk.kill()
    times = [seen.ts for seen in past.transactions()]
    for index in (0, 9, 12, 22):
        for since in (times[index], times[index] + 1, times[index + 1] - 1):
            disk = past.machine.disk.clone()
            rewound = rewind(disk, FOLDER, Ts(since), 1)
            assert rewound.path == f"{FOLDER}/diverged-{since}"
            assert rewound.ends_ts == times[index]
            assert rewound.first_ts == times[index + 1]
            check_rewound(past, disk, since, 1, rewound)


def test_what_is_aside_keeps_its_lsns_and_all_else() -> None:
    past = written(shards=2)
    ends = past.machine.journal.writer.visible.lsns
    past.machine.journal.close()
    disk = past.machine.disk
    rewound = rewind(disk, FOLDER, past.transactions()[10].ts, 1)
    begins = past.check(disk, past.expect(past.transactions()[10].ts, 1)).journal.writer.next_lsns
    assert lsns_of(disk, rewound.path, 2) == [list(range(*span)) for span in zip(begins, ends, strict=True)]


def test_a_cycle_that_is_shared_in_part_goes_as_a_whole_and_only_the_rest_is_counted() -> None:
    past = Past()
    past.commit((0, b"a", b"1"))
    times = [past.append((number % 2, b"b", b"%d" % number)) for number in range(6)]
    past.write()
    past.machine.journal.close()
    rewound = rewind(past.machine.disk, FOLDER, times[3], 1)
    assert rewound.records == 2
    assert (rewound.first_ts, rewound.last_ts) == (times[4], times[5])
    assert rewound.ends_ts == past.transactions()[0].ts
    assert len(steps_of(past.machine.disk, rewound.path)) == 6
    check_rewound(past, past.machine.disk, times[3], 1, rewound)


def test_nothing_is_done_where_everything_is_shared() -> None:
    past = written()
    past.machine.journal.close()
    before = files(past.machine.disk)
    last = past.transactions()[-1].ts
    assert rewind(past.machine.disk, FOLDER, last, 1) == Rewound("", 0, 0, Ts(0), Ts(0), last)
    assert files(past.machine.disk) == before
    assert past.on(past.machine.disk).open().hlc.was_clean


def test_all_of_a_history_can_go() -> None:
    past = written(shards=3)
    past.machine.journal.close()
    rewound = rewind(past.machine.disk, FOLDER, Ts(0), 0)
    assert rewound.ends_ts == 0
    assert steps_of(past.machine.disk, rewound.path) == past.steps
    check_rewound(past, past.machine.disk, 0, 0, rewound)


def test_a_directory_in_use_and_a_snapshot_are_refused() -> None:
    past = written(snapshots=(5,))
    with pytest.raises(DirectoryInUse):
        rewind(past.machine.disk, FOLDER, Ts(0), 0)
    with pytest.raises(DataDirectoryError, match="is a snapshot"):
        rewind(past.machine.disk, list_snapshot_paths(past.machine.disk, FOLDER)[0], Ts(0), 0)


# --- epochs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_written_alone", [True, False])
def test_an_epoch_that_begins_exactly_there_goes_if_it_is_not_shared(is_written_alone: bool) -> None:
    past = written(count=6)
    since = past.transactions()[-1].ts
    second = past.receive_epoch()
    if is_written_alone:
        past.write()
    past.commit((0, b"later", b""))
    past.machine.journal.close()
    for epoch, kept in ((1, [1]), (second, [1, second] if is_written_alone else [1])):
        disk = past.machine.disk.clone()
        rewound = rewind(disk, FOLDER, since, epoch)
        assert past.epochs(check_rewound(past, disk, since, epoch, rewound).steps) == kept
        assert rewound.records == 1


def test_epochs_alone_are_forgotten_without_a_trace() -> None:
    past = written(count=6)
    past.restart(is_clean=False)
    past.restart(is_clean=False)
    since = past.transactions()[-1].ts
    for death in (past.machine.journal.close, past.machine.disk.kill):
        death()
        for epoch in (1, 2):
            disk = past.machine.disk.clone()
            rewound = rewind(disk, FOLDER, Ts(since + 5), epoch)
            assert rewound == Rewound("", 0, 0, Ts(0), Ts(0), since)
            check_rewound(past, disk, since + 5, epoch, rewound)
            assert rewind(disk, FOLDER, Ts(since + 5), epoch) == rewound
        past.machine.open()


def test_a_shared_epoch_that_has_to_go_too_can_be_asked_for_again() -> None:
    """It was written together with one that is not shared."""
    past = written(count=3)
    second, _ = past.receive_epoch(), past.receive_epoch()
    past.write()
    past.machine.journal.close()
    since = past.transactions()[-1].ts
    answer = Rewound("", 0, 0, Ts(0), Ts(0), since)
    for _ in range(2):
        assert rewind(past.machine.disk, FOLDER, since, second) == answer
    assert past.epochs(check_rewound(past, past.machine.disk, since, second, answer).steps) == [1]


def test_an_epoch_that_is_not_known_is_no_place_to_go_back_to() -> None:
    past = written(count=6)
    past.machine.journal.close()
    before = files(past.machine.disk)
    with pytest.raises(NoWayBack, match="does not know epoch 77"):
        rewind(past.machine.disk, FOLDER, past.transactions()[2].ts, 77)
    assert files(past.machine.disk) == before


# --- snapshots ----------------------------------------------------------------------------------------------------


def test_snapshots_from_after_the_cut_are_moved_aside_and_older_ones_stay() -> None:
    past = written(count=30, snapshots=(8, 16))
    past.machine.journal.close()
    older, newer = list_snapshot_paths(past.machine.disk, FOLDER)
    for index, kept in ((7, []), (8, [older]), (12, [older]), (16, [older, newer]), (20, [older, newer])):
        disk, since = past.machine.disk.clone(), past.transactions()[index].ts
        rewound = rewind(disk, FOLDER, since, 1)
        assert list_snapshot_paths(disk, FOLDER) == kept
        moved = list_snapshot_paths(disk, rewound.path)
        assert [path.rpartition("/")[2] for path in (*kept, *moved)] == [p.rpartition("/")[2] for p in (older, newer)]
        for path in moved:
            assert open_snapshot(disk, path).check(disk)
        check_rewound(past, disk, since, 1, rewound)


def test_a_snapshot_that_knows_a_forgotten_epoch_is_moved_aside_although_its_moment_is_shared() -> None:
    past = written(count=10, snapshots=(4,))
    past.restart(is_clean=False)
    past.snapshot()
    past.machine.journal.close()
    since, disk = past.transactions()[-1].ts, past.machine.disk
    rewound = rewind(disk, FOLDER, since, 1)
    assert rewound.records == 0
    assert len(list_snapshot_paths(disk, rewound.path)) == len(list_snapshot_paths(disk, FOLDER)) == 1
    check_rewound(past, disk, since, 1, rewound)


def test_a_damaged_snapshot_gives_way_to_an_older_one() -> None:
    past = written(count=30, snapshots=(8, 16, 24), snapshots_kept=3)
    past.machine.journal.close()
    oldest, older, _ = list_snapshot_paths(past.machine.disk, FOLDER)
    since = past.transactions()[20].ts
    for damaged, kept in (([older], [oldest]), ([older, oldest], [])):
        disk = past.machine.disk.clone()
        for path in damaged:
            disk.flip_bit(f"{path}/shard-0/journal-{0:016x}.dj0", 8 * 100)
        rewound = rewind(disk, FOLDER, since, 1)
        assert list_snapshot_paths(disk, FOLDER) == kept
        check_rewound(past, disk, since, 1, rewound)


# --- no way back --------------------------------------------------------------------------------------------------


def erased(count: int = 60) -> Past:
    """One snapshot, and hardly any journal before it."""
    past = Past(frames_per_segment=1, retention=RetentionLimits(bytes_max=0, snapshots_kept=1))
    for number in range(count):
        past.commit((number % 2, b"k%d" % (number % 3), bytes(200)))
        if number == 40:
            past.snapshot()
            past.erase()
    assert past.machine.journal.erased_ts
    return past


def test_without_a_snapshot_from_before_there_is_no_way_back_and_nothing_changes() -> None:
    past = erased()
    past.machine.journal.close()
    before = files(past.machine.disk)
    for index in (0, 20, 39):
        with pytest.raises(NoWayBack, match="no whole snapshot"):
            rewind(past.machine.disk, FOLDER, past.transactions()[index].ts, 1)
        assert files(past.machine.disk) == before
    assert past.on(past.machine.disk).open().hlc.was_clean
    past.machine.disk.kill()
    for index in (40, 50):
        disk = past.machine.disk.clone()
        check_rewound(
            past, disk, past.transactions()[index].ts, 1, rewind(disk, FOLDER, past.transactions()[index].ts, 1)
        )


def based(*, from_lsn_0: bool) -> tuple[Machine, Snapshot, list[Ts]]:
    """A directory whose history begins with a snapshot: as a full sync leaves it or, from lsn 0, a restore."""
    source = Past()
    source.commit((0, b"a", b"1"), (1, b"b", b"2"))
    source.commit((0, b"a", b"2"))
    source.snapshot()
    source.machine.journal.close()
    machine = source.on(source.machine.disk)
    disk = machine.disk
    for shard in (0, 1):
        disk.remove(f"{FOLDER}/shard-{shard}/journal-{0:016x}.dj0")
    (path,) = list_snapshot_paths(disk, FOLDER)
    if from_lsn_0:
        meta = read_meta(disk, path)
        assert meta.point is not None
        write_meta(disk, path, replace(meta, point=replace(meta.point, lsns=(Lsn(0), Lsn(0)))))
    machine.open()
    later = [machine.commit((0, b"a", b"%d" % number)) for number in range(4)]
    machine.journal.close()
    return machine, open_snapshot(disk, path), later


@pytest.mark.parametrize("from_lsn_0", [True, False])
def test_a_history_that_begins_with_a_snapshot_goes_back_no_further(from_lsn_0: bool) -> None:
    machine, base, later = based(from_lsn_0=from_lsn_0)
    disk = machine.disk
    assert (machine.segments() == [0]) == from_lsn_0
    before = files(disk)
    with pytest.raises(NoWayBack):
        rewind(disk, FOLDER, Ts(base.point.ts - 1), 1)
    assert files(disk) == before
    rewound = rewind(disk, FOLDER, base.point.ts, 1)
    assert (rewound.records, rewound.ends_ts, rewound.last_ts) == (4, base.point.ts, later[-1])
    assert machine.segments() == []
    machine.open(leads=False)
    assert machine.state == {(0, 0, b"a"): b"2", (1, 0, b"b"): b"2"}
    assert [epoch.id for epoch in machine.journal.epochs] == [1]
    assert machine.journal.writer.next_lsns == base.point.lsns
    if not from_lsn_0:
        with pytest.raises(TooOld):
            machine.read(base.point.ts - 1)


def test_a_journal_from_lsn_0_of_which_something_was_erased_has_no_beginning() -> None:
    """The snapshot that it began with was dropped since."""
    machine, base, later = based(from_lsn_0=True)
    remove_snapshot(machine.disk, base.path)
    erased_file = TsFile.open(machine.disk, FOLDER, ERASED)
    erased_file.store(base.point.ts)
    erased_file.close()
    for since in (Ts(base.point.ts - 1), later[1]):
        with pytest.raises(NoWayBack, match="no whole snapshot"):
            rewind(machine.disk, FOLDER, since, 0)  # no epoch is known any more


@pytest.mark.parametrize("where", ["journal", "both snapshots"])
def test_damage_on_the_way_back_is_found_before_anything_changes(where: str) -> None:
    past = Past(frames_per_segment=1, retention=RetentionLimits(bytes_max=0, snapshots_kept=2))
    for number in range(80):
        past.commit((number % 2, b"k%d" % (number % 3), bytes(200)))
        if number in (40, 70):
            past.snapshot()
            past.erase()
    past.machine.journal.close()
    disk, since = past.machine.disk, past.transactions()[60].ts
    older, newer = list_snapshot_paths(disk, FOLDER)
    if where == "journal":
        segment = max(each for each in past.machine.segments() if each < 30)
        disk.flip_bit(past.machine.path(0, segment), 8 * 300)
    else:
        disk.flip_bit(f"{older}/shard-1/journal-{0:016x}.dj0", 8 * 100)
    before = files(disk)
    with pytest.raises(NoWayBack):
        rewind(disk, FOLDER, since, 1)
    assert files(disk) == before
    machine = past.on(disk)
    machine.open()
    assert machine.state == past.state(len(past.steps)), "a start needs none of it"
    assert newer == machine.journal.newest_snapshot.path  # type: ignore[union-attr]


def test_damage_on_the_way_back_that_no_mark_speaks_of_is_found_too() -> None:
    """Nothing was fsynced but for the snapshots: to a scan that comes from before, this is a torn tail."""
    past = Past(shards=1, policy=FsyncPolicy.NEVER)
    for number in range(40):
        past.append((0, b"k%d" % (number % 3), bytes(100)))
        past.write(syncs=False)
        if number in (10, 39):
            past.snapshot()
    past.machine.disk.kill()
    disk = past.machine.disk
    disk.flip_bit(past.machine.path(0, past.machine.segments()[1]), 8 * 1500)
    before = files(disk)
    with pytest.raises(NoWayBack, match="not whole"):
        rewind(disk, FOLDER, past.transactions()[35].ts, 1)
    assert files(disk) == before
    machine = past.on(disk)
    machine.open()
    assert machine.state == past.state(len(past.steps))


def test_a_clock_that_is_damaged_is_refused_before_anything_changes() -> None:
    past = written(count=20)
    past.machine.journal.close()
    disk = past.machine.disk
    disk.write_file(f"{FOLDER}/{CLOCK}", b"?" * 1024)
    before = files(disk)
    with pytest.raises(Corruption):
        rewind(disk, FOLDER, past.transactions()[9].ts, 1)
    assert files(disk) == before


def test_rot_is_refused_as_a_start_refuses_it() -> None:
    past = written()
    past.machine.journal.close()
    disk = past.machine.disk
    disk.flip_bit(past.machine.path(0, past.machine.segments()[-1]), 8 * 60)
    before = files(disk)
    with pytest.raises(Corruption, match="was fsynced"):
        rewind(disk, FOLDER, past.transactions()[3].ts, 1)
    assert files(disk) == before


# --- what else is in the directory ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shards", [1, 2])
def test_a_torn_tail_goes_where_a_start_puts_it(shards: int) -> None:
    past = written(shards=shards)
    steps, cycles = len(past.steps), len(past.cycles)
    torn = past.append(*[(shard, b"torn", bytes(300)) for shard in range(shards)])
    past.write(syncs=False)
    past.machine.disk.crash("keep_all")
    disk = past.machine.disk
    path = past.machine.path(0, past.machine.segments()[-1])
    disk.write_file(path, disk.read_file(path)[:-20])
    del past.steps[steps:], past.cycles[cycles:]
    since = past.transactions()[9].ts
    rewound = rewind(disk, FOLDER, since, 1)
    assert rewound.last_ts < torn
    assert list_cut_tails(disk, FOLDER) == [1]
    check_rewound(past, disk, since, 1, rewound)


def test_a_file_of_holders_is_left_alone() -> None:
    """It is of an earlier version, and for whoever leads: holders are records, and go back with the others."""
    past = written(count=20)
    past.machine.journal.close()
    write_holders(past.machine.disk, FOLDER, Holder("ahead", past.transactions()[15].ts, 1))
    before = past.machine.disk.read_file(f"{FOLDER}/{HOLDERS}")
    rewind(past.machine.disk, FOLDER, past.transactions()[9].ts, 1)
    assert past.machine.disk.read_file(f"{FOLDER}/{HOLDERS}") == before


@pytest.mark.parametrize("is_clean", [True, False])
def test_the_bound_of_the_clock_stays_and_the_stop_is_no_clean_one_any_more(is_clean: bool) -> None:
    past = written(count=20)
    past.machine.journal.close() if is_clean else past.machine.disk.kill()
    before = read_stored_ts(past.machine.disk, FOLDER, CLOCK)
    rewind(past.machine.disk, FOLDER, past.transactions()[9].ts, 1)
    after = read_stored_ts(past.machine.disk, FOLDER, CLOCK)
    assert before is not None
    assert before.clean == is_clean
    assert after == before._replace(clean=False)


def test_what_is_set_aside_again_at_the_same_ts_gets_a_number() -> None:
    past = written(count=10)
    since = past.transactions()[5].ts
    past.machine.journal.close()
    disk = past.machine.disk
    paths = []
    for number in range(3):
        machine = past.on(disk)
        paths.append(rewind(disk, FOLDER, since, 1).path)
        machine.open(leads=False)
        machine.commit((0, b"again", b"%d" % number))
        machine.journal.close()
    assert paths == [f"{FOLDER}/diverged-{since}{number}" for number in ("", "-2", "-3")]
    assert [len(steps_of(disk, path)) for path in paths] == [4, 1, 1]


def test_it_goes_back_further_and_further() -> None:
    past = written(shards=3, count=30, snapshots=(10,))
    past.machine.journal.close()
    disk = past.machine.disk
    for index in (25, 18, 12, 3):
        since = past.transactions()[index].ts
        rewound = rewind(disk, FOLDER, since, 1)
        past.machine.disk = disk
        expected = past.expect(since, 1, past.machine.disk)
        check_aside(past, disk, since, expected, rewound)
        past.check(disk.clone(), expected)
        del past.steps[expected.steps :]
        past.cycles = [end for end in past.cycles if end <= expected.steps]
    assert len([name for name in disk.list(FOLDER) if name.startswith("diverged-")]) == 4


def test_without_space_for_the_copy_nothing_changes() -> None:
    past = written(count=30)
    past.machine.journal.close()
    disk, since = past.machine.disk, past.transactions()[5].ts
    before = files(disk)
    disk.capacity_bytes = disk.used_bytes + 1500
    with pytest.raises(DataDirectoryError, match=r"no space .* make room"):
        rewind(disk, FOLDER, since, 1)
    assert files(disk) == before
    disk.capacity_bytes = None
    check_rewound(past, disk, since, 1, rewind(disk, FOLDER, since, 1))


@pytest.mark.parametrize("operation", ["create", "write", "sync", "rename", "sync_folder", "truncate", "remove"])
def test_the_lock_is_given_back_and_no_file_stays_open_whatever_fails(operation: Operation) -> None:
    past = written(count=30, snapshots=(20,))
    past.machine.journal.close()
    since = past.transactions()[5].ts
    expected, failed = past.expect(since, 1), 0
    for after in range(1, 40):
        disk = past.machine.disk.clone(after)
        disk.fail(operation, errno.EIO, after=after, path_contains=FOLDER)
        try:
            rewind(disk, FOLDER, since, 1)
        except OSError:
            failed += 1
        assert disk.open_paths == []
        disk.clear_faults()
        rewound = rewind(disk, FOLDER, since, 1)
        check_aside(past, disk, since, expected, rewound)
        past.check(disk, expected)
        if failed < after:
            break
    assert 0 < failed < 39


def test_a_copy_that_cannot_be_read_back_is_none() -> None:
    """The disk loses what it said it had written."""
    past = written(count=30)
    past.machine.journal.close()
    since, before = past.transactions()[5].ts, files(past.machine.disk)

    class Lying(SimulatedDisk):
        def sync_folder(self, path: str) -> None:
            super().sync_folder(path)
            if path.endswith(".partial/shard-1") and self.list(path):
                self.flip_bit(f"{path}/{self.list(path)[-1]}", 8 * 50)

    disk = past.machine.disk.clone()
    disk.__class__ = Lying
    with pytest.raises(Corruption):
        rewind(disk, FOLDER, since, 1)
    kept = {path: data for path, data in files(disk).items() if ".partial/" not in path}
    assert kept == before
    disk.__class__ = SimulatedDisk
    check_rewound(past, disk, since, 1, rewind(disk, FOLDER, since, 1))


def test_what_the_last_one_did_is_no_answer_to_another_and_may_be_damaged() -> None:
    past = written(count=20)
    past.machine.journal.close()
    disk, times = past.machine.disk, [seen.ts for seen in past.transactions()]
    first = rewind(disk, FOLDER, times[12], 1)
    assert rewind(disk, FOLDER, times[12], 1) == first
    assert rewind(disk, FOLDER, Ts(times[12] + 1), 1) == Rewound("", 0, 0, Ts(0), Ts(0), times[12])
    second = rewind(disk, FOLDER, times[9], 1)
    assert (second.records == first.first_ts and second.path != first.path) or second.records
    machine = past.on(disk)
    machine.open()  # it begins an epoch, and nothing else
    machine.journal.close()
    assert rewind(disk, FOLDER, times[9], 1) == Rewound("", 0, 0, Ts(0), Ts(0), times[9])
    assert [epoch.id for epoch in machine.open(leads=False).epochs] == [1]
    machine.journal.close()
    disk.flip_bit(f"{FOLDER}/{REWOUND}", 80)
    assert rewind(disk, FOLDER, times[9], 1) == Rewound("", 0, 0, Ts(0), Ts(0), times[9])
    past.on(disk).open()
