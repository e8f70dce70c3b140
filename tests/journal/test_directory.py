"""The id of a directory: made once, durable, and another for each."""

from __future__ import annotations

from dataclasses import replace

from tests.journal.machine import FOLDER, Machine
from tidelog.journal import layout
from tidelog.testing.disk import SimulatedCrash


def test_an_id_is_made_with_the_directory_and_stays() -> None:
    machine = Machine()
    made = machine.journal.meta.database_id
    assert made == f"{machine.clock.wall_us():016x}{machine.journal.epochs[0].id:016x}"
    assert layout.read_meta(machine.disk, FOLDER).database_id == made
    machine.disk.crash()
    assert machine.open().meta.database_id == made
    machine.commit((0, b"a", b"1"))
    snapshot = machine.snapshot({})
    assert snapshot.meta.database_id == layout.read_meta(machine.disk, snapshot.path).database_id == made


def test_a_directory_of_an_earlier_version_gets_one_whatever_happens_then() -> None:
    crash_after = 1
    while True:
        machine = Machine(shards=1)
        machine.commit((0, b"a", b"1"))
        machine.journal.close()
        layout.write_meta(machine.disk, FOLDER, replace(machine.journal.meta, database_id=""))
        machine.clock.advance(1)
        machine.disk.crash_after(crash_after)
        try:
            machine.open()
        except SimulatedCrash:
            machine.disk.crash()
        else:
            break
        machine.disk.clear_faults()
        assert layout.read_meta(machine.disk, FOLDER).geometry == machine.settings.geometry
        found = machine.open().meta.database_id
        assert len(found) == 32
        machine.disk.crash()
        assert machine.open().meta.database_id == found
        assert machine.state == {(0, 0, b"a"): b"1"}
        crash_after += 1
    assert crash_after > 5
