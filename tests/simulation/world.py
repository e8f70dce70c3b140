"""A whole life of a journal on a simulated machine, drawn from one seed.

A run is a few *generations*: a process opens the data directory, lives for a while, and dies. While it lives it does,
in random order, one small step after the other of everything that a server does to the journal, with the steps of
concurrent work (an fsync on a thread, a snapshot in slices, readers) interleaved as threads and turns of a loop would.
It dies by a power cut, by a kill, or inside any single operation on the disk, also while it recovers; or it stops in
order. The next generation goes on from what is recovered, and the ledger is cut to it.

At any step, and at every death, the disk is also cloned and the clones meet fates of their own (`fates`). Every
recovery with all its checks (`recovery`) is one *crash point*. Nothing is drawn from anything but the seed.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Final

from tests.simulation.fates import Fates
from tests.simulation.ledger import VAL, Ledger
from tests.simulation.recovery import FOLDER, Known, Recovered, Recovery, Violation, require
from tests.simulation.scenario import Workload, draw_scenario, small_limits
from tests.simulation.staged_load import StagedLoad
from tidelog import limits
from tidelog.errors import Corruption, EnvironmentFault, HolderLapsed, JournalFailed, JournalFull, TooOld
from tidelog.ids import Lsn, ShardId, Ts
from tidelog.journal import control
from tidelog.journal.durability import FsyncPolicy, SyncJob
from tidelog.journal.journal import Journal
from tidelog.journal.merge import JournalReader
from tidelog.journal.new_record import NewRecord
from tidelog.journal.operation import core_table, encode_pairs
from tidelog.journal.snapshot import SnapshotWriter
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedCrash, SimulatedDisk

FOLLOWERS_MAX: Final = 2
FRAME_SPAN_US: Final = limits.FRAME_TS_SPAN_US_MAX
_TABLE: Final = core_table()


class World:
    """One run. `run` raises `Violation`, or whatever the journal should not have raised."""

    def __init__(self, seed: int, coverage: Counter[str] | None = None, *, tries_fates: bool = True) -> None:
        self.seed = seed
        self._tries_fates = tries_fates
        """Whether clones are made; without them a run is quick, and covers less."""
        self.coverage = Counter[str]() if coverage is None else coverage
        self.crash_points = 0
        self.trace: list[str] = []
        """What was done, for who looks into a failure."""
        self._rng = Random(seed)
        self._scenario = draw_scenario(seed, self._rng)
        self._workload = Workload(self._scenario, self._rng)
        self._disk = SimulatedDisk(seed)
        self._disk.short_writes = self._scenario.short_writes
        self._clock = SimulatedClock()
        self._ledger = Ledger(self._scenario.shard_count)
        self._known = Known()
        self._recovery = Recovery(self._scenario, self._ledger, self._known, self._rng, self.coverage)
        self._fates = Fates(self._recovery, self._rng, self.coverage)
        self._was_killed = True
        """Whether nothing but processes died since the journal was last open."""
        self._forget_process()
        self._doing = ""

    def _forget_process(self) -> None:
        """What lives in the memory of a process is gone."""
        self._journal_or_none: Journal | None = None
        self._job: SyncJob | None = None
        self._job_has_run = False
        self._job_error: OSError | None = None
        self._snapshot: SnapshotWriter | None = None
        self._to_add: list[tuple[ShardId, int, bytes, int | None, int]] = []
        self._followers: list[tuple[JournalReader, int]] = []
        self._staged = StagedLoad(self._workload, self.coverage, self._require_fault)

    @property
    def _journal(self) -> Journal:
        assert self._journal_or_none is not None
        return self._journal_or_none

    # --- a run --------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Live through all generations; returns how many crash points were checked."""
        rng = self._rng
        self.coverage["runs"] += 1
        self.coverage[f"policy_{self._scenario.settings.policy.value}"] += 1
        self.coverage[f"shards_{self._scenario.shard_count}"] += 1
        with small_limits(self._scenario.snapshot_batch_bytes):
            for _ in range(rng.randint(2, 4)):
                try:
                    self._start()
                    self._live()
                except SimulatedCrash as crash:
                    self.trace.append(f"crash in {self._doing}: {crash}")
                    self.coverage[f"crash_in_{self._doing}"] += 1
                self._die()
            self._start(may_crash=False)
            if self._known.epochs and len(self._ledger):
                self._recovery.check_naively(self._disk, len(self._ledger))
            self._note_shapes()
        return self.crash_points

    def _start(self, *, may_crash: bool = True) -> None:
        """Open the journal, which recovers it."""
        rng, known = self._rng, self._known
        self._doing = "open"
        if may_crash and rng.random() < 0.3:
            self._disk.crash_after(rng.randint(1, 30 if known.epochs else 60))
        try:
            recovered = self._recovery.recover(self._disk, self._clock, was_killed=self._was_killed)
        except SimulatedCrash:
            known.clean = None if known.clean else known.clean  # the check takes a ts, which ends a clean stop
            raise
        self._take_over(recovered)
        self.crash_points += 1

    def _take_over(self, recovered: Recovered) -> None:
        """The main line goes on with what was recovered: the rest never happened."""
        known = self._known
        self._journal_or_none = recovered.journal
        self._ledger.cut(recovered.count)
        known.durable_ts = known.written_ts = self._ledger.last_ts
        known.shown_ts = min(known.shown_ts, self._ledger.last_ts)
        known.given_ts = recovered.journal.hlc.last
        known.clean = False  # checking it took a ts
        known.epochs = list(recovered.journal.epochs)
        known.tried_epoch_ids.clear()
        known.erased_ts = recovered.journal.erased_ts
        snapshot = recovered.journal.recovered.snapshot
        known.snapshot_ts = snapshot.point.ts if snapshot is not None else -1
        self.trace.append(f"open: {recovered.count} transactions, epoch {recovered.began_epoch}")

    def _live(self) -> None:
        rng = self._rng
        if rng.random() < 0.25:
            self._disk.crash_after(rng.randint(1, 150))
        if rng.random() < 0.4:
            self._step(World._grow)
        for _ in range(rng.randint(5, 50)):
            step = rng.choice(_STEPS)
            if rng.random() < _CRASH_CHANCES.get(step, 0.005):
                self._disk.crash_after(rng.randint(1, 45 if step is World._checkpoint else 12))
            self._step(step)
            if self._disk.capacity_bytes is not None and rng.random() < 0.2:
                self._disk.capacity_bytes = None
            if self._journal.writer.has_failed:
                self._check_refusal()
                return
            if rng.random() < 0.15:
                self._explore(1)
        if rng.random() < 0.3:
            self._close()

    def _step(self, step: Callable[[World], None]) -> None:
        self._doing = step.__name__.strip("_")
        self.trace.append(self._doing)
        step(self)
        self._note_promises()

    def _note_promises(self) -> None:
        writer, known = self._journal.writer, self._known
        require(writer.durable_ts >= known.durable_ts, "the durable ts went back")
        known.durable_ts = writer.durable_ts
        known.written_ts = writer.written_ts
        require(writer.durable_ts <= writer.written_ts <= self._ledger.last_ts, "more is durable than was written")
        require(writer.visible.ts <= writer.written_ts, "more is visible than was written")
        if self._scenario.settings.policy is FsyncPolicy.ALWAYS:
            require(writer.visible.ts <= writer.durable_ts, "more is visible than is durable")

    def _die(self) -> None:
        """The end of a generation, whatever it came by."""
        rng = self._rng
        self._explore(rng.randint(1, 3) if self._doing not in ("erase", "checkpoint") else 6)
        is_kill = rng.random() < 0.25
        if is_kill:
            self._disk.kill()
        else:
            self._disk.crash()
        self.trace.append("killed" if is_kill else "power cut")
        self._was_killed = is_kill and (self._was_killed or self._journal_or_none is not None)
        self._calm(self._disk)
        self._forget_process()
        if rng.random() < 0.2:
            self._clock.step_wall(-rng.randint(1, 3 * FRAME_SPAN_US))

    def _calm(self, disk: SimulatedDisk) -> None:
        disk.clear_faults()
        disk.capacity_bytes = None

    def _explore(self, count: int) -> None:
        """Let clones of this moment crash, each in its own way."""
        was_alive = self._journal_or_none is not None or self._was_killed
        for _ in range(count if self._tries_fates else 0):
            twin = self._disk.clone(self._rng.getrandbits(60))
            self._calm(twin)
            self.crash_points += self._fates.try_one(twin, self._clock, was_alive=was_alive)

    # --- steps: transactions ------------------------------------------------------------------------------------

    def _append(self) -> None:
        for _ in range(self._rng.randint(1, 6)):
            if not self._append_records(self._workload.transaction()):
                return

    def _append_records(self, records: list[NewRecord]) -> bool:
        rng, writer = self._rng, self._journal.writer
        try:
            ts = self._journal.hlc.next()
        except JournalFailed:
            self._require_fault()
            return False
        self._known.clean = False
        require(ts > self._known.given_ts, "ts", ts, "is not above", self._known.given_ts)
        self._known.given_ts = ts
        first = records[0]
        try:
            if len(records) == 1 and first.expire_ms is None and first.staged is None and rng.random() < 0.8:
                writer.append_one(first.shard, ts, first.opcode, first.payload, first.database)
            else:
                writer.append(ts, records)
        except (JournalFull, JournalFailed):
            require(writer.is_full or writer.has_failed, "a transaction was refused for no reason")
            self.coverage["refused"] += 1
            return False
        require(not writer.is_full and not writer.has_failed, "a transaction was taken that cannot be written")
        self._ledger.append(ts, records)
        if len({record.shard for record in records}) > 1:
            self.coverage["multi_shard"] += 1
        return True

    def _stage(self) -> None:
        """One of the steps of a value that is written before its record."""
        records = self._staged.step(self._journal.writer)
        if records and self._append_records(records):
            self.coverage["staged" if self._staged.could_refer else "staged_too_long"] += 1

    def _grow(self) -> None:
        """Many transactions at once, so that there are segments to erase."""
        for _ in range(self._rng.randint(4, 16)):
            self._append()
            self._write()
        self._finish_sync()
        for _ in range(3):
            self._sync()

    def _write(self) -> None:
        writer = self._journal.writer
        try:
            writer.write()
        except JournalFull:
            require(self._disk.capacity_bytes is not None, "full for no reason")
            require(writer.is_full, "it is full and does not say so")
            self.coverage["enospc"] += 1
        except JournalFailed:
            self._require_fault()
            self.coverage["eio"] += 1
        else:
            require(writer.written.ts == self._ledger.last_ts, "written, but not all of it")
            require(tuple(writer.written.lsns) == self._ledger.vectors[-1], "written to lsns", writer.written.lsns)
            ring = self._journal._ring
            require(ring.bytes_held <= self._scenario.settings.ring_bytes_max, "the ring holds", ring.bytes_held)

    def _sync(self) -> None:
        """One of the three steps of an fsync."""
        writer = self._journal.writer
        if self._job is None:
            try:
                job = writer.begin_sync(self._clock.monotonic_us(), everything=self._rng.random() < 0.3)
            except JournalFailed:
                self._require_fault()
                return
            self._job, self._job_has_run, self._job_error = job, False, None
        elif not self._job_has_run:
            self._job_has_run = True
            try:
                self._job.run()
            except OSError as error:
                self._job_error = error
        else:
            job, self._job = self._job, None
            try:
                writer.finish_sync(job, self._job_error)
            except JournalFailed:
                self._require_fault()
                self.coverage["eio_sync"] += 1
            else:
                require(self._job_error is None, "a failed fsync was taken for a good one")

    def _vouch(self) -> None:
        """The moment without writes after an fsync: marks say that all of it is durable, and rot in it is noticed."""
        writer = self._journal.writer
        self._write()
        self._finish_sync()
        if writer.is_full or writer.has_failed:
            return
        try:
            writer.sync()
            sizes = {path: len(self._disk.read_file(path)) for path in self._last_files()}
            writer.vouch()
            cycle = writer.written.cycle
            writer.sync()
            writer.vouch()
        except (JournalFull, JournalFailed):
            self._require_fault()
            return
        require(writer.written.cycle == cycle, "an idle journal goes on writing")
        self.coverage["vouch"] += 1
        twin = self._disk.clone(self._rng.getrandbits(60))
        self._calm(twin)
        twin.kill()
        path = self._rng.choice(list(sizes))
        bit = 8 * sizes[path] - 1 - self._rng.randrange(8 * control.mark_bytes(self._scenario.shard_count))
        twin.flip_bit(path, bit)
        try:
            found, _, _ = self._recovery.open(twin, SimulatedClock(self._clock.wall_us(), self._clock.monotonic_us()))
        except Corruption:
            self.coverage["rot_refused"] += 1
            return
        # A batch without a record (marks, an epoch) may be lost: the other shards have it.
        is_whole = found.writer.written_ts == self._ledger.last_ts
        require(is_whole, "bit", bit, "of", path, "was fsynced, and its damage is taken for a torn tail")

    def _last_files(self) -> list[str]:
        """The segments that are written now."""
        folders = [f"{FOLDER}/shard-{shard}" for shard in range(self._scenario.shard_count)]
        names = [(folder, max(n for n in self._disk.list(folder) if n.startswith("journal-"))) for folder in folders]
        return [f"{folder}/{name}" for folder, name in names]

    def _finish_sync(self) -> None:
        while self._job is not None:
            self._sync()

    def _require_fault(self) -> None:
        """An error is fine only if one was planned."""
        require(self._disk.capacity_bytes is not None or self._has_faults(), "it failed for no reason")

    def _has_faults(self) -> bool:
        return bool(self._disk._plan.faults)

    def _check_refusal(self) -> None:
        """After a failed write or fsync nothing is taken any more."""
        writer = self._journal.writer
        for attempt in (
            writer.write,
            lambda: writer.append_one(ShardId(0), Ts(self._known.given_ts + 1), VAL, encode_pairs([(b"k", b"v")])),
            self._journal.begin_snapshot,
        ):
            try:
                attempt()
            except JournalFailed:
                continue
            raise Violation("something was taken after the journal failed")
        self.coverage["fail_stop"] += 1

    # --- steps: time and faults ---------------------------------------------------------------------------------

    def _pass_time(self) -> None:
        rng = self._rng
        kind = rng.random()
        if kind < 0.7:
            self._clock.advance(rng.choice((0, 1, 50, 1000, 200_000, 3_000_000)))
        elif kind < 0.85:
            self._clock.step_wall(-rng.randint(1, 20_000_000))
            self.coverage["clock_back"] += 1
        elif self._scenario.takes_long_jumps:
            self._clock.advance(FRAME_SPAN_US + rng.randint(-2, 2_000_000))
            self.coverage["clock_jump"] += 1

    def _run_out_of_space(self) -> None:
        self._disk.capacity_bytes = self._disk.used_bytes + self._rng.randint(0, 900)

    def _plan_fault(self) -> None:
        rng = self._rng
        where = rng.choice((f"{FOLDER}/shard-", f"{FOLDER}/shard-", "/snapshots", "/erased", "/clock"))
        operation = rng.choice(("write", "sync", "sync", "sync_folder"))
        self._disk.fail(operation, errno.EIO, after=rng.randint(1, 4), path_contains=where)  # type: ignore[arg-type]

    # --- steps: readers -----------------------------------------------------------------------------------------

    def _follow(self) -> None:
        """A new reader, or one more pass of one that is there."""
        rng, journal, ledger = self._rng, self._journal, self._ledger
        visible = ledger.count_up_to(journal.writer.visible.ts)
        if len(self._followers) < FOLLOWERS_MAX and rng.random() < 0.4:
            start = rng.randint(min(ledger.count_up_to(journal.erased_ts), visible), visible)
            try:
                if rng.random() < 0.5:
                    since = max(ledger.ts[start - 1] if start else 0, journal.erased_ts)
                    reader = journal.reader_since(Ts(since))
                else:
                    reader = journal.reader_from([Lsn(lsn) for lsn in ledger.vectors[start]])
            except TooOld:
                require(start <= ledger.count_up_to(journal.erased_ts), "too old for no reason")
                return
            self._followers.append((reader, start))
        if not self._followers:
            return
        index = rng.randrange(len(self._followers))
        reader, start = self._followers.pop(index)
        try:
            self._recovery.check_pass(reader, start, visible)
        except TooOld:
            require(ledger.count_up_to(journal.erased_ts) > start, "a reader fell behind for no reason")
            self.coverage["reader_fell_behind"] += 1
            reader.close()
            return
        self._known.shown_ts = max(self._known.shown_ts, journal.writer.visible.ts)
        self.coverage["followed"] += visible > start
        self._followers.append((reader, visible))

    def _make_sidecars(self) -> None:
        try:
            self._journal.make_sidecars(_TABLE, 2)
        except (OSError, EnvironmentFault):
            self._require_fault()
        self.coverage["sidecars"] += 1

    # --- steps: snapshots and retention -------------------------------------------------------------------------

    def _take_snapshot(self) -> None:
        """One of the steps of a snapshot, which others come between."""
        try:
            if self._snapshot is None:
                self._begin_snapshot()
            elif self._to_add:
                count = self._rng.randint(1, 12)
                for record in self._to_add[:count]:
                    self._snapshot.add(*record)
                del self._to_add[:count]
            else:
                self._finish_snapshot()
        except (OSError, EnvironmentFault):
            self._require_fault()
            if self._snapshot is not None:
                self._snapshot.abandon()
                self._snapshot = None
            self.coverage["snapshot_failed"] += 1

    def _checkpoint(self) -> None:
        """A whole snapshot without a pause, and what it allows to be erased."""
        self._take_snapshot()
        while self._snapshot is not None:
            self._take_snapshot()
            if self._journal.writer.has_failed:
                return
        self._erase()
        for _ in range(len(self._followers)):
            self._follow()

    def _begin_snapshot(self) -> None:
        self._snapshot = self._journal.begin_snapshot()
        if self._snapshot is None:
            return
        require(self._snapshot.point.ts == self._ledger.last_ts, "the snapshot's point is not now")
        self._known.snapshot_states[self._snapshot.point.ts] = dict(self._ledger.state)
        self._to_add = [
            (ShardId(shard), VAL, encode_pairs([(key, value)]), expire_ms, database)
            for (shard, database, key), (value, expire_ms) in self._ledger.state.items()
        ]
        self._rng.shuffle(self._to_add)

    def _finish_snapshot(self) -> None:
        assert self._snapshot is not None
        self._finish_sync()
        if self._journal.writer.has_failed:
            return
        finished = self._journal.finish_snapshot(self._snapshot)
        self._snapshot = None
        self._known.snapshot_ts = finished.point.ts
        self.coverage["snapshot"] += 1

    def _erase(self) -> None:
        journal, known = self._journal, self._known
        try:
            gone = journal.erase()
        except (OSError, EnvironmentFault):
            self._require_fault()
            known.erased_ts = max(known.erased_ts, journal.erased_ts)
            return
        known.erased_ts = journal.erased_ts
        for holder in journal.holders.holding():
            require(holder.ts >= known.erased_ts, "what", holder.name, "holds was erased")
        if gone:
            self.coverage["erase"] += 1
            if journal.holders.holding():
                self.coverage["erase_with_holder"] += 1

    def _hold(self) -> None:
        rng, journal = self._rng, self._journal
        name, now_us = rng.choice(("one", "two")), self._clock.wall_us()
        ts = Ts(max(journal.erased_ts, rng.choice(self._ledger.ts or [0])))
        kind = rng.random()
        try:
            if kind < 0.4 or not any(holder.name == name for holder in journal.holders.holding()):
                journal.holders.hold(name, ts, now_us)
                self.coverage["holder"] += 1
            elif kind < 0.7:
                journal.holders.move(name, ts, now_us)
            else:
                journal.holders.release(name)
        except HolderLapsed:
            pass

    # --- the end ------------------------------------------------------------------------------------------------

    def _close(self) -> None:
        self._doing = "close"
        self._finish_sync()
        if self._journal.writer.has_failed or self._journal.hlc.has_failed:
            return
        self._calm(self._disk)
        for reader, _ in self._followers:
            reader.close()
        if self._snapshot is not None:
            self._snapshot.abandon()
        self._known.clean = None
        self._journal.close()
        self._known.clean = True
        self._known.durable_ts = self._known.written_ts = self._ledger.last_ts
        require(not self._disk.open_paths, "files are left open:", self._disk.open_paths)
        self.trace.append("closed")
        self.coverage["clean_stop"] += 1

    def _note_shapes(self) -> None:
        """What the files look like at the end: whether they have what the run was meant to exercise."""
        frame_bytes = self._scenario.frame_bytes
        for shard in range(self._scenario.shard_count):
            folder = f"{FOLDER}/shard-{shard}"
            names = self._disk.list(folder)
            self.coverage["blob"] += any(name.startswith("blob-") for name in names)
            journals = [self._disk.read_file(f"{folder}/{name}") for name in names if name.startswith("journal-")]
            self.coverage["roll"] += len(journals) > 1
            self.coverage["split"] += any(
                data[at + 3] & 1 for data in journals for at in range(0, len(data), frame_bytes)
            )


_STEPS: Final[list[Callable[[World], None]]] = [
    step
    for step, weight in (
        (World._append, 28),
        (World._stage, 8),
        (World._write, 18),
        (World._sync, 18),
        (World._vouch, 3),
        (World._pass_time, 7),
        (World._follow, 8),
        (World._take_snapshot, 12),
        (World._checkpoint, 3),
        (World._erase, 4),
        (World._hold, 3),
        (World._make_sidecars, 2),
        (World._run_out_of_space, 2),
        (World._plan_fault, 2),
    )
    for _ in range(weight)
]

_CRASH_CHANCES: Final[dict[Callable[[World], None], float]] = {
    World._checkpoint: 0.3,
    World._erase: 0.3,
    World._hold: 0.03,
}
"""How likely a crash is planned for soon after a step begins, where that is more than for the others."""
