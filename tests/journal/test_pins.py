"""Pinned snapshots: they stay, whoever removes the others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.journal.machine import Machine
from tidelog.errors import InternalError
from tidelog.journal.pins import PinnedSnapshot, SnapshotPins, _Claim
from tidelog.journal.retention import RetentionLimits
from tidelog.journal.snapshot import list_snapshot_paths
from tidelog.testing.disk import SimulatedDisk

KEEPS_ONE = RetentionLimits(bytes_max=0, snapshots_kept=1)


def made(count: int = 1) -> Machine:
    machine = Machine(retention=KEEPS_ONE)
    for _ in range(count):
        take(machine)
    return machine


def take(machine: Machine) -> str:
    """A new snapshot; returns its path."""
    machine.fill(8)
    return machine.snapshot({(0, 0, b"k"): b"v", (1, 0, b"whale"): bytes(3000)}).path


def paths(machine: Machine) -> list[str]:
    return list_snapshot_paths(machine.disk, "/data")


def pin(machine: Machine) -> PinnedSnapshot:
    pinned = machine.journal.pin_snapshot()
    assert pinned is not None
    return pinned


def test_there_may_be_none() -> None:
    assert Machine().journal.pin_snapshot() is None


def test_its_files_are_listed_and_read() -> None:
    machine = made()
    take(machine)
    pinned = pin(machine)
    assert [name for name, _ in pinned.files] == [
        "meta.json",
        "shard-0/journal-0000000000000000.dj0",
        "shard-1/blob-0000000000000000.bin",
        "shard-1/journal-0000000000000000.dj0",
    ]
    for name, size in pinned.files:
        file = pinned.open(name)
        data = machine.disk.read_file(f"{pinned.snapshot.path}/{name}")
        assert file.read(0, size + 1) == data
        file.close()
    pinned.release()
    with pytest.raises(InternalError, match="released"):
        pinned.open("meta.json")


def test_it_stays_until_the_last_one_releases_it() -> None:
    machine = made()
    first, second = pin(machine), pin(machine)
    old = first.snapshot.path
    assert second.snapshot.path == old
    newest = take(machine)
    assert paths(machine) == [old, newest]
    first.release()
    first.release()
    machine.journal.remove_old_snapshots()
    assert paths(machine) == [old, newest]
    assert pin(machine).snapshot.path == newest
    second.release()
    machine.journal.remove_old_snapshots()
    assert paths(machine) == [newest]


def test_others_go_and_the_journal_after_it_stays() -> None:
    machine = made()
    pinned = pin(machine)
    covered = pinned.snapshot.point.lsns
    newest = [take(machine) for _ in range(3)][-1]
    assert paths(machine) == [pinned.snapshot.path, newest]
    machine.journal.erase()
    segments = machine.segments()
    assert len([segment for segment in segments if segment <= covered[0]]) >= 1
    assert machine.journal.erased_ts <= pinned.snapshot.point.ts
    pinned.release()
    machine.journal.remove_old_snapshots()
    machine.journal.erase()
    assert len(machine.segments()) < len(segments)


@pytest.mark.parametrize("interrupted", ["pin", "removal"])
def test_pinning_and_removing_may_meet_at_any_moment(interrupted: str) -> None:
    """They run on two threads. Whichever is ahead, what is pinned is whole and stays."""
    moment, outcomes = 1, set()
    while True:
        machine = made()
        [oldest] = paths(machine)
        machine.journal.retention = RetentionLimits(snapshots_kept=2)
        if interrupted == "removal":
            take(machine)
        disk, plain = Interrupted(machine.disk, moment), machine.disk
        pins = machine.journal._pins
        found: list[PinnedSnapshot] = []

        def remove(machine: Machine = machine, pins: SnapshotPins = pins, disk: SimulatedDisk = plain) -> None:
            take(machine)
            pins._disk = disk
            pins.remove_old(1)

        def keep(found: list[PinnedSnapshot] = found, machine: Machine = machine) -> None:
            found.append(pin(machine))

        pins._disk = disk  # type: ignore[assignment]
        if interrupted == "pin":
            disk.after = remove
            keep()
        else:
            disk.after = keep
            pins.remove_old(1)
        pins._disk = plain
        newest = paths(machine)[-1]
        for pinned in found:
            outcomes.add(pinned.snapshot.path == oldest)
            assert pinned.snapshot.path in (oldest, newest)
            for name, size in pinned.files:
                assert plain.read_file(f"{pinned.snapshot.path}/{name}")[size - 1 :]
            pinned.release()
        pins.remove_old(1)
        assert paths(machine) == [newest]
        assert pins._claims == {}
        if disk.left > 0:
            break
        moment += 1
    assert moment > 8
    assert outcomes == {True, False} if interrupted == "pin" else {False}


def test_one_that_is_going_is_not_given_out() -> None:
    machine = made()
    [path] = paths(machine)
    pins = machine.journal._pins
    pins._claims[path] = _Claim(is_removal=True)
    assert machine.journal.pin_snapshot() is None
    newest = take(machine)
    assert pin(machine).snapshot.path == newest


class Interrupted:
    """A disk on which something else happens after one of the steps that somebody takes."""

    def __init__(self, disk: SimulatedDisk, moment: int) -> None:
        self._disk = disk
        self.left = moment
        self.after: Callable[[], None] = lambda: None

    def __getattr__(self, name: str) -> Callable[..., object]:
        method = getattr(self._disk, name)

        def call(*arguments: object) -> object:
            result = method(*arguments)
            self.left -= 1
            if self.left == 0:
                self.after()
            return result

        return call
