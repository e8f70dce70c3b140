"""Marks alone: how the journal says that everything is synced when nothing more is written."""

from __future__ import annotations

import pytest

from tests.journal.machine import Machine
from tidelog.errors import Corruption
from tidelog.ids import Ts
from tidelog.journal.durability import FsyncPolicy


@pytest.mark.parametrize("policy", list(FsyncPolicy))
def test_marks_alone_say_what_is_synced_and_then_nothing_is_written(policy: FsyncPolicy) -> None:
    machine = Machine(shards=2, policy=policy)
    writer = machine.journal.writer
    machine.write((0, b"a", b"1"))
    written = writer.written
    writer.vouch()
    assert writer.written.cycle <= written.cycle + 1, "the epoch may not have been vouched for yet"
    writer.sync()
    synced = writer.synced_cycle
    writer.vouch()
    assert writer.written.cycle == synced + 1
    assert (writer.written.ts, writer.written.lsns) == (written.ts, written.lsns)
    for _ in range(3):
        writer.sync()
        writer.vouch()
    assert writer.written.cycle == synced + 1, "marks need no marks"
    machine.disk.kill()
    machine.disk.flip_bit(machine.path(), 8 * 60)
    with pytest.raises(Corruption, match="was fsynced"):
        machine.open()


def test_a_batch_says_what_is_synced_so_that_nothing_else_has_to() -> None:
    machine = Machine(shards=1)
    writer = machine.journal.writer
    machine.commit((0, b"a", b"1"))
    machine.write((0, b"b", b"2"))
    cycle = writer.written.cycle
    writer.vouch()
    assert writer.written.cycle == cycle
    writer.sync()
    machine.append((0, b"c", b"3"))
    writer.vouch()
    assert writer.written.cycle == cycle, "the batch that gathers will say it"


def test_readers_see_nothing_of_marks_alone() -> None:
    machine = Machine(shards=2)
    machine.commit((0, b"a", b"1"), (1, b"b", b"2"))
    reader = machine.journal.reader_since(Ts(0))
    assert len(machine.read_on(reader)) == 1
    machine.journal.writer.vouch()
    machine.journal.writer.sync()
    assert machine.read_on(reader) == []
    machine.commit((1, b"c", b"3"))
    assert [seen.puts for seen in machine.read_on(reader)] == [((1, b"c", b"3", 0),)]
    assert [len(seen.puts) for seen in machine.read()] == [2, 1]
