"""Repair: back to the newest point that is whole; nothing is deleted, and a crash in the middle is repeated."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Final

import pytest

from tests.journal.earlier_holders import write_holders
from tests.journal.machine import FOLDER, TABLE, Machine, State
from tidelog.errors import Corruption, DataDirectoryError, DirectoryInUse
from tidelog.ids import Ts
from tidelog.journal.layout import ERASED, HOLDERS, META, SHARD_META, SNAPSHOTS
from tidelog.journal.repair import RepairReport, repair
from tidelog.journal.retention import Holder, RetentionLimits
from tidelog.journal.snapshot import list_snapshot_paths, list_snapshots, open_snapshot
from tidelog.journal.verify import verify
from tidelog.testing.disk import SimulatedCrash, SimulatedDisk

History = list[tuple[Ts, State]]
"""Every transaction with the state after it."""
BYTES_A_FRAME: Final = 1024
HEAD_TS: Final = 12
"""Where the ts begins in the head of a frame."""


@cache
def past() -> tuple[Machine, History]:
    """Two shards, two snapshots, with history before, between and behind them; closed. Tests work on clones."""
    machine = Machine(frames_per_segment=1)
    history: History = []
    state: State = {}
    write_holders(machine.disk, FOLDER, Holder("feed", Ts(1), machine.clock.wall_us()))
    for number in range(56):
        puts = [(number % 2, b"k%d" % (number % 7), b"%d" % number + bytes(300 if number % 11 == 0 else 110))]
        if number % 3 == 0:
            puts.append((1 - number % 2, b"both", b"%d" % number))
        ts = machine.commit(*puts)
        state = {**state, **{(shard, 0, key): value for shard, key, value in puts}}
        history.append((ts, state))
        if number in (32, 42):
            machine.snapshot(state)
    machine.journal.close()
    return machine, history


def state_at(ts: int) -> State:
    return next((state for each, state in reversed(past()[1]) if each <= ts), {})


def on(disk: SimulatedDisk) -> Machine:
    """A machine that has this disk; not opened yet."""
    machine = Machine(frames_per_segment=1)
    machine.disk = disk
    machine.clock.set_wall(past()[0].clock.wall_us() + 1000)
    return machine


def copy(seed: int = 0) -> SimulatedDisk:
    return past()[0].disk.clone(seed)


def files(disk: SimulatedDisk, folder: str = FOLDER) -> dict[str, bytes]:
    """Every file with its contents; the lock aside."""
    found = {}
    for name in disk.list(folder):
        path = f"{folder}/{name}"
        try:
            found[path] = disk.read_file(path)
        except IsADirectoryError:
            found.update(files(disk, path))
    return {path: data for path, data in found.items() if not path.endswith("/lock")}


# --- damage -----------------------------------------------------------------------------------------------------


def flip(disk: SimulatedDisk, path: str, byte: int) -> None:
    disk.flip_bit(path, 8 * byte + 3)


def path_holding(lsn: int, shard: int = 0) -> str:
    machine = past()[0]
    return machine.path(shard, max(segment for segment in machine.segments(shard) if segment < lsn))


def points() -> list[int]:
    """The lsns of shard 0 that follow the two snapshots."""
    return [snapshot.point.lsns[0] for snapshot in list_snapshots(past()[0].disk, FOLDER)]


def rot(disk: SimulatedDisk) -> None:
    """Behind the newest snapshot, in what was fsynced."""
    segments = past()[0].segments()
    flip(disk, past()[0].path(0, next(segment for segment in segments if segment > points()[1])), 200)


def rot_of_other_shard(disk: SimulatedDisk) -> None:
    segments = past()[0].segments(1)
    flip(disk, past()[0].path(1, segments[-1]), 70)


def early_end(disk: SimulatedDisk) -> None:
    """Right before the newest snapshot: the journal ends there, and what follows is not whole without it."""
    path = path_holding(points()[1])
    for at in range(0, len(disk.read_file(path)), BYTES_A_FRAME):
        flip(disk, path, at + 50)


def journal_gone(disk: SimulatedDisk) -> None:
    """The segment with the newest snapshot's point, and those after it, are missing on one shard."""
    first = max(segment for segment in past()[0].segments() if segment < points()[1])
    for segment in [segment for segment in past()[0].segments() if segment >= first]:
        disk.remove(past()[0].path(0, segment))
    disk.sync_folder(f"{FOLDER}/shard-0")


def newest_snapshot(disk: SimulatedDisk) -> None:
    path = list_snapshot_paths(disk, FOLDER)[-1]
    flip(disk, f"{path}/shard-0/journal-{0:016x}.dj0", 60)


def older_snapshot(disk: SimulatedDisk) -> None:
    flip(disk, f"{list_snapshot_paths(disk, FOLDER)[0]}/{META}", 30)


def all_snapshots(disk: SimulatedDisk) -> None:
    newest_snapshot(disk)
    older_snapshot(disk)


def history_before(disk: SimulatedDisk) -> None:
    """Well below the snapshots."""
    flip(disk, past()[0].path(0, past()[0].segments()[1]), 400)


def old_head(disk: SimulatedDisk) -> None:
    flip(disk, past()[0].path(0, past()[0].segments()[2]), 0)


def holders(disk: SimulatedDisk) -> None:
    flip(disk, f"{FOLDER}/{HOLDERS}", 3)


def erased(disk: SimulatedDisk) -> None:
    disk.write_file(f"{FOLDER}/{ERASED}", b"?" * 1024)


def everything(disk: SimulatedDisk) -> None:
    for damage in (rot, newest_snapshot, history_before, holders, erased):
        damage(disk)


Damage = Callable[[SimulatedDisk], None]
REFUSED: Final[list[Damage]] = [
    rot,
    rot_of_other_shard,
    early_end,
    journal_gone,
    newest_snapshot,
    all_snapshots,
    holders,
    erased,
    everything,
]
"""A start refuses these."""
TOLERATED: Final[list[Damage]] = [older_snapshot, history_before, old_head]
"""A start does not need what is damaged."""

each_damage = pytest.mark.parametrize("damage", REFUSED + TOLERATED, ids=lambda damage: damage.__name__)


def open_again(disk: SimulatedDisk, report: RepairReport) -> Machine:
    """It opens, with all that the report promised, and nothing is wrong with it."""
    machine = on(disk)
    journal = machine.open()
    assert machine.state == state_at(report.last_ts)
    assert report.last_ts > 0
    later = machine.commit((0, b"later", b"1"), (1, b"later", b"2"))
    journal.close()
    audit = verify(disk, FOLDER, TABLE)
    assert audit.problems == []
    assert audit.last_ts == later
    machine.open()
    assert machine.state == {**state_at(report.last_ts), (0, 0, b"later"): b"1", (1, 0, b"later"): b"2"}
    return machine


# --- what is done -----------------------------------------------------------------------------------------------


def test_nothing_is_done_to_a_whole_directory() -> None:
    disk = copy()
    before = files(disk)
    report = repair(disk, FOLDER)
    assert not report.was_needed
    assert report.actions == []
    assert report.set_aside is None
    assert report.last_ts == past()[1][-1][0]
    assert files(disk) == before
    assert on(disk).open().hlc.was_clean, "the stop still counts as clean"


@pytest.mark.parametrize("damage", REFUSED, ids=lambda damage: damage.__name__)
def test_a_start_refuses_what_repair_is_for_and_changes_nothing(damage: Damage) -> None:
    disk = copy()
    damage(disk)
    before = {path: data for path, data in files(disk).items() if "/shard-" in path}
    machine = on(disk)
    with pytest.raises(Corruption):
        machine.open()
    assert {path: data for path, data in files(disk).items() if path in before} == before


@each_damage
def test_after_a_repair_it_opens_and_a_second_one_finds_nothing(damage: Damage) -> None:
    disk = copy()
    damage(disk)
    report = repair(disk, FOLDER)
    assert report.was_needed
    assert report.set_aside == f"{FOLDER}/set-aside-1"
    after = files(disk)
    again = repair(disk, FOLDER)
    assert not again.was_needed
    assert again.last_ts == report.last_ts
    assert files(disk) == after
    machine = open_again(disk, report)
    assert disk.list(FOLDER).count("set-aside-2") == 0
    assert len(machine.journal.epochs) > 1, "whoever had seen more is told"


@each_damage
def test_a_dry_run_says_the_same_and_changes_nothing(damage: Damage) -> None:
    disk = copy()
    damage(disk)
    before = files(disk)
    operations = disk.operations
    dry = repair(disk, FOLDER, dry_run=True)
    assert files(disk) == before
    assert disk.operations == operations
    assert dry.set_aside is None
    real = repair(disk, FOLDER)
    assert dry.actions == real.actions
    assert dry.last_ts == real.last_ts


@each_damage
def test_nothing_is_lost(damage: Damage) -> None:
    """Every file is where it was, or aside under its path, or there up to a position and aside from there on."""
    disk = copy()
    damage(disk)
    before = files(disk)
    aside = repair(disk, FOLDER).set_aside
    after = files(disk)
    for path, data in before.items():
        inner = path[len(FOLDER) + 1 :]
        moved = after.get(f"{aside}/{inner}", after.get(f"{aside}/files/{inner}"))
        kept = after.get(path, b"")
        tail = after.get(f"{aside}/{inner}.from-{len(kept)}", b"")
        if inner in ("clock", "erased") and moved is None:
            continue
        if inner.startswith("shard-") and "sidecar" in inner:
            continue
        assert data in (moved, kept + tail), inner
    disk.crash("lose_all")
    assert {path: data for path, data in files(disk).items() if path.startswith(str(aside))} == {
        path: data for path, data in after.items() if path.startswith(str(aside))
    }


@pytest.mark.parametrize(
    ("damage", "point"),
    [(early_end, 1), (journal_gone, 1), (newest_snapshot, None), (all_snapshots, None), (old_head, None)],
    ids=lambda each: getattr(each, "__name__", str(each)),
)
def test_how_far_history_reaches_afterwards(damage: Damage, point: int | None) -> None:
    disk = copy()
    damage(disk)
    expected = past()[1][-1][0] if point is None else list_snapshots(past()[0].disk, FOLDER)[point].point.ts
    assert repair(disk, FOLDER).last_ts == expected


def test_rot_is_cut_after_the_newest_complete_cycle() -> None:
    disk = copy()
    rot(disk)
    report = repair(disk, FOLDER)
    newest = list_snapshots(disk, FOLDER)[-1].point.ts
    assert newest < report.last_ts < past()[1][-1][0]
    assert all(action.startswith("cut ") for action in report.actions)
    assert {action.partition("shard-")[2][:1] for action in report.actions} == {"0", "1"}, "every shard is cut"


def test_a_journal_that_ends_too_early_is_set_aside_whole_and_begins_again_behind_the_snapshot() -> None:
    disk = copy()
    early_end(disk)
    report = repair(disk, FOLDER)
    assert all(action.startswith("set aside shard-") for action in report.actions)
    assert all("ends before the snapshot" in action for action in report.actions)
    for shard in (0, 1):
        assert disk.list(f"{FOLDER}/shard-{shard}") == [SHARD_META]
        aside = disk.list(f"{report.set_aside}/shard-{shard}")
        assert [*aside, SHARD_META] == past()[0].disk.list(f"{FOLDER}/shard-{shard}")
    machine = open_again(disk, report)
    assert machine.segments()[0] == points()[1]


def test_a_damaged_snapshot_is_set_aside_and_an_older_one_takes_its_place() -> None:
    disk = copy()
    older, newest = list_snapshot_paths(disk, FOLDER)
    newest_snapshot(disk)
    report = repair(disk, FOLDER)
    assert list_snapshot_paths(disk, FOLDER) == [older]
    assert disk.list(f"{report.set_aside}/{SNAPSHOTS}") == [newest.rpartition("/")[2]]
    assert len(report.actions) == 1
    open_again(disk, report)


def test_a_damaged_snapshot_stays_if_nothing_takes_its_place() -> None:
    machine = Machine(shards=1, frames_per_segment=1, retention=RetentionLimits(bytes_max=0, snapshots_kept=1))
    machine.fill(40)
    snapshot = machine.snapshot({})
    assert machine.journal.erase()
    machine.journal.close()
    flip(machine.disk, f"{snapshot.path}/shard-0/journal-{0:016x}.dj0", 60)
    before = files(machine.disk)
    for dry_run in (True, False):
        with pytest.raises(Corruption, match=r"nothing takes its place .*restore a backup") as caught:
            repair(machine.disk, FOLDER, dry_run=dry_run)
        assert caught.value.path == snapshot.path
    assert files(machine.disk) == before


def test_damaged_older_snapshots_holders_and_the_erased_ts_go_and_a_start_works() -> None:
    disk = copy()
    for damage in (older_snapshot, holders, erased):
        damage(disk)
    older, newest = list_snapshot_paths(disk, FOLDER)
    report = repair(disk, FOLDER)
    assert sorted(disk.list(f"{report.set_aside}/files")) == [ERASED, HOLDERS]
    assert disk.list(f"{report.set_aside}/{SNAPSHOTS}") == [older.rpartition("/")[2]]
    assert list_snapshot_paths(disk, FOLDER) == [newest]
    assert report.last_ts == past()[1][-1][0], "no history is given up"
    machine = open_again(disk, report)
    assert not disk.exists(f"{FOLDER}/{HOLDERS}")
    machine.journal.erase()
    machine.snapshot(machine.state)
    assert machine.journal.begin_snapshot() is None


def test_the_beginning_is_known_without_the_erased_ts() -> None:
    machine = Machine(frames_per_segment=1, retention=RetentionLimits(bytes_max=0, snapshots_kept=1))
    for number in range(60):
        machine.commit((number % 2, b"k", bytes(200)))
    machine.snapshot({})
    assert machine.journal.erase()
    everything = machine.read(machine.journal.erased_ts)
    machine.journal.close()
    erased(machine.disk)
    repair(machine.disk, FOLDER)
    machine.open()
    assert machine.journal.erased_ts > 0
    assert machine.read(machine.journal.erased_ts) == [
        seen for seen in everything if seen.ts > machine.journal.erased_ts
    ]


@pytest.mark.parametrize("byte", [0, 1, 3, 5, HEAD_TS + 1, HEAD_TS + 7, 30, 500])
def test_a_damaged_head_of_covered_history_is_set_aside_with_all_before_it(byte: int) -> None:
    disk = copy()
    segments = past()[0].segments()
    flip(disk, past()[0].path(0, segments[2]), byte)
    report = repair(disk, FOLDER)
    machine = on(disk)
    assert machine.segments() == segments[3:]
    assert all("damaged history before the snapshot" in action for action in report.actions)
    machine = open_again(disk, report)
    true_ts = past()[0].source().frame_header(segments[3], 0).ts
    assert machine.journal.erased_ts == true_ts, "that of the segment that follows, which is proved"
    kept = [ts for ts, _ in past()[1] if ts > true_ts]
    assert [seen.ts for seen in machine.read(true_ts)][: len(kept)] == kept


def test_two_damaged_heads_in_a_row_are_set_aside() -> None:
    disk = copy()
    segments = past()[0].segments()
    flip(disk, past()[0].path(0, segments[1]), 0)
    flip(disk, past()[0].path(0, segments[2]), HEAD_TS + 6)
    report = repair(disk, FOLDER)
    machine = open_again(disk, report)
    assert machine.segments()[0] == segments[3]
    assert machine.journal.erased_ts == past()[0].source().frame_header(segments[3], 0).ts


# --- refusals ---------------------------------------------------------------------------------------------------


def test_a_directory_in_use_is_refused() -> None:
    machine = Machine()
    with pytest.raises(DirectoryInUse):
        repair(machine.disk, FOLDER)


def test_a_snapshot_is_refused() -> None:
    disk = copy()
    path = list_snapshot_paths(disk, FOLDER)[0]
    with pytest.raises(DataDirectoryError, match="is a snapshot: it has no tail to cut"):
        repair(disk, path)
    assert open_snapshot(disk, path).check(disk)


def test_the_lock_is_given_back_whatever_happens() -> None:
    for damage in (rot, history_before):
        disk = copy()
        damage(disk)
        disk.fail("rename" if damage is history_before else "create", 5, path_contains=FOLDER)
        with pytest.raises(OSError, match="EIO"):
            repair(disk, FOLDER)
        open_again(disk, repair(disk, FOLDER))


# --- a crash in the middle --------------------------------------------------------------------------------------


@each_damage
def test_a_repair_that_is_cut_short_anywhere_can_be_repeated(damage: Damage) -> None:
    disk = copy()
    damage(disk)
    damaged, before = disk.clone(), disk.operations
    whole = repair(disk, FOLDER)
    operations = disk.operations - before
    assert operations > 3
    for crash_at in range(1, operations + 1):
        disk = damaged.clone(crash_at)
        disk.crash_after(crash_at)
        with pytest.raises(SimulatedCrash):
            repair(disk, FOLDER)
        if crash_at % 3:
            disk.crash()
        else:
            disk.kill()
        report = repair(disk, FOLDER)
        # Without the files of one shard, what the other has behind the snapshot may count again.
        assert report.last_ts >= whole.last_ts
        machine = on(disk)
        machine.open()
        assert machine.state == state_at(report.last_ts)


@pytest.mark.parametrize("damage", [early_end, newest_snapshot, everything], ids=lambda damage: damage.__name__)
def test_a_repair_that_is_cut_short_again_and_again_ends_well(damage: Damage) -> None:
    disk = copy()
    damage(disk)
    damaged = disk
    for step in (1, 2, 3, 5, 8):
        disk = damaged.clone(step)
        for attempt in range(200):
            disk.crash_after(step + attempt)
            try:
                report = repair(disk, FOLDER)
                break
            except SimulatedCrash:
                disk.crash()
        else:
            pytest.fail("it never ends")
        disk.kill()
        open_again(disk, repair(disk, FOLDER))
        assert report.last_ts
