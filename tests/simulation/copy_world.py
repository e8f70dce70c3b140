"""A world of shipping, with servers that follow the copy.

To all that happens in `shipping_world` come followers, which live on the same object store: they are killed, lose their
power or their disk, their store fails and lists late, and they are looked at after every step.

What must hold, whatever happens:

- what a follower serves is what some server held after the same transaction: a prefix of one history, always whole;
- what a follower had beyond the history that goes on is set aside, and never just gone;
- a feed of it is never told of something at or below its checkpoint;
- once nothing fails any more, each follower has exactly what the newest manifest has, and its feed knows that;
- one that is promoted then is another database: what it has stays, and nobody ships over the original.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import Any, Final

from tests.replication.simulated_server import FOLDER
from tests.simulation.copy_follower import CopyFollower, draw_fate
from tests.simulation.recovery import require
from tests.simulation.shipping_server import ShippingServer, state
from tests.simulation.shipping_world import STEPS, ShippingWorld, shipping_limits
from tidelog.ids import Ts
from tidelog.journal.layout import read_meta
from tidelog.replication.message import LinkRole
from tidelog.testing.disk import SimulatedDisk
from tidelog.testing.loop import SimulatedLoop
from tidelog.testing.network import SimulatedNetwork
from tidelog.testing.object_store import SimulatedObjectStore

QUIET_STEPS_MAX: Final = 600


class CopyWorld(ShippingWorld):
    """One run."""

    def __init__(self, seed: int, coverage: Counter[str] | None = None) -> None:
        super().__init__(seed, coverage)
        self.loop = SimulatedLoop(self.clock)
        network = SimulatedNetwork(self.loop, seed)
        self.followers: list[CopyFollower] = []
        self._their_clients: list[SimulatedObjectStore] = []
        for name in ("f", "g")[: self.rng.choice((1, 1, 2))]:
            client = self.bucket.client(name)
            client.faults.read = client.faults.list = self.rng.choice((0.0, 0.0, 0.02, 0.1))
            follower = CopyFollower(network, name, self.rng.getrandbits(60), self.settings, self.sealed(client))
            follower.is_epoch_known = lambda epoch: any(each.id == epoch for each in self.leader.journal.epochs)
            self._their_clients.append(client)
            self.followers.append(follower)
        self._was: dict[str, Ts] = {}
        """How far each follower was when it was last looked at ..."""
        self._starts: dict[str, int] = {}
        """... and the how manieth process of it that was."""
        self._beaten_us = 0
        """When the leader last shipped while all is quiet."""

    def run(self) -> None:
        with shipping_limits(self.rng):
            self.leader = ShippingServer(self, SimulatedDisk(self.rng.getrandbits(60)), [])
            for _ in range(self.rng.randrange(60, 220)):
                step = self.rng.choices(*zip(*_STEPS, strict=True))[0]
                self.trace.append(step.__name__)
                step(self)
                self._look()
            self._settle()
            self._let_all_follow()
            self._promote_follower()

    # --- steps --------------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        """Time passes, and followers do what they do."""
        for client in self._their_clients:
            client.faults.clear()
        for follower in self.followers:
            if follower.server is None:
                follower.start()
        self.loop.run(self.rng.choice((0.05, 0.5, 0.5, 3.0, 3.0, 15.0, 70.0)))

    def _end_follower(self) -> None:
        follower = self.rng.choice(self.followers)
        if follower.server is not None:
            fate = draw_fate(self.rng, follower, loses_disk=self.rng.random() < 0.15)
            self.coverage[f"follower_{fate}"] += 1

    def _save_follower(self) -> None:
        for follower in self.followers:
            if follower.server is not None and follower.following.has_data:
                follower.following.store.save()

    # --- checks -------------------------------------------------------------------------------------------------

    def _is_history(self, ts: Ts, held: Any) -> bool:
        """Whether some server held this after a transaction."""
        if ts == 0:
            return bool(held == {})
        for branch in (*self._histories.values(), self.leader.branch, *(each.branch for each in self.former)):
            at = bisect_left(branch, ts, key=lambda each: each[0])
            if at < len(branch) and branch[at][0] == ts and bool(branch[at][1] == held):
                return True
        return False

    def _look(self) -> None:
        for follower in self.followers:
            if follower.server is None or not follower.following.has_data:
                continue
            ts, held = follower.following.held()
            require(self._is_history(ts, held), follower.host.name, "serves what never was, at", ts)
            before_ts = self._was.get(follower.host.name, Ts(0))
            if ts < before_ts:
                self.coverage["went_back"] += 1
                is_lost = follower.starts != self._starts.get(follower.host.name)
                aside = follower.set_aside()
                require(is_lost or bool(aside), follower.host.name, "went back to", ts, "and nothing is set aside")
            self._was[follower.host.name] = ts
            self._starts[follower.host.name] = follower.starts
            follower.client.go_on()

    def _let_all_follow(self) -> None:
        """Nothing fails any more: each follower has what the newest manifest has."""
        manifest = self.log.newest()
        assert manifest is not None
        wanted, expected = manifest.lineages[-1].ts, state(self.leader.store)
        for follower in self.followers:
            if follower.server is None:
                follower.start()

        def is_level() -> bool:
            return all(
                each.following.has_data and each.following.last_ts == wanted and each.following.is_linked()
                for each in self.followers
            )

        is_quiet = False
        for _ in range(QUIET_STEPS_MAX):
            self._beat()
            if is_quiet := is_level():
                break
        where = [(each.following.is_open, each.following.replication.facts().link_error) for each in self.followers]
        require(is_quiet, "followers do not catch up with", wanted, where)
        for _ in range(30):
            self._beat()
        for follower in self.followers:
            ts, held = follower.following.held()
            require((ts, held) == (wanted, expected), follower.host.name, "has something else than the copy")
            follower.client.look_when_quiet()
            self.coverage["diverged_feeds"] += follower.client.diverged
            self.coverage["full_syncs"] += follower.full_syncs + follower.following.replication.own_full_syncs
            self.coverage["set_aside"] += bool(follower.set_aside())
            self.coverage["followed"] += 1

    def _beat(self) -> None:
        """Half a second: the leader lives and says so, as it does in a server, and feeds are read."""
        self.loop.run(0.5)
        for each in self.followers:
            if each.following.has_data:
                each.client.go_on()
        if self.clock.monotonic_us() - self._beaten_us > 5_000_000:
            self._beaten_us = self.clock.monotonic_us()
            self._by(self.leader, self.leader.ship)

    def _promote_follower(self) -> None:
        """It becomes a database of its own, whenever it dies meanwhile."""
        follower = self.rng.choice(self.followers)
        original = self.leader.journal.meta.database_id
        before = follower.following.held()
        steps = self.rng.randrange(0, 12)
        if steps:
            follower.disk.crash_after(steps)
        from tidelog.testing.disk import SimulatedCrash

        try:
            follower.following.replication.lead()
            journal = follower.following.store.journal
            require(journal.meta.database_id != original, "it leads as the database that it has followed")
        except SimulatedCrash:
            self.coverage["died_while_promoted"] += 1
        loses_power = self.rng.random() < 0.5
        follower.end(follower.crash if loses_power else follower.kill)
        follower.start()
        server = follower.following
        leads = server.replication.role is LinkRole.LEADER
        self.coverage["promoted_follower"] += leads
        found = read_meta(follower.disk, FOLDER).database_id
        require((found != original) == leads, "leads:", leads, "and is database", found, "of", original)
        require(server.store.journal.leads == leads, "it leads without an epoch, or has one and follows")
        held = server.held()
        is_less = loses_power and held[0] < before[0] and self._is_history(*held)
        require(held == before or is_less, "a promotion has changed what is there")


_STEPS: Final = (
    *STEPS,
    (CopyWorld._follow, 40),
    (CopyWorld._end_follower, 4),
    (CopyWorld._save_follower, 3),
)
