"""The audit: what it counts, what it finds, what is no damage, and that it changes nothing."""

from __future__ import annotations

import errno

import pytest

from tests.journal.earlier_holders import write_holders
from tests.journal.machine import FOLDER, FRAME_BYTES, TABLE, Machine, State
from tidelog.errors import DataDirectoryError
from tidelog.ids import Ts
from tidelog.journal.layout import CLOCK, ERASED, HOLDERS, META
from tidelog.journal.retention import Holder, RetentionLimits
from tidelog.journal.snapshot import Snapshot
from tidelog.journal.verify import VerifyReport, verify
from tidelog.testing.disk import SimulatedCrash, SimulatedDisk


def audit(machine: Machine, folder: str = FOLDER) -> VerifyReport:
    return verify(machine.disk, folder, TABLE)


def grown(**options: object) -> Machine:
    """Two shards, a few segments each, some whales, transactions over both."""
    machine = Machine(frames_per_segment=2, **options)  # type: ignore[arg-type]
    for number in range(60):
        machine.commit((number % 2, b"k%d" % number, bytes(400 if number % 10 == 0 else 100)))
        if number % 4 == 0:
            machine.commit((0, b"both", b"1"), (1, b"both", b"2"))
    return machine


def cut(disk: SimulatedDisk, path: str, count: int) -> None:
    disk.write_file(path, disk.read_file(path)[:-count])


# --- figures ----------------------------------------------------------------------------------------------------


def test_the_figures_of_a_sound_directory() -> None:
    machine = grown()
    machine.snapshot({})
    last_ts = machine.commit((0, b"last", b""))
    report = audit(machine)
    assert report.is_sound
    assert report.problems == []
    assert report.notes == []
    assert report.tail_bytes == 0
    assert report.snapshots == 1
    assert report.last_ts == last_ts
    assert report.cycle == machine.journal.writer.written.cycle
    assert report.synced_cycle == report.cycle - 1, "the newest mark cannot know of its own sync"
    for shard, figures in enumerate(report.shards):
        sizes = [len(machine.disk.read_file(machine.path(shard, segment))) for segment in machine.segments(shard)]
        assert figures.shard == shard
        assert figures.segments == len(sizes) > 2
        assert figures.bytes == sum(sizes)
        assert figures.frames == sum(-(-size // FRAME_BYTES) for size in sizes)
        assert figures.transactions == 30 + 15 + (shard == 0)
        starts = 15 if shard == 0 else 0
        assert figures.records == figures.transactions + starts
        assert figures.blobs == (6 if shard == 0 else 0)


def test_a_new_directory_is_sound() -> None:
    machine = Machine(shards=3)
    report = audit(machine)
    assert report.is_sound
    assert [figures.transactions for figures in report.shards] == [0, 0, 0]
    assert report.last_ts <= machine.journal.hlc.last
    machine.journal.close()
    assert audit(machine).is_sound


def test_it_only_reads_and_runs_beside_the_server() -> None:
    machine = grown()
    write_holders(machine.disk, FOLDER, Holder("feed", Ts(1), machine.clock.wall_us()))
    operations, open_paths = machine.disk.operations, machine.disk.open_paths
    assert audit(machine).is_sound
    assert machine.disk.operations == operations
    machine.commit((0, b"goes on", b""))
    assert audit(machine).is_sound
    assert set(open_paths) <= set(machine.disk.open_paths)


def test_progress_grows_to_the_whole() -> None:
    machine = grown()
    seen: list[tuple[int, int]] = []
    verify(machine.disk, FOLDER, TABLE, lambda done, total: seen.append((done, total)))
    assert len({total for _, total in seen}) == 1
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    done, total = seen[-1]
    assert 0.8 * total <= done <= total


@pytest.mark.parametrize("folder", ["/", f"{FOLDER}/shard-0"])
def test_what_is_no_directory_of_ours_is_said(folder: str) -> None:
    with pytest.raises(DataDirectoryError, match=r"it has no meta\.json"):
        audit(Machine(), folder)


# --- tails ------------------------------------------------------------------------------------------------------


def test_a_torn_tail_is_noted_and_no_damage() -> None:
    machine = grown()
    whole = machine.journal.writer.written
    machine.write((0, b"torn", bytes(150)))
    machine.disk.kill()
    path = machine.path(0, machine.segments()[-1])
    cut(machine.disk, path, 10)
    report = audit(machine)
    assert report.is_sound
    assert report.last_ts == whole.ts
    end = whole.ends[0]
    assert end is not None
    assert report.tail_bytes == len(machine.disk.read_file(path)) - end.at > 100
    (note,) = report.notes
    assert note.startswith(f"{report.tail_bytes} bytes follow the newest complete cycle {whole.cycle}:")
    machine.open()
    assert machine.journal.recovered.tail_bytes == report.tail_bytes
    assert audit(machine).tail_bytes == 0


def test_a_cycle_that_one_shard_lacks_is_a_tail() -> None:
    machine = grown()
    last_ts = machine.journal.writer.written_ts
    machine.write((0, b"half", b"1"), (1, b"half", b"2"))
    machine.disk.kill()
    cut(machine.disk, machine.path(1, machine.segments(1)[-1]), 1)
    report = audit(machine)
    assert report.is_sound
    assert report.last_ts == last_ts
    assert report.tail_bytes > 0


# --- damage -----------------------------------------------------------------------------------------------------


def test_rot_is_named_with_file_frame_and_position_and_does_not_end_the_audit() -> None:
    machine = grown()
    machine.journal.close()
    segments = machine.segments()
    for segment, byte in [(0, 300), (0, FRAME_BYTES + 300), (segments[2], 300)]:
        machine.disk.flip_bit(machine.path(0, segment), 8 * byte)
    report = audit(machine)
    assert not report.is_sound
    assert [(problem.path, problem.frame) for problem in report.problems] == [
        (machine.path(0, 0), 0),
        (machine.path(0, 0), 1),
        (machine.path(0, segments[2]), 0),
    ]
    assert report.problems[0].position is not None
    assert report.notes == []
    assert machine.disk.open_paths == []


@pytest.mark.parametrize("shard", [0, 1])
def test_a_flipped_bit_of_what_is_synced_is_found_wherever_it_is(shard: int) -> None:
    machine = grown()
    machine.journal.close()
    path = machine.path(shard, machine.segments(shard)[1])
    for byte in range(0, 2 * FRAME_BYTES, 61):
        machine.disk.flip_bit(path, 8 * byte + byte % 8)
        assert [problem.path for problem in audit(machine).problems][:1] == [path], byte
        machine.disk.flip_bit(path, 8 * byte + byte % 8)
    assert audit(machine).is_sound
    assert machine.disk.open_paths == []


def test_a_damaged_and_a_missing_blob_are_found() -> None:
    machine = grown()
    machine.journal.close()
    name = f"{FOLDER}/shard-0/blob-{0:016x}.bin"
    machine.disk.flip_bit(name, 5)
    assert "blob" in str(audit(machine).problems[0])
    machine.disk.remove(name)
    assert "blob" in str(audit(machine).problems[0])


def test_a_missing_segment_is_found() -> None:
    machine = grown()
    machine.journal.close()
    segments = machine.segments()
    machine.disk.remove(machine.path(0, segments[1]))
    (problem,) = audit(machine).problems
    assert problem.path == machine.path(0, segments[0]), "where the journal ends too early"


@pytest.mark.parametrize("name", [CLOCK, ERASED, HOLDERS])
def test_damaged_small_files_are_named(name: str) -> None:
    machine = grown()
    machine.journal.close()
    machine.disk.write_file(f"{FOLDER}/{name}", b"?" * 1024)
    (problem,) = audit(machine).problems
    assert problem.path == f"{FOLDER}/{name}"


# --- snapshots --------------------------------------------------------------------------------------------------

STATE: State = {(0, 0, b"a"): b"1", (1, 0, b"b"): bytes(2000), (0, 3, b"c"): bytes(200)}


def with_snapshot() -> tuple[Machine, Snapshot]:
    machine = grown()
    snapshot = machine.snapshot(STATE)
    machine.journal.close()
    return machine, snapshot


def test_a_snapshot_is_audited_by_itself() -> None:
    machine, snapshot = with_snapshot()
    report = audit(machine, snapshot.path)
    assert report.is_sound
    assert report.last_ts == snapshot.point.ts
    assert [figures.records for figures in report.shards] == [2, 1]
    assert [figures.blobs for figures in report.shards] == [0, 1]
    assert [figures.segments for figures in report.shards] == [1, 1]
    assert report.snapshots == 0
    assert report.tail_bytes == 0


@pytest.mark.parametrize("name", [f"shard-0/journal-{0:016x}.dj0", f"shard-1/blob-{0:016x}.bin"])
def test_damage_to_a_snapshot_is_found_from_inside_and_from_outside(name: str) -> None:
    machine, snapshot = with_snapshot()
    machine.disk.flip_bit(f"{snapshot.path}/{name}", 8 * 100)
    for folder in (snapshot.path, FOLDER):
        (problem,) = audit(machine, folder).problems
        assert problem.path.startswith(snapshot.path)
    assert audit(machine).snapshots == 1


def test_a_damaged_meta_of_a_kept_snapshot_is_found() -> None:
    machine, snapshot = with_snapshot()
    machine.disk.flip_bit(f"{snapshot.path}/{META}", 8 * 30)
    (problem,) = audit(machine).problems
    assert problem.path == f"{snapshot.path}/{META}"


# --- a disk that cannot read ------------------------------------------------------------------------------------


def test_an_unreadable_file_is_a_problem_with_its_path() -> None:
    machine = grown()
    machine.journal.close()
    path = machine.path(1, machine.segments(1)[1])
    machine.disk.fail("read", errno.EIO, path_contains=path, times=None)
    (problem,) = audit(machine).problems
    assert problem.path == path
    assert "the disk cannot read it (simulated EIO at position 0)" in str(problem)
    machine.disk.clear_faults()
    assert audit(machine).is_sound


def test_an_unreadable_small_file_or_snapshot_is_a_problem() -> None:
    for what in (CLOCK, "snapshots"):
        machine, _ = with_snapshot()
        machine.disk.fail("read", errno.EIO, path_contains=what, times=None)
        assert len(audit(machine).problems) == 1


# --- erasing ----------------------------------------------------------------------------------------------------


def erasing(seed: int = 0) -> Machine:
    machine = grown(seed=seed, retention=RetentionLimits(bytes_max=0, snapshots_kept=1))
    machine.snapshot({})
    return machine


def test_a_crash_between_the_unlinks_of_an_erase_is_no_damage() -> None:
    machine = erasing()
    before = machine.disk.operations
    assert len(machine.journal.erase()) == 4
    operations = machine.disk.operations - before
    half_gone = 0
    for crash_at in range(1, operations + 1):
        for is_power_cut in (False, True):
            machine = erasing(seed=crash_at)
            machine.disk.crash_after(crash_at)
            with pytest.raises(SimulatedCrash):
                machine.journal.erase()
            if is_power_cut:
                machine.disk.crash()
            else:
                machine.disk.kill()
            first = machine.segments()[0]
            half_gone += not machine.disk.exists(f"{FOLDER}/shard-0/blob-{first:016x}.bin")
            report = audit(machine)
            assert report.problems == [], crash_at
            machine.open()
            assert audit(machine).is_sound
    assert half_gone, "a whale went before the segment that refers to it"


def test_damage_behind_what_is_being_erased_is_still_found() -> None:
    machine = erasing()
    machine.disk.fail("remove", errno.EIO, after=2)
    with pytest.raises(OSError, match="EIO"):
        machine.journal.erase()
    machine.disk.kill()
    assert audit(machine).is_sound
    path = machine.path(0, machine.segments()[-1])
    machine.disk.flip_bit(path, 8 * 60)
    assert audit(machine).problems[0].path == path
