"""The life of a store whose streams cool all the time: as `store_world`, with nodes of a few entries and tiny files.

Between everything else, at random: passes look for nodes, with and without pressure; jobs are taken, run and finished,
or dropped, with transactions in between; node files that nobody needs are removed in three steps, as another thread
would; entries go from the middle, the ends and the front of cold nodes; the disk fails and fills up under all of this,
and the process dies at any operation of it. `node_checks` says what must hold.
"""

from __future__ import annotations

import errno
import gc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import Any, Final

from tests.simulation.node_checks import (
    check_counts,
    check_nothing_is_left,
    check_reads,
    check_snapshots,
    node_files_on,
    shorten_one,
    streams_of,
)
from tests.simulation.recovery import FOLDER, require
from tests.simulation.store_world import StoreWorld
from tidelog import limits
from tidelog.errors import Corruption, EnvironmentFault
from tidelog.journal.node_files import NodeFile
from tidelog.store.cooling import CoolingJob, StoreCooling
from tidelog.store.store import Store
from tidelog.store.type_table import TypeTable, value_types
from tidelog.streams.cold import OPENED
from tidelog.streams.operations import StreamNodes
from tidelog.streams.rows import unpack_id
from tidelog.streams.stream import Stream
from tidelog.testing.clock import SimulatedClock
from tidelog.testing.disk import SimulatedDisk

_NODES: Final = TypeTable(value_types()).effect_of[StreamNodes]
_OPERATIONS_OF_A_JOB: Final = 7
"""Disk operations that a job takes at most, unless writes are short."""
_PASSES_MAX: Final = 200


@contextmanager
def cooling_limits(rng: Random) -> Iterator[None]:
    """Let what takes gigabytes elsewhere happen with a few entries."""
    small = {
        "NODE_ENTRIES_MAX": rng.choice((2, 3, 5, 8)),
        "NODE_FILE_BYTES_MAX": rng.choice((1, 1, 2500, 2500, 6000, 30_000)),
        "NODE_FILE_SPARSE_PART": rng.choice((0.5, 0.5, 0.9)),
        "RECORD_NODES_MAX": rng.choice((1, 2, 512)),
        "HOT_NODES_KEPT": rng.choice((0, 1, 1, 2)),
        "COOLED_AT_ONCE_BYTES": rng.choice((1, 500, 10_000)),
        "NODES_LOOKED_AT_ONCE": rng.choice((1, 3)),
        "IDLE_SEAL_ENTRIES_MIN": rng.choice((1, 2)),
    }
    usual = {name: vars(limits)[name] for name in small}
    vars(limits).update(small)
    try:
        yield
    finally:
        vars(limits).update(usual)
        OPENED.clear()


class CoolingWorld(StoreWorld):
    """One run."""

    def __init__(self, seed: int, coverage: Counter[str] | None = None, *, tries_fates: bool = True) -> None:
        super().__init__(seed, coverage, tries_fates=tries_fates, focus="cooling")
        settings = self._scenario.settings
        retention = replace(settings.retention, snapshots_kept=self._rng.choice((1, 2, 2)))
        self._scenario = replace(self._scenario, settings=replace(settings, retention=retention))
        self._steps = [*_STEPS]
        self._steps_max = 120
        self._openings = 0

    def _forget_process(self) -> None:
        super()._forget_process()
        self._cooling_job: CoolingJob | None = None
        self._cooling_job_has_run = False
        self._pass: Iterator[None] | None = None
        self._removal: Callable[[], list[NodeFile]] | None = None
        self._removed: list[NodeFile] | None = None
        """What a removal that has run has removed."""

    @property
    def _cooling(self) -> StoreCooling:
        assert self._store.cooling is not None
        return self._store.cooling

    def run(self) -> int:
        with cooling_limits(Random(self.seed)):
            return super().run()

    # --- dying and coming back ----------------------------------------------------------------------------------

    def _draw_random(self) -> Random:
        """Names of files are never drawn twice."""
        self._openings += 1
        return Random(self.seed * 10_000 + self._openings)

    def _recover(self, disk: SimulatedDisk, clock: SimulatedClock, promised: int) -> tuple[Store, int]:
        referred = check_snapshots(disk, _NODES)
        if referred and disk is not self._disk and self._rng.random() < 0.1:
            self._check_refused(disk.clone(self._rng.getrandbits(60)), SimulatedClock(clock.wall_us()))
        OPENED.clear()
        store, count = super()._recover(disk, clock, promised)
        OPENED.clear()
        self.coverage["cold_from_snapshot"] += referred > 0
        check_counts(store, (), ())
        return store, count

    def _check_refused(self, disk: SimulatedDisk, clock: SimulatedClock) -> None:
        shortened = shorten_one(disk, self._rng)
        if shortened is None:
            return
        snapshot, path = shortened
        try:
            Store.open(disk, FOLDER, clock, self._scenario.settings, lambda: 1 << 40, Random(0))
        except Corruption as error:
            require(path.rpartition("/")[2] in str(error), "the error does not name", path, "but says", error)
            require(f"{snapshot} needs" in str(error), "the error does not say who needs", path, "but", error)
            self.coverage["short_file_refused"] += 1
        else:
            require(False, "a start accepts that", path, "is too short or missing")

    # --- checks while it lives ----------------------------------------------------------------------------------

    def _check_live(self) -> None:
        if self._rng.random() < 0.7:
            OPENED.clear()  # everything is read from disk
        super()._check_live()
        for number, key, stream in streams_of(self._store):
            (_, plain), _ = self._model.state[number, key]
            check_reads(self._rng, stream, plain)
            self.coverage["cold"] += any(node.is_cold for node in stream.sealed)
            self.coverage["cold_with_holes"] += any(node.is_cold and node.offsets for node in stream.sealed)
            self.coverage["cold_part"] += any(node.is_cold and not node.is_whole for node in stream.sealed)
        self._check_counts()
        if self._rng.random() < 0.2:
            check_snapshots(self._disk, _NODES)

    def _check_counts(self) -> None:
        OPENED.clear()
        if self._capture is None and self._pass is None:  # otherwise what is gone may have places too
            job = self._cooling_job
            check_counts(self._store, job.nodes if job else (), job.places if job else ())

    # --- steps: cooling -----------------------------------------------------------------------------------------

    def _cool(self) -> None:
        """One of the three steps of a job."""
        rng, cooling = self._rng, self._cooling
        if self._cooling_job is None:
            self._cooling_job = cooling.take()
            self._cooling_job_has_run = False
        elif not self._cooling_job_has_run:
            self._run_job(self._cooling_job)
            if rng.random() < 0.3:
                self._explore(1)
        elif rng.random() < 0.01:
            for node in self._cooling_job.nodes:
                node.is_in_line = False
            self._cooling_job = None  # what was written of them is needed by nobody
            self.coverage["job_dropped"] += 1
        else:
            self._finish_job(self._cooling_job)

    def _run_job(self, job: CoolingJob) -> None:
        if self._rng.random() < 0.02:
            self._disk.crash_after(self._rng.randint(1, _OPERATIONS_OF_A_JOB))
        elif self._rng.random() < 0.06:
            self._plan_fault_of("/nodes-", self._rng.choice(("write", "write", "sync", "create", "truncate")), 1)
        job.run()
        self._cooling_job_has_run = True
        if job.error is not None:
            self._require_fault()
            self.coverage["cooling_failed"] += 1

    def _finish_job(self, job: CoolingJob) -> None:
        again = sum(node.is_cold for node in job.nodes)
        self._cooling.finish(job, stay_open=len(job.nodes) % 2 == 0)  # not drawn: seeds mean what they meant
        self._cooling_job = None
        if job.error is None:
            self.coverage["cooled"] += 1
            self.coverage["cooled_again"] += again > 0

    def _cool_some(self) -> None:
        """Several jobs, with nothing in between."""
        for _ in range(self._rng.randint(3, 12)):
            self._cool()

    def _look(self) -> None:
        """Some steps of a pass."""
        rng = self._rng
        if self._pass is None:
            self._pass = self._cooling.look(is_pressed=rng.random() < 0.4)
        for _ in range(rng.choice((1, 5, 50, 100_000, 100_000))):
            if next(self._pass, self) is self:
                self._pass = None
                return

    # --- steps: entries and files go ----------------------------------------------------------------------------

    def _delete_entries(self) -> None:
        """From the edges and the middle of nodes, cold or not."""
        streams = [each for each in streams_of(self._store) if each[2].length]
        if not streams or self._store.refusal is not None:
            return
        number, key, stream = self._rng.choice(streams)
        _, plain = self._model.state[number, key][0]
        words = self._deletion(key, stream, {offset: entry[0] for offset, entry in plain.entries.items()})
        self._transact_in(number, [words])
        self.coverage["entries_deleted"] += 1

    def _deletion(self, key: bytes, stream: Stream, ids: dict[int, int]) -> list[bytes]:
        rng = self._rng
        nodes = list(stream.nodes())
        node = nodes[0] if rng.random() < 0.4 else rng.choice(nodes)
        offsets = [offset for offset in ids if node.first_offset <= offset <= node.last_offset]
        kind = rng.random()
        if kind < 0.6:
            gone = rng.choice((offsets[:1], offsets[-1:], offsets[-2:], offsets[1:-1][:1], rng.sample(offsets, 1)))
            gone = gone or offsets
            return [b"XDEL", key, *(b"%d-%d" % unpack_id(ids[offset]) for offset in gone)]
        if kind < 0.85:
            return [b"XTRIM", key, b"MINID", b"%d-%d" % unpack_id(ids[rng.choice(offsets)])]
        return [b"TEVICT", key, b"%d" % rng.choice((node.first_offset, rng.choice(offsets), -2))]

    def _transact_in(self, number: int, commands: list[list[bytes]]) -> None:
        load: Any = self._load
        load.database = lambda: number
        try:
            self._transact(commands)
        finally:
            del load.database

    def _remove_files(self) -> None:
        """One of the three steps of a removal."""
        if self._removal is None:
            self._removal = self._cooling.begin_removal()
        elif self._removed is None:
            if self._rng.random() < 0.1:
                self._disk.crash_after(self._rng.randint(1, 4))
            try:
                self._removed = self._removal()
            except (OSError, EnvironmentFault):
                self._require_fault()
                self._removed = []
            self.coverage["node_files_removed"] += len(self._removed) > 0
            if self._rng.random() < 0.3:
                self._explore(1)
        else:
            self._cooling.end_removal(self._removed)
            self._removal = self._removed = None

    def _drop_stream(self) -> None:
        """All that some files were for goes, perhaps with a snapshot after it; then the files may."""
        streams = [(number, key) for number, key, stream in streams_of(self._store) if stream.disk_bytes]
        if not streams or self._store.refusal is not None:
            return
        number, key = self._rng.choice(streams)
        if self._rng.random() < 0.3:
            self._drop_in_vain(number, key)
        else:
            self._delete_key(number, key)
            for _ in range(self._rng.choice((0, 1, 1, 2))):
                self._save()
            for _ in range(self._rng.choice((0, 6, 6))):
                self._remove_files()
        check_snapshots(self._disk, _NODES)
        self._explore(2)
        self.coverage["stream_dropped"] += 1
        if self._rng.random() < 0.15:
            self._settle()

    def _delete_key(self, number: int, key: bytes) -> None:
        self._transact_in(number, [[b"DEL", key]])
        OPENED.clear()

    def _drop_in_vain(self, number: int, key: bytes) -> None:
        """The snapshot that lists its files is removed, and a power cut brings that back: the fsync has failed."""
        journal = self._store.journal
        kept = journal.retention
        self._give_up()
        journal.retention = replace(kept, snapshots_kept=2)
        self._save()
        if self._store.refusal is None and not journal.writer.has_failed:
            self._delete_key(number, key)
            self._save()
        journal.retention = replace(kept, snapshots_kept=1)
        self._disk.fail("sync_folder", errno.EIO, path_contains="/snapshots")
        try:
            journal.remove_old_snapshots()
        except (OSError, EnvironmentFault):
            self.coverage["snapshot_not_durably_gone"] += 1
        journal.retention = kept
        for _ in range(6):
            self._remove_files()

    def _settle(self) -> None:
        """Enough snapshots of the same state: only what streams need is left."""
        journal = self._store.journal
        self._finish_sync()  # first: what has failed had a fault, which is forgotten then
        if journal.writer.has_failed or journal.hlc.has_failed:
            return
        self._calm(self._disk)
        self._give_up()
        self._write()
        self._pass = None
        for _ in range(_PASSES_MAX):
            if self._cooling_job is None and not self._cooling.waiting_count:
                break
            self._cool()
        if self._store.refusal is not None:
            return
        for _ in range(journal.retention.snapshots_kept + 1):
            self._transact([[b"INCR", b"settled"], [b"DEL", b"settled"], [b"SET", b"settled", b"1"]])
            self._save()
        OPENED.clear()
        gc.collect()  # the error of a job that failed keeps its nodes, by the frames that it went through
        for _ in range(6):
            self._remove_files()
        self._check_counts()
        check_nothing_is_left(self._disk, self._store)
        self.coverage["settled"] += 1
        self.coverage["settled_with_files"] += bool(node_files_on(self._disk, self._scenario.shard_count))

    # --- steps: the disk and snapshots --------------------------------------------------------------------------

    def _plan_fault(self) -> None:
        if self._rng.random() < 0.4:
            super()._plan_fault()
            return
        where, operation = self._rng.choice(
            (
                *[("/nodes-", "write"), ("/nodes-", "sync"), ("/nodes-", "create"), ("/nodes-", "truncate")],
                *[("/nodes-", "remove"), (f"{FOLDER}/shard-", "sync_folder"), ("/snapshots", "sync_folder")],
            )
        )
        self._plan_fault_of(where, operation, self._rng.randint(1, 3))

    def _plan_fault_of(self, where: str, operation: Any, after: int) -> None:
        error = self._rng.choice((errno.EIO, errno.ENOSPC))
        if where != "/nodes-":
            error = errno.EIO  # the journal is there too, and full only when the disk is
        self._disk.fail(operation, error, after=after, path_contains=where)

    def _take_snapshot(self) -> None:
        capture = self._capture
        if capture is not None and capture.is_done and self._store.is_capturing:
            self._store.end_capture()  # as a server does: its journal is made durable meanwhile
            return
        super()._take_snapshot()
        if capture is not None and self._capture is None:
            capture.snapshot.release()
            self.coverage["cold_in_snapshot"] += bool(capture.snapshot.point.node_files)

    def _give_up(self) -> None:
        capture = self._capture
        super()._give_up()
        if capture is not None:
            capture.snapshot.discard()
            capture.snapshot.release()


_STEPS: Final[list[Callable[[Any], None]]] = [
    step
    for step, weight in (
        (StoreWorld._run_commands, 40),
        (StoreWorld._write, 10),
        (StoreWorld._sync, 16),
        (StoreWorld._take_snapshot, 30),
        (StoreWorld._save, 6),
        (StoreWorld._expire, 3),
        (StoreWorld._retain, 4),
        (StoreWorld._pass_time, 3),
        (StoreWorld._erase, 2),
        (StoreWorld._run_out_of_space, 4),
        (StoreWorld._plan_fault, 4),
        (CoolingWorld._cool, 30),
        (CoolingWorld._cool_some, 20),
        (CoolingWorld._look, 16),
        (CoolingWorld._delete_entries, 20),
        (CoolingWorld._remove_files, 24),
        (CoolingWorld._drop_stream, 8),
        (CoolingWorld._settle, 3),
    )
    for _ in range(weight)
]
