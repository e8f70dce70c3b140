"""A data directory that is open: made, closed, opened again, on a simulated disk and on this machine's."""

from __future__ import annotations

import os
import random
import stat
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from tests.journal.machine import FOLDER, TABLE, Machine, State, apply_to
from tidelog import limits
from tidelog.errors import DataDirectoryError, DirectoryInUse, TooOld
from tidelog.ids import Lsn, ShardId, Ts
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.frame import Geometry
from tidelog.journal.journal import Journal, Settings
from tidelog.journal.new_record import NewRecord
from tidelog.journal.operation import VAL, encode_pairs
from tidelog.ports import Clock, Disk
from tidelog.system.clock import SystemClock
from tidelog.system.disk import SystemDisk
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedCrash, SimulatedDisk

SMALL: Final = Settings(Geometry(1024, 4), 2, FsyncPolicy.ALWAYS)


class Place:
    """A disk, a clock and a folder."""

    def __init__(self, disk: Disk, clock: Clock, folder: str) -> None:
        self.disk, self.clock, self.folder = disk, clock, folder
        self.state: State = {}
        self._epoch_id = 0

    def open(self, settings: Settings = SMALL) -> Journal:
        self.state = {}
        return Journal.open(
            self.disk,
            self.folder,
            self.clock,
            settings,
            apply=lambda transaction, payload_of: apply_to(self.state, transaction, payload_of),
            new_epoch_id=self._new_epoch_id,
        )

    def _new_epoch_id(self) -> int:
        self._epoch_id += 1
        return self._epoch_id


@pytest.fixture(params=["simulated", "system"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "system":
        return Place(SystemDisk(), SystemClock(), str(tmp_path / "data"))
    return Place(SimulatedDisk(), SimulatedClock(), FOLDER)


def put(journal: Journal, key: bytes, value: bytes, *, shard: int = 0, database: int = 0) -> Ts:
    ts = journal.hlc.next()
    journal.writer.append(ts, [NewRecord(ShardId(shard), VAL, encode_pairs([(key, value)]), None, database)])
    journal.writer.write()
    journal.writer.sync()
    return ts


# --- on both disks ----------------------------------------------------------------------------------------------


def test_what_is_written_is_there_after_closing_and_opening(place: Place) -> None:
    model: State = {}
    rng = random.Random(1)
    for _ in range(4):
        journal = place.open()
        assert place.state == model
        for _ in range(25):
            key = (rng.randrange(2), rng.choice([0, 5]), b"k%d" % rng.randrange(10))
            model[key] = rng.randbytes(rng.choice([0, 10, 250, 2000]))
            put(journal, key[2], model[key], shard=key[0], database=key[1])
        journal.close()
    place.open().close()
    assert place.state == model


def test_a_clean_stop_begins_no_new_epoch_and_cuts_nothing(place: Place) -> None:
    journal = place.open()
    put(journal, b"k", b"v")
    journal.close()
    journal = place.open()
    assert journal.hlc.was_clean
    assert len(journal.epochs) == 1
    assert journal.recovered.tail_bytes == 0
    journal.close()


def test_what_was_left_without_a_clean_stop_begins_a_new_epoch(place: Place) -> None:
    journal = place.open()
    last = put(journal, b"k", b"v")
    leave(place, journal)
    journal = place.open()
    assert not journal.hlc.was_clean
    assert [(epoch.id, epoch.lsns, epoch.last_ts) for epoch in journal.epochs] == [(1, (0, 0), 0), (2, (1, 0), last)]
    assert place.state == {(0, 0, b"k"): b"v"}
    journal.close()


def leave(place: Place, journal: Journal) -> None:
    """As a killed process leaves it."""
    if isinstance(place.disk, SimulatedDisk):
        place.disk.kill()
    else:
        journal.writer.abandon()
        journal.hlc.close(clean=False)
        journal._erased.close()
        journal._lock.release()


def test_a_snapshot_and_erased_segments_are_recovered(place: Place) -> None:
    journal = place.open()
    for number in range(60):
        put(journal, b"k%d" % number, bytes(200))
    snapshot = journal.begin_snapshot()
    assert snapshot is not None
    snapshot.add(ShardId(0), VAL, encode_pairs([(b"from the snapshot", b"1")]))
    finished = journal.finish_snapshot(snapshot)
    last = put(journal, b"later", b"2", shard=1)
    journal.make_sidecars(TABLE, 100)
    reader = journal.reader_since(finished.point.ts)
    assert [transaction.ts for transaction in reader.read()] == [last]
    reader.close()
    journal.close()
    journal = place.open()
    assert place.state == {(0, 0, b"from the snapshot"): b"1", (1, 0, b"later"): b"2"}
    journal.close()


def test_a_second_opener_is_refused_and_the_first_goes_on(place: Place) -> None:
    journal = place.open()
    with pytest.raises(DirectoryInUse, match=r"in use by another process \(held by process \d+\): stop it first"):
        place.open()
    put(journal, b"k", b"v")
    journal.close()
    place.open().close()
    assert place.state == {(0, 0, b"k"): b"v"}


def test_a_folder_that_is_somebody_elses_is_refused_and_left_alone(place: Place) -> None:
    place.disk.make_folder(place.folder)
    place.disk.open(f"{place.folder}/thesis.txt", "create").close()
    with pytest.raises(DataDirectoryError, match=r"not empty \(it has 'thesis\.txt'\): name another one"):
        place.open()
    assert [name for name in place.disk.list(place.folder) if name != "lock"] == ["thesis.txt"]
    place.disk.remove(f"{place.folder}/thesis.txt")
    place.open().close()


def test_sizes_and_shards_are_those_that_the_directory_was_made_with(place: Place) -> None:
    place.open().close()
    journal = place.open(Settings(Geometry(4096, 8), 7))
    assert journal.meta.geometry == SMALL.geometry
    assert journal.meta.shard_count == 2
    journal.close()


# --- on this machine --------------------------------------------------------------------------------------------


def test_files_are_0600_and_folders_0700_whatever_the_umask(tmp_path: Path) -> None:
    place = Place(SystemDisk(), SystemClock(), str(tmp_path / "data"))
    before = os.umask(0)
    try:
        journal = place.open()
        put(journal, b"whale", bytes(3000))
        for number in range(30):
            put(journal, b"k%d" % number, bytes(200))
        journal.make_sidecars(TABLE, 100)
        snapshot = journal.begin_snapshot()
        assert snapshot is not None
        journal.finish_snapshot(snapshot)
        journal.close()
    finally:
        os.umask(before)
    found = [tmp_path / "data", *(tmp_path / "data").rglob("*")]
    assert len(found) > 15
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in found}
    assert {path: mode for path, mode in modes.items() if mode != (0o700 if path.is_dir() else 0o600)} == {}


HOLD: Final = """
import sys
from tidelog.journal.journal import Journal, Settings
from tidelog.journal.frame import Geometry
from tidelog.journal.operation import VAL, encode_pairs
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.new_record import NewRecord
from tidelog.system.clock import SystemClock
from tidelog.system.disk import SystemDisk

journal = Journal.open(
    SystemDisk(), sys.argv[1], SystemClock(), Settings(Geometry(1024, 4), 2, FsyncPolicy.EVERYSEC),
    apply=lambda _, __: None, new_epoch_id=lambda: 7,
)
for number in range(20):
    payload = encode_pairs([(b"k%d" % number, bytes(300))])
    journal.writer.append(journal.hlc.next(), [NewRecord(number % 2, VAL, payload)])
    journal.writer.write()
print("written", flush=True)
sys.stdin.readline()
"""


def test_another_process_is_named_and_what_it_wrote_survives_its_kill(tmp_path: Path) -> None:
    place = Place(SystemDisk(), SystemClock(), str(tmp_path / "data"))
    source = Path(__file__).resolve().parents[2] / "src"
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, place.folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(source)},
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"written\n"
        with pytest.raises(DirectoryInUse, match=f"held by process {process.pid}"):
            place.open()
    finally:
        process.kill()
        process.communicate()
    journal = place.open()
    assert place.state == {(number % 2, 0, b"k%d" % number): bytes(300) for number in range(20)}
    assert [epoch.id for epoch in journal.epochs] == [7, 1]
    journal.close()


# --- on a simulated disk ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_a_crash_while_the_directory_is_made_leaves_one_that_opens(seed: int) -> None:
    undisturbed = Place(SimulatedDisk(seed), SimulatedClock(), FOLDER)
    undisturbed.open()
    assert isinstance(undisturbed.disk, SimulatedDisk)
    for crash_at in range(1, undisturbed.disk.operations + 1):
        disk = SimulatedDisk(seed * 1000 + crash_at)
        place = Place(disk, SimulatedClock(), FOLDER)
        disk.crash_after(crash_at)
        with pytest.raises(SimulatedCrash):
            place.open()
        disk.crash()
        journal = place.open()
        put(journal, b"k", b"v")
        disk.crash("lose_all")
        place.open()
        assert place.state == {(0, 0, b"k"): b"v"}


def test_an_error_while_opening_leaves_nothing_open_and_nothing_locked() -> None:
    machine = Machine()
    machine.fill(20)
    machine.disk.kill()

    def fail(_: object, __: object) -> None:
        raise RuntimeError("the store does not know this record")

    with pytest.raises(RuntimeError, match="does not know"):
        Journal.open(machine.disk, FOLDER, machine.clock, machine.settings, apply=fail, new_epoch_id=lambda: 1)
    assert machine.disk.open_paths == []
    machine.open()
    assert len(machine.state) == 20


def test_closing_leaves_no_file_open() -> None:
    machine = Machine(frames_per_segment=1)
    machine.fill(30)
    machine.commit((1, b"whale", bytes(3000)))
    machine.snapshot({})
    machine.journal.make_sidecars(TABLE, 100)
    machine.journal.erase()
    machine.journal.close()
    assert machine.disk.open_paths == []


def test_no_ts_is_used_again_after_a_restart_although_the_wall_clock_stepped_back() -> None:
    machine = Machine(policy=FsyncPolicy.NEVER)
    lost = machine.write((0, b"k", b"v"))
    machine.disk.crash("lose_all")
    machine.clock.step_wall(-24 * limits.HOUR_US)
    machine.open()
    assert machine.replayed == []
    assert machine.commit((0, b"k", b"v")) > lost


@pytest.mark.parametrize("policy", FsyncPolicy)
def test_readers_begin_anywhere_under_every_policy(policy: FsyncPolicy) -> None:
    machine = Machine(policy=policy)
    written = [machine.commit((number % 2, b"k", bytes(150))) for number in range(40)]
    for index in (0, 13, 39):
        assert [seen.ts for seen in machine.read(written[index])] == written[index + 1 :]
    reader = machine.journal.reader_from((Lsn(20), Lsn(20)))
    assert list(reader.read()) == []
    reader = machine.journal.reader_from((Lsn(0), Lsn(0)))
    assert [transaction.ts for transaction in reader.read()] == written


def test_an_lsn_that_is_gone_is_too_old() -> None:
    machine = Machine(shards=1)
    machine.fill(60)
    machine.disk.remove(machine.path())
    with pytest.raises(TooOld):
        machine.journal.reader_from((Lsn(0),))


def test_many_clean_restarts_cost_a_mark_each_and_no_epoch() -> None:
    machine = Machine(shards=1)
    machine.commit((0, b"k", b"v"))
    sizes: list[int] = []
    for _ in range(20):
        machine.journal.close()
        machine.open()
        sizes.append(machine.disk.used_bytes)
    assert len(machine.journal.epochs) == 1
    steps = {after - before for before, after in pairwise(sizes[:9])}
    assert steps == {39}


ACTIONS: Final[list[Callable[[Machine], object]]] = [
    lambda machine: machine.journal.begin_snapshot(),
    lambda machine: machine.journal.erase(),
    lambda machine: machine.journal.make_sidecars(TABLE),
    lambda machine: machine.read(),
]


@pytest.mark.parametrize("action", ACTIONS)
def test_an_empty_journal_takes_every_call(action: Callable[[Machine], object]) -> None:
    machine = Machine()
    action(machine)
    machine.journal.close()
    machine.open()
    assert machine.state == {}
