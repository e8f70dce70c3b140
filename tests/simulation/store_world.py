"""A whole life of a store on a simulated machine, drawn from one seed: as `world` for the journal, one layer up.

Commands of all families run through the command table, alone or several in one transaction, and on the hot path;
libraries of functions come and go beside them; keys expire by the simulated clock; snapshots are visited in slices
between them; segments are erased; the disk fills up, fails and loses what was not synced; the process dies anywhere.
After every crash the store must be in the state that the model (`store_model`) had after some transaction, not before
the newest that was promised: what was durable after a power cut, what was written after the death of the process alone.

The model is told the operations that the store applies, when it applies them; the hot path has none, so the model is
told what its commands mean. A handler that decides wrongly is not noticed here (`tests/conformance` compares handlers
with Redis); an operation that is not journaled, journaled otherwise than applied, decoded otherwise than encoded, or
missed by a snapshot is.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from random import Random
from typing import Any, Final
from unittest.mock import patch

from tests.simulation.hold_load import check_holds, draw_change
from tests.simulation.library_load import NAMES, LibraryLoad, number_of
from tests.simulation.recovery import FOLDER, require
from tests.simulation.retaining import ProcessEnds, Retaining
from tests.simulation.scenario import HOUR_US, draw_scenario, small_limits
from tests.simulation.scripted import SCRIPTS, Scripted
from tests.simulation.store_load import KEYS, LISTS, STREAMS, Load
from tests.simulation.store_model import LIBRARIES, Model, State, StoreLedger, difference, hot_operation, live_state
from tidelog import limits
from tidelog.commands.families import command_table
from tidelog.engine.dispatch import find_command, run_command
from tidelog.errors import ApplyFailed, EnvironmentFault, JournalFailed, JournalFull
from tidelog.journal.durability import SyncJob
from tidelog.resp.encoder import ErrorReply
from tidelog.server.hot import HotPath
from tidelog.store.capture import Capture
from tidelog.store.dead_letters import PendingExpiry
from tidelog.store.expiry import remove_due
from tidelog.store.store import Store
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedCrash, SimulatedDisk
from tidelog.types.effect import Effect

TABLE: Final = command_table()
FOCI: Final = ("", "", "", "", "streams", "lists", "expiries", "ranges", "ranges", "libraries")
"""One is drawn for each world."""


class StoreWorld(Retaining):
    """One run. `run` raises `Violation`, or whatever the store should not have raised."""

    def __init__(
        self, seed: int, coverage: Counter[str] | None = None, *, tries_fates: bool = True, focus: str = ""
    ) -> None:
        self.seed = seed
        self.coverage = Counter[str]() if coverage is None else coverage
        self.crash_points = 0
        self.trace: list[str] = []
        """What was done, for who looks into a failure."""
        self._tries_fates = tries_fates
        self._rng = rng = Random(seed)
        self._scenario = draw_scenario(seed, rng)
        value_bytes_max = 2 * self._scenario.frame_bytes
        drawn_focus = rng.choice(FOCI)
        self._focus = focus or drawn_focus
        """What comes up more often than anything else: of `FOCI`; empty: nothing does."""
        self._load = Load(rng, value_bytes_max, self._focus)
        self._library_load = LibraryLoad(rng, self._load, value_bytes_max)
        self._steps = [*_STEPS, *_FOCUSED_STEPS.get(self._focus, ())]
        self._disk = SimulatedDisk(seed)
        self._disk.short_writes = self._scenario.short_writes
        self._clock = SimulatedClock()
        self._model = Model()
        self._ledger = StoreLedger()
        self._durable_ts = self._written_ts = 0
        """What was promised to survive a power cut, and the death of the process."""
        self._steps_max = 50
        """Of each life."""
        self._was_killed = False
        """Whether nothing but processes died since the store was last open."""
        self._new_epoch_id = count(1).__next__
        self._doing = ""
        self._forget_process()

    def _forget_process(self) -> None:
        self._store_or_none: Store | None = None
        self._job: SyncJob | None = None
        self._job_has_run = False
        self._job_error: OSError | None = None
        self._capture: Capture | None = None
        self._scripted: Scripted | None = None

    @property
    def _store(self) -> Store:
        assert self._store_or_none is not None
        return self._store_or_none

    # --- a run --------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Live through all generations; returns how many crash points were checked."""
        rng = self._rng
        self.coverage[f"policy_{self._scenario.settings.policy.value}"] += 1
        self.coverage[f"shards_{self._scenario.shard_count}"] += 1
        self.coverage[f"focus_{self._focus or 'none'}"] += 1
        with small_limits(self._scenario.snapshot_batch_bytes):
            for _ in range(rng.randint(2, 4)):
                try:
                    self._start()
                    self._live()
                except SimulatedCrash as crash:
                    self.trace.append(f"crash in {self._doing}: {crash}")
                    self.coverage[f"crash_in_{self._doing}"] += 1
                except ProcessEnds:
                    self.coverage["process_ended"] += 1
                self._die()
            self._start(may_crash=False)
        return self.crash_points

    def _start(self, *, may_crash: bool = True) -> None:
        self._doing = "open"
        if may_crash and self._rng.random() < 0.2:
            self._disk.crash_after(self._rng.randint(1, 40))
        promised_ts = self._written_ts if self._was_killed else self._durable_ts
        store, count = self._recover(self._disk, self._clock, self._ledger.count_up_to(promised_ts))
        self._ledger.cut(count)
        self._model.state = dict(self._ledger.states[count])
        self._durable_ts = self._written_ts = self._ledger.last_ts
        self._store_or_none = store
        self._listen(store)
        self.trace.append(f"open: {count} transactions")

    def _listen(self, store: Store) -> None:
        """Tell the model of every operation."""
        model = self._model
        heard: Any = store

        def tells(effect: Effect) -> Effect:
            def apply_and_tell(database: Any, operation: Any) -> None:
                effect.apply(database, operation)
                model.apply(database.number, operation)

            return replace(effect, apply=apply_and_tell)

        heard.effect_of = {operation: tells(effect) for operation, effect in store.effect_of.items()}

    def _note(self) -> None:
        """Tell the ledger of a transaction, if there was one."""
        ts = self._store.journal.writer.last_ts
        if ts > self._ledger.last_ts:
            self._ledger.append(ts, self._model.state)

    def _live(self) -> None:
        rng = self._rng
        if rng.random() < 0.25:
            self._disk.crash_after(rng.randint(1, 200))
        if rng.random() < 0.3:
            self._step(StoreWorld._grow)
        for _ in range(rng.randint(5, self._steps_max)):
            step = rng.choice(self._steps)
            if rng.random() < _CRASH_CHANCES.get(step, 0.01):
                self._disk.crash_after(rng.randint(1, 30))
            self._step(step)
            if self._disk.capacity_bytes is not None and rng.random() < 0.2:
                self._disk.capacity_bytes = None
            if self._store.journal.writer.has_failed:
                self.coverage["fail_stop"] += 1
                return
            if rng.random() < 0.2:
                self._check_live()
                self._explore(1)
        self._check_live()
        if rng.random() < 0.3:
            self._close()

    def _step(self, step: Callable[[StoreWorld], None]) -> None:
        self._doing = step.__name__.strip("_")
        self.trace.append(self._doing)
        getattr(self, step.__name__)()
        writer = self._store.journal.writer
        self._durable_ts, self._written_ts = writer.durable_ts, writer.written_ts
        require(self._model.state == self._ledger.states[-1], "something was changed and not journaled")

    def _check_live(self) -> None:
        expected, found = self._model.state, live_state(self._store)
        require(expected == found, "the store differs from the model:", difference(expected, found))

    # --- dying and coming back ----------------------------------------------------------------------------------

    def _die(self) -> None:
        self._explore(4)
        is_kill = self._rng.random() < 0.25
        (self._disk.kill if is_kill else self._disk.crash)()
        self._was_killed = is_kill and self._was_alive
        self.trace.append("killed" if is_kill else "power cut")
        self._calm(self._disk)
        self._forget_process()
        if self._rng.random() < 0.2:
            self._clock.step_wall(-self._rng.randint(1, 10_000_000))

    @property
    def _was_alive(self) -> bool:
        """Whether what was written counts, if only the process dies now."""
        return self._store_or_none is not None or self._was_killed

    def _calm(self, disk: SimulatedDisk) -> None:
        disk.clear_faults()
        disk.capacity_bytes = None

    def _explore(self, count: int) -> None:
        """Let clones of this moment crash, each in its own way, and some of them again while they recover."""
        rng = self._rng
        for _ in range(count if self._tries_fates else 0):
            twin = self._disk.clone(rng.getrandbits(60))
            self._calm(twin)
            promised_ts = self._durable_ts
            if rng.random() < 0.2:
                twin.kill()
                promised_ts = self._written_ts if self._was_alive else self._durable_ts
                self.coverage["fate_kill"] += 1
            else:
                self.coverage[f"fate_{twin.crash()}"] += 1
            promised = self._ledger.count_up_to(promised_ts)
            if rng.random() < 0.2:
                promised = self._interrupt(twin, promised)
            _, found = self._recover(twin, _copy(self._clock), promised)
            if rng.random() < 0.2:
                twin.crash()
                self._recover(twin, _copy(self._clock), found)

    def _interrupt(self, disk: SimulatedDisk, promised: int) -> int:
        """Crash in the middle of a recovery, or just after it; returns what is promised then."""
        disk.crash_after(self._rng.randint(1, 25))
        try:
            _, promised = self._recover(disk, _copy(self._clock), promised)
        except SimulatedCrash:
            self.coverage["crash_in_recovery"] += 1
        disk.kill()
        return promised

    def _recover(self, disk: SimulatedDisk, clock: SimulatedClock, promised: int) -> tuple[Store, int]:
        """Open a disk: the store, which must be as it was after some transaction, and after which one."""
        store = Store.open(
            disk, FOLDER, clock, self._scenario.settings, new_epoch_id=self._new_epoch_id, random=self._draw_random()
        )
        ledger, ts = self._ledger, store.journal.writer.written_ts
        count = ledger.count_up_to(ts)
        require(ts == (ledger.ts[count - 1] if count else 0), "it comes back at ts", ts, "where nothing happened")
        require(count >= promised, "only", count, "transactions came back, and", promised, "were promised")
        found = live_state(store)
        require(found == ledger.states[count], "after", count, "transactions:", difference(ledger.states[count], found))
        check_holds(store.journal)
        self.crash_points += 1
        self.coverage["lists"] += any(type(value) is tuple and value[0] == "list" for value, _ in found.values())
        self.coverage["lost_some"] += count < len(ledger.ts)
        has_snapshot, has_libraries = store.journal.recovered.snapshot is not None, bool(store.libraries.codes)
        self.coverage["from_snapshot"] += has_snapshot
        self.coverage["libraries"] += has_libraries
        self.coverage["libraries_from_snapshot"] += has_libraries and has_snapshot
        self.coverage["holds_from_snapshot"] += bool(store.holds.by_name) and has_snapshot
        return store, count

    def _draw_random(self) -> Random:
        return Random(self.seed)

    # --- steps: commands ----------------------------------------------------------------------------------------

    def _run_commands(self) -> None:
        rng, store = self._rng, self._store
        for _ in range(rng.randint(1, 8)):
            if store.refusal is not None:
                self.coverage["refused"] += 1
                self._read_while_refused()
                return
            count = 1 if rng.random() < 0.75 else rng.randint(2, 6)
            self._transact([self._load.command() for _ in range(count)])

    def _grow(self) -> None:
        """Many transactions at once, so that there are segments to erase."""
        for _ in range(self._rng.randint(5, 20)):
            self._run_commands()
            self._write()
        for _ in range(6):
            self._sync()

    def _transact(self, commands: list[list[bytes]]) -> None:
        store = self._store
        transaction = store.begin(self._load.database())
        for words in commands:
            reply = run_command(find_command(TABLE, words), transaction, words)
            self.coverage["error_reply"] += type(reply) is ErrorReply
            require(not (type(reply) is ErrorReply and "internal" in reply.message), words, "met a bug")
        if len({record.shard for record in transaction.records}) > 1:
            self.coverage["multi_shard"] += 1
        try:
            store.commit(transaction)
        except JournalFailed:
            self._require_fault()
            raise ProcessEnds from None
        self._note()

    def _run_script(self) -> None:
        """A script is one transaction, over however many shards; inside of MULTI it is a part of that one."""
        rng, load, store = self._rng, self._load, self._store
        if store.refusal is not None:
            return
        commands = [load.command() for _ in range(rng.randint(1, 6))]
        is_in_multi = rng.random() < 0.3
        database, script, before_ts = load.database(), rng.choice(SCRIPTS), store.journal.writer.last_ts
        self._run_as_one(lambda client: client.run(database, script, commands, is_in_multi=is_in_multi))
        self.coverage["script"] += store.journal.writer.last_ts > before_ts
        self.coverage["script_in_multi"] += is_in_multi and store.journal.writer.last_ts > before_ts

    def _change_libraries(self) -> None:
        """Libraries come, go and are called, alone or with keys in one transaction. While writes are refused they
        stay as they are."""
        rng, libraries = self._rng, self._library_load
        database = self._load.database()
        commands = [libraries.command()] if rng.random() < 0.6 else libraries.transaction()
        self._run_as_one(lambda client: client.transact(database, commands))
        name = rng.choice(NAMES)
        code, _ = self._model.state.get((LIBRARIES, name), (None, None))
        expected = b"-ERR Function not found\r\n" if code is None else b":%d\r\n" % number_of(code)
        reply = self._client.read(name)
        require(reply == expected, "function", name, "returns", reply, "instead of", expected)

    def _change_holds(self) -> None:
        if self._store.refusal is not None:
            return
        try:
            draw_change(self._rng, self._store, self._ledger.ts, self._clock.wall_us(), self._load.command())
        except (ApplyFailed, JournalFailed):
            self._require_fault()
            raise ProcessEnds from None
        self._note()

    def _run_as_one(self, run: Callable[[Scripted], bytes]) -> None:
        """Something that is one transaction at most, and none while writes are refused."""
        hlc, was_refused = self._store.journal.hlc, self._store.refusal is not None
        hlc.catch_up()
        before_ts = hlc.last
        try:
            reply = run(self._client)
        except ApplyFailed:
            require(not was_refused, "something was applied while writes were refused")
            self._require_fault()
            raise ProcessEnds from None
        require(b"internal error" not in reply, "a script or a function met a bug:", reply)
        require(hlc.last <= before_ts + 1, "one transaction was journaled as", hlc.last - before_ts)
        self._note()

    @property
    def _client(self) -> Scripted:
        if self._scripted is None:
            self._scripted = Scripted(self._store, self._clock)
        return self._scripted

    def _read_while_refused(self) -> None:
        """A read answers, changes nothing, and cannot fail, whatever has expired since writes are refused."""
        before = dict(self._model.state)
        self._clock.advance(self._rng.choice((0, 20_000, 3_000_000)))
        self._transact([[b"MGET", *KEYS, *STREAMS, *LISTS], [b"RANDOMKEY"]])
        require(before == self._model.state, "a read changed something that cannot be journaled")

    def _run_hot(self) -> None:
        rng, store = self._rng, self._store
        number = self._load.database()
        hot = HotPath(store, number, 2).commands()
        store.journal.hlc.catch_up()

        def run(commands: list[list[bytes]]) -> int:
            before_ts = store.journal.hlc.last
            taken: int = hot[commands[0][0]](commands, 0, [])
            self._note_hot(number, commands[:taken], before_ts)
            return taken

        try:
            if rng.random() < 0.5:
                self.coverage["set_run"] += run(self._sets()) > 1
            if rng.random() < 0.5:
                self.coverage["hot_multi"] += run([[b"MULTI"], *self._sets(), [b"EXEC"]]) > 0
            if rng.random() < 0.7:
                self.coverage["list_run"] += run(self._load.hot_list_run()) > 1
            for _ in range(rng.randint(1, 6)):
                self.coverage["hot"] += run([self._load.hot()])
        except JournalFailed:
            self._require_fault()
            raise ProcessEnds from None

    def _note_hot(self, number: int, commands: list[list[bytes]], before_ts: int) -> None:
        """Tell of commands that the hot path took: one transaction, or one each with consecutive ts."""
        states: list[State] = []
        for words in commands:
            operation = hot_operation(self._model.state, number, words)
            if operation is not None:
                self._model.apply(number, operation)
                states.append(dict(self._model.state))
        count = self._store.journal.writer.last_ts - before_ts if states else 0
        require(count in {min(1, len(states)), len(states)}, count, "transactions for", commands)
        if count > 1:
            for index, state in enumerate(states):
                self._ledger.append(before_ts + 1 + index, state)
        self._note()

    def _sets(self) -> list[list[bytes]]:
        return [[b"SET", self._load.key(), self._load.value()] for _ in range(self._rng.randint(2, 6))]

    def _expire(self) -> None:
        self._clock.advance(self._rng.choice((0, 20_000, 500_000, 3_000_000)))
        try:
            self.coverage["expired"] += remove_due(self._store)
            self._note()
            with patch.object(limits, "EXPIRED_PENDING_AT_ONCE_MAX", 1):  # a group, and so a transaction, at a time
                while gone := PendingExpiry(self._store).run():
                    self.coverage["pending_expired"] += gone
                    self._note()
        except JournalFull:
            require(self._disk.capacity_bytes is not None, "full for no reason")
        except JournalFailed:
            self._require_fault()
            raise ProcessEnds from None

    # --- steps: the disk ----------------------------------------------------------------------------------------

    def _write(self) -> None:
        try:
            self._store.journal.writer.write()
        except JournalFull:
            require(self._disk.capacity_bytes is not None, "full for no reason")
            self.coverage["enospc"] += 1
        except JournalFailed:
            self._require_fault()
            self.coverage["eio"] += 1
        else:
            require(self._store.journal.writer.written_ts == self._ledger.last_ts, "written, but not all of it")

    def _sync(self) -> None:
        """One of the three steps of an fsync."""
        writer = self._store.journal.writer
        try:
            if self._job is None:
                self._job = writer.begin_sync(self._clock.monotonic_us(), everything=self._rng.random() < 0.3)
                self._job_has_run, self._job_error = False, None
            elif not self._job_has_run:
                self._job_has_run = True
                try:
                    self._job.run()
                except OSError as error:
                    self._job_error = error
            else:
                job, self._job = self._job, None
                writer.finish_sync(job, self._job_error)
        except JournalFailed:
            self._require_fault()
            self.coverage["eio_sync"] += 1

    def _finish_sync(self) -> None:
        while self._job is not None:
            self._sync()

    def _pass_time(self) -> None:
        kind = self._rng.random()
        if kind < 0.7:
            self._clock.advance(self._rng.choice((0, 1, 1000, 200_000, 3_000_000)))
        elif kind < 0.85:
            self._clock.step_wall(-self._rng.randint(1, 5_000_000))
        elif self._scenario.takes_long_jumps:
            self._clock.advance(2 * HOUR_US)  # long enough for segments to be erased

    def _run_out_of_space(self) -> None:
        self._disk.capacity_bytes = self._disk.used_bytes + self._rng.randint(0, 900)

    def _plan_fault(self) -> None:
        operation: Any = self._rng.choice(("write", "sync", "sync", "sync_folder"))
        where = self._rng.choice((f"{FOLDER}/shard-", f"{FOLDER}/shard-", "/snapshots", "/erased", "/clock"))
        self._disk.fail(operation, errno.EIO, after=self._rng.randint(1, 4), path_contains=where)

    def _require_fault(self) -> None:
        has_fault = self._disk.capacity_bytes is not None or bool(self._disk._plan.faults)
        require(has_fault, "it failed for no reason")

    # --- steps: snapshots ---------------------------------------------------------------------------------------

    def _take_snapshot(self) -> None:
        """One slice of a snapshot, which commands come between."""
        store = self._store
        try:
            if self._capture is None:
                self._capture = store.begin_capture()
                self.coverage["capture"] += self._capture is not None
            elif not self._capture.is_done:
                self._capture.visit(self._rng.choice((1, 2, 5, 1000)))
            else:
                self._finish_sync()
                if not store.journal.writer.has_failed:
                    store.journal.finish_snapshot(self._capture.snapshot)
                    store.end_capture()
                    self._capture = None
                    self.coverage["snapshot"] += 1
        except (OSError, EnvironmentFault):
            self._require_fault()
            self._give_up()

    def _give_up(self) -> None:
        if self._capture is not None:
            self._capture.snapshot.abandon()
            self._store.end_capture()
            self._capture = None
            self.coverage["snapshot_failed"] += 1

    def _save(self) -> None:
        """A whole snapshot at once, and what it allows to be erased."""
        if self._capture is None:
            self._finish_sync()
            if self._store.journal.writer.has_failed:
                return
            try:
                self._store.save()
                self.coverage["save"] += 1
            except (OSError, EnvironmentFault):
                self._require_fault()
        self._erase()

    def _erase(self) -> None:
        journal = self._store.journal
        try:
            has_erased = bool(journal.erase())
            self.coverage["erase"] += has_erased
            self.coverage["erase_with_holds"] += has_erased and bool(self._store.holds.by_name)
        except (OSError, EnvironmentFault):
            self._require_fault()
        self._note()  # a holder may have been let go
        check_holds(journal)

    def _close(self) -> None:
        self._doing = "close"
        self._finish_sync()
        if self._store.journal.writer.has_failed or self._store.journal.hlc.has_failed:
            return
        self._calm(self._disk)
        if self._capture is not None:
            self._capture.snapshot.abandon()
        self._store.journal.close()
        self._durable_ts = self._written_ts = self._ledger.last_ts
        self.coverage["clean_stop"] += 1


def _copy(clock: SimulatedClock) -> SimulatedClock:
    return SimulatedClock(clock.wall_us(), clock.monotonic_us())


_STEPS: Final[list[Callable[[StoreWorld], None]]] = [
    step
    for step, weight in (
        (StoreWorld._run_commands, 26),
        (StoreWorld._run_hot, 8),
        (StoreWorld._run_script, 9),
        (StoreWorld._change_libraries, 5),
        (StoreWorld._write, 16),
        (StoreWorld._sync, 16),
        (StoreWorld._take_snapshot, 20),
        (StoreWorld._save, 3),
        (StoreWorld._expire, 6),
        (StoreWorld._retain, 4),
        (StoreWorld._pass_time, 4),
        (StoreWorld._erase, 2),
        (StoreWorld._run_out_of_space, 2),
        (StoreWorld._plan_fault, 2),
    )
    for _ in range(weight)
]

_FOCUSED_STEPS: Final[dict[str, list[Callable[[StoreWorld], None]]]] = {
    "streams": [*[StoreWorld._expire] * 8, *[StoreWorld._retain] * 4],
    "lists": [*[StoreWorld._run_hot] * 30, *[StoreWorld._take_snapshot] * 20],
    "expiries": [StoreWorld._run_out_of_space] * 12,
    "libraries": [
        *[StoreWorld._change_libraries] * 60,
        *[StoreWorld._take_snapshot] * 10,
        *[StoreWorld._run_out_of_space] * 5,
    ],
    "holds": [
        *[StoreWorld._change_holds] * 40,
        *[StoreWorld._take_snapshot] * 20,
        *[StoreWorld._grow] * 6,
        *[StoreWorld._erase] * 20,
    ],
}
"""Steps that are taken so much more often."""

_CRASH_CHANCES: Final[dict[Callable[[StoreWorld], None], float]] = {StoreWorld._save: 0.2, StoreWorld._erase: 0.2}
"""How likely a crash is planned for soon after a step begins, where that is more than for the others."""
