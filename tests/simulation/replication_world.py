"""A whole life of some servers on simulated machines, drawn from one seed: a leader, followers, chains, feeds, and
whatever may happen to them.

Links are slow, break, and are cut off; processes are stopped, killed, and die inside of any change of their disks; the
power fails; disks are full for a while; wall clocks jump. A Sentinel promotes followers (`replication_sentinel`), and
an operator does what operators do. All the while:

    whatever a server has, was there in one history                        `replication_history`
    nothing written, synced or confirmed is missing where it should be     `replication_server`
    feeds tell no lies, wherever their clients go                          `replication_clients`
    once everything is well, all servers become equal                      `replication_quiet`
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Final

from tests.simulation.feed_load import STREAMS
from tests.simulation.recovery import require
from tests.simulation.replication_clients import FeedClient
from tests.simulation.replication_history import Place, place_of
from tests.simulation.replication_load import TABLE, ReplicationLoad
from tests.simulation.replication_quiet import QuietPoint
from tests.simulation.replication_sentinel import SimulatedSentinel
from tests.simulation.replication_server import Watch, WatchedMachine, WatchedServer
from tests.simulation.scenario import POLICIES
from tests.simulation.store_load import DATABASES, KEYS
from tidelog import limits
from tidelog.engine.dispatch import find_command, run_command
from tidelog.errors import ClientError, EnvironmentFault
from tidelog.ids import Ts
from tidelog.journal.frame import Geometry
from tidelog.journal.journal import Settings
from tidelog.journal.retention import RetentionLimits
from tidelog.replication.follower_link import FollowerLink
from tidelog.replication.message import LinkRole
from tidelog.store.expiry import remove_due
from tidelog.store.stream_retention import StreamRetention
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import CRASH_STYLES, SimulatedCrash
from tidelog.testing.loop import SimulatedLoop
from tidelog.testing.network import Route, SimulatedNetwork

TRACE_MAX: Final = 400
WORK_S: Final = (0.0, 0.001, 0.1, 1.0)
"""How long a thread takes for what it is given."""


@contextmanager
def small_replication_limits() -> Iterator[None]:
    """Let a few hundred bytes be sent in as many pieces as megabytes are."""
    small = {
        "DATABASES": 1 + max(DATABASES),
        "NODE_ENTRIES_MAX": 3,
        "NODE_FILE_BYTES_MAX": 2500,
        "HOT_NODES_KEPT": 1,
        "COOLED_AT_ONCE_BYTES": 2000,
        "IDLE_SEAL_ENTRIES_MIN": 2,
        "RECORD_MEMBERS_MAX": 20,
        "FEED_SENT_BYTES": 400,
        "FEED_PIECE_BYTES": 100,
        "FEED_PROVED_BYTES_AT_ONCE": 1000,
        "REPLICATION_PARTS_BYTES": 300,
        "REPLICATION_LONG_BYTES": 250,
        "REPLICATION_PAYLOAD_BYTES": 400,
        "REPLICATION_STAGED_BYTES_MIN": 600,
        "REPLICATION_READ_BYTES": 1000,
        "LANDING_SYNC_BYTES": 2000,
        "LANDING_WAITING_BYTES_MAX": 3000,
        "REPLICATION_PUMP_BYTES": 3000,
        "BATCH_BYTES_FULL": 2000,
        "LINK_UNSENT_BYTES_MAX": 4000,
        "LINK_ROOM_BYTES": 1000,
    }
    usual = {name: vars(limits)[name] for name in small}
    vars(limits).update(small)
    try:
        yield
    finally:
        vars(limits).update(usual)


class ReplicationWorld:
    """One run. `run` raises `Violation` or `Broken`, or whatever a server should not have raised."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.trace: list[str] = []
        """What was done, for who looks into a failure."""
        rng = self.rng = Random(seed)
        self.loop = SimulatedLoop(SimulatedClock())
        delay_us = rng.choice((100, 100, 3000))
        self.network = SimulatedNetwork(
            self.loop,
            seed,
            route=Route(delay_us, rng.choice((100, 2000, 20_000)), rng.choice((None, None, None, 300_000.0, 5_000.0))),
            buffer_bytes=rng.choice((1000, 1000, 10_000, 256 * limits.KIB)),
        )
        self.network.loss = rng.choice((0.0, 0.0, 0.002))
        self.watch = Watch(rng, rng.choice((0.3, 1.0)))
        self.watch.on_feeds_over = self._feeds_over
        self.watch.on_end = self._end_for_want_of_space
        self._settings = self._draw_settings(seed)
        names = "abcd"[: rng.choice((2, 3, 3, 3, 4))]
        self.machines = [
            WatchedMachine(self.network, name, seed * 10 + index, self._settings, self.watch)
            for index, name in enumerate(names)
        ]
        for index, machine in enumerate(self.machines):
            machine.work_s = WORK_S[(seed + index) % len(WORK_S)]
        self.sentinel = SimulatedSentinel(rng, self.loop, self.watch, self.machines)
        self._load = ReplicationLoad(rng, rng.choice((10, 300, 2500)))
        self.clients = [FeedClient(rng, self.watch, number) for number in range(rng.randint(1, 3))]
        self._steps = _steps_of(rng)

    @property
    def coverage(self) -> Counter[str]:
        return self.watch.coverage

    def _draw_settings(self, seed: int) -> Settings:
        rng = self.rng
        frame_bytes = rng.choice((1024, 1024, 4096))
        retention = RetentionLimits(
            bytes_max=rng.choice((0, 0, 8 * frame_bytes)),
            age_max_us=rng.choice((100_000, 3_600_000_000)),
            holder_lapse_us=rng.choice((1_000_000, 3_600_000_000)),
            holder_bytes_max=rng.choice((2 * frame_bytes, 2**40)),
            snapshots_kept=rng.choice((1, 1, 2)),
        )
        shards = 1 + seed // len(POLICIES) % 3
        ring_bytes = rng.choice((0, 1500, 2**20))
        # At least two frames: one may be taken by an epoch alone, and no segment ends before its first lsn.
        geometry = Geometry(frame_bytes, rng.choice((2, 3)))
        return Settings(geometry, shards, POLICIES[seed % len(POLICIES)], ring_bytes, retention)

    # --- a run --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Live through it."""
        rng = self.rng
        self.coverage[f"policy_{self._settings.policy.value}"] += 1
        self.coverage[f"shards_{self._settings.shard_count}"] += 1
        with small_replication_limits():
            for machine in self.machines:
                self.start(machine)
            self.sentinel.begin()
            if rng.random() < 0.7:
                self._write_many()
            for _ in range(rng.choice((1, 1, 2))):
                for _ in range(rng.randint(8, 24)):
                    self._step(rng.choice(self._steps))
                self._tell("settle")
                QuietPoint(self).reach()

    def _step(self, step: Callable[[ReplicationWorld], None]) -> None:
        self._tell(step.__name__.strip("_"))
        step(self)
        self.let_pass(self.rng.choice((0.002, 0.02, 0.1, 0.3, 0.8)))
        for machine in self._awake:
            machine.watched.look_at_holds()

    def _tell(self, *words: object) -> None:
        if len(self.trace) < TRACE_MAX:
            self.trace.append(f"{self.loop.clock.monotonic_us() / 1e6:.3f} {' '.join(map(str, words))}")

    def let_pass(self, seconds: float) -> None:
        """Let time pass, with the deaths that come in it."""
        end_us = self.loop.clock.monotonic_us() + round(seconds * 1e6)
        while (left_us := end_us - self.loop.clock.monotonic_us()) > 0:
            self.guard(partial(self.loop.run, left_us / 1e6))

    def guard(self, act: Callable[[], object]) -> None:
        """Do something in the course of which a machine may die."""
        try:
            act()
        except SimulatedCrash as crash:
            for machine in self.machines:
                if machine.is_halted:
                    self._tell(machine, "dies inside of", crash)
                    self.coverage["died_inside"] += 1
                    self._die(machine, is_kill=self.rng.random() < 0.3)

    # --- machines -----------------------------------------------------------------------------------------------

    def start(self, machine: WatchedMachine) -> None:
        if machine.server is not None:
            return
        machine.disk.capacity_bytes = None
        first = self.machines[0]
        self._tell("start", machine)
        if self.rng.random() < 0.1 and self.loop.clock.monotonic_us():
            machine.disk.crash_after(self.rng.randint(1, 60))
        self.guard(lambda: machine.start(None if machine is first else first.address))
        if self.rng.random() < 0.5 and self.loop.clock.monotonic_us():
            self.connect()

    def _die(self, machine: WatchedMachine, *, is_kill: bool) -> None:
        for client in self.clients:
            if client.server is not None and client.server is machine.server:
                client.leave_dead()
        if machine.host.loop.is_held and not machine.host.loop.is_dead:
            machine.host.go_on()
        if is_kill:
            machine.kill()
        else:
            style = self.rng.choice(CRASH_STYLES)
            machine.crash(style)
            self.coverage[f"crash_{style}"] += 1
        self._tell(machine, "is killed" if is_kill else "loses power")
        self.coverage["kills" if is_kill else "crashes"] += 1
        self.loop.call_later(self.rng.choice((0.1, 0.5, 3.0, 8.0)), lambda: self.start(machine))

    def _end_for_want_of_space(self, machine: WatchedMachine) -> None:
        server = machine.server

        def end() -> None:
            if machine.server is server:
                self.coverage["ended_without_space"] += 1
                self._die(machine, is_kill=True)

        self.loop.call_soon(end)

    def _any(self, machines: list[WatchedMachine] | None = None) -> WatchedMachine:
        return self.rng.choice(self.machines if machines is None else machines)

    @property
    def _awake(self) -> list[WatchedMachine]:
        return [machine for machine in self.machines if machine.is_awake]

    @property
    def _writable(self) -> list[WatchedMachine]:
        return [machine for machine in self._awake if machine.watched.takes_writes]

    # --- steps: a leader's clients ------------------------------------------------------------------------------

    def _write(self) -> None:
        rng = self.rng
        for _ in range(rng.randint(1, 6)):
            for machine in self._writable:
                if machine is self.sentinel.leader or rng.random() < 0.6:
                    self.guard(partial(self.transact, machine.watched))
            if rng.random() < 0.3:
                self.let_pass(0.001)

    def _write_many(self) -> None:
        for _ in range(self.rng.randint(3, 8)):
            self._write()

    def transact(self, server: WatchedServer) -> None:
        now_us = server.watched.clock.wall_us()
        self.coverage["transactions"] += server.commit_all(lambda store: self._load.transact(store, now_us))
        self.coverage["with_holds"] += bool(server.store.holds.by_name)

    def _expire(self) -> None:
        for machine in self._writable:
            self.guard(machine.watched.expire)

    def _confirm(self) -> None:
        """Somebody waits until followers have confirmed what was written last."""
        rng = self.rng
        for machine in self._writable:
            server = machine.watched
            self.guard(partial(self.transact, server))
            if machine.server is not server or not server.is_open:
                continue
            journal = server.store.journal
            place = place_of(journal.epochs, journal.writer.last_ts)
            count, is_durable = rng.randint(1, 2), rng.random() < 0.4
            done = partial(self._confirmed, server, place, count, is_durable=is_durable)
            server.replication.wait(journal.writer.last_ts, count, is_durable=is_durable, done=done)

    def _confirmed(self, server: WatchedServer, place: Place, count: int, *, is_durable: bool) -> None:
        others = [machine for machine in self.machines if machine is not server.watched]
        have = [machine for machine in others if machine.had_at(place, is_durable=is_durable)]
        require(len(have) >= count, place, "is confirmed", count, "times, and", len(have), "have had it")
        for link in server.replication.followers.links:
            if link.is_online and _reached(link, is_durable=is_durable) >= place[1]:
                machine = self.watch.machines[link.address]
                require(
                    machine.had_at(place, is_durable=is_durable),
                    machine, "has confirmed", place, "and never had it", "durable" if is_durable else "",
                )  # fmt: skip
                if machine.has(place) and self.watch.history.has(machine.lineage, machine.kept[1], place):
                    machine.confirmed[place] = is_durable or machine.confirmed.get(place, False)
        self.coverage["confirmed_durable" if is_durable else "confirmed"] += 1

    def _publish(self) -> None:
        for machine in self._writable:
            server = machine.watched
            server.replication.publish(b"news", b"%d" % server.store.journal.writer.last_ts)

    def _read(self) -> None:
        """Followers answer reads, and change nothing by it."""
        for machine in self._awake:
            store = machine.watched.store
            if store.is_follower:
                before_ts = store.journal.writer.last_ts
                transaction = store.begin(self._load.database())
                for words in ([b"MGET", *KEYS], [b"RANDOMKEY"], [b"TREAD", STREAMS[0], b"0", b"9"]):
                    run_command(find_command(TABLE, words), transaction, words)
                store.commit(transaction)
                remove_due(store)
                StreamRetention(store).run()
                require(store.journal.writer.last_ts == before_ts, machine, "follows, and has made a transaction")
                self.watch.history.check(store, str(machine))

    # --- steps: snapshots ---------------------------------------------------------------------------------------

    def _save(self) -> None:
        machine = self._any() if self.rng.random() < 0.5 else self.sentinel.leader
        if machine.is_awake:
            server = machine.watched
            if self.rng.random() < 0.2:
                machine.disk.crash_after(self.rng.randint(1, 20))
            self.guard(server.save)
            if machine.server is server:
                self.guard(partial(self._erase_at, server))

    def _erase(self) -> None:
        for machine in self._awake:
            self.guard(partial(self._erase_at, machine.watched))

    def _erase_at(self, server: WatchedServer) -> None:
        before_ts = server.store.journal.erased_ts
        try:
            server.commit_all(lambda store: store.journal.erase())  # a hold that is let go is a transaction
        except (OSError, EnvironmentFault):
            require(server.machine.disk.capacity_bytes is not None, "it cannot erase for no reason")
        if server.store.journal.erased_ts > before_ts:
            self.coverage["erased"] += 1
            server.look_at_holders(before_ts)

    def _cool(self) -> None:
        """On any server, for itself: what is cold does not belong to the state."""
        machine = self._any()
        if machine.is_awake:
            if self.rng.random() < 0.1:
                machine.disk.crash_after(self.rng.randint(1, 12))
            self.guard(machine.watched.cool)

    # --- steps: what goes wrong ---------------------------------------------------------------------------------

    def _partition(self) -> None:
        left = [machine.host for machine in self.machines if self.rng.random() < 0.5]
        right = [machine.host for machine in self.machines if machine.host not in left]
        if self.rng.random() < 0.3:
            self.network.cut(left, right)
        else:
            self.network.partition(left, right)
        self._tell("cut off:", *(host.name for host in left))
        self.sentinel.unseen = {machine for machine in self.machines if self.rng.random() < 0.3}
        if self.rng.random() < 0.4:
            self.sentinel.unseen = {machine for machine in self.machines if machine.host in left}
        self.coverage["partitions"] += 1
        if self.rng.random() < 0.5:
            self._confirm()
            self._save()

    def heal(self) -> None:
        self.network.heal()
        self.sentinel.unseen = set()

    def _lose_link(self) -> None:
        self._lose_link_of(self._any())

    def _lose_link_of(self, machine: WatchedMachine) -> None:
        links = self.network.links_of(machine.host)
        if links:
            self.network.lose(self.rng.choice(links))

    def _kill(self) -> None:
        machine = self._any()
        if machine.server is not None:
            self._die(machine, is_kill=self.rng.random() < 0.5)

    def _kill_leader(self) -> None:
        machine = self.sentinel.leader
        if machine.server is not None:
            self._die(machine, is_kill=self.rng.random() < 0.5)

    def _plan_crash(self) -> None:
        machine = self._any()
        if machine.server is not None:
            machine.disk.crash_after(self.rng.randint(1, 80))

    def _stop(self) -> None:
        machine = self._any()
        if machine.server is not None and not machine.host.loop.is_held:
            machine.host.stop()
            self.coverage["stops"] += 1

            def go_on() -> None:
                if machine.server is not None and not machine.host.loop.is_dead:
                    machine.host.go_on()

            self.loop.call_later(self.rng.choice((0.3, 2.0, 6.0)), go_on)

    def _end_in_order(self) -> None:
        machine = self._any()
        if machine.is_awake and machine.disk.capacity_bytes is None and not machine.watched.store.refusal:
            for client in self.clients:
                if client.server is machine.server:
                    client.leave()
            self.guard(machine.stop)
            if machine.server is None:
                self.coverage["stopped"] += 1
                self.loop.call_later(self.rng.choice((0.1, 1.0, 5.0)), lambda: self.start(machine))

    def _fill_disk(self) -> None:
        machine = self._any()
        machine.disk.capacity_bytes = machine.disk.used_bytes + max(self.rng.randint(0, 3000) - 1500, 0)
        self._tell("the disk of", machine, "is full")

        def make_room() -> None:
            machine.disk.capacity_bytes = None

        self.loop.call_later(self.rng.choice((0.3, 2.0, 5.0)), make_room)
        self.coverage["disks_full"] += 1
        for _ in range(self.rng.randint(0, 4)):
            self._confirm()
        if self.rng.random() < 0.5:
            self.let_pass(0.05)
            self._lose_link_of(machine)

    def _lose_disk(self) -> None:
        """A follower gets a new disk. The first machine does not: without a role it would lead."""
        machine = self._any(self.machines[1:])
        if machine.is_awake and self.sentinel.may_lead(machine):
            self._die(machine, is_kill=False)
            machine.get_new_disk(self.rng.getrandbits(32))
            self._tell(machine, "has a new disk")
            self.coverage["new_disks"] += 1

    def _read_slowly(self) -> None:
        host = self._any([machine for machine in self.machines if machine is not self.sentinel.leader]).host
        host.reads_bytes_per_s = self.rng.choice((500.0, 5_000.0))

        def read_on() -> None:
            host.reads_bytes_per_s = None

        self.loop.call_later(self.rng.choice((0.5, 2.0, 5.0)), read_on)
        self.coverage["slow_reads"] += 1
        for _ in range(2):
            self._write_many()
            self.let_pass(0.1)

    def _black_out(self) -> None:
        """The power of all is cut."""
        for machine in self.machines:
            if machine.server is not None:
                self._die(machine, is_kill=False)
        self.coverage["black_outs"] += 1

    def _jump(self) -> None:
        self.coverage["jumps"] += 1
        clock = self._any().clock
        clock.ahead_us += self.rng.choice((-1, 1)) * self.rng.choice((1000, 500_000, 15_000_000, 3_600_000_000))

    # --- steps: an operator -------------------------------------------------------------------------------------

    def _let_alone(self, *machines: WatchedMachine) -> None:
        until_us = self.loop.clock.monotonic_us() + self.rng.choice((500_000, 3_000_000, 8_000_000))
        for machine in machines:
            self.sentinel.let_alone[machine] = until_us

    def _chain(self) -> None:
        """One follower is made to follow another."""
        followers = [machine for machine in self._awake if machine.watched.replication.role is LinkRole.FOLLOWER]
        if len(followers) >= 2:
            one, other = self.rng.sample(followers, 2)
            if other.watched.replication.leader != one.address:
                self._let_alone(one)
                self.guard(lambda: self.sentinel.make_follower(one, other))
                self.coverage["chains"] += 1

    def _promote(self) -> None:
        """A follower is made a leader while the old one lives."""
        candidates = [machine for machine in self._awake if self.sentinel.may_lead(machine)]
        if candidates:
            machine = self._any(candidates)
            self._let_alone(machine)
            self._tell("an operator promotes", machine)
            self._plan_death(machine)
            self.guard(lambda: self.sentinel.make_leader(machine))
            if self.rng.random() < 0.4:
                self.sentinel.leader = machine
            self.coverage["promoted"] += 1

    def _hand_over(self) -> None:
        machine = self.sentinel.leader
        if machine.is_awake and machine.watched.replication.role is LinkRole.LEADER:
            self._write()
            if not self.sentinel.leader.is_awake:
                return
            timeout_ms, is_forced = self.rng.choice((0, 500, 3000)), self.rng.random() < 0.3
            try:
                machine.watched.replication.fail_over(None, timeout_ms, is_forced=is_forced)
            except ClientError:
                return
            machine.is_forced, machine.hands_over_in = is_forced, machine.starts
            self.coverage["fail_overs"] += 1
            self._plan_death(machine)

    def _plan_death(self, machine: WatchedMachine) -> None:
        """Now and then it dies inside of what follows."""
        if self.rng.random() < 0.4:
            machine.disk.crash_after(self.rng.randint(1, 6))

    # --- steps: feeds -------------------------------------------------------------------------------------------

    def _feeds_over(self, server: WatchedServer, error: str) -> None:
        for client in self.clients:
            if client.server is server:
                client.told_over(error)

    def connect(self) -> None:
        for client in self.clients:
            client.look_at_end()
            client.read_on()
            servers = [machine.watched for machine in self._awake if machine.watched.feeds is not None]
            followers = [server for server in servers if server.store.is_follower]
            if not client.is_connected and servers:
                some = followers if followers and self.rng.random() < 0.5 else servers
                client.connect(self.rng.choice(some), afresh=self.rng.random() < 0.03)

    def _move(self) -> None:
        """Clients go elsewhere, by themselves."""
        for client in self.clients:
            if self.rng.random() < 0.5:
                client.look_at_end()
                client.leave()
        self.connect()


def _reached(link: FollowerLink, *, is_durable: bool) -> Ts:
    return link.durable.ts if is_durable else link.written.ts


_WEIGHTS: Final[list[tuple[Callable[[ReplicationWorld], None], int]]] = [
    (ReplicationWorld._write, 24),
    (ReplicationWorld._write_many, 2),
    (ReplicationWorld._expire, 4),
    (ReplicationWorld._confirm, 8),
    (ReplicationWorld._publish, 2),
    (ReplicationWorld._read, 3),
    (ReplicationWorld._save, 5),
    (ReplicationWorld._erase, 2),
    (ReplicationWorld.connect, 8),
    (ReplicationWorld._move, 3),
    (ReplicationWorld._cool, 12),
]
_TROUBLE: Final[list[tuple[Callable[[ReplicationWorld], None], int]]] = [
    (ReplicationWorld._partition, 5),
    (ReplicationWorld.heal, 3),
    (ReplicationWorld._lose_link, 4),
    (ReplicationWorld._kill, 4),
    (ReplicationWorld._kill_leader, 4),
    (ReplicationWorld._plan_crash, 3),
    (ReplicationWorld._stop, 3),
    (ReplicationWorld._end_in_order, 2),
    (ReplicationWorld._fill_disk, 2),
    (ReplicationWorld._jump, 3),
    (ReplicationWorld._read_slowly, 3),
    (ReplicationWorld._black_out, 1),
    (ReplicationWorld._lose_disk, 2),
    (ReplicationWorld._chain, 3),
    (ReplicationWorld._promote, 2),
    (ReplicationWorld._hand_over, 3),
]


def _steps_of(rng: Random) -> list[Callable[[ReplicationWorld], None]]:
    """What may happen in a world: not every trouble comes to all."""
    trouble = [(step, weight) for step, weight in _TROUBLE if rng.random() < 0.6]
    return [step for step, weight in [*_WEIGHTS, *trouble] for _ in range(weight)]
