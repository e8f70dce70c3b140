"""A simulated Sentinel: it watches, promotes one follower when the leader is gone, and points all others at it.

It sees what it can reach, and nothing more: a leader behind a partition is gone for it and goes on writing. It promotes
the follower with the highest applied ts of those that it sees and that have data. A server that an operator has made
something else is let alone for a while.
"""

from __future__ import annotations

from random import Random
from typing import Final

from tests.simulation.replication_server import Watch, WatchedMachine
from tidelog.errors import EnvironmentFault
from tidelog.replication.message import LinkRole
from tidelog.testing.loop import SimulatedLoop

PERIOD_S: Final = 0.5


class SimulatedSentinel:
    """Watches some machines."""

    def __init__(self, rng: Random, loop: SimulatedLoop, watch: Watch, machines: list[WatchedMachine]) -> None:
        self._loop = loop
        self._watch = watch
        self._machines = machines
        self.leader = machines[0]
        self._down_after_us = rng.choice((1_000_000, 2_000_000, 4_000_000))
        self._missed_since_us: int | None = None
        self._patience_us = rng.choice((0, 3_000_000, 8_000_000))
        """How long a leader that has handed over may follow somebody who does not lead ..."""
        self._orphaned_since_us: int | None = None
        """... and since when it does."""
        self.unseen: set[WatchedMachine] = set()
        """It cannot reach these."""
        self.let_alone: dict[WatchedMachine, int] = {}
        """Machines that an operator has made something of, and until when that stays."""

    def begin(self) -> None:
        self._loop.call_later(PERIOD_S, self._look_again)

    def _look_again(self) -> None:
        self._loop.call_later(PERIOD_S, self._look_again)
        self.look()

    def sees(self, machine: WatchedMachine) -> bool:
        return machine.server is not None and not machine.host.loop.is_held and machine not in self.unseen

    def look(self) -> None:
        now_us = self._loop.clock.monotonic_us()
        self.let_alone = {machine: until for machine, until in self.let_alone.items() if until > now_us}
        if self.sees(self.leader):
            self._missed_since_us = None
            self._adopt_successor()
            self._settle_roles()
            return
        if self._missed_since_us is None:
            self._missed_since_us = now_us
        elif now_us - self._missed_since_us >= self._down_after_us:
            self._fail_over()

    def _adopt_successor(self) -> None:
        """A leader that handed over says whom it follows."""
        replication = self.leader.watched.replication
        if replication.role is not LinkRole.FOLLOWER or replication.leader is None:
            self._orphaned_since_us = None
            return
        now_us = self._loop.clock.monotonic_us()
        if self._orphaned_since_us is None:
            self._orphaned_since_us = now_us
        successor = self._watch.machines[replication.leader]
        if self.sees(successor) and successor.watched.replication.role is LinkRole.LEADER:
            self.leader = successor
            self._watch.coverage["handed_over"] += 1
        elif self.leader not in self.let_alone and now_us - self._orphaned_since_us >= self._patience_us:
            self.make_leader(self.leader)  # who should have led does not

    def _settle_roles(self) -> None:
        leader = self.leader.watched.replication
        if leader.role is not LinkRole.LEADER:
            return
        if leader.facts().is_deposed and self.leader not in self.let_alone:
            self.make_leader(self.leader)
        for machine in self._machines:
            if machine is self.leader or not self.sees(machine) or machine in self.let_alone:
                continue
            replication = machine.watched.replication
            if (replication.role, replication.leader) != (LinkRole.FOLLOWER, self.leader.address):
                self.make_follower(machine, self.leader)

    def _fail_over(self) -> None:
        seen = [machine for machine in self._machines if machine is not self.leader and self.sees(machine)]
        candidates = [machine for machine in seen if self.may_lead(machine)]
        if not candidates:
            return
        best = max(candidates, key=lambda machine: machine.watched.store.journal.writer.last_ts)
        if self.make_leader(best):
            self._watch.coverage["failovers"] += 1
            self.leader = best
            self._missed_since_us = None
            self._settle_roles()

    def may_lead(self, machine: WatchedMachine) -> bool:
        facts = machine.watched.replication.facts()
        return facts.role is LinkRole.FOLLOWER and not facts.is_empty

    def make_leader(self, machine: WatchedMachine) -> bool:
        try:
            machine.watched.lead()
        except (OSError, EnvironmentFault):
            self._watch.coverage["lead_failed"] += 1
            return False
        return True

    def make_follower(self, machine: WatchedMachine, leader: WatchedMachine) -> None:
        try:
            machine.watched.replication.follow(leader.address)
        except (OSError, EnvironmentFault):
            self._watch.coverage["follow_failed"] += 1
