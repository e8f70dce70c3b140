"""Tails: what is told of them, where they are kept, and for how long."""

from __future__ import annotations

import pytest

from tests.journal.machine import FOLDER, Machine
from tidelog import limits
from tidelog.errors import DataDirectoryError
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.loader import plan_recovery
from tidelog.journal.tail import cut_tail_path, list_cut_tails
from tidelog.testing.disk import SimulatedCrash


def torn(count: int = 3, *, frames_per_segment: int = 4) -> Machine:
    """A machine that was killed, with a tail of some transactions under marks, of which the first is damaged."""
    machine = Machine(shards=1, policy=FsyncPolicy.NEVER, frames_per_segment=frames_per_segment)
    machine.write((0, b"kept", b"1"))
    for number in range(count):
        machine.write((0, b"torn%d" % number, bytes(200)))
    machine.disk.kill()
    machine.disk.flip_bit(machine.path(), 8 * _torn_at(machine))
    return machine


def _torn_at(machine: Machine) -> int:
    return machine.disk.read_file(machine.path()).index(b"torn") + 30


def test_bytes_records_and_times_are_told() -> None:
    machine = torn()
    last_ts = machine.journal.writer.written_ts
    size = len(machine.disk.read_file(machine.path()))
    machine.open()
    cut, end = machine.journal.cut_tail, machine.journal.recovered.cuts[0]
    assert cut is not None
    assert end is not None
    assert cut.path == cut_tail_path(FOLDER, 1)
    assert cut.size_bytes == size - end.at
    assert (cut.records, cut.last_ts, cut.first_ts) == (3, last_ts, last_ts - 2000)
    assert str(cut) == f"{cut.size_bytes} bytes with 3 records (from ts {cut.first_ts} to {cut.last_ts})"
    assert machine.journal.cut_tail_count == 1
    machine.journal.close()
    machine.open()
    assert machine.journal.cut_tail is None, "it is told once"
    assert machine.journal.cut_tail_count == 1


def test_a_tail_that_is_not_a_record_says_so() -> None:
    machine = Machine(shards=1)
    machine.disk.kill()
    machine.disk.write_file(machine.path(), machine.disk.read_file(machine.path()) + b"\xff" * 40)
    machine.open()
    assert str(machine.journal.cut_tail) == "40 bytes with 0 records (no whole record among them)"


def test_segments_behind_the_cut_are_moved_as_they_are() -> None:
    machine = torn(30, frames_per_segment=2)
    paths = [machine.path(0, segment) for segment in machine.segments()]
    files = {path: machine.disk.read_file(path) for path in paths}
    assert len(files) > 3
    machine.open()
    (cut,) = [machine.journal.recovered.cuts[0]]
    assert cut is not None
    assert machine.segments() == [0]
    kept = f"{cut_tail_path(FOLDER, 1)}/shard-0"
    for path in paths[1:]:
        assert machine.disk.read_file(f"{kept}/{path.rpartition('/')[2]}") == files[path]
    name = paths[0].rpartition("/")[2]
    assert machine.disk.read_file(f"{kept}/{name}.from-{cut.at}") == files[paths[0]][cut.at :]


def test_only_the_newest_are_kept_and_the_count_goes_on() -> None:
    machine = Machine(shards=1)
    for _ in range(limits.CUT_TAILS_KEPT + 3):
        machine.disk.kill()
        machine.disk.write_file(
            machine.path(0, machine.segments()[-1]),
            machine.disk.read_file(machine.path(0, machine.segments()[-1])) + b"torn",
        )
        machine.open()
    numbers = list_cut_tails(machine.disk, FOLDER)
    assert numbers == list(range(4, limits.CUT_TAILS_KEPT + 4))
    assert machine.journal.cut_tail_count == limits.CUT_TAILS_KEPT + 3


@pytest.mark.parametrize("damaged", [0, 1])
def test_a_start_that_is_cut_short_anywhere_loses_nothing_and_the_next_tells_it(damaged: int) -> None:
    """Whether the tail begins inside the first segment or with the second."""
    crash_after = 1
    while True:
        machine = torn(40, frames_per_segment=2)
        if damaged:
            machine.disk.flip_bit(machine.path(), 8 * _torn_at(machine))  # as it was
            machine.disk.flip_bit(machine.path(0, machine.segments()[damaged]), 8 * 60)
        before = {path: machine.disk.read_file(path) for path in map(machine.path, [0] * 9, machine.segments())}
        last_ts = machine.journal.writer.written_ts
        plan = plan_recovery(machine.disk, FOLDER, machine.journal.meta)
        cut = plan.cuts[0]
        assert cut is not None
        machine.disk.crash_after(crash_after)
        try:
            machine.open()
        except SimulatedCrash:
            machine.disk.kill()
            machine.disk.clear_faults()
        else:
            break
        machine.open()
        kept = f"{cut_tail_path(FOLDER, list_cut_tails(machine.disk, FOLDER)[0])}/shard-0"
        for path, data in before.items():
            name = path.rpartition("/")[2]
            start = cut.at if path == machine.path() else 0
            assert machine.disk.read_file(f"{kept}/{name}.from-{start}" if start else f"{kept}/{name}") == data[start:]
        told = machine.journal.cut_tail
        if told is not None:  # otherwise the start that was cut short had ended, but for its last steps
            assert (told.records, told.last_ts) == (plan.tail.records, last_ts)
        assert machine.journal.cut_tail_count == 1
        crash_after += 1
    assert crash_after > 20


def test_without_space_for_it_nothing_is_cut() -> None:
    machine = torn()
    before = machine.disk.read_file(machine.path())
    machine.disk.capacity_bytes = machine.disk.used_bytes + 300
    with pytest.raises(DataDirectoryError, match=r"no space in /data to set aside \d+ bytes"):
        machine.open()
    assert machine.disk.read_file(machine.path()) == before
    machine.disk.capacity_bytes = None
    machine.open()
    assert machine.journal.cut_tail is not None
