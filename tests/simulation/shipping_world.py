"""The life of a server that ships itself, of those that take over from it, and of whoever restores from the copy.

At random, from one seed: changes, fsyncs, snapshots, erased segments; rounds of shipping against a store that fails
before and after it has done what it was asked, and lists late; power cuts, kills, stops; a machine that is lost and
restored from the copy, or is only thought to be; a copy of the files of a server; a follower that is promoted without
the newest changes; the server before it, which wakes up and believes that it leads, days later or in the middle of a
call; hours and days that pass, and clocks that are set; restores of any moment, at once or much later. Values are large
and small, nodes of streams lie in files, and in half of the worlds everything is encrypted.

What must hold, whatever happens:

- a restore from any manifest to any moment that it covers equals the state that was recorded at that moment;
- a manifest is put by whoever has the lease, and by nobody else after that was taken over;
- every object that the newest manifest names is there, and no name is ever used twice (the bucket sees to that);
- a restore that is under way finds its files for as long as was promised;
- a server reads all of its history, also what it has dropped from its disk;
- what is acknowledged as shipped is never missing from a later restore, unless a failover lost it, and then it lies
  above the end that its lineage was given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, Final

from tests.simulation.recovery import require
from tests.simulation.shipping_server import FOLDER, HOUR_US, URL, Branch, ShippingServer, state
from tidelog import limits
from tidelog.errors import Corruption, DataDirectoryError, ShippingError, ShippingFenced, ShippingGap
from tidelog.ids import Ts
from tidelog.journal.durability import FsyncPolicy
from tidelog.journal.frame import Geometry
from tidelog.journal.journal import Settings
from tidelog.journal.retention import RetentionLimits
from tidelog.ports import ObjectStore
from tidelog.shipping.fetch import LeftBehind, fetch_directory, write_restored
from tidelog.shipping.manifest import Manifest
from tidelog.shipping.manifest_log import ManifestLog
from tidelog.shipping.moments import CoveredMoments, covered_moments, lineage_at
from tidelog.shipping.sealed_store import SealedStore
from tidelog.shipping.sealing_key import SealingKey
from tidelog.shipping.shipped_disk import ShippedDisk
from tidelog.store.restore import restore
from tidelog.store.store import Store
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk
from tidelog.testing.object_store import SimulatedBucket, SimulatedObjectStore


@contextmanager
def shipping_limits(rng: Random) -> Iterator[None]:
    """Let what takes gigabytes and days elsewhere happen with a few objects."""
    small = {
        "SHIPPED_OBJECT_BYTES_MAX": rng.choice((700, 3000, 20_000)),
        "COPY_READ_BYTES": rng.choice((200, 5000, 512 * limits.KIB)),
        "SHIPPED_MERGED_COUNT": rng.choice((2, 3, 5)),
        "SHIPPED_BLOCK_BYTES": rng.choice((100, 1000, 5000)),
        "MANIFEST_CHANGES_MIN": rng.choice((0, 2, 10, 50)),
        "SHIP_SWEEP_US": HOUR_US,
        "SHIP_SNAPSHOTS_YOUNG_US": rng.choice((1, HOUR_US)),
        "GOING_NAMES_MAX": rng.choice((3, 20, 1000)),
        "OBJECTS_LISTED_MAX": rng.choice((3, 10, 1000)),
        "NODE_ENTRIES_MAX": rng.choice((3, 50, 400)),
        "HOT_NODES_KEPT": 1,
    }
    usual = {name: vars(limits)[name] for name in small}
    vars(limits).update(small)
    try:
        yield
    finally:
        vars(limits).update(usual)


class ShippingWorld:
    """One run."""

    def __init__(self, seed: int, coverage: Counter[str] | None = None) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.coverage = Counter[str]() if coverage is None else coverage
        self.trace: list[str] = []
        self.clock = SimulatedClock()
        late_us = self.rng.choice((0, 0, 5_000_000, 60_000_000))
        self.bucket = SimulatedBucket(self.clock, Random(seed), listing_late_us=late_us)
        self._clients: dict[str, ShippingServer] = {}
        self._histories: dict[str, Branch] = {}
        """Of the clients of the bucket, by name: each start of a server is one."""
        self._key = SealingKey(self.rng.randbytes(32)) if self.rng.random() < 0.5 else None
        self._looker = self.sealed(self.bucket.client("looker"))
        self.local_us = self.rng.choice((0, 1_000_000, HOUR_US))
        """Node files that are older need not be on disk."""
        self.keep_us = self.rng.choice((6 * HOUR_US, 40 * HOUR_US, 1000 * HOUR_US))
        self.settings = Settings(
            geometry=Geometry(frame_bytes=4096, frames_per_segment=self.rng.choice((2, 4))),
            shard_count=self.rng.choice((1, 1, 2, 3)),
            policy=self.rng.choice((FsyncPolicy.EVERYSEC, FsyncPolicy.NEVER)),
            retention=RetentionLimits(bytes_max=0, holder_bytes_max=self.rng.choice((30_000, 1 << 40))),
        )
        self._epochs = 0
        self.leader: ShippingServer
        self.former: list[ShippingServer] = []
        """Servers that may believe that they lead."""
        self.restores: list[tuple[Manifest, Ts | None, int]] = []
        """Restores under way: what from, which moment, since when."""

    def new_epoch_id(self) -> int:
        self._epochs += 1
        return self._epochs

    def new_client(self, server: ShippingServer) -> SimulatedObjectStore:
        """For one start of a server, which has one history."""
        name = f"start-{len(self._clients)}"
        self._clients[name], self._histories[name] = server, server.branch
        client = self.bucket.client(name)
        chance = self.rng.choice((0.0, 0.0, 0.02, 0.1))
        faults = client.faults
        faults.put_before = faults.put_after = faults.put_later = faults.read = faults.list = faults.delete_after = (
            chance
        )
        return client

    def sealed(self, client: SimulatedObjectStore) -> ObjectStore:
        """The store as servers and readers use it."""
        return client if self._key is None else SealedStore(client, self._key, Random(client.name).randbytes)

    @property
    def log(self) -> ManifestLog:
        return ManifestLog(self._looker, self.leader.journal.meta.database_id)

    def _manifests_put(self) -> list[tuple[int, str]]:
        """All that were ever put, in order, with the client that has put each."""
        prefix = f"{self.leader.journal.meta.database_id}/manifest-"
        return [
            (int(each.name.removeprefix(prefix), 16), each.client)
            for each in self.bucket.history
            if each.operation == "put" and each.name.startswith(prefix)
        ]

    def _putters(self) -> dict[int, str]:
        """By manifest, the client that has put it."""
        return dict(self._manifests_put())

    def _history_of(self, manifest: Manifest) -> Branch:
        """That of the server that has put a manifest."""
        return self._histories[self._putters()[manifest.number]]

    # --- running ------------------------------------------------------------------------------------------------

    def run(self) -> None:
        with shipping_limits(self.rng):
            self.leader = ShippingServer(self, SimulatedDisk(self.rng.getrandbits(60)), [])
            for _ in range(self.rng.randrange(60, 220)):
                step = self.rng.choices(*zip(*STEPS, strict=True))[0]
                self.trace.append(step.__name__)
                step(self)
            self._settle()

    def _by(self, server: ShippingServer, act: Any) -> bool:
        """Let a server ship; whether it worked."""
        error: Exception | None = None
        try:
            act()
        except (ShippingFenced, ShippingGap, ShippingError, OSError) as caught:
            error = caught
            self.coverage[type(caught).__name__] += 1
            self.trace.append(str(caught))
            if isinstance(caught, ShippingError):
                server.shipper.give_up_lease()
        return error is None

    def _newest_number(self) -> int:
        self.bucket.settle()
        return max(self._putters(), default=-1)

    # --- steps --------------------------------------------------------------------------------------------------

    def _change(self) -> None:
        for _ in range(self.rng.randrange(1, 8)):
            self.leader.change()
            self.clock.advance(self.rng.randrange(1, 2_000_000))

    def _sync(self) -> None:
        self.leader.journal.writer.sync()

    def _ship(self) -> None:
        self._by(self.leader, self.leader.ship)

    def _work(self) -> None:
        self._by(self.leader, self.leader.work)

    def _save(self) -> None:
        self.leader.save()

    def _erase(self) -> None:
        self.leader.erase()

    def _drop(self) -> None:
        """Ship a snapshot, and let what it lists go."""
        leader, rng = self.leader, self.rng
        self._save()
        leader.end_node_file()
        for _ in range(rng.randrange(1, 5)):
            self._sync()
            self._ship()
            self._by(leader, lambda: leader.finish_work(rng.randrange(40)))
            self.clock.advance(11_000_000)
        self.clock.advance(self.local_us)
        self._ship()
        self._by(leader, leader.drop)

    def _hydrate(self) -> None:
        self._by(self.leader, lambda: self.leader.hydrate(0.7))

    def _pass_time(self) -> None:
        self.clock.advance(self.rng.choice((1, 11_000_000, HOUR_US, 3 * HOUR_US, 13 * HOUR_US)))

    def _set_clock(self) -> None:
        """An administrator, or NTP, sets the clock of the machine: a day that was promised is a day all the same."""
        if not self.restores:
            self.clock.step_wall(self.rng.choice((2, 30)) * 24 * HOUR_US)
            self.coverage["clock_set"] += 1

    def _doubt_clock(self) -> None:
        """The clock is wrong by a year while the shipper tidies up, and is right again: nothing has expired by it."""
        leader = self.leader
        self._ship()
        manifest = self.log.newest()
        if manifest is None or leader.shipper.lease < 0:
            return
        self.clock.advance(HOUR_US)
        self.clock.step_wall(400 * 24 * HOUR_US)
        self._by(leader, lambda: leader.finish_work(200))
        self.clock.step_wall(-400 * 24 * HOUR_US)
        self.clock.advance(11_000_000)
        self._ship()
        after = self.log.newest()
        assert after is not None
        cutoff = Ts(self.clock.wall_us() - self.keep_us)
        firsts = {each.lineage.name: each.first for each in covered_moments(after)}
        for each in covered_moments(manifest):
            if each.last >= cutoff:
                first = firsts.get(each.lineage.name)
                require(first is not None and first <= max(each.first, cutoff), "a wrong clock has ended history", each)
        self.coverage["clock_doubted"] += 1

    def _crash(self) -> None:
        if self.rng.random() < 0.5:
            self.leader.disk.crash()
        else:
            self.leader.disk.kill()
        self.leader.open()

    def _crash_soon(self) -> None:
        """Die inside of an operation of the disk."""
        self.leader.disk.crash_after(self.rng.randrange(1, 30))
        from tidelog.testing.disk import SimulatedCrash

        try:
            for _ in range(20):
                self._change()
                self._sync()
                self._ship()
                if self.rng.random() < 0.3:
                    self._save()
                self._drop()
        except SimulatedCrash:
            pass
        self._crash()

    def _stop(self) -> None:
        self.leader.journal.close()
        self.leader.disk.kill()
        self.leader.open()

    def _lose_machine(self) -> None:
        """The machine is gone; another waits until nothing more comes of it, restores the copy, and goes on."""
        self.clock.advance(limits.RESTORE_WAIT_US + 1)
        manifest = self.log.newest()
        if manifest is None or not covered_moments(manifest):
            return
        lineage, until = lineage_at(manifest, None)
        branch = self._history_of(manifest)
        disk, client = SimulatedDisk(self.rng.getrandbits(60)), self._looker
        if until < lineage.ts:
            self._restore_into(disk, manifest, None, manifest.database_id)
            write_restored(disk, FOLDER, manifest)
            self.coverage["restored_to_a_cut"] += 1
        else:
            left = LeftBehind(URL, False) if self.rng.random() < 0.5 else None
            size = fetch_directory(disk, FOLDER, client, manifest, lineage, _run_all, left=left)
            self.coverage["restored_lazily"] += left is not None
            require(size > 0, "nothing was fetched")
        self.former.append(self.leader)
        self.leader = ShippingServer(self, disk, [each for each in branch if each[0] <= until])
        self.coverage["machine_lost"] += 1

    def _restore_beside(self) -> None:
        """A machine that is not lost, but cut off, is restored elsewhere, and ships again while files are fetched."""
        manifest = self.log.newest()
        if manifest is None or not covered_moments(manifest):
            return
        lineage, until = lineage_at(manifest, None)
        if until < lineage.ts:
            return
        branch, disk = list(self._history_of(manifest)), SimulatedDisk(self.rng.getrandbits(60))

        def run_slowly(jobs: Iterable[Callable[[], None]]) -> None:
            _run_all(jobs)
            for _ in range(self.rng.randrange(0, 5)):
                self._change()
                self._sync()
                self._ship()

        fetch_directory(disk, FOLDER, self._looker, manifest, lineage, run_slowly)
        self._try_beside(disk, [each for each in branch if each[0] <= until], manifest.number + 1)

    def _copy_stopped(self) -> None:
        """Somebody copies the files of a server that was stopped, and starts both."""
        self.leader.journal.close()
        self.leader.disk.kill()
        disk = self.leader.disk.clone(self.rng.getrandbits(60))
        branch = list(self.leader.branch)
        self.leader.open()
        for _ in range(self.rng.randrange(1, 4)):
            self._change()
            self._sync()
            self._ship()
        self._try_beside(disk, branch, None)

    def _try_beside(self, disk: SimulatedDisk, branch: Branch, lease: int | None) -> None:
        """Start a server beside the leader, which lacks what that has shipped: it must not take over.

        `lease`: only with that; None: only if it lacks nothing.
        """
        newest = self._newest_number()
        shipped_ts = self.leader.shipper.shipped_ts if self.leader.shipper.lease >= 0 else Ts(0)
        server = ShippingServer(self, disk, branch)
        server.objects.faults.clear()
        if not self._by(server, server.ship):
            self.coverage["refused_beside"] += 1
            return
        if lease is not None:
            require(server.shipper.lease == lease, "a restored server cuts off what was shipped after it, to", newest)
        else:
            require(shipped_ts <= server.journal.writer.durable_ts, "an older state cuts off what was shipped after it")
        self.former.append(self.leader)
        self.leader = server
        self.coverage["took_over_beside"] += 1

    def _promote(self) -> None:
        """A follower that lacks the newest changes takes over: a copy of the disk from a moment ago."""
        disk = self.leader.disk.clone(self.rng.getrandbits(60))
        branch = list(self.leader.branch)
        for _ in range(self.rng.randrange(0, 4)):
            self._change()
            self._sync()
            self._ship()
        self.former.append(self.leader)
        disk.crash() if self.rng.random() < 0.5 else disk.kill()
        self.leader = ShippingServer(self, disk, branch)
        self.coverage["promoted"] += 1

    def _outlive(self) -> None:
        """The leader goes on for days, so that manifests go that a server of before may know; then that wakes up."""
        if not self.former:
            return
        self._lead_for_days()
        self.coverage["outlived"] += 1
        self._wake()

    def _lead_for_days(self) -> None:
        for _ in range(self.rng.randrange(6, 11)):
            self._change()
            self._sync()
            for _ in range(3):
                self._ship()
                self._by(self.leader, lambda: self.leader.finish_work(200))
                self.clock.advance(11_000_000)
            self.clock.advance(8 * HOUR_US)

    def _replace_inside(self) -> None:
        """A shipper pauses in the middle of a call, for so long that a follower takes over; then it goes on."""
        paused = self.leader
        if paused.shipper.lease < 0:
            return
        disk, branch = paused.disk.clone(self.rng.getrandbits(60)), list(paused.branch)
        left = self.rng.randrange(1, 6)

        def watch(operation: str, name: str, moment: str) -> None:
            nonlocal left
            left -= 1
            if left or self.leader is not paused or operation == "delete":
                return
            disk.crash()
            self.former.append(paused)
            self.leader = ShippingServer(self, disk, branch)
            for _ in range(self.rng.randrange(2, 12)):
                if self.rng.random() < 0.5:
                    self._change()
                self._sync()
                self._ship()
                self._work()
            if operation == "put" and "/manifest-" in name and self.rng.random() < 0.6:
                self._lead_for_days()
                self.coverage["outlived_inside"] += 1
            self.coverage["replaced_inside"] += 1

        paused.objects.watch = watch
        for _ in range(2):
            paused.change()
            paused.journal.writer.sync()
            self._by(paused, paused.ship)
            self._by(paused, paused.work)
        paused.objects.watch = None

    def _wake(self) -> None:
        """A server that was replaced does not know it: it may write, and it must not ship."""
        if not self.former:
            return
        server = self.rng.choice(self.former)
        newest = self._newest_number()
        # What it had sent before has arrived then, or never will.
        self.clock.advance(self.rng.choice((61_000_000, 61_000_000, 25 * HOUR_US)))
        newest = max(newest, self._newest_number())
        if server.shipper.lease < 0 or newest < 0 or self.leader.shipper.lease < 0:
            return  # it would have to take over first, and then it is the operator who decides
        try:
            if self.rng.random() < 0.5:
                server.work()  # it was in the middle of that
            server.change()
            server.journal.writer.sync()
            server.ship()
            server.work()
        except (ShippingError, OSError):
            self.coverage["woken"] += 1
        except Corruption as error:  # a copy keeps for its leader what that has dropped, and for nobody else
            require("is gone" in str(error), "a server that was replaced finds", error)
            self.coverage["woken_without_history"] += 1
        require(self._newest_number() == newest, "a server that was replaced has put a manifest after", newest)

    def _begin_restore(self) -> None:
        if (manifest := self.log.newest()) is not None and (covered := covered_moments(manifest)):
            moments = self.rng.choice(covered)
            at = self._any_of(manifest, moments) if self.rng.random() < 0.8 else None
            self.restores.append((manifest, at, self.clock.wall_us()))

    def _finish_restore(self) -> None:
        if not self.restores:
            return
        manifest, at, since_us = self.restores.pop(self.rng.randrange(len(self.restores)))
        if self.clock.wall_us() - since_us > limits.SHIP_NOTICE_US:
            self.coverage["restore_too_late"] += 1
            return
        self._check_restore(manifest, at)

    def _any_of(self, manifest: Manifest, moments: CoveredMoments) -> Ts:
        """A moment that is covered, and not from before everything."""
        history = self._history_of(manifest)
        first = min(max(moments.first, history[0][0] if history else 0), moments.last)
        return Ts(self.rng.randrange(first, moments.last + 1))

    # --- checks -------------------------------------------------------------------------------------------------

    def _restore_into(self, disk: SimulatedDisk, manifest: Manifest, at: Ts | None, database_id: str = "") -> Store:
        lineage, until = lineage_at(manifest, at)
        source = ShippedDisk(self._looker, manifest.database_id, lineage, "/shipped")
        store = Store(SimulatedClock(), Random(1))
        restore(disk, store, "/shipped", FOLDER, until=until, source_disk=source, database_id=database_id)
        return store

    def _check_restore(self, manifest: Manifest, at: Ts | None) -> None:
        lineage, until = lineage_at(manifest, at)
        history = self._history_of(manifest)
        if not history or until < history[0][0]:
            return  # nothing has happened yet
        store = self._restore_into(SimulatedDisk(), manifest, at)
        wanted = until if at is None else at
        expected = [found for ts, found in history if ts <= wanted]
        require(
            state(store) == (expected[-1] if expected else {}),
            *("manifest", manifest.number, "lineage", lineage.name, "does not show the state at", wanted),
        )
        self.coverage["restored"] += 1

    def _settle(self) -> None:
        """Let the copy catch up, and look at all of it."""
        leader = self.leader
        leader.objects.faults.clear()
        for _ in range(200):
            leader.journal.writer.sync()
            if self._by(leader, leader.ship) and leader.shipper.is_begun:
                for _ in range(10_000):
                    if not leader.shipper.work():
                        break
                else:
                    require(False, "the work of the shipper does not end")
                if leader.shipper.shipped_ts == leader.journal.writer.durable_ts:
                    break
            self.clock.advance(11_000_000)
        else:
            require(False, "the copy does not catch up")
        self.clock.advance(11_000_000)
        require(self._by(leader, leader.ship), "a round fails although nothing is wrong")
        manifest = self.log.newest()
        assert manifest is not None
        covered = covered_moments(manifest)
        require(bool(covered), "nothing is covered")
        require(covered[-1].lineage.ts == leader.journal.writer.durable_ts, "the copy is not complete")
        self._check_restore(manifest, None)
        for _ in range(4):
            moments = self.rng.choice(covered)
            self._check_restore(manifest, self._any_of(manifest, moments))
        self._check_gaps(manifest)
        self._check_manifests()
        self._check_objects(manifest)
        self._check_putters()
        while self.restores:
            self._finish_restore()
        self.bucket.check()

    def _check_gaps(self, manifest: Manifest) -> None:
        """A moment that is not covered is refused."""
        covered = covered_moments(manifest)
        for at in (Ts(covered[0].first - 1), Ts(covered[-1].last + 1)):
            if at >= 0:
                try:
                    lineage_at(manifest, at)
                except DataDirectoryError:
                    continue
                require(False, "a moment that is not covered is accepted:", at)

    def _check_objects(self, manifest: Manifest) -> None:
        """Whatever a manifest names is there, also what no restore of these moments has read."""
        names, prefix = set(self.bucket.names()), f"{manifest.database_id}/"
        needed = {each for lineage in manifest.lineages for each in lineage.objects()} | {manifest.base} - {""}
        missing = sorted(each for each in needed if f"{prefix}{each}" not in names)
        require(not missing, "objects are named and gone:", missing[:3])

    def _check_putters(self) -> None:
        """Nobody puts a manifest after another has, and no number comes twice, or after a later one."""
        put = self._manifests_put()
        require(put == sorted(put) and len(put) == len(self._putters()), "numbers of manifests come again:", put)
        last, before = "", set[str]()
        for _, client in put:
            if client != last:
                require(client not in before, client, "has put a manifest after another did")
                before.add(client)
                last = client

    def _check_manifests(self) -> None:
        """Any manifest that is still there shows its moment; leases only grow."""
        log, newest = self.log, self._newest_number()
        lease = -1
        numbers = sorted(self.rng.sample(range(newest + 1), min(newest + 1, 6)))
        for number in numbers:
            try:
                manifest = log.get(number)
            except FileNotFoundError:
                continue  # its base is gone, a day after it was replaced
            if manifest is None:
                continue
            require(manifest.lease >= lease, "manifest", number, "has an older lease than one before it")
            lease = manifest.lease
            if self.clock.wall_us() - manifest.made_us < limits.SHIP_NOTICE_US and covered_moments(manifest):
                self._check_restore(manifest, None)


def _run_all(jobs: Iterable[Callable[[], None]]) -> None:
    for job in jobs:
        job()


STEPS: Final = (
    (ShippingWorld._change, 30),
    (ShippingWorld._sync, 15),
    (ShippingWorld._ship, 30),
    (ShippingWorld._work, 20),
    (ShippingWorld._save, 4),
    (ShippingWorld._erase, 4),
    (ShippingWorld._drop, 6),
    (ShippingWorld._hydrate, 6),
    (ShippingWorld._pass_time, 8),
    (ShippingWorld._crash, 2),
    (ShippingWorld._crash_soon, 2),
    (ShippingWorld._stop, 1),
    (ShippingWorld._lose_machine, 1.5),
    (ShippingWorld._restore_beside, 1.5),
    (ShippingWorld._copy_stopped, 1),
    (ShippingWorld._promote, 1.5),
    (ShippingWorld._wake, 3),
    (ShippingWorld._outlive, 0.7),
    (ShippingWorld._replace_inside, 1.5),
    (ShippingWorld._set_clock, 1),
    (ShippingWorld._doubt_clock, 1),
    (ShippingWorld._begin_restore, 4),
    (ShippingWorld._finish_restore, 4),
)
