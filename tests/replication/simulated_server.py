"""A server on a simulated machine: store, replication and timers, without sessions and sockets of clients.

A `Machine` has a disk, a clock of its own and an address. Processes of it (`SimulatedServer`) come and go: they are
started, killed, lose power, are stopped and continued.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

from tidelog.commands.families import command_table
from tidelog.engine.dispatch import find_command, run_command
from tidelog.errors import JournalFailed, JournalFull
from tidelog.ids import Ts
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.frame import Geometry
from tidelog.journal.journal import Settings
from tidelog.journal.replacement import finish_replacement
from tidelog.ports import LinkOwner, NetworkAddress, NetworkLink
from tidelog.replication.message import LinkRole, Publication
from tidelog.replication.options import ReplicationOptions
from tidelog.replication.replication import Replication
from tidelog.replication.role_file import RoleFile, StoredRole, draw_server_id
from tidelog.resp.encoder import ErrorReply
from tidelog.store.store import Store
from tidelog.store.type_table import TypeTable, value_types
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import CrashStyle, SimulatedDisk
from tidelog.testing.host import SimulatedHost
from tidelog.testing.network import SimulatedNetwork
from tidelog.testing.worker import SimulatedWorker

TABLE: Final = command_table()
FOLDER: Final = "data"
PORT: Final = 6390
TICK_S: Final = 0.1
LOADING_S: Final = 0.02
"""How long a reload takes."""
SMALL_FRAME: Final = Geometry(4096, 4)
IS_KNOWN: Final = TypeTable(value_types()).operations.is_known


class HostClock:
    """`ports.Clock` of one machine: its wall clock may be wrong."""

    def __init__(self, world: SimulatedClock) -> None:
        self._world = world
        self.ahead_us = 0

    def wall_us(self) -> int:
        return self._world.wall_us() + self.ahead_us

    def monotonic_us(self) -> int:
        return self._world.monotonic_us()


class Machine:
    """Where one server after the other runs."""

    def __init__(self, network: SimulatedNetwork, name: str, seed: int, settings: Settings | None = None) -> None:
        self.network = network
        self.host: SimulatedHost = network.add(name)
        self.disk = SimulatedDisk(seed)
        self.clock = HostClock(network.clock)
        self.rng = Random(seed)
        self.settings = settings or Settings(SMALL_FRAME, 1, FsyncPolicy.EVERYSEC)
        self.server: SimulatedServer | None = None
        self.on_start: Callable[[SimulatedServer], None] = lambda _server: None
        self.starts = 0
        self.work_s = 0.001
        """How long work takes that a thread of its processes does."""

    @property
    def address(self) -> NetworkAddress:
        return self.host.name, PORT

    @property
    def live(self) -> SimulatedServer:
        assert self.server is not None
        return self.server

    def start(self, replicaof: NetworkAddress | None = None) -> SimulatedServer:
        """The next process; `replicaof` counts for a new directory."""
        if self.host.loop.is_dead:
            self.host.start()
        self.starts += 1
        self.server = SimulatedServer(self, replicaof)
        self.on_start(self.server)
        return self.server

    def kill(self) -> None:
        """The process dies; what it wrote is there."""
        self.host.kill()
        self.disk.kill()
        self.server = None

    def crash(self, style: CrashStyle | None = None) -> None:
        """The power is cut: what was not synced may be gone."""
        self.host.crash()
        self.disk.crash(style)
        self.server = None

    def stop(self) -> None:
        """An orderly end."""
        self.live.stop()
        self.host.kill()
        self.disk.kill()
        self.server = None


class SimulatedServer:
    """One process: `replication.server.ReplicatedServer`."""

    def __init__(self, machine: Machine, replicaof: NetworkAddress | None = None) -> None:
        self.machine = machine
        self.loop = machine.host.loop
        self._clock = machine.clock
        self.delivered: list[Publication] = []
        self.roles: list[str | None] = []
        """What writes were refused with, whenever that changed."""
        self.feed_errors: list[str] = []
        self.is_open = False
        self.holds_writes = False
        self._snapshot_due = False
        disk = machine.disk
        disk.make_folder(FOLDER)
        if replicaof is not None and not disk.exists(f"{FOLDER}/role.json"):
            first = StoredRole(LinkRole.FOLLOWER, replicaof, server_id=draw_server_id(machine.rng))
            RoleFile(disk, FOLDER).store(first)
        self.options = ReplicationOptions(announce_host=machine.host.name)
        self.worker = self._make_worker()
        self.replication = Replication(
            self, disk, FOLDER, machine.clock, self.loop, self.worker, machine.rng, self._connect, self.options,
            IS_KNOWN, port=lambda: PORT,
        )  # fmt: skip
        self.store: Store
        self._open()
        machine.host.listen(machine.address, self.replication.accept)
        self.loop.call_later(TICK_S, self._tick)

    def _connect(self, address: NetworkAddress, owner: LinkOwner) -> NetworkLink:
        return self.machine.host.connect(address, owner)

    def _make_worker(self) -> SimulatedWorker:
        return SimulatedWorker(self.loop, self.machine.work_s)

    # --- stores -------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        machine, replication = self.machine, self.replication
        finish_replacement(machine.disk, FOLDER)
        self.store = Store.open(
            machine.disk, FOLDER, machine.clock, machine.settings, lambda: machine.rng.getrandbits(63), machine.rng,
            leads=replication.opens_as_leader, database_id=replication.database_id,
        )  # fmt: skip
        self.is_open = True
        replication.opened(self.store)

    def reload(self, prepare: Callable[[], None], feed_error: str) -> None:
        self.feed_errors.append(feed_error)
        self.is_open = False
        self.worker.close()
        self.store.journal.close()

        self.loop.call_later(LOADING_S, lambda: self._load(prepare))

    def _load(self, prepare: Callable[[], None]) -> None:
        prepare()
        self._open()

    def stop(self) -> None:
        self.replication.close()
        self.worker.close()
        if self.is_open:
            self.store.journal.close()
        self.is_open = False

    # --- the loop -----------------------------------------------------------------------------------------------

    def write(self) -> None:
        self.store.journal.writer.write()
        self.replication.on_visible()

    def _tick(self) -> None:
        self.loop.call_later(TICK_S, self._tick)
        if self.is_open:
            self.write_quietly()
            self.sync()
        if self.is_open and self._snapshot_due:
            self._snapshot_due = False
            self.store.save()
        self.replication.tick()

    def write_quietly(self) -> None:
        try:
            self.write()
        except (JournalFull, JournalFailed):
            return

    def sync(self) -> None:
        writer = self.store.journal.writer
        if not writer.has_failed and writer.sync_is_due(self._clock.monotonic_us()):
            job = writer.begin_sync(self._clock.monotonic_us())
            if job is not None:
                job.run()
                writer.finish_sync(job)
                self.replication.on_visible()
                self.replication.on_durable()

    def begin_epoch(self, above: Ts) -> None:
        self.store.journal.begin_epoch(self.machine.rng.getrandbits(63), above)

    def begin_snapshot(self) -> None:
        self._snapshot_due = True

    def role_changed(self) -> None:
        self.roles.append(self.replication.write_refusal)

    def hold_writes(self, ms: int) -> None:
        self.holds_writes = bool(ms)

    def deliver(self, publication: Publication) -> None:
        self.delivered.append(publication)
        self.replication.pass_on(publication)

    # --- clients ------------------------------------------------------------------------------------------------

    def run(self, *arguments: bytes | str) -> Any:
        """A command as a client would give it, and the end of its turn; raises `Refused` if it is refused."""
        words: Sequence[bytes] = [word.encode() if isinstance(word, str) else word for word in arguments]
        row = find_command(TABLE, words)
        refusal = self.replication.write_refusal if row.writes(words) else None
        if refusal is not None:
            raise Refused(refusal)
        transaction = self.store.begin()
        reply = run_command(row, transaction, words)
        self.store.commit(transaction)
        self.write()
        if isinstance(reply, ErrorReply):
            raise Refused(reply.message)
        return reply

    @property
    def last_ts(self) -> Ts:
        return self.store.journal.writer.last_ts


class Refused(Exception):
    """A command got an error."""
