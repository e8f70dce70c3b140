"""Servers whose every step is measured by the histories of all leaders (`replication_history`), and their machines.

each time something is written     what a machine has, and what of it survives the death of its process and a cut
                                   of its power, is noted
each time a store is opened        nothing of that is missing, unless it was set aside because it is not the history
                                   of the leader
each time something was received   it is not of a time that was closed before
each time a thread has worked      it has found no damage: nothing rots here, and a full sync can be proved
now and then, and when all is      what a server has is what was there at the place in history that it claims
quiet
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Final
from unittest.mock import patch

from tests.journal.past import show
from tests.replication.simulated_server import FOLDER, TICK_S, Machine, SimulatedServer
from tests.simulation.recovery import require
from tests.simulation.replication_history import BEGINNING, Lineage, Place, ReplicationHistory, place_of
from tidelog import limits
from tidelog.errors import Corruption, EnvironmentFault
from tidelog.feeds.feeds import Feeds
from tidelog.ids import Ts
from tidelog.journal.control import Epoch
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.journal import Settings
from tidelog.ports import NetworkAddress
from tidelog.replication.message import LinkRole, Publication
from tidelog.replication.role_file import Handover, StoredRole, read_role
from tidelog.store.expiry import remove_due
from tidelog.store.store import Store
from tidelog.store.stream_retention import StreamRetention
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import CrashStyle, SimulatedDisk
from tidelog.testing.network import SimulatedNetwork
from tidelog.testing.worker import SimulatedWorker

SYNC_S: Final = 0.003
"""How long an fsync takes that a reply waits for."""
CHECKPOINT_MS: Final = 300
NEVER_US: Final = 2**60
UNCHANGED_CHANCE: Final = 0.01
"""That a follower is looked at which has nothing new."""


class Watch:
    """What the servers of one world share: who looks at them."""

    def __init__(self, rng: Random, check_chance: float) -> None:
        self.rng = rng
        self.history = ReplicationHistory()
        self.coverage: Counter[str] = Counter()
        self.check_chance = check_chance
        """That a follower is looked at when it has got something; if it has not, hardly ever."""
        self.on_feeds_over: Callable[[WatchedServer, str], None] = lambda _server, _error: None
        """The feeds of a server are over, with an error or none."""
        self.calm_since_us = NEVER_US
        """Since when nothing goes wrong."""
        self.on_end: Callable[[WatchedMachine], None] = lambda _machine: None
        """A process ends by itself."""
        self.machines: dict[NetworkAddress, WatchedMachine] = {}


class WatchedMachine(Machine):
    """A machine, and what it must not lose."""

    def __init__(self, network: SimulatedNetwork, name: str, seed: int, settings: Settings, watch: Watch) -> None:
        super().__init__(network, name, seed, settings)
        self.watch = watch
        watch.machines[self.address] = self
        self.lineage = Lineage(())
        """On which line of history it is ..."""
        self.last_ts = 0
        """... and how far."""
        self.kept: Place = BEGINNING
        """What survives the death of the process ..."""
        self.synced: Place = BEGINNING
        """... and a power cut."""
        self._noted: tuple[Epoch, int, int] | None = None
        """The newest epoch, and how far it was, when that was noted last."""
        self.had: dict[int, int] = {}
        self.had_synced: dict[int, int] = {}
        """Epoch -> up to where it ever had it, and had it durable."""
        self.confirmed: dict[Place, bool] = {}
        """What it has confirmed as a follower to somebody who waited, and whether as durable."""
        self.epoch_begun = 0
        """The newest that it has begun itself."""
        self.loses_to: WatchedMachine | None = None
        """Whose history takes the place of what is here, since the store was closed for that."""
        self.role: tuple[LinkRole, NetworkAddress | None, Handover | None] | None = None
        """What it was when it died, and what it had handed over."""
        self.roles_told: set[tuple[LinkRole, NetworkAddress | None]] = set()
        """All that it ever said that it is."""
        self.asked: tuple[NetworkAddress, ...] = ()
        """Whom its process, if it leads, has to ask first whether they have more ..."""
        self.started_us = 0
        """... since when."""
        self.given: Place = BEGINNING
        """Where it was when it last became a follower, or one of another leader ..."""
        self.was_forced = False
        """... whether that was by a FAILOVER that need not wait ..."""
        self.last_told: tuple[LinkRole, NetworkAddress | None] | None = None
        """... and what it last said that it is, also in an earlier process."""
        self.is_forced = False
        """The FAILOVER that it was last asked for need not wait for everything to be there ..."""
        self.hands_over_in = 0
        """... and which of its processes was asked."""

    # --- its life -----------------------------------------------------------------------------------------------

    def start(self, replicaof: NetworkAddress | None = None) -> WatchedServer:
        if self.host.loop.is_dead:
            self.host.start()
        self.starts += 1
        stored = read_role(self.disk, FOLDER) or StoredRole()
        if self.role is not None:
            found = stored.role, stored.leader, stored.handed_over
            require(found == self.role, self, "was", self.role, "and is", stored)
        self.asked = tuple(each.address for each in stored.followers) if stored.role is LinkRole.LEADER else ()
        self.started_us = self.clock.monotonic_us()
        server = self.server = WatchedServer(self, replicaof)
        return server

    @property
    def watched(self) -> WatchedServer:
        assert isinstance(self.server, WatchedServer)
        return self.server

    @property
    def is_awake(self) -> bool:
        """A process runs, is not stopped, and has a store open."""
        return self.server is not None and not self.host.loop.is_held and self.server.is_open

    def _remember_role(self) -> None:
        """What it said that it is must be found when it comes back, unless it died while it was changing that."""
        self.role = None
        if self.server is not None and not self.is_halted:
            stored = self.server.replication._file.stored
            self.role = stored.role, stored.leader, stored.handed_over

    @property
    def is_halted(self) -> bool:
        """A crash that was planned has struck."""
        return self.disk._plan.is_halted

    def kill(self) -> None:
        self._remember_role()
        super().kill()

    def stop(self) -> None:
        self._remember_role()
        super().stop()

    def crash(self, style: CrashStyle | None = None) -> None:
        self._remember_role()
        super().crash(style)
        self.kept, self._noted = self.synced, None
        self.confirmed = {place: True for place, is_durable in self.confirmed.items() if is_durable}

    def get_new_disk(self, seed: int) -> None:
        """What was there is gone. Only while no process runs."""
        self.disk = SimulatedDisk(seed)
        self.lineage, self._noted = Lineage(()), None
        self.kept = self.synced = BEGINNING
        self.last_ts = self.epoch_begun = 0
        self.role = self.loses_to = self.last_told = None
        self.confirmed = {}

    def __str__(self) -> str:
        return self.host.name

    # --- what it has --------------------------------------------------------------------------------------------

    def note(self, store: Store) -> None:
        """Something may have been written or synced. Hot."""
        journal = store.journal
        epochs, writer = journal.epochs, journal.writer
        if not epochs:
            return
        written_ts, durable_ts = writer.written_ts, writer.durable_ts
        self.last_ts = writer.last_ts
        noted = epochs[-1], written_ts, durable_ts
        if noted == self._noted:
            return
        self._noted = noted
        if not self.lineage.epochs or self.lineage.epochs[-1] is not epochs[-1]:
            self.lineage = self.watch.history.lineage(epochs)
            for had, ts in ((self.had, written_ts), (self.had_synced, durable_ts)):
                for epoch, after in pairwise(epochs):
                    had[epoch.id] = max(had.get(epoch.id, 0), min(after.last_ts, ts))
        newest = epochs[-1].id
        self.had[newest] = max(self.had.get(newest, 0), written_ts)
        self.had_synced[newest] = max(self.had_synced.get(newest, 0), durable_ts)
        self.kept, self.synced = place_of(epochs, written_ts), place_of(epochs, durable_ts)

    def has(self, place: Place) -> bool:
        return self.watch.history.has(self.lineage, self.last_ts, place)

    def had_at(self, place: Place, *, is_durable: bool) -> bool:
        """Whether it ever had what happened up to a place."""
        had = self.had_synced if is_durable else self.had
        return had.get(place[0], 0) >= place[1]

    def reopened(self, store: Store) -> None:
        """A store is open: look what is missing."""
        history, old, floor = self.watch.history, self.lineage, self.kept
        self.lineage = history.lineage(store.journal.epochs)
        self.last_ts = store.journal.writer.last_ts
        loses_to, self.loses_to = self.loses_to, None
        begun = self.epoch_begun
        is_lost = not self.has(floor) or (begun != 0 and self.lineage.end_of(begun) is None)
        if is_lost:
            require(loses_to is not None, self, "had", floor, begun, "and is at", self.last_ts, "of", self.lineage)
            assert loses_to is not None
            self._look_aside(loses_to, old, floor)
        self.epoch_begun = begun if self.lineage.end_of(begun) is not None else 0
        self.confirmed = {place: durable for place, durable in self.confirmed.items() if self.has(place)}
        self.kept = self.synced = BEGINNING
        self.lineage, self._noted = Lineage(()), None  # so that all of it is noted again
        self.note(store)

    def _look_aside(self, leader: WatchedMachine, old: Lineage, floor: Place) -> None:
        """What was lost to the history of a leader is found aside."""
        watch, history = self.watch, self.watch.history
        lost = [place for place in history.transactions_between(old, 0, floor[1]) if not self.has(place)]
        require(
            not leader.has(floor) or leader.lineage.end_of(old.epochs[-1].id) is None,
            self, "has lost", floor, "which", leader, "has",
        )  # fmt: skip
        found: set[int] = set()
        for name in self.disk.list(FOLDER):
            if name.startswith("set-aside-"):
                found |= self._transactions_in(f"{FOLDER}/{name}", is_directory=True)
            elif name.startswith("diverged-") and not name.endswith(".partial"):
                found |= self._transactions_in(f"{FOLDER}/{name}", is_directory=False)
        missing = [place for place in lost if place[1] not in found]
        require(not missing, self, "has lost", missing, "of", lost, "and it is nowhere")
        watch.coverage["set_aside"] += bool(lost)

    def _transactions_in(self, folder: str, *, is_directory: bool) -> set[int]:
        """When transactions happened that are in a folder with what was set aside."""
        twin = self.disk.clone(1)
        if is_directory:
            store = Store.open(
                twin, folder, SimulatedClock(), self.settings, lambda: 1, Random(1), leads=False
            )  # what it has is checked as if it were still served
            self.watch.history.check(store, f"{self}: {folder}")
            lineage = self.watch.history.lineage(store.journal.epochs)
            return {ts for _, ts in self.watch.history.transactions_between(lineage, 0, store.journal.writer.last_ts)}
        return {record.ts for record in show(twin, folder) if record.lsn is not None}


class CountingWorker(SimulatedWorker):
    """A thread, and what it was given to do. It never meets damage, such as a full sync that cannot be proved."""

    def __init__(self, machine: WatchedMachine) -> None:
        super().__init__(machine.host.loop, machine.work_s)
        self._machine = machine
        self._coverage = machine.watch.coverage

    def submit(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        owner = getattr(work, "__self__", None)
        self._coverage[f"thread_{type(owner).__name__.strip('_').lower()}"] += 1

        def look() -> None:
            error = getattr(owner, "error", None)
            require(not isinstance(error, Corruption), self._machine, "finds damage, and nothing has rotted:", error)
            done()

        super().submit(work, look)


class WatchedServer(SimulatedServer):
    """One process, with feeds."""

    def __init__(self, machine: WatchedMachine, replicaof: NetworkAddress | None = None) -> None:
        self.watched = machine
        self.watch = machine.watch
        self.feeds: Feeds | None = None
        self._is_sync_due = False
        self._looked_at_ts = self._opened_ts = self._came_ts = 0
        self._is_told_to_lead = False
        self._followed: NetworkAddress | None = None
        """The leader from which something came last, if it is not told to lead since."""
        super().__init__(machine, replicaof)

    def _make_worker(self) -> SimulatedWorker:
        return CountingWorker(self.watched)

    # --- stores -------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        self.feeds = None
        super()._open()
        store, history = self.store, self.watch.history
        leads = self.replication.role is LinkRole.LEADER
        if history.note_epochs(store.journal, str(self.watched), leads=leads):
            self._look_at_asked(store)
        self.watched.reopened(store)
        history.check(store, f"{self.watched} opened")
        self._opened_ts = self._came_ts = store.journal.writer.last_ts
        self.feeds = Feeds(store, self._clock)
        self.feeds.checkpoint_ms = CHECKPOINT_MS

    def _load(self, prepare: Callable[[], None]) -> None:
        """Without space it ends, and is started again."""
        try:
            super()._load(prepare)
        except (OSError, EnvironmentFault) as error:
            require(self.machine.disk.capacity_bytes is not None, self.watched, "cannot load for no reason:", error)
            self.watch.on_end(self.watched)

    def reload(self, prepare: Callable[[], None], feed_error: str) -> None:
        leader = self.replication.leader
        assert leader is not None
        self.watched.loses_to = self.watch.machines[leader]
        self.feeds = None
        self.watch.on_feeds_over(self, feed_error)
        self.watch.coverage["rewind" if feed_error else "replaced"] += 1
        super().reload(prepare, feed_error)

    def begin_epoch(self, above: Ts) -> None:
        closed_ts = self.store.announced_ts
        journal = self.store.journal
        try:
            super().begin_epoch(above)
        finally:
            if not self.watched.is_halted:
                self.watch.history.note_epochs(journal, str(self.watched), leads=True)
        require(journal.epochs[-1].first_ts > closed_ts, self.watched, "leads from below", closed_ts, journal.epochs)
        if not self._is_told_to_lead:
            self._look_at_asked(self.store)
            self.watch.coverage["tails_taken"] += journal.writer.last_ts > self._opened_ts
        for place in self.watched.confirmed:
            require(
                self.watch.history.has(Lineage(tuple(journal.epochs)), journal.writer.last_ts, place),
                self.watched, "leads without", place, "which it has confirmed",
            )  # fmt: skip
        if self.is_open:
            self.watched.note(self.store)
        self.watched.epoch_begun = journal.epochs[-1].id
        self.watch.coverage["epochs"] += 1

    def _look_at_asked(self, store: Store) -> None:
        """A leader that comes back leads once all its followers have answered: then it has what they have of the epoch
        in which it died. Or if one does not answer for too long, which none does while all is well."""
        machine, journal = self.watched, store.journal
        waited_us = self._clock.monotonic_us() - machine.started_us
        if waited_us >= limits.REPLICATION_RETURN_S * 1e6 and machine.started_us < self.watch.calm_since_us:
            return
        for follower in map(self.watch.machines.__getitem__, machine.asked):
            is_its = follower.is_awake and follower.watched.replication.leader == machine.address
            if is_its and follower.lineage.epochs == tuple(journal.epochs[:-1]):
                its, ts = follower.watched.store.journal, journal.epochs[-1].last_ts
                is_kept = its.erased_ts > ts or its.writer.visible.ts <= ts  # what is erased cannot be sent
                require(is_kept, machine, "leads again at", ts, "without what", follower, "has")
        self.watch.coverage["returned"] += bool(machine.asked)

    def lead(self) -> None:
        """An operator, or a Sentinel, makes it lead: whoever has more."""
        self._is_told_to_lead = True
        self.replication.lead()

    def role_changed(self) -> None:
        super().role_changed()
        told = self.replication.role, self.replication.leader
        self.watched.roles_told.add(told)
        is_other, self.watched.last_told = told != self.watched.last_told, told
        if self.replication.role is LinkRole.FOLLOWER:
            self._is_told_to_lead = False
            if self.is_open and is_other:
                self.watched.given = place_of(self.store.journal.epochs, self.store.journal.writer.last_ts)
                self.watched.was_forced = self.watched.is_forced
        elif self._followed is not None and not self._is_told_to_lead:
            self._look_at_giver(self.watch.machines[self._followed])
        self._followed = None

    def _look_at_giver(self, giver: WatchedMachine) -> None:
        """The leader has handed over. It follows this server for good; if that was not forced, all it had is here."""
        self._is_told_to_lead = True
        told = LinkRole.FOLLOWER, self.watched.address
        require(told in giver.roles_told, giver, "hands over to", self.watched, "and may not know it afterwards")
        require(giver.was_forced or self.watched.has(giver.given), giver, "hands over too early, at", giver.given)
        self.watch.coverage["taken_over"] += 1
        self.watch.coverage["taken_over_after_a_restart"] += giver.starts > giver.hands_over_in

    # --- the loop -----------------------------------------------------------------------------------------------

    def write(self) -> None:
        self._look_at_closed()
        super().write()
        self.watched.note(self.store)
        if self.feeds is not None:
            self.feeds.advance()
        if self.store.is_follower:
            self._followed = self.replication.leader
            self._look_at_follower()
        if self.machine.settings.policy is FsyncPolicy.ALWAYS and not self._is_sync_due:
            self._is_sync_due = True
            self.loop.call_later(SYNC_S, self._sync_soon)

    def _look_at_closed(self) -> None:
        """What came before an announcement is written before that is taken: so this came after it, and is newer."""
        journal, history = self.store.journal, self.watch.history
        after_ts, self._came_ts = self._came_ts, journal.writer.last_ts
        closed_ts = min(self.store.announced_ts, self._came_ts)
        if after_ts < closed_ts:
            late = history.transactions_between(history.lineage(journal.epochs), after_ts, closed_ts)
            require(not late, self.watched, "was told that", self.store.announced_ts, "is closed, and then got", late)

    def _look_at_follower(self) -> None:
        """Now and then what it has is compared: most of the times at which it has something new."""
        last_ts = self.store.journal.writer.last_ts
        is_new, self._looked_at_ts = last_ts != self._looked_at_ts, last_ts
        if self.watch.rng.random() < (self.watch.check_chance if is_new else UNCHANGED_CHANCE):
            self.watch.history.check(self.store, str(self.watched))

    def _sync_soon(self) -> None:
        self._is_sync_due = False
        if self.is_open:
            self.sync()

    def sync(self) -> None:
        super().sync()
        self.watched.note(self.store)
        if self.feeds is not None:
            self.feeds.advance()

    def _tick(self) -> None:
        self.loop.call_later(TICK_S, self._tick)
        if self.is_open:
            self.write_quietly()
            self.sync()
            if self._snapshot_due:
                self._snapshot_due = False
                self.save()
            if self.feeds is not None:
                self.feeds.tick()
                self.work()
        self.replication.tick()

    def work(self) -> None:
        """Let feeds read for a while."""
        if self.feeds is not None:
            self.feeds.work(self._clock.monotonic_us() + 1_000_000)

    def save(self) -> None:
        """A snapshot."""
        try:
            self.store.save()
            self.watch.coverage["snapshots"] += 1
        except (OSError, EnvironmentFault):
            require(self.machine.disk.capacity_bytes is not None, self.watched, "cannot save for no reason")
        self.watched.note(self.store)

    def cool(self) -> None:
        """Everything that may becomes cold, and node files that nobody needs go."""
        cooling = self.store.cooling
        assert cooling is not None
        for _ in cooling.look(is_pressed=True):
            pass
        while (job := cooling.take()) is not None:
            job.run()
            cooling.finish(job)
            if job.error is not None:
                require(self.machine.disk.capacity_bytes is not None, self.watched, "cannot cool for no reason")
                break
            self.watch.coverage["cooled"] += 1
        cooling.remove_unneeded()

    def deliver(self, publication: Publication) -> None:
        ts = int(publication.payload)
        last_ts = self.store.journal.writer.last_ts
        require(last_ts >= ts, self.watched, "is at", last_ts, "and delivers what was published after", ts)
        self.watch.coverage["delivered"] += 1
        super().deliver(publication)

    # --- a leader's clients -------------------------------------------------------------------------------------

    @property
    def takes_writes(self) -> bool:
        return (
            self.is_open
            and self.replication.write_refusal is None
            and not self.holds_writes
            and self.store.refusal is None
        )

    def commit_all(self, change: Callable[[Store], object]) -> bool:
        """Let a client of a leader do something in one transaction; true: it was one."""
        store = self.store
        before = place_of(store.journal.epochs, store.journal.writer.last_ts)
        try:
            change(store)
        finally:
            is_change = store.journal.writer.last_ts != before[1]
            if is_change:
                self.watch.history.commit(store, before, str(self.watched))
        if is_change:
            self.write_quietly()
        return is_change

    def look_at_holders(self, before_ts: Ts) -> None:
        """Something was erased (up to `before_ts` before): nobody needed it who counts."""
        journal = self.store.journal
        lapsed = {holder.name for holder in journal.holders.all() if holder.lapsed is not None}
        for holder in journal.holders.holding():
            require(not before_ts <= holder.ts < journal.erased_ts, self.watched, "has erased what", holder, "needs")
        for link in self.replication.followers.links:
            if link.is_online and link.holder_name not in lapsed:
                require(journal.erased_ts <= link.written.ts, self.watched, "has erased what", link.address, "needs")
                self.watch.coverage["erased_beside_a_follower"] += 1

    def look_at_holds(self) -> None:
        """No follower lets go of what it has not got: it may be erased at any moment."""
        held = {holder.name: holder.ts for holder in self.store.journal.holders.holding()}
        for link in self.replication.followers.links:
            if link.is_online and link.holder_name in held:
                ts = held[link.holder_name]
                require(ts <= link.written.ts, self.watched, "holds from", ts, "for", link.address, "at", link.written)
                self.watch.coverage["held_for_a_follower"] += 1

    def expire(self) -> None:
        """What a server does some times a second."""
        if self.takes_writes:
            self.watch.coverage["expired"] += self.commit_all(remove_due)
            retention = StreamRetention(self.store)
            with patch.object(limits, "RULED_STREAMS_AT_ONCE_MAX", 1):  # a transaction at a time
                for _ in range(retention.ruled_count):
                    self.watch.coverage["retained"] += self.commit_all(lambda _: retention.run())
