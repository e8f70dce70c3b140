"""Recovery, first half: a search for the newest complete cycle that is ended on purpose. See test_scan for the rest."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.journal.machine import Machine
from tidelog.ids import Lsn
from tidelog.journal.cycles import CompleteCycle, IsBeyond, find_complete_cycle
from tidelog.journal.scan import ShardScan, ValidMark
from tidelog.journal.segment import FilePosition

START = FilePosition(Lsn(0), 0)


def search(machine: Machine, is_beyond: IsBeyond | None) -> CompleteCycle:
    count = machine.settings.shard_count
    scans = [ShardScan(machine.source(shard), count, START, Lsn(0)) for shard in range(count)]
    try:
        return find_complete_cycle(scans, is_beyond)
    finally:
        for scan in scans:
            scan.close()


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_a_search_ends_before_the_first_cycle_that_is_beyond(shards: int) -> None:
    machine = Machine(shards=shards)
    times = [machine.commit((number % shards, b"k", bytes(150))) for number in range(20)]
    asked: list[int] = []

    def is_beyond(marks: Sequence[ValidMark]) -> bool:
        asked.append(marks[0].mark.cycle)
        assert {found.mark.cycle for found in marks} == {asked[-1]}
        return marks[0].mark.last_ts > times[9]

    found = search(machine, is_beyond)
    assert found.last_ts == times[9]
    assert sum(found.ends) == 10
    assert asked == list(range(1, found.cycle + 2)), "in order, and no further"
    assert found.synced_cycle < found.cycle, "what follows says nothing"
    for mark, place in zip(found.marks, found.synced_places, strict=True):
        assert mark is not None
        assert place is not None
        assert place <= mark.end
    everything = search(machine, lambda _: False)
    assert everything == search(machine, None)
    assert everything.last_ts == times[-1]


@pytest.mark.parametrize("shards", [1, 2])
def test_damage_beyond_is_nobodys_business(shards: int) -> None:
    machine = Machine(shards=shards)
    times = [machine.commit((number % shards, b"k", bytes(60))) for number in range(12)]
    machine.journal.close()
    data = machine.disk.read_file(machine.path(0))
    machine.disk.flip_bit(machine.path(0), 8 * data.rindex(b"k\0\0"))
    assert search(machine, None).cycle < search(machine, None).synced_cycle
    found = search(machine, lambda marks: marks[0].mark.last_ts > times[5])
    assert found.last_ts == times[5]
    assert found.synced_cycle < found.cycle


@pytest.mark.parametrize("shards", [1, 2])
def test_the_marks_of_a_cycle_name_the_epochs_that_begin_in_it(shards: int) -> None:
    machine = Machine(shards=shards)
    machine.commit((0, b"k", bytes(2000)))
    machine.disk.kill()
    second = machine.open().epochs[-1]
    machine.commit((0, b"k", bytes(2000)))
    found: list[list[int]] = []

    def is_beyond(marks: Sequence[ValidMark]) -> bool:
        found.append([epoch.id for mark in marks for epoch in mark.epochs])
        return False

    search(machine, is_beyond)
    first = machine.journal.epochs[0].id
    assert found == [[first] * shards, [], [second.id] * shards, []]
