"""Other fates of the same moment: what if the power had failed just now, and again while it was being recovered?

A clone of a disk costs next to nothing beside the run that led to it, so one moment is tried in several ways. After the
first recovery the same disk may be cut off again, right after it, anywhere inside it, or for want of space: recovering
once more must give exactly the same. Each recovery is checked in full, and counts as one crash point.
"""

from __future__ import annotations

from collections import Counter
from random import Random

from tests.simulation.recovery import Recovered, Recovery
from tidelog.errors import EnvironmentFault
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedCrash, SimulatedDisk


class Fates:
    """Crashes clones and recovers them."""

    def __init__(self, recovery: Recovery, rng: Random, coverage: Counter[str]) -> None:
        self._recovery = recovery
        self._rng = rng
        self._coverage = coverage
        self._crash_points = 0

    def try_one(self, twin: SimulatedDisk, clock: SimulatedClock, *, was_alive: bool) -> int:
        """Let a clone crash; returns how many crash points that gave.

        `was_alive`: what was written counts, if only the process dies.
        """
        rng, coverage = self._rng, self._coverage
        self._crash_points = 0
        is_kill = rng.random() < 0.15
        if is_kill:
            twin.kill()
            coverage["fate_kill"] += 1
        else:
            coverage[f"fate_{twin.crash()}"] += 1
        other = twin.clone(rng.getrandbits(60)) if rng.random() < 0.3 else None
        before = twin.operations
        recovered = self._recovery.recover(twin, _copy(clock), was_killed=is_kill and was_alive)
        self._crash_points += 1
        if rng.random() < 0.2:
            twin.crash()
            coverage["crash_after_recovery"] += 1
            self._recover_again(twin, clock, recovered)
        if other is None:
            return self._crash_points
        if rng.random() < 0.1:
            self._fill_up(other, clock, recovered)
        else:
            self._interrupt(other, clock, recovered, is_kill, rng.randint(1, twin.operations - before))
        return self._crash_points

    def _fill_up(self, disk: SimulatedDisk, clock: SimulatedClock, recovered: Recovered) -> None:
        """Recover on a disk without space, which may fail, and then with space."""
        disk.capacity_bytes = disk.used_bytes + self._rng.randint(0, 200)
        try:
            self._recovery.open(disk, _copy(clock))
        except (OSError, EnvironmentFault):
            self._coverage["enospc_in_open"] += 1
        disk.capacity_bytes = None
        disk.kill()
        self._recover_again(disk, clock, recovered)

    def _interrupt(
        self, disk: SimulatedDisk, clock: SimulatedClock, recovered: Recovered, is_kill: bool, after: int
    ) -> None:
        """Crash in the middle of a recovery."""
        disk.crash_after(after)
        try:
            self._recovery.open(disk, _copy(clock))
        except SimulatedCrash:
            self._coverage["crash_in_recovery"] += 1
        # What a killed process left in the page cache alone may be lost by a power cut before it is recovered.
        if is_kill or self._rng.random() < 0.3:
            disk.kill()
        else:
            disk.crash()
        self._recover_again(disk, clock, recovered)

    def _recover_again(self, disk: SimulatedDisk, clock: SimulatedClock, recovered: Recovered) -> None:
        self._recovery.recover(disk, _copy(clock), was_killed=False, exactly=recovered.count)
        self._crash_points += 1


def _copy(clock: SimulatedClock) -> SimulatedClock:
    return SimulatedClock(clock.wall_us(), clock.monotonic_us())
