"""Quiet points of a world of replication: nothing goes wrong any more, and within a time all are equal, and stay so.

every server          has the leader's keys, streams, groups, producers, functions and holds, its epochs and lsns,
                      and is connected; also the last one of a chain
every feed            has told its client what the server has
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tests.simulation.recovery import require
from tests.simulation.replication_server import NEVER_US, WatchedMachine
from tidelog.testing.network import Route

if TYPE_CHECKING:
    from tests.simulation.replication_world import ReplicationWorld

SETTLE_S: Final = 300.0
"""Within so much time after everything is well, all are equal. There are machines whose threads take a second for each
long payload, and a tail that is taken back may have hundreds of them."""


class QuietPoint:
    """One of a world."""

    def __init__(self, world: ReplicationWorld) -> None:
        self._world = world
        self._machines = world.machines
        self._sentinel = world.sentinel
        self._chained: dict[WatchedMachine, WatchedMachine] = {}
        """Who follows somebody else than the leader, and whom."""

    def reach(self) -> None:
        """Let all become equal, and look whether they are."""
        world = self._world
        self._mend()
        self._until(self._is_level)
        self._transact()
        self._compare_all()
        if len(self._machines) > 2 and world.rng.random() < 0.3:
            self._chain()
        for client in world.clients:
            client.look_at_end()
        self._until(self._has_feeds)
        for client in world.clients:
            client.look_when_quiet()
        self._sentinel.let_alone.clear()
        world.watch.calm_since_us = NEVER_US
        world.coverage["quiet"] += 1

    def _mend(self) -> None:
        """Nothing goes wrong any more."""
        world = self._world
        world.network.loss = 0.0
        world.network.route = Route()
        world.heal()
        for machine in self._machines:
            machine.host.reads_bytes_per_s = None
            machine.disk.capacity_bytes = None
            machine.disk._plan.resume()
            if machine.server is not None and machine.host.loop.is_held:
                machine.host.go_on()
        self._sentinel.let_alone.clear()
        world.watch.calm_since_us = world.loop.clock.monotonic_us()
        world.let_pass(0.5)
        for machine in self._machines:
            machine.disk._plan.resume()
            world.start(machine)
            machine.disk._plan.resume()

    def _transact(self) -> None:
        """Something more happens, and reaches all."""
        leader = self._sentinel.leader.watched
        self._world.guard(lambda: self._world.transact(leader))
        self._until(self._is_level)

    def _chain(self) -> None:
        """The same once more, with one that follows another follower."""
        last, middle = self._world.rng.sample([each for each in self._machines if each is not self._sentinel.leader], 2)
        self._chained[last] = middle
        self._sentinel.let_alone[last] = NEVER_US
        self._world.guard(lambda: self._sentinel.make_follower(last, middle))
        self._until(self._is_level)
        self._transact()
        self._compare_all()
        self._world.coverage["quiet_chains"] += 1

    def _until(self, is_reached: Callable[[], bool]) -> None:
        clock = self._world.loop.clock
        end_us = clock.monotonic_us() + round(SETTLE_S * 1e6)
        while not is_reached():
            require(clock.monotonic_us() < end_us, is_reached.__name__, "is never so:", self._describe())
            self._world.let_pass(0.2)

    def _is_level(self) -> bool:
        leader = self._sentinel.leader
        if not leader.is_awake or not leader.watched.takes_writes:
            return False
        journal = leader.watched.store.journal
        last_ts = journal.writer.last_ts
        for machine in self._machines:
            if machine is leader:
                continue
            if not machine.is_awake or machine.watched.store.journal.epochs != journal.epochs:
                return False
            facts, above = machine.watched.replication.facts(), self._chained.get(machine, leader)
            if (facts.leader, facts.link_state) != (above.address, "connected") or facts.applied_ts != last_ts:
                return False
        return True

    def _has_feeds(self) -> bool:
        self._world.connect()
        return all(client.is_connected and client.is_level() for client in self._world.clients)

    def _compare_all(self) -> None:
        """By what all of them claim, they are at one place; and each has what was there at that place."""
        journal = self._sentinel.leader.watched.store.journal
        for machine in self._machines:
            store = machine.watched.store
            self._world.watch.history.check(store, str(machine), in_all_slots=True)
            require(store.journal.writer.last_ts == journal.writer.last_ts, machine, "is elsewhere than the leader")
            require(store.journal.epochs == journal.epochs, machine, "has epochs", store.journal.epochs)
            require(store.journal.writer.next_lsns == journal.writer.next_lsns, machine, "has other lsns")
            require(store.journal.meta.database_id == journal.meta.database_id, machine, "has another id")

    def _describe(self) -> str:
        found = []
        for machine in self._machines:
            if machine.server is None or not machine.server.is_open:
                found.append(f"{machine} is {'down' if machine.server is None else 'loading'}")
                continue
            facts = machine.watched.replication.facts()
            found.append(
                f"{machine} {facts.role.name} of {facts.leader} {facts.link_state} at {facts.applied_ts} "
                f"({facts.link_error}), refuses {machine.watched.replication.write_refusal}, "
                f"{machine.watched.store.refusal}"
            )
        feeds = [f"feed {client.number} at {client.server and client.server.watched}" for client in self._world.clients]
        return f"leader {self._sentinel.leader}; " + "; ".join(found + feeds)
